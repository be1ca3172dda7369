// GryphOne in the browser: handwritten formulas to LaTeX, computed here. See engine.d.ts.

export class EngineError extends Error {}

let worker = null;
let loading = null; // a promise of what the engine says of itself
let asked = 0;
const waiting = new Map(); // number of a question -> { resolve, reject, onStep }
const watching = new Set();

/** Load the engine; a second call waits for the same one. */
export function load({ onProgress } = {}) {
  if (onProgress) watching.add(onProgress);
  return (loading ??= new Promise((resolve, reject) => {
    worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    const fail = (message) => {
      loading = null;
      worker.terminate();
      reject(new EngineError(message));
    };
    worker.onerror = (event) => fail(event.message || "The engine could not be loaded.");
    worker.onmessage = ({ data }) => {
      if (data.progress !== undefined) for (const tell of watching) tell(data.progress);
      else if (data.about) resolve(data.about);
      else if (data.broken) fail(data.broken);
      else settle(data);
    };
  }));
}

function settle({ id, step, answer }) {
  const { resolve, reject, onStep } = waiting.get(id) ?? {};
  if (!resolve) return; // nobody waits any more
  if (step) {
    onStep?.(step);
    return;
  }
  waiting.delete(id);
  if (answer.error) reject(new EngineError(answer.error.message));
  else resolve(answer);
}

/** Read strokes, [[[x, y], ...], ...], or a File: a photo, InkML or strokes as JSON. */
export async function recognize(source, { onStep, signal, ...options } = {}) {
  await load();
  signal?.throwIfAborted();
  const id = ++asked;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, onStep });
    signal?.addEventListener("abort", () => waiting.delete(id) && reject(signal.reason));
    const given = source instanceof Blob ? { file: source } : { strokes: source };
    worker.postMessage({ id, ...given, options });
  });
}
