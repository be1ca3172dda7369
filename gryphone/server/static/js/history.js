// What was written, kept in this browser only: newest first, with a limit, until it is cleared.

const KEY = "gryphone.history";
const MOST = 40;
const MOST_CHARACTERS = 2_000_000; // browsers give an origin about five million

export class History {
  #entries;

  constructor() {
    try {
      this.#entries = JSON.parse(localStorage.getItem(KEY)) ?? [];
    } catch {
      this.#entries = [];
    }
  }

  get entries() {
    return this.#entries;
  }

  /** Keep or renew one writing: { id, time, latex, pen, strokes }. */
  keep(entry) {
    const ink = JSON.stringify(entry.strokes);
    const others = this.#entries.filter(
      ({ id, strokes }) => id !== entry.id && JSON.stringify(strokes) !== ink,
    );
    this.#entries = [entry, ...others].slice(0, MOST);
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
