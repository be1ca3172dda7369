// What is on the canvas: immutable snapshots, so that undo and redo are moves along a list.
//
// A stroke is { points: [[x, y, t, pressure?], ...] }, never changed once it is finished.
// A snapshot is { strokes, photo, pen, locks }. Its strokes are null while a photo is untouched: then
// they are the ones that were traced in it. `pen` is the width of the pen in the drawing's own units.
// A lock is { ink, own, position, symbol, choices }: it holds while a line has exactly this ink, or a
// symbol the strokes that were its own.

const MOST_UNDO = 200;
export const PEN = 3;
export const BLANK = Object.freeze({ strokes: [], photo: null, pen: PEN, locks: [] });

export class Drawing extends EventTarget {
  #past = [];
  #future = [];
  now = BLANK;

  get strokes() {
    return this.now.strokes ?? this.now.photo?.traced ?? [];
  }

  get empty() {
    return !this.now.photo && this.strokes.length === 0;
  }

  get canUndo() {
    return this.#past.length > 0;
  }

  get canRedo() {
    return this.#future.length > 0;
  }

  add(stroke) {
    this.#apply({ ...this.now, strokes: [...this.strokes, stroke] });
  }

  erase(gone) {
    if (!gone.size) return;
    const strokes = this.strokes.filter((stroke) => !gone.has(stroke));
    this.#apply(strokes.length ? { ...this.now, strokes } : BLANK);
  }

  /** A gesture has erased strokes; undone, it was never made. */
  obey(gesture, gone) {
    this.#past = this.#past.filter(({ strokes }) => !strokes?.includes(gesture));
    const strokes = this.strokes.filter((stroke) => !gone.has(stroke));
    this.now = Object.freeze(strokes.length ? { ...this.now, strokes } : BLANK);
    this.#changed();
  }

  clear() {
    if (!this.empty) this.#apply(BLANK);
  }

  /** Show something else; what was there before can be had back by undo. */
  open(snapshot) {
    this.#apply(snapshot);
  }

  lock(locks) {
    this.#apply({ ...this.now, locks });
  }

  /** Take the last change back for good: there is no redo. */
  revert() {
    this.now = this.#past.pop();
    this.#changed();
  }

  undo() {
    if (!this.canUndo) return;
    this.#future.push(this.now);
    this.now = this.#past.pop();
    this.#changed();
  }

  redo() {
    if (!this.canRedo) return;
    this.#past.push(this.now);
    this.now = this.#future.pop();
    this.#changed();
  }

  #apply(next) {
    this.#past.push(this.now);
    if (this.#past.length > MOST_UNDO) this.#past.shift();
    this.#future = [];
    this.now = Object.freeze(next);
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Left, top, right, bottom of strokes; null without any. */
export function bounds(strokes) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { points } of strokes) {
    for (const [x, y] of points) {
      left = Math.min(left, x);
      top = Math.min(top, y);
      right = Math.max(right, x);
      bottom = Math.max(bottom, y);
    }
  }
  return left > right ? null : [left, top, right, bottom];
}

/** Whether something is a stroke's points: [[x, y, ...], ...]. */
export const arePoints = (points) =>
  Array.isArray(points) &&
  points.length > 0 &&
  points.every((point) => Array.isArray(point) && point.length > 1 && point.every(Number.isFinite));

/** About how large a stroke of this writing is. */
export function usualSize(strokes) {
  const sizes = strokes
    .map((stroke) => bounds([stroke]))
    .map(([left, top, right, bottom]) => Math.max(right - left, bottom - top))
    .sort((a, b) => a - b);
  return sizes[Math.floor(0.75 * (sizes.length - 1))] || 1;
}

/** Foreign strokes ([[x, y], ...]) scaled so that writing is about as large as on the canvas. */
export function adopt(lists, height = 70) {
  const strokes = lists.map((points) => ({ points }));
  const [left, top] = bounds(strokes);
  const scale = height / usualSize(strokes);
  return strokes.map(({ points }) => ({
    points: points.map(([x, y]) => [round(40 + (x - left) * scale), round(40 + (y - top) * scale)]),
  }));
}

export const round = (value) => Math.round(value * 100) / 100;
