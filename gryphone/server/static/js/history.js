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
