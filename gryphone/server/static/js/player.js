// Shows refinement steps at a pace the eye can follow, and never makes the answer wait for long.

const PACES = { live: 150, once: 520, slow: 2200 }; // ms that all steps of one reading take to show
const SLOWEST = { live: 120, once: 70, slow: 700 }; // and one of them, at most

export class Player {
  #queue = [];
  #timer = 0;
  #onStep;
  #onEnd;
  #pace = 0;
  #last = 0;

  constructor(onStep, onEnd) {
    this.#onStep = onStep;
    this.#onEnd = onEnd;
  }

  get busy() {
    return this.#queue.length > 0;
  }

  /** Show a step; `pace`: "live" while one writes, "once", or "slow" to look at. */
  step(step, pace) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches && pace !== "slow") return;
    this.#pace = Math.min(SLOWEST[pace], PACES[pace] / (pace === "slow" ? Math.min(step.total, 20) : step.total));
    this.#push(step);
  }

  /** All steps of a reading are there. */
  end() {
    this.#push(null);
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
    this.#last = performance.now();
    if (this.#queue.length) this.#timer = setTimeout(() => this.#play(), this.#pace);
    if (item) this.#onStep(item);
    else this.#onEnd();
  }
}
