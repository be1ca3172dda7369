// What was written, kept in this browser only: newest first, with a limit, until it is cleared.

const KEY = "gryphone.history";
const MOST = 40;
const MOST_CHARACTERS = 2_000_000; // browsers give an origin about five million

export class History {
  #entries;

  constructor() {
    this.#load();
    // Another tab has written or cleared it.
    addEventListener("storage", ({ key }) => (key === KEY || key === null) && this.#load());
  }

  get entries() {
    return this.#entries;
  }

  /** Keep or renew one writing: { id, time, latex, pen, strokes, locks }. */
  keep(entry) {
    const ink = JSON.stringify(entry.strokes);
    // The same ink, opened again or in another tab, keeps its name: what becomes of it is a new entry.
    const same = this.#entries.find(({ strokes }) => JSON.stringify(strokes) === ink);
    const others = this.#entries.filter((other) => other !== same && other.id !== entry.id);
    this.#entries = [{ ...entry, id: same?.id ?? entry.id }, ...others].slice(0, MOST);
    this.#save();
  }

  remove(id) {
    this.#entries = this.#entries.filter((entry) => entry.id !== id);
    this.#save();
  }

  clear() {
    this.#entries = [];
    this.#save();
  }

  /** Take back what was removed. */
  restore(entries) {
    const others = this.#entries.filter(({ id }) => !entries.some((entry) => entry.id === id));
    this.#entries = [...others, ...entries].sort((a, b) => b.time - a.time).slice(0, MOST);
    this.#save();
  }

  #load() {
    try {
      this.#entries = JSON.parse(localStorage.getItem(KEY)) ?? [];
    } catch {
      this.#entries = [];
    }
  }

  #save() {
    let text = JSON.stringify(this.#entries);
    while (text.length > MOST_CHARACTERS && this.#entries.length > 1) {
      this.#entries.pop();
      text = JSON.stringify(this.#entries);
    }
    try {
      localStorage.setItem(KEY, text);
    } catch {
      // No room, or storage is off: the list lives as long as the page.
    }
  }
}
