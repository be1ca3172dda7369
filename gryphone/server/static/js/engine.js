// Who reads: the server that the page came from, or an engine in this browser. Both are asked alike.

import * as server from "./client.js";

export const isLocal = document.documentElement.dataset.engine === "local";

// Not before it is needed: a served page has no such file.
const engine = isLocal ? import("../../engine/engine.js") : null;

/** An engine's error as the page knows them. */
async function told(error) {
  const { EngineError } = await engine;
  throw error instanceof EngineError ? new server.ServerError(error.message, { status: 400 }) : error;
}

const local = {
  async model(onProgress) {
    return (await engine).load({ onProgress });
  },

  async convert(latex, format) {
    return (await engine).convert(latex, format).catch(told);
  },

  async recognizePage({ strokes, file, options }, signal) {
    const { recognizePage } = await engine;
    return recognizePage(file ?? strokes, { ...options, signal }).catch(told);
  },

  async follow({ strokes, options, live }, signal) {
    const { follow } = await engine;
    return follow(strokes, { ...options, ...live, signal }).catch(told);
  },

  async *recognize({ strokes, file, options }, signal) {
    const { recognize } = await engine;
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
    if (error) await told(error);
    yield { event: "result", data };
  },
};

export const { model, recognize, recognizePage, follow, convert, compute } = isLocal ? local : server;

/** Keep the page for when there is no network; `tell` is called with what there is to say. */
export function keepOffline(tell) {
  if (isLocal && navigator.serviceWorker) register(tell).catch(console.error);
}

async function register(tell) {
  const { serviceWorker } = navigator;
  const wasControlled = Boolean(serviceWorker.controller);
  const found = await serviceWorker.register("sw.js");
  const offer = () => wasControlled && found.waiting && tell("update", use);
  const watch = () => found.installing?.addEventListener("statechange", offer);
  offer();
  watch(); // it may have begun before this page knew
  found.addEventListener("updatefound", watch);
  serviceWorker.addEventListener("message", ({ data }) => data.complete && tell("complete"));
  serviceWorker.addEventListener("controllerchange", () => wasControlled && location.reload());
}

/** Change to the version that waits; isolate.js does, before the page asks the old one for anything. */
function use() {
  sessionStorage.setItem("gryphone.updating", "1");
  location.reload();
}

/** Fetch what the page has not needed yet, so that nothing is missing offline. */
export const completeOffline = () => navigator.serviceWorker?.controller?.postMessage("complete");
