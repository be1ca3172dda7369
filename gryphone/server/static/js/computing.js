// What the formula comes to, if that is switched on. What was read stays as it is, right or wrong.

import { $, h } from "./dom.js";
import { compute } from "./engine.js";
import { typeset } from "./formula.js";

const PAUSE = 400; // ms that an answer must stand

function math(latex) {
  const element = h("span");
  typeset(element, latex);
  return element;
}

/** Rows [name, text or elements] of an answer. */
function rows({ simplified, value, holds, solutions, steps }) {
  if (steps.length) return steps.map((step, i) => [`${i + 1} → ${i + 2}`, step]);
  const found = Object.entries(solutions).map(([letter, roots]) => [
    letter,
    roots.length ? roots.flatMap((root, i) => (i ? [", ", math(root)] : [math(root)])) : "no solution found",
  ]);
  if (holds !== null) return [["It is", holds ? "true, whatever the letters" : "not true, whatever the letters"]];
  return [["Simplified", math(simplified)], ...(value === null ? [] : [["Value", value]]), ...found];
}

export class Computing {
  #lines = [];
  #timer = 0;
  #abort = null;

  constructor() {
    $("compute").addEventListener("change", () => this.#begin());
  }

  /** Whether there is anybody who computes. */
  offer(there) {
    $("computing").hidden = !there;
  }

  /** These lines of LaTeX are what is read; none while nothing is. */
  show(lines) {
    if (lines.join("\n") === this.#lines.join("\n")) return;
    this.#lines = lines;
    this.#begin();
  }

  #begin() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    $("computed").replaceChildren();
    if ($("compute").checked && this.#lines.length) this.#timer = setTimeout(() => this.#ask(), PAUSE);
  }

  async #ask() {
    const { signal } = (this.#abort = new AbortController());
    try {
      const found = rows(await compute(this.#lines, signal));
      if (signal.aborted) return;
      const list = found.map(([name, value]) => [h("dt", {}, name), h("dd", {}, ...[value].flat())]);
      $("computed").replaceChildren(h("dl", {}, ...list.flat()));
    } catch (error) {
      if (!signal.aborted) $("computed").replaceChildren(h("p", { class: "hint" }, error.message));
    }
  }
}
