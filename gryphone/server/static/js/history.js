// What was written, kept in this browser only: newest first, with a limit, until it is cleared.

import { arePoints } from "./drawing.js";
import { remember, restore } from "./storage.js";

const KEY = "gryphone.history";
const MOST = 40;
const MOST_CHARACTERS = 2_000_000; // browsers give an origin about five million

export class History extends EventTarget {
  #entries;

  constructor() {
    super();
    this.#load();
    addEventListener("storage", ({ key }) => {
      if (key !== KEY && key !== null) return;
      this.#load(); // another tab has written or cleared it
      this.dispatchEvent(new Event("change"));
    });
  }

  get entries() {
    return this.#entries;
  }

  /** Keep or renew one writing: { id, time, latex, pen, strokes, lines, locks }. */
  keep(entry) {
    const ink = JSON.stringify(entry.strokes);
    // The same ink, opened again or in another tab, keeps its name: what becomes of it is a new entry.
    const same = this.#entries.find(
      ({ strokes }) => strokes.length === entry.strokes.length && JSON.stringify(strokes) === ink,
    );
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
    const sound = ({ id, time, latex, strokes }) =>
      typeof id === "string" &&
      Number.isFinite(time) &&
      typeof latex === "string" &&
      strokes.length > 0 &&
      strokes.every(arePoints);
    const check = (found) => {
      const entries = found.filter((entry) => {
        try {
          return sound(entry);
        } catch {
          return false;
        }
      });
      return [entries, entries.length === found.length];
    };
    this.#entries = restore("localStorage", KEY, check) ?? [];
  }

  #save() {
    let text = JSON.stringify(this.#entries);
    while (text.length > MOST_CHARACTERS && this.#entries.length > 1) {
      this.#entries.pop();
      text = JSON.stringify(this.#entries);
    }
    remember("localStorage", KEY, text);
    this.dispatchEvent(new Event("change"));
  }
}
