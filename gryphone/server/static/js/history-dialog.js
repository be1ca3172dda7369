// The history: all of it in a dialog, the newest beside the paper where there is room.

import { $, h } from "./dom.js";
import { HistoryList } from "./history-list.js";

const BESIDE = 12; // entries beside the paper

export class HistoryDialog {
  #history;
  #dialog = $("history");
  #list;

  /** `open` an entry, `copy` some LaTeX. */
  constructor(history, { open, copy }) {
    this.#history = history;
    const leave = (entry) => {
      this.#dialog.close();
      open(entry);
    };
    this.#list = new HistoryList($("history-list"), {
      open: leave,
      copy,
      remove: (entry, row) => this.#remove(entry, row),
    });
    $("history-open").addEventListener("click", () => this.open());
    $("history-clear").addEventListener("click", () => this.#clear());
    // A click beside the panel closes it.
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    const beside = new HistoryList($("recent"), { open, copy }, BESIDE);
    beside.fill(history.entries);
    history.addEventListener("change", () => beside.fill(history.entries));
  }

  open() {
    this.#fill();
    this.#dialog.showModal();
  }

  #fill() {
    const { entries } = this.#history;
    $("history-clear").hidden = entries.length === 0;
    this.#list.fill(entries);
  }

  #clear() {
    const gone = this.#history.entries;
    this.#history.clear();
    this.#fill();
    const cleared = this.#removed("History cleared.", gone);
    $("history-list").replaceChildren(cleared);
    cleared.querySelector("button").focus();
  }

  /** The next entry must not come under the pointer: a double click would take it too. */
  #remove(entry, row) {
    this.#history.remove(entry.id);
    const gone = this.#removed("Removed.", [entry]);
    row.replaceWith(gone);
    gone.querySelector("button").focus();
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
