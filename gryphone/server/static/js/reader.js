// Recognition that follows the writing: waits for a pause, gives up what is out of date, tries
// again when the server was away.

import { ServerError } from "./client.js";
import { recognize } from "./engine.js";

const PAUSE_MS = 380; // after the pen was lifted
const SLOW_MS = 12_000; // without a word from the server
const RETRY_MS = [1000, 2000, 4000, 8000, 15000];

export class Reader extends EventTarget {
  #ask; // () => what to ask now, or null
  #timer = 0;
  #abort = null;
  #failed = 0;

  constructor(ask) {
    super();
    this.#ask = ask;
    addEventListener("online", () => this.#failed && this.read(0));
  }

  /** Read after a pause; whatever is under way is out of date. */
  read(pause = PAUSE_MS) {
    this.stop();
    this.#failed = 0;
    this.#timer = setTimeout(() => this.#run(), pause);
  }

  stop() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
  }

  async #run() {
    const question = this.#ask();
    if (!question) return;
    const abort = (this.#abort = new AbortController());
    this.#emit("begin", question);
    const wait = () => setTimeout(() => abort.signal.aborted || this.#emit("slow"), SLOW_MS);
    let slow = wait();
    const steps = [];
    try {
      for await (const { event, data } of recognize(question, abort.signal)) {
        if (abort.signal.aborted) return;
        clearTimeout(slow);
        slow = wait();
        if (event === "step") steps.push(data);
        this.#emit(event, { question, data, steps });
      }
      this.#failed = 0;
    } catch (error) {
      if (!abort.signal.aborted) this.#fail(error);
    } finally {
      clearTimeout(slow);
      if (this.#abort === abort) this.#abort = null;
    }
  }

  #fail(error) {
    if (!(error instanceof ServerError)) console.error(error);
    let wait = null;
    if (error.passing) {
      const backoff = RETRY_MS[Math.min(this.#failed, RETRY_MS.length - 1)];
      wait = error.retryAfter ? 1000 * error.retryAfter : backoff;
      this.#failed++;
      this.#timer = setTimeout(() => this.#run(), wait);
    }
    this.#emit("failure", { error, wait });
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
