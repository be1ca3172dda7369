// Who reads: the server that the page came from, or an engine in this browser. Both are asked alike.

import * as server from "./client.js";

const ISOLATING = "gryphone.isolating";

export const isLocal = document.documentElement.dataset.engine === "local";

// Not before it is needed: a served page has no such file.
const engine = isLocal ? import("../../engine/engine.js") : null;

let kept = null; // what is loaded passes the service worker, which keeps it

const local = {
  async model(onProgress) {
    await kept;
    return (await engine).load({ onProgress });
  },

  async convert(latex, format) {
    await kept;
    return (await engine).convert(latex, format);
  },

  async *recognize({ strokes, file, options }, signal) {
    await kept;
    const { recognize, EngineError } = await engine;
    const steps = [];
    let wake = () => {};
    const onStep = (step) => {
      steps.push(step);
      wake();
    };
    let outcome = null;
    recognize(file ?? strokes, { ...options, onStep, signal }).then(
      (data) => wake((outcome = { data })),
      (error) => wake((outcome = { error })),
    );
    while (!outcome || steps.length) {
      if (steps.length) yield { event: "step", data: steps.shift() };
      else await new Promise((resolve) => (wake = resolve));
    }
    const { data, error } = outcome;
    if (error instanceof EngineError) throw new server.ServerError(error.message, { status: 400 });
    if (error) throw error;
    yield { event: "result", data };
  },
};

export const { model, recognize, convert, compute } = isLocal ? local : server;

/** Keep the page for when there is no network; `tell` is called with what there is to say. */
export function keepOffline(tell) {
  if (isLocal && navigator.serviceWorker) kept = register(tell).catch(console.error);
}

async function register(tell) {
  const { serviceWorker } = navigator;
  const wasControlled = Boolean(serviceWorker.controller);
  const found = await serviceWorker.register("sw.js");
  const offer = (worker) => tell("update", () => worker.postMessage("use"));
  if (found.waiting && wasControlled) offer(found.waiting);
  found.addEventListener("updatefound", () => {
    const worker = found.installing;
    worker.addEventListener("statechange", () => {
      if (worker.state === "installed" && serviceWorker.controller) offer(worker);
    });
  });
  serviceWorker.addEventListener("message", ({ data }) => data.complete && tell("complete"));
  serviceWorker.addEventListener("controllerchange", () => wasControlled && location.reload());
  if (!wasControlled) {
    await new Promise((resolve) => {
      serviceWorker.addEventListener("controllerchange", resolve, { once: true });
      if (serviceWorker.controller) resolve();
    });
    // Served by it, the page may use threads; once, lest a browser that never isolates turns round.
    if (!crossOriginIsolated && !sessionStorage.getItem(ISOLATING)) {
      sessionStorage.setItem(ISOLATING, "1");
      location.reload();
      await new Promise(() => {});
    }
  }
}

/** Fetch what the page has not needed yet, so that nothing is missing offline. */
export const completeOffline = () => navigator.serviceWorker?.controller?.postMessage("complete");
