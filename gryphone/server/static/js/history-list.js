// What was written, as a list: each row opens, copies or removes it.

import { h } from "./dom.js";
import { icon, typeset } from "./formula.js";
import { thumbnail } from "./pen.js";

const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Fills `list` with the newest entries. `on`: { open, copy, remove }, the last if rows have that. */
export class HistoryList {
  #list;
  #on;
  #most;
  #rows = new WeakMap(); // entry -> its row: most stay as they are

  constructor(list, on, most = Infinity) {
    this.#list = list;
    this.#on = on;
    this.#most = most;
  }

  fill(entries) {
    const row = (entry) => this.#rows.get(entry) ?? this.#row(entry);
    const rows = entries.slice(0, this.#most).map(row);
    this.#list.replaceChildren(...(rows.length ? rows : [h("li", { class: "hint" }, "Nothing yet.")]));
  }

  #row(entry) {
    const { open, copy, remove } = this.#on;
    const math = h("span", { class: "past", "aria-hidden": "true" });
    typeset(math, entry.latex);
    const small = (name, what, run) =>
      h(
        "button",
        { type: "button", class: "quiet icon-only", "aria-label": `${what} ${entry.latex}`, title: what, onclick: run },
        icon(name),
      );
    const row = h(
      "li",
      {},
      h(
        "button",
        { type: "button", class: "again", "aria-label": `Open ${entry.latex}`, onclick: () => open(entry) },
        thumbnail(entry.strokes),
        h("span", { class: "what" }, math, h("time", {}, when.format(entry.time))),
      ),
      small("copy", "Copy", () => copy(entry.latex)),
      remove ? small("close", "Remove", () => remove(entry, row)) : null,
    );
    this.#rows.set(entry, row);
    return row;
  }
}
