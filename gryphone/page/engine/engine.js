// GryphOne in the browser: handwritten formulas to LaTeX, computed here. See engine.d.ts.

export class EngineError extends Error {}

let worker = null;
let loading = null; // a promise of what the engine says of itself
let last = Promise.resolve(); // the question before: one is answered after the other
let asked = 0;
const waiting = new Map(); // number of a question -> { resolve, reject, onStep }
const watching = new Set();
// The number of a question to stop; where memory cannot be shared, it is answered to the end.
const stop = globalThis.crossOriginIsolated ? new Int32Array(new SharedArrayBuffer(4)) : null;

/** Load the engine; a second call waits for the same one. */
export function load({ onProgress } = {}) {
  if (onProgress) watching.add(onProgress);
  return (loading ??= new Promise((resolve, reject) => {
    worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    const fail = (message) => {
      loading = null;
      worker.terminate();
      const error = new EngineError(message || "The engine could not be loaded.");
      for (const question of waiting.values()) question.reject(error);
      waiting.clear();
      reject(error);
    };
    worker.onerror = (event) => fail(event.message);
    worker.onmessage = ({ data }) => {
      if (data.progress !== undefined) for (const tell of watching) tell(data.progress);
      else if (data.about) resolve(data.about);
      else if (data.broken !== undefined) fail(data.broken);
      else if (data.step) waiting.get(data.id)?.onStep(data.step);
      else settle(data);
    };
  }));
}

function settle({ id, answer }) {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (answer.error) reject(new EngineError(answer.error.message));
  else resolve(answer);
}

/** LaTeX in another notation: one of `targets` of what the engine says of itself. */
export async function convert(latex, format) {
  await load();
  const id = ++asked;
  const { text } = await new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, latex, format });
  });
  return text;
}

/** Follow ink that is being written: its strokes, and what was known of them before. */
export const follow = (strokes, { known = [], gestures = true, final = false, ...options } = {}) =>
  recognize(strokes, { ...options, live: { known, gestures, final } });

/** Find and read all formulas of a page: strokes or a File. */
export const recognizePage = (source, options) => recognize(source, { ...options, page: true });

/** Read strokes, [[[x, y], ...], ...], or a File: a photo, InkML or strokes as JSON. */
export async function recognize(source, { onStep, signal, ...options } = {}) {
  await load();
  signal?.throwIfAborted();
  const answered = last.then(() => signal?.aborted || ask(source, options, onStep, signal));
  last = answered.catch(() => {});
  if (!signal) return answered;
  const aborted = new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  return Promise.race([answered, aborted]);
}

function ask(source, options, onStep, signal) {
  const id = ++asked;
  if (stop) signal?.addEventListener("abort", () => Atomics.store(stop, 0, id), { once: true });
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, onStep: (step) => signal?.aborted || onStep?.(step) });
    const given = source instanceof Blob ? { file: source } : { strokes: source };
    worker.postMessage({ id, ...given, options, stop });
  });
}
