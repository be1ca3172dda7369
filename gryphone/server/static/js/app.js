// The page: what was written, what it was read as, and what the user says about it.

import { model } from "./client.js";
import { askKey, installControls } from "./controls.js";
import { $, percent, toast } from "./dom.js";
import { loadDraft, saveDraft } from "./draft.js";
import { adopt, BLANK, Drawing, PEN } from "./drawing.js";
import { kindOf, learnFormats, readPhoto } from "./files.js";
import { FormulaView } from "./formula.js";
import { History } from "./history.js";
import { Pad } from "./pad.js";
import { Player } from "./player.js";
import { Reader } from "./reader.js";
import { spoken, SymbolPanel } from "./symbols.js";

const ALTERNATIVES = 6;

const drawing = new Drawing();
const pad = new Pad($("pad"), drawing);
const formula = new FormulaView($("formula"));
const panel = new SymbolPanel();
const reader = new Reader(question);
const player = new Player(showStep, showResult);
const history = new History();
const writings = new WeakMap(); // snapshot -> the writing it belongs to
const corrections = new WeakMap(); // snapshot -> { locks, choices } that were made about it

// The last answer, the strokes it is about, and its steps; `moved` where the strokes were scaled
// after reading, so that the answer's boxes are not theirs.
let answer = null;
let incoming = null; // a file of ink that is being opened
let locks = new Map(); // position -> symbol
let choices = new Map(); // position -> [[symbol, p], ...] as they were before the lock
let tried = null; // with locks not answered yet: { locks, choices } as they were before
let wasEmpty = true;
let selected = null;
let writing = null; // id of what is being written, for the history
let keepAnswer = false; // the change that follows brings its answer along

/** Whether the answer is about the ink that is there now. */
const current = () => answer !== null && answer.strokes === drawing.strokes;

// Asking

function question() {
  const options = { steps: Number($("steps").value), alternatives: ALTERNATIVES };
  if (incoming) return { file: incoming, opened: true, options: { ...options, ink: true } };
  if (drawing.empty) return null;
  const { photo, strokes } = drawing.now;
  if (locks.size) options.lock = Object.fromEntries(locks);
  // The server sees more in a photo than the strokes that it sends back.
  if (photo && strokes === null) return { file: photo.file, photo, options };
  const read = drawing.strokes;
  return { strokes: read.map(({ points }) => points.map(([x, y]) => [x, y])), read, options };
}

function ask(pause) {
  player.stop();
  if (drawing.empty && !incoming) {
    reader.stop();
    forget();
    return;
  }
  setState("waiting");
  reader.read(pause);
}

let steps = [];
reader.addEventListener("begin", () => {
  steps = [];
  setState("reading");
  $("status").textContent = "Reading…";
});
reader.addEventListener("step", ({ detail: { data } }) => {
  steps.push(data);
  player.step(data);
});
reader.addEventListener("result", ({ detail: { question, data } }) => {
  hideNotice("reading");
  const broken = [...locks].find(([position, symbol]) => data.symbols[position]?.symbol !== symbol);
  if (tried && broken && !question.opened) {
    refuseLock(`No well-formed formula has ${broken[1]} there.`);
    return;
  }
  tried = null;
  if (broken) locks.delete(broken[0]); // an old one, under other weights or with fewer steps
  let strokes = question.read;
  if (question.opened) {
    strokes = adopt(data.ink.strokes);
    writing = null;
    keepAnswer = true;
    drawing.open({ ...BLANK, strokes });
    pad.fit();
  } else if (question.photo) {
    strokes = question.photo.traced ??= data.ink.strokes.map((points) => ({ points }));
    showTools();
    keepDraft();
  }
  incoming = null;
  player.result({ data, strokes, steps, moved: question.opened });
  if (!panel.vocabulary.length) loadModel();
});
reader.addEventListener("slow", () => showNotice("The server has not answered yet. Your ink is kept.", true));
reader.addEventListener("failure", ({ detail: { error, wait } }) => {
  player.stop();
  setState("error");
  $("status").textContent = "";
  $("progress").style.transform = "scaleX(0)";
  if (error.status === 401) {
    showNotice("This server asks for an API key.", true);
    askKey();
  } else if (wait !== null) {
    showNotice(`${error.message} Trying again in ${Math.round(wait / 1000)} s.`, true);
  } else if (incoming) {
    incoming = null; // what was there before stays, and is read if it was not
    if (current()) showResult(answer);
    showNotice(error.message, !current() && !drawing.empty, "file");
  } else if (tried) {
    refuseLock(error.message);
  } else {
    showNotice(error.message, error.status >= 500);
  }
});

// Showing

function showStep({ number, total, rows, masked, look }) {
  setState("reading");
  formula.show({ rows, masked, locked: locks.keys() });
  $("progress").style.transform = `scaleX(${number / total})`;
  $("status").textContent = `${look > 1 ? "Second look, step" : "Step"} ${number} of ${total}`;
}

function showResult(next) {
  answer = next;
  const { latex, confidence, seconds, warnings } = answer.data;
  if (selected !== null && selected >= answer.data.symbols.length) selected = null;
  setState("done");
  $("progress").style.transform = "scaleX(0)";
  $("latex").textContent = latex;
  $("status").textContent = `${percent(confidence)} sure · ${Math.round(1000 * seconds)} ms`;
  $("note").textContent = warnings.join("; ");
  $("live").textContent = `Read as ${latex}, ${percent(confidence)} sure. ${$("note").textContent}`;
  refresh();
  keep();
}

function refresh() {
  const symbols = answer?.data.symbols ?? [];
  if (answer) {
    formula.show({
      rows: symbols.map(({ symbol, modifier }) => [symbol, modifier]),
      confidence: symbols.map(({ confidence }) => confidence),
      locked: locks.keys(),
      selected,
    });
  } else {
    formula.clear();
    $("latex").textContent = "";
  }
  panel.show(
    symbols.map((symbol) => ({ ...symbol, choices: choices.get(symbol.position) ?? symbol.alternatives })),
    locks,
    selected,
  );
  light(selected);
  for (const id of ["copy-latex", "replay"]) $(id).disabled = !current();
  $("copy-mathml").disabled = !current() || !answer.data.mathml;
}

function light(position) {
  const symbol = answer?.data.symbols[position];
  if (!symbol) return pad.light();
  const strokes = (symbol.strokes ?? []).map((i) => answer.strokes[i]).filter(Boolean);
  pad.light(strokes, strokes.length || answer.moved ? null : symbol.box);
}

/** Nothing is written: nothing is read. */
function forget() {
  answer = null;
  selected = null;
  setState("idle");
  for (const id of ["status", "note", "live"]) $(id).textContent = "";
  $("progress").style.transform = "scaleX(0)";
  hideNotice();
  refresh();
}

function setState(state) {
  document.body.dataset.state = state;
}

/** `about`: "reading", which an answer settles, or "file". */
function showNotice(text, retry = false, about = "reading") {
  $("notice-text").textContent = text;
  $("notice-retry").hidden = !retry;
  $("notice").dataset.about = about;
  $("notice").hidden = false;
}

/** Without `about`, whatever it is about. */
function hideNotice(about) {
  if (!about || $("notice").dataset.about === about) $("notice").hidden = true;
}

// Writing

drawing.addEventListener("change", () => {
  const { now } = drawing;
  if (!writings.has(now)) writings.set(now, writing ?? crypto.randomUUID?.() ?? String(Math.random()));
  writing = drawing.empty ? null : writings.get(now);
  ({ locks, choices } = corrections.get(now) ?? { locks: new Map(), choices: new Map() });
  tried = null;
  selected = null;
  pad.light();
  showTools();
  if (drawing.empty) pad.resetView();
  else if (wasEmpty && (now.photo || now.strokes.length > 1)) pad.fit(); // undone clearing
  wasEmpty = drawing.empty;
  keepDraft();
  if (keepAnswer) keepAnswer = false;
  else {
    incoming = null;
    if (answer) refresh();
    ask();
  }
});
/** What a reload brings back. */
function keepDraft() {
  saveDraft({ writing, pen: drawing.now.pen, strokes: drawing.strokes, locks: [...locks] });
}

pad.addEventListener("start", () => {
  reader.stop();
  if (!player.finish() && answer) refresh();
});
pad.addEventListener("end", () => {
  if (["waiting", "reading", "error"].includes(document.body.dataset.state)) ask();
});
pad.addEventListener("view", showTools);

function showTools() {
  $("undo").disabled = !drawing.canUndo;
  $("redo").disabled = !drawing.canRedo;
  $("clear").disabled = drawing.empty;
  for (const id of ["save-png", "save-inkml"]) $(id).disabled = !drawing.strokes.length;
  document.body.classList.toggle("written", !drawing.empty);
  const zoom = `${Math.round(100 * pad.zoom)} %`;
  $("fit").textContent = zoom;
  $("fit").setAttribute("aria-label", `Fit everything, zoom is ${zoom}`);
}

function useTool(tool) {
  pad.tool = tool;
  $("pad").dataset.mode = tool;
  for (const button of document.querySelectorAll("[data-tool]")) {
    button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
  }
}

function openSnapshot({ locks: locked = [], writing: id = null, ...snapshot }) {
  writing = id;
  const { photo } = snapshot;
  const pen = photo ? Math.max(PEN, photo.width / 220) : (snapshot.pen ?? PEN);
  const next = { ...BLANK, ...snapshot, pen };
  corrections.set(next, { locks: new Map(locked), choices: new Map() });
  drawing.open(next);
  pad.fit();
}

async function openFile(file) {
  hideNotice();
  try {
    await learned;
    const kind = kindOf(file);
    if (!kind) throw new Error(`${file.name} is neither a picture (PNG, JPEG, …) nor InkML.`);
    const photo = kind === "photo" ? await readPhoto(file) : null;
    if (photo) openSnapshot({ strokes: null, photo });
    else openInk(file);
  } catch (error) {
    showNotice(error.message, false, "file");
  }
}

/** Ink, or a picture that this browser cannot show: the server says which strokes are in it. */
function openInk(file) {
  incoming = file;
  ask(0);
}

function keep() {
  const { latex } = answer.data;
  if (!latex || !writing || !drawing.strokes.length || !current()) return;
  const strokes = drawing.strokes.map(({ points }) =>
    points.map(([x, y]) => [Math.round(10 * x) / 10, Math.round(10 * y) / 10]),
  );
  history.keep({ id: writing, time: Date.now(), latex, pen: drawing.now.pen, strokes, locks: [...locks] });
}

// Correcting

function setSteps(value) {
  const slider = $("steps");
  slider.value = value;
  $("steps-value").textContent = slider.value;
  if (!drawing.empty) ask(250);
}

function select(position) {
  selected = position;
  refresh();
  if (position === null) return;
  pad.reveal(coveredPaper());
  const { symbol, confidence } = answer.data.symbols[position];
  $("live").textContent = `${spoken(symbol)}, ${percent(confidence)} sure, selected.`;
}

/** On a phone the inspector lies over the lower part of the paper. */
function coveredPaper() {
  const inspector = $("inspector");
  if (getComputedStyle(inspector).position !== "fixed") return 0;
  return Math.max(0, $("pad").getBoundingClientRect().bottom - inspector.getBoundingClientRect().top);
}

function lock({ position, symbol }) {
  player.finish();
  const before = answer.data.symbols[position];
  if (!current() || !before) {
    toast("The new ink is not read yet");
    return;
  }
  tried ??= { locks: new Map(locks), choices: new Map(choices) };
  if (!choices.has(position)) {
    choices.set(position, [[before.symbol, before.confidence], ...before.alternatives]);
  }
  locks.set(position, symbol);
  correct();
}

/** The locks are others: they belong to the ink, and the rest is read again. */
function correct() {
  corrections.set(drawing.now, { locks, choices });
  keepDraft();
  refresh();
  ask(0);
}

/** The answer before the lock still stands. */
function refuseLock(why) {
  ({ locks, choices } = tried);
  corrections.set(drawing.now, tried);
  tried = null;
  keepDraft();
  player.stop();
  showResult(answer);
  showNotice(`${why} The lock was taken off.`);
}

function unlock(positions) {
  for (const position of positions) {
    locks.delete(position);
    choices.delete(position);
  }
  correct();
}

function step(by) {
  const shown = answer?.data.symbols.filter(({ symbol }) => symbol !== "<empty>") ?? [];
  if (!shown.length) return false;
  const at = shown.findIndex(({ position }) => position === selected);
  const to = at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(shown.length - 1, Math.max(0, at + by));
  select(shown[to].position);
}

function eraseInk(position) {
  if (position === null || !answer) return false;
  const gone = (answer.data.symbols[position].strokes ?? []).map((i) => answer.strokes[i]);
  if (gone.length) drawing.erase(new Set(gone));
  else toast("This symbol has no ink of its own");
}

panel.addEventListener("pick", ({ detail }) => select(detail));
panel.addEventListener("lock", ({ detail }) => lock(detail));
panel.addEventListener("unlock", ({ detail }) => unlock([detail.position]));
panel.addEventListener("unlock-all", () => unlock([...locks.keys()]));
panel.addEventListener("erase", ({ detail }) => eraseInk(detail));
formula.addEventListener("pick", ({ detail }) => {
  if (document.body.dataset.state === "done") select(detail === selected ? null : detail);
});
formula.addEventListener("hover", ({ detail }) => {
  if (document.body.dataset.state === "done") light(detail ?? selected);
});

installControls({
  drawing,
  pad,
  history,
  ask,
  useTool,
  setSteps,
  select,
  step,
  eraseInk,
  openFile,
  openSnapshot,
  showNotice,
  hideNotice,
  onKey: loadModel,
  selected: () => selected,
  answer: () => (current() ? answer.data : null),
  replay: () => document.body.dataset.state === "done" && current() && player.replay(answer.steps, answer),
});

async function loadModel() {
  try {
    const { symbols, formats, max_steps: most } = await model();
    panel.vocabulary = symbols;
    learnFormats(formats);
    if (most) $("steps").max = Math.min(50, most);
  } catch {
    // The page works without the lists of symbols and files; reading says what is wrong.
  }
}

// Start

const draft = loadDraft();
if (draft) openSnapshot(draft);
showTools();
if (drawing.empty) refresh();
const learned = loadModel();
