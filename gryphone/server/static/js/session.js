// What is being written, how it was read, and what the user says about it. Knows no element.

import { saveDraft } from "./draft.js";
import { adopt, BLANK, Drawing, PEN } from "./drawing.js";
import { History } from "./history.js";
import { isFramed } from "./latex.js";
import { asRead, carried, found, isCurrent, kept, latexOf, mayBeSeveral, sameInk, symbolsOf, unread } from "./lines.js";

const ALTERNATIVES = 6;
const DOUBT = 0.7; // a photo of one formula that is less sure is read otherwise, too
const REST = 400; // ms without new ink after which it is read in full, and looked over for lines
const LIVE = 2000; // ms after new ink in which somebody is writing
const NOTHING = Object.freeze({ lines: [], asides: [], checked: false });

const plain = (strokes) => strokes.map(({ points }) => points.map(([x, y]) => [x, y]));
const named = (held) => JSON.stringify(held.map(({ at, lock }) => [at, lock.symbol]));

export class Session {
  drawing = new Drawing();
  history = new History();
  page = NOTHING; // { lines, asides, checked }: what the ink is, and whether it was looked over for lines
  form = "aligned"; // how several lines are put together
  incoming = null; // a file of ink that is being opened
  selected = null; // position over all lines
  #writing = null; // id of what is being written, for the history
  #strokes = this.drawing.strokes; // that `page` is about
  #changed = -Infinity; // when they last did
  #added = false; // the last change was a stroke
  #writings = new WeakMap(); // snapshot -> the writing it belongs to
  #pages = new WeakMap(); // snapshot -> how it was read
  #trials = new WeakSet(); // snapshots that a lock made
  #moved = new WeakSet(); // strokes that were scaled after reading: their answers' boxes are not theirs

  /** The symbols of all lines; `position` counts through. */
  get symbols() {
    return symbolsOf(this.page.lines);
  }

  /** What was read, if it is about the ink that is there now. */
  get current() {
    const { lines } = this.page;
    return lines.length > 0 && lines.every(isCurrent) ? this.shown : null;
  }

  /** What was read last, as one answer: of one line its own. */
  get shown() {
    const lines = this.page.lines.filter(({ data }) => data);
    if (!lines.length) return null;
    const each = lines.map(({ data }) => data);
    const mathml = each.map((data) => data.mathml);
    return {
      ...each[0],
      latex: latexOf(lines, this.form),
      lines: each.map(({ latex }) => latex),
      form: this.form,
      mathml: mathml.includes(null) ? null : mathml.join("\n"),
      confidence: Math.min(...each.map(({ confidence }) => confidence)),
      seconds: Math.max(...each.map(({ seconds }) => seconds)),
      warnings: [...new Set(each.flatMap(({ warnings }) => warnings))],
      count: lines.length,
    };
  }

  /** Whether somebody is writing. */
  get isLive() {
    return performance.now() - this.#changed < LIVE;
  }

  /** Whether the last change was a lock. */
  get onTrial() {
    return this.#trials.has(this.drawing.now);
  }

  /** Positions that are locked -> { symbol, choices }. */
  get locks() {
    const out = new Map();
    for (const { line, at, position, symbol } of this.symbols) {
      const held = this.#held(line);
      const lock = held.find((each) => each.at === at)?.lock;
      // What was read with this lock and has it not is of other weights, or fewer steps.
      if (lock && (lock.symbol === symbol || line.locks !== named(held))) out.set(position, lock);
    }
    return out;
  }

  /** The locks on symbols of a line, [{ at, lock }]: by its ink, or when that has changed, by theirs. */
  #held(line) {
    return this.drawing.now.locks
      .map((lock) => {
        if (!line.read || sameInk(lock.ink, line.read)) return { at: sameInk(lock.ink, line.strokes) ? lock.position : -1, lock };
        return { at: lock.own.length ? line.inks.findIndex((ink) => sameInk(ink, lock.own)) : -1, lock };
      })
      .filter(({ at }) => at >= 0);
  }

  lineWith(stroke) {
    return this.page.lines.find(({ strokes }) => strokes.includes(stroke));
  }

  #set(page) {
    this.page = page;
    this.#strokes = this.drawing.strokes;
    this.#pages.set(this.drawing.now, page);
    if (this.selected >= this.symbols.length) this.selected = null;
  }

  // Reading

  /** What to read next, null if there is nothing. `rest`: ms to wait with it. */
  question(steps) {
    const options = { steps, alternatives: ALTERNATIVES };
    if (this.incoming) return { page: true, file: this.incoming, opened: true, options: { ...options, ink: true } };
    if (this.drawing.empty) return null;
    const { photo, strokes } = this.drawing.now;
    const untouched = photo && strokes === null;
    // In a photo is more to be seen than the strokes that were traced.
    const whole = untouched ? { file: photo.file, photo } : { strokes: plain(this.drawing.strokes) };
    if (untouched && !photo.traced) return photo.refused ? null : { page: true, ...whole, options };
    const { lines, asides, checked } = this.page;
    const rest = this.#changed + REST - performance.now();
    const line = lines.find((each) => this.#isDue(each)) ?? lines.find(({ data, final }) => data && !final);
    if (line) {
      const only = lines.length + asides.length === 1;
      return this.#lineQuestion(line, only ? whole : { strokes: plain(line.strokes) }, options, rest);
    }
    if (checked || !mayBeSeveral(this.page, this.drawing.strokes)) return null;
    return { page: true, ...whole, read: this.drawing.strokes, rest, options };
  }

  #lineQuestion(line, source, options, rest) {
    const held = this.#held(line);
    const about = { read: line.strokes, locks: named(held), options };
    const { data, inks, strokes } = line;
    if (data && isFramed(data)) {
      // Rows behind a bracket are read as a page is, where locks are on strokes.
      options.lock = Object.fromEntries(held.map(({ at, lock }) => [strokes.indexOf(inks[at][0]), lock.symbol]));
      return { ...about, strokes: plain(strokes), framed: true };
    }
    // New ink is followed at once, and read in full when the pen rests.
    const follows = !isCurrent(line) && (data || this.#added) && source.strokes;
    const known = (data?.symbols ?? []).map(({ symbol, modifier }, i) => {
      const lock = held.find(({ at }) => at === i)?.lock;
      const numbers = inks[i].map((stroke) => strokes.indexOf(stroke));
      return { symbol: lock?.symbol ?? symbol, modifier, strokes: numbers, locked: Boolean(lock) };
    });
    if (follows) {
      return { ...about, ...source, options: { alternatives: ALTERNATIVES }, live: { known, gestures: this.#added } };
    }
    const quiet = isCurrent(line) && !line.final && !line.due && line.locks === named(held);
    // Locks of other ink than this are known by their strokes only.
    if (quiet && held.length) return { ...about, ...source, rest, live: { known, gestures: false, final: true } };
    if (held.length) options.lock = Object.fromEntries(held.map(({ at, lock }) => [at, lock.symbol]));
    return { ...about, ...source, rest: quiet ? rest : 0 };
  }

  #isDue(line) {
    if (line.due) return true;
    const asHeld = line.locks === named(this.#held(line));
    if (line.data && isFramed(line.data)) return isCurrent(line) && !asHeld; // new ink: only the whole page has frames
    return !isCurrent(line) || !asHeld;
  }

  /** Whether an answer to this would still be of use. */
  isAbout({ page, read, locks, opened, photo }) {
    if (opened) return this.incoming !== null;
    if (page) return photo && !read ? this.drawing.now.photo === photo : this.drawing.strokes === read;
    const there = new Set(this.drawing.strokes);
    const line = this.lineWith(read[0]);
    if (!line || !read.every((stroke) => there.has(stroke))) return false;
    return !sameInk(read, line.strokes) || locks === named(this.#held(line));
  }

  /** A step of a line's refinement as it is shown: symbols that were there stay, others are boxes. */
  watch({ question: { read }, data }, afresh) {
    const before = afresh ? [] : (this.lineWith(read[0])?.data?.symbols ?? []);
    const known = kept(before, data.rows);
    const masked = data.masked.filter((position) => !known.has(position));
    const confidence = data.rows.map((_, i) => before[known.get(i)]?.confidence ?? 1);
    return { ...data, stroke: read[0], masked, confidence };
  }

  /** What is new in an answer about ink that is being written, as a step. */
  news({ question, data: { symbols, kept: known } }) {
    const rows = symbols.map(({ symbol, modifier }) => [symbol, modifier]);
    const masked = symbols.map(({ position }) => position).filter((position) => !known.includes(position));
    return this.watch({ question, data: { rows, masked, total: 1 } }, false);
  }

  /** Take an answer. { refused: symbol } where no formula keeps a lock. */
  receive({ question, data: answer, steps }) {
    if (question.page) return this.#receivePage(question, answer);
    const line = this.lineWith(question.read[0]);
    // Rows behind a bracket that would fall apart stay as they were.
    const rows = question.framed && (answer.formulas.length === 1 ? answer.formulas[0] : line.data);
    const data = rows || answer;
    const broken = JSON.parse(question.locks).find(([at, symbol]) => data.symbols[at]?.symbol !== symbol);
    if (broken && this.onTrial) return { refused: broken[1] };
    const gone = new Set((data.erased ?? []).map((i) => question.read[i]));
    const more = { strokes: line.strokes, steps, due: false, final: data.final ?? true };
    const next = asRead({ ...line, strokes: question.read }, data, question.read, more);
    next.read = question.read.filter((stroke) => !gone.has(stroke));
    next.locks = named(this.#held(next));
    this.#set({ ...this.page, lines: this.page.lines.map((each) => (each === line ? next : each)) });
    const gesture = data.gestures?.at(-1);
    if (gesture) {
      const scratch = gesture === "scratched" ? data.erased.at(-1) : question.read.length - 1;
      this.drawing.obey(question.read[scratch], gone);
    }
    return { gesture };
  }

  #receivePage({ opened, photo }, data) {
    if (opened) {
      const strokes = adopt(data.ink.strokes);
      const snapshot = { ...BLANK, strokes };
      for (const stroke of strokes) this.#moved.add(stroke);
      this.#writing = this.incoming = null;
      this.#pages.set(snapshot, found(data, strokes, NOTHING));
      this.drawing.open(snapshot);
      return {};
    }
    const first = photo && !photo.traced;
    if (photo) photo.traced ??= data.ink.strokes.map((points) => ({ points }));
    const page = found(data, this.drawing.strokes, this.page);
    const [line, ...others] = page.lines;
    if (first && !others.length) line.due = line.data?.confidence < DOUBT;
    else if (!photo && !others.length && !this.page.lines.includes(line)) {
      line.final = Boolean(line.data && isFramed(line.data)); // what has no frame is read in full, as any formula
    }
    this.#set(page);
    this.#saveDraft();
    return {};
  }

  /** Read everything once more. */
  readAgain() {
    this.#set({ ...this.page, lines: this.page.lines.map((line) => ({ ...line, due: true })) });
  }

  /** A photo that was refused for good is not asked about again; what was said of it is kept. */
  refuse({ photo }, error) {
    if (photo && error.final) photo.refused = error.message;
  }

  /** All is read: what is there goes into the history. */
  keep() {
    const { now, strokes } = this.drawing;
    const answer = this.current;
    if (!answer?.latex || !this.#writing || !strokes.length) return;
    this.#saveDraft();
    this.history.keep({
      id: this.#writing,
      time: Date.now(),
      latex: answer.latex,
      pen: now.pen,
      strokes: plain(strokes).map((points) => points.map((point) => point.map((v) => Math.round(10 * v) / 10))),
      ...this.#said(),
    });
  }

  /** Lines and locks, by the numbers of their strokes. */
  #said() {
    const numbers = new Map(this.drawing.strokes.map((stroke, i) => [stroke, i]));
    const numbered = (strokes) => strokes.map((stroke) => numbers.get(stroke));
    const lines = this.page.lines.map(({ strokes }) => numbered(strokes));
    const held = new Set(this.locks.values());
    const locks = [...held].map(({ ink, own, position, symbol }) => {
      return { ink: numbered(ink), own: numbered(own), position, symbol };
    });
    return { lines, locks };
  }

  // Writing

  /** Show something else: { strokes, photo, pen }, and of what was kept its `lines` and `locks`. */
  open({ lines = null, locks = [], writing = null, strokes, photo = null, pen = PEN }) {
    this.#writing = writing;
    const inkOf = (numbers) => numbers.map((i) => strokes[i]);
    const sound = (numbers) => Array.isArray(numbers) && numbers.length && inkOf(numbers).every(Boolean);
    const next = { ...BLANK, strokes, photo, pen: photo ? Math.max(PEN, photo.width / 220) : pen };
    if (Array.isArray(locks)) {
      next.locks = locks
        .filter((lock) => sound(lock?.ink) && sound(lock?.own))
        .map((lock) => ({ ...lock, ink: inkOf(lock.ink), own: inkOf(lock.own) }));
    }
    if (Array.isArray(lines) && lines.length && lines.every(sound)) {
      const parts = lines.map((numbers) => unread(inkOf(numbers)));
      const rest = strokes.filter((stroke) => !parts.some((part) => part.strokes.includes(stroke)));
      const asides = rest.length ? [{ kind: "", strokes: rest, guess: "" }] : [];
      this.#pages.set(next, { lines: parts, asides, checked: !rest.length });
    }
    this.drawing.open(next);
  }

  /** The drawing is another; whether ink came onto an empty page. */
  follow() {
    const { now, strokes, empty } = this.drawing;
    const appeared = !this.#strokes.length && !empty;
    const id = this.#writings.get(now) ?? this.#writing ?? crypto.randomUUID?.() ?? String(Math.random());
    this.#writings.set(now, id);
    this.#writing = empty ? null : id;
    this.incoming = null;
    if (strokes !== this.#strokes) {
      this.#changed = performance.now();
      this.selected = null;
      this.#added = strokes.length === this.#strokes.length + 1 && this.#strokes.every((s, i) => s === strokes[i]);
    }
    this.#set(this.#pages.get(now) ?? (strokes === this.#strokes ? this.page : carried(this.page, strokes)));
    this.#saveDraft();
    return appeared;
  }

  /** What a reload brings back. */
  #saveDraft() {
    const { now, strokes } = this.drawing;
    saveDraft({ writing: this.#writing, pen: now.pen, strokes, ...this.#said() });
  }

  // Correcting

  /** Where a symbol is that has no ink of its own, if that is known. */
  boxOf({ box, ink, line }) {
    return ink.length || this.#moved.has(line.strokes[0]) ? null : box;
  }

  /** The position before or after the selected one, if there is any. */
  neighbour(by) {
    const shown = this.symbols.filter(({ symbol }) => symbol !== "<empty>");
    const at = shown.findIndex(({ position }) => position === this.selected);
    const to = at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(shown.length - 1, Math.max(0, at + by));
    return shown[to]?.position;
  }

  /** Lock a symbol; if that cannot be, why. */
  lock(position, symbol) {
    const before = this.symbols[position];
    if (!before || !isCurrent(before.line)) return "The new ink is not read yet";
    if (isFramed(before.line.data) && !before.ink.length) return "What has no ink of its own cannot be locked in rows behind a bracket";
    const choices = this.locks.get(position)?.choices ?? [[before.symbol, before.confidence], ...before.alternatives];
    const lock = { ink: before.line.strokes, own: before.ink, position: before.at, symbol, choices };
    this.drawing.lock([...this.#others([before]), lock]);
    this.#trials.add(this.drawing.now);
    return null;
  }

  unlock(positions) {
    this.drawing.lock(this.#others(positions.map((position) => this.symbols[position])));
  }

  /** The locks but those of some symbols. */
  #others(symbols) {
    const gone = symbols.flatMap(({ line, at }) => this.#held(line).filter((each) => each.at === at));
    return this.drawing.now.locks.filter((lock) => !gone.some((each) => each.lock === lock));
  }
}
