// Shows refinement steps at a pace the eye can follow, and never makes the answer wait for long.

const TOTAL_MS = 520; // how long all steps of one reading take to show
const SLOW_MS = 2200; // the same for a replay
const SLOWEST_MS = 700; // for one step of it

export class Player {
  #queue = [];
  #timer = 0;
  #onStep;
  #onResult;
  #pace = 0;
  #last = 0;

  constructor(onStep, onResult) {
    this.#onStep = onStep;
    this.#onResult = onResult;
  }

  get #still() {
    return matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  step(step, slow = false) {
    if (this.#still && !slow) return;
    const all = slow ? SLOW_MS / Math.min(step.total, 20) : TOTAL_MS / step.total;
    this.#pace = Math.min(slow ? SLOWEST_MS : 70, all);
    this.#push({ step });
  }

  result(result) {
    this.#push({ result });
  }

  replay(result) {
    this.stop();
    for (const step of result.steps) this.step(step, true);
    this.result(result);
  }

  /** Show the answer now if it has come; whether it had. */
  finish() {
    const result = this.#queue.find((item) => item.result)?.result;
    this.stop();
    if (result) this.#onResult(result);
    return result !== undefined;
  }

  stop() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#queue = [];
  }

  #push(item) {
    this.#queue.push(item);
    this.#timer ||= setTimeout(() => this.#play(), Math.max(0, this.#last + this.#pace - performance.now()));
  }

  #play() {
    this.#timer = 0;
    const item = this.#queue.shift();
    if (!item) return;
    this.#last = performance.now();
    if (this.#queue.length) this.#timer = setTimeout(() => this.#play(), this.#pace);
    if (item.step) this.#onStep(item.step);
    else this.#onResult(item.result);
  }
}
