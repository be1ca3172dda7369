// What is being written, how it was read, and what the user says about it. Knows no element.

import { saveDraft } from "./draft.js";
import { adopt, BLANK, Drawing, PEN } from "./drawing.js";
import { History } from "./history.js";

const ALTERNATIVES = 6;

export class Session {
  drawing = new Drawing();
  history = new History();
  // The last answer's data, the strokes it is about, and its steps; `moved` where the strokes were
  // scaled after reading, so that the answer's boxes are not theirs.
  answer = null;
  incoming = null; // a file of ink that is being opened
  selected = null; // position
  locks = new Map(); // position -> { symbol, choices: [[symbol, p], ...] as they were before the lock }
  tried = null; // with locks not answered yet: the locks as they were before
  #writing = null; // id of what is being written, for the history
  #answered = false; // the change that follows brings its answer along
  #wasEmpty = true;
  #writings = new WeakMap(); // snapshot -> the writing it belongs to
  #locksOf = new WeakMap(); // snapshot -> the locks that were made about it

  /** The answer, if it is about the ink that is there now. */
  get current() {
    return this.answer?.strokes === this.drawing.strokes ? this.answer : null;
  }

  get symbols() {
    return this.answer?.data.symbols ?? [];
  }

  get #lockedSymbols() {
    return [...this.locks].map(([position, { symbol }]) => [position, symbol]);
  }

  // Reading

  question(steps) {
    const options = { steps, alternatives: ALTERNATIVES };
    if (this.incoming) return { file: this.incoming, opened: true, options: { ...options, ink: true } };
    if (this.drawing.empty) return null;
    const { photo, strokes } = this.drawing.now;
    if (this.locks.size) options.lock = Object.fromEntries(this.#lockedSymbols);
    // The server sees more in a photo than the strokes that it sends back.
    if (photo && strokes === null) return { file: photo.file, photo, options };
    const read = this.drawing.strokes;
    return { strokes: read.map(({ points }) => points.map(([x, y]) => [x, y])), read, options };
  }

  /** The answer to show, or { refused: symbol } where no formula keeps the lock that was tried. */
  receive({ question, data, steps }) {
    const broken = this.#lockedSymbols.find(([position, symbol]) => data.symbols[position]?.symbol !== symbol);
    if (this.tried && broken && !question.opened) return { refused: broken[1] };
    this.tried = null;
    if (broken) this.locks.delete(broken[0]); // an old one, under other weights or with fewer steps
    let strokes = question.read;
    if (question.opened) {
      strokes = adopt(data.ink.strokes);
      this.#writing = null;
      this.#answered = true;
      this.drawing.open({ ...BLANK, strokes });
    } else if (question.photo) {
      strokes = question.photo.traced ??= data.ink.strokes.map((points) => ({ points }));
      this.#saveDraft();
    }
    this.incoming = null;
    return { data, strokes, steps, moved: question.opened };
  }

  /** This answer, or null, is on the page; one that is about the ink there goes into the history. */
  show(answer) {
    this.answer = answer;
    if (this.selected >= this.symbols.length) this.selected = null;
    const { now, strokes } = this.drawing;
    if (!answer?.data.latex || !this.#writing || !strokes.length || !this.current) return;
    this.history.keep({
      id: this.#writing,
      time: Date.now(),
      latex: answer.data.latex,
      pen: now.pen,
      strokes: strokes.map(({ points }) => points.map(([x, y]) => [x, y].map((v) => Math.round(10 * v) / 10))),
      locks: this.#lockedSymbols,
    });
  }

  // Writing

  open({ locks = [], writing = null, ...snapshot }) {
    this.#writing = writing;
    const { photo } = snapshot;
    const pen = photo ? Math.max(PEN, photo.width / 220) : (snapshot.pen ?? PEN);
    const next = { ...BLANK, ...snapshot, pen };
    this.#locksOf.set(next, new Map(locks.map(([position, symbol]) => [position, { symbol }])));
    this.drawing.open(next);
  }

  /** The ink is another. Whether its answer is there already, and whether it came onto an empty page. */
  followInk() {
    const { now, empty } = this.drawing;
    const id = this.#writings.get(now) ?? this.#writing ?? crypto.randomUUID?.() ?? String(Math.random());
    this.#writings.set(now, id);
    this.#writing = empty ? null : id;
    this.locks = this.#locksOf.get(now) ?? new Map();
    this.tried = null;
    this.selected = null;
    this.#saveDraft();
    const found = { answered: this.#answered, appeared: this.#wasEmpty && !empty };
    if (!this.#answered) this.incoming = null;
    this.#answered = false;
    this.#wasEmpty = empty;
    return found;
  }

  /** What a reload brings back. */
  #saveDraft() {
    const { now, strokes } = this.drawing;
    saveDraft({ writing: this.#writing, pen: now.pen, strokes, locks: this.#lockedSymbols });
  }

  // Correcting

  /** The strokes of one symbol of the answer. */
  inkOf(position) {
    return (this.symbols[position].strokes ?? []).map((i) => this.answer.strokes[i]).filter(Boolean);
  }

  /** The position before or after the selected one, if there is any. */
  neighbour(by) {
    const shown = this.symbols.filter(({ symbol }) => symbol !== "<empty>");
    const at = shown.findIndex(({ position }) => position === this.selected);
    const to = at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(shown.length - 1, Math.max(0, at + by));
    return shown[to]?.position;
  }

  /** Lock a symbol, if the answer is about this ink; whether it is. */
  lock(position, symbol) {
    const before = this.symbols[position];
    if (!this.current || !before) return false;
    this.tried ??= new Map(this.locks);
    const choices = [[before.symbol, before.confidence], ...before.alternatives];
    this.#setLocks(this.locks.set(position, { choices, ...this.locks.get(position), symbol }));
    return true;
  }

  unlock(positions) {
    for (const position of positions) this.locks.delete(position);
    this.#setLocks(this.locks);
  }

  /** The answer before the lock still stands. */
  takeLockBack() {
    this.#setLocks(this.tried);
    this.tried = null;
  }

  /** Locks belong to the ink. */
  #setLocks(locks) {
    this.locks = locks;
    this.#locksOf.set(this.drawing.now, locks);
    this.#saveDraft();
  }
}
