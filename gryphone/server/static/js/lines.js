// The lines of a page: which strokes are one formula, and how they were read. Pure functions.
//
// A line is { strokes, read, data, inks, steps, locks, final }: its strokes, and once it was read, the
// strokes that `data` is about (fewer, while one writes on), those of each symbol, the steps of its
// refinement, the locks that it was read with, as JSON, and whether it was read in full.

import { bounds, usualSize } from "./drawing.js";
import { atRelation, isFramed, markedLatex } from "./latex.js";

const APART = 1; // usual strokes between a line and new ink that is another one
const TALL = 1.7; // usual strokes that one row of symbols is seldom high
const DOUBT = 0.7;

export const FORMS = { aligned: "aligned", separate: "separate", cases: "cases" };

export const unread = (strokes) => ({ strokes, read: null, data: null, inks: [], steps: [], locks: "[]", final: false });

export const sameInk = (a, b) => a?.length === b.length && a.every((stroke, i) => stroke === b[i]);

export const isCurrent = ({ strokes, read }) => sameInk(read, strokes);

/** Strokes that are in no symbol of a line's answer, where that says which its symbols' are. */
export function missed(line) {
  const own = new Set(line.inks.flat());
  return isCurrent(line) && own.size ? line.read.filter((stroke) => !own.has(stroke)) : [];
}

/** One formula's answer as a line; `of` are the strokes that its symbols count. */
export function asRead(line, data, of, more = {}) {
  const inks = data.symbols.map(({ strokes }) => (strokes ?? []).map((i) => of[i]).filter(Boolean));
  return { ...line, read: line.strokes, data, inks, steps: [], final: true, ...more };
}

/** The same lines with other ink: what is new goes to the line that it stands in, or below. */
export function carried({ lines, asides }, strokes) {
  const there = new Set(strokes);
  const known = new Set([...lines, ...asides].flatMap((part) => part.strokes));
  const left = (parts) =>
    parts
      .map((part) => ({ ...part, strokes: part.strokes.filter((stroke) => there.has(stroke)) }))
      .filter((part) => part.strokes.length);
  let kept = left(lines);
  if (!kept.length) return { lines: strokes.length ? [unread(strokes)] : [], asides: [], checked: false };
  const usual = usualSize(strokes);
  for (const stroke of strokes.filter((each) => !known.has(each))) {
    const at = nearest(stroke, kept, usual);
    if (at >= 0) kept[at] = { ...kept[at], strokes: [...kept[at].strokes, stroke] };
    else kept = [...kept, unread([stroke])].sort((a, b) => bounds(a.strokes)[1] - bounds(b.strokes)[1]);
  }
  return { lines: kept, asides: left(asides), checked: false };
}

function nearest(stroke, lines, usual) {
  const [, top, , bottom] = bounds([stroke]);
  const gaps = lines.map((line) => {
    const [, above, , below] = bounds(line.strokes);
    return Math.max(above - bottom, top - below);
  });
  const least = Math.min(...gaps);
  return least > APART * usual ? -1 : gaps.indexOf(least);
}

/** What the whole page was read as; a line that had this ink before stays as it is. */
export function found(data, strokes, before) {
  const inkOf = (part) => part.strokes.map((i) => strokes[i]);
  const lines = data.formulas.map((formula) => {
    const ink = inkOf(formula);
    const same = before.lines.find((line) => isCurrent(line) && sameInk(line.strokes, ink));
    const asGood = same?.final && (isFramed(same.data) || !isFramed(formula)); // a line by itself is read without frames
    return asGood ? same : asRead(unread(ink), formula, strokes);
  });
  if (!lines.length) return { lines: [unread(strokes)], asides: [], checked: true }; // nothing but words
  const asides = data.asides.map((aside) => ({ ...aside, strokes: inkOf(aside) }));
  return { lines, asides, checked: true };
}

/** Whether it is worth asking for lines. */
export function mayBeSeveral({ lines, asides }, strokes) {
  if (lines.length + asides.length !== 1 || !isCurrent(lines[0])) return true;
  const [{ data }] = lines;
  const [, top, , bottom] = bounds(strokes);
  return data.confidence < DOUBT || data.warnings.length > 0 || bottom - top > TALL * usualSize(strokes);
}

/** The symbols of all lines, counted through; `at` is a symbol's position in its line. */
export function symbolsOf(lines) {
  const shown = lines.flatMap((line, number) =>
    (line.data?.symbols ?? []).map((symbol, at) => ({ ...symbol, line, number, at, ink: line.inks[at] })),
  );
  return shown.map((symbol, position) => ({ ...symbol, position }));
}

/** LaTeX of lines that were read. */
export function latexOf(lines, form) {
  const all = lines.map(({ data }) => data.latex);
  if (all.length < 2) return all.join("");
  if (form === FORMS.separate) return all.join("\n");
  const rows = form === FORMS.cases ? all : lines.map(({ data }) => atRelation(data));
  return `\\begin{${form}} ${rows.join(" \\\\ ")} \\end{${form}}`;
}

/**
 * All lines as one formula, each symbol marked by its position over all of them. A `step` of a
 * refinement, { stroke, rows, masked, confidence }, stands for the line with this stroke.
 */
export function laidOut(lines, form, step = null) {
  const [rows, confidence, masked] = [[], [], []];
  const shown = lines.map((line) => (step && line.strokes.includes(step.stroke) ? { step } : line));
  const many = shown.filter(({ data, step: own }) => data || own).length > 1;
  for (const { data, step: own } of shown) {
    if (!data && !own) continue;
    const offset = confidence.length;
    const options = { offset, relation: many && form === FORMS.aligned };
    const tokens = own || !isFramed(data) ? null : data.tokens;
    const symbols = own ? own.rows : data.symbols.map(({ symbol, modifier }) => [symbol, modifier]);
    rows.push((many && form === FORMS.separate ? "&" : "") + markedLatex(symbols, { ...options, tokens }));
    confidence.push(...(own ? own.confidence : data.symbols.map((symbol) => symbol.confidence)));
    masked.push(...(own?.masked ?? []).map((position) => offset + position));
  }
  const frame = form === FORMS.cases ? "cases" : "aligned";
  const latex = many ? `\\begin{${frame}}${rows.join("\\\\[0.4em] ")}\\end{${frame}}` : rows.join("");
  return { latex, confidence, masked };
}

/** Which symbols of a new reading were there before: position -> position then. */
export function kept(before, after) {
  const same = (i, j) => before[i].symbol === after[j][0];
  const longest = before.map(() => new Uint16Array(after.length + 1));
  longest.push(new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      longest[i][j] = same(i, j)
        ? longest[i + 1][j + 1] + 1
        : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const out = new Map();
  for (let i = 0, j = 0; i < before.length && j < after.length; ) {
    if (same(i, j)) out.set(j++, i++);
    else if (longest[i + 1][j] >= longest[i][j + 1]) i++;
    else j++;
  }
  return out;
}
