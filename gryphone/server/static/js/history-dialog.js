// The list of what was written, and the way back to it.

import { $, h } from "./dom.js";
import { icon, typeset } from "./formula.js";

const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export class HistoryDialog {
  #history;
  #onOpen;
  #dialog = $("history");

  constructor(history, onOpen) {
    this.#history = history;
    this.#onOpen = onOpen;
    $("history-open").addEventListener("click", () => this.open());
    $("history-clear").addEventListener("click", () => {
      const gone = history.entries;
      history.clear();
      this.#fill();
      const cleared = this.#removed("History cleared.", gone);
      $("history-list").replaceChildren(cleared);
      cleared.querySelector("button").focus();
    });
    // A click beside the panel closes it.
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
  }

  open() {
    this.#fill();
    this.#dialog.showModal();
  }

  #fill() {
    const { entries } = this.#history;
    $("history-clear").hidden = entries.length === 0;
    $("history-list").replaceChildren(
      ...(entries.length
        ? entries.map((entry) => this.#item(entry))
        : [h("li", { class: "hint" }, "Nothing yet.")]),
    );
  }

  #item(entry) {
    const math = h("span", { class: "past", "aria-hidden": "true" });
    typeset(math, entry.latex);
    const open = () => {
      this.#dialog.close();
      this.#onOpen(entry);
    };
    // The next entry must not come under the pointer: a double click would take it too.
    const remove = () => {
      this.#history.remove(entry.id);
      const row = this.#removed("Removed.", [entry]);
      item.replaceWith(row);
      row.querySelector("button").focus();
    };
    const drop = h(
      "button",
      { type: "button", class: "quiet icon-only", "aria-label": `Remove ${entry.latex}`, onclick: remove },
      icon("close"),
    );
    const item = h(
      "li",
      {},
      h(
        "button",
        { type: "button", class: "again", "aria-label": `Open ${entry.latex}`, onclick: open },
        math,
        h("time", {}, when.format(entry.time)),
      ),
      drop,
    );
    return item;
  }

  /** A line in the place of entries that are gone, with the way back. */
  #removed(text, entries) {
    const back = () => {
      this.#history.restore(entries);
      this.#fill();
      $("history-list").querySelector("button")?.focus();
    };
    return h("li", { class: "hint" }, `${text} `, h("button", { type: "button", onclick: back }, "Undo"));
  }
}
