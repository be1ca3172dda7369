// Recognition that follows the writing: one reading at a time, the next as soon as there is new ink;
// tries again when the server was away.

import { ServerError } from "./client.js";
import { follow, recognize, recognizePage } from "./engine.js";

const SLOW_MS = 12_000; // without a word from the server
const RETRY_MS = [1000, 2000, 4000, 8000, 15000];

async function* answers(question, signal) {
  if (question.page || question.framed) yield { event: "result", data: await recognizePage(question, signal) };
  else if (question.live) yield { event: "result", data: await follow(question, signal) };
  else yield* recognize(question, signal);
}

export class Reader extends EventTarget {
  #ask; // () => what to ask now, or null
  #timer = 0;
  #abort = null;
  #failed = 0;
  question = null; // that is being answered
  idle = true; // nothing is left to read

  constructor(ask) {
    super();
    this.#ask = ask;
    addEventListener("online", () => this.#failed && this.wake());
  }

  /** There may be something to read. What is under way is finished first. */
  wake(pause = 0) {
    this.idle = false;
    if (this.question) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#run(), pause);
  }

  /** Give up what is under way. */
  stop() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.question = this.#abort = null;
    this.#failed = 0;
  }

  async #run() {
    const question = this.#ask();
    if (!question) {
      this.idle = true;
      return this.#emit("idle");
    }
    if (question.rest > 0) return this.wake(question.rest);
    this.question = question;
    const abort = (this.#abort = new AbortController());
    this.#emit("begin", question);
    const wait = () => setTimeout(() => abort.signal.aborted || this.#emit("slow"), SLOW_MS);
    let slow = wait();
    const steps = [];
    try {
      for await (const { event, data } of answers(question, abort.signal)) {
        if (abort.signal.aborted) return;
        clearTimeout(slow);
        slow = wait();
        if (event === "step") steps.push(data);
        else this.question = null; // what is done about the answer may ask for more
        this.#emit(event, { question, data, steps });
      }
      this.#failed = 0;
      this.wake();
    } catch (error) {
      if (!abort.signal.aborted) this.#fail(question, error);
    } finally {
      clearTimeout(slow);
    }
  }

  #fail(question, error) {
    if (!(error instanceof ServerError)) console.error(error);
    this.question = null;
    let wait = null;
    if (error.passing) {
      const backoff = RETRY_MS[Math.min(this.#failed, RETRY_MS.length - 1)];
      wait = error.retryAfter ? 1000 * error.retryAfter : backoff;
      this.#failed++;
      this.wake(wait);
    }
    this.#emit("failure", { question, error, wait });
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
