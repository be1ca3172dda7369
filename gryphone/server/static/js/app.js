// The page: what was written, what it was read as, and what the user says about it.

import { apiKey, model } from "./client.js";
import { $, percent, toast } from "./dom.js";
import { adopt, BLANK, Drawing, PEN } from "./drawing.js";
import { acceptDrops, copyText, downloadInkml, downloadPng, kindOf, readPhoto } from "./files.js";
import { FormulaView } from "./formula.js";
import { History } from "./history.js";
import { HistoryDialog } from "./history-dialog.js";
import { installKeys } from "./keys.js";
import { Pad } from "./pad.js";
import { Player } from "./player.js";
import { Reader } from "./reader.js";
import { spoken, SymbolPanel } from "./symbols.js";
import { installTheme } from "./theme-button.js";

const ALTERNATIVES = 6;
const DRAFT = "gryphone.draft";

const drawing = new Drawing();
const pad = new Pad($("pad"), drawing);
const formula = new FormulaView($("formula"));
const panel = new SymbolPanel();
const reader = new Reader(question);
const player = new Player(showStep, showResult);
const history = new History();
const writings = new WeakMap(); // snapshot -> the writing it belongs to

let answer = null; // { data, strokes, steps }: the last answer and the strokes it is about
let incoming = null; // InkML text that is being opened
let locks = new Map(); // position -> symbol
let choices = new Map(); // position -> [[symbol, p], ...] as they were before the lock
let tried = null; // a lock that has not been answered yet
let selected = null;
let writing = null; // id of what is being written, for the history
let keepAnswer = false; // the change that follows brings its answer along

// Asking

function question() {
  const options = { steps: Number($("steps").value), alternatives: ALTERNATIVES };
  if (incoming !== null) return { inkml: incoming, options: { ...options, ink: true } };
  if (drawing.empty) return null;
  const { photo, strokes } = drawing.now;
  if (photo && strokes === null && !photo.traced) return { file: photo.file, photo, options };
  if (locks.size) options.lock = Object.fromEntries(locks);
  const read = drawing.strokes;
  return { strokes: read.map(({ points }) => points.map(([x, y]) => [x, y])), read, options };
}

function ask(pause) {
  player.stop();
  if (drawing.empty && incoming === null) {
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
  hideNotice();
  tried = null;
  let strokes = question.read;
  if (question.inkml !== undefined) {
    strokes = adopt(data.ink.strokes);
    keepAnswer = true;
    drawing.open({ ...BLANK, strokes });
    pad.fit();
  } else if (question.photo) {
    strokes = question.photo.traced = data.ink.strokes.map((points) => ({ points }));
    showTools();
  }
  incoming = null;
  const moved = question.inkml !== undefined; // boxes are in the file's own units then
  player.result({ data, strokes, steps, moved });
});
reader.addEventListener("failure", ({ detail: { error, wait } }) => {
  player.stop();
  if (wait === null) incoming = null;
  setState("error");
  $("status").textContent = "";
  $("progress").style.transform = "scaleX(0)";
  let more = wait === null ? "" : ` Trying again in ${Math.round(wait / 1000)} s.`;
  if (tried !== null && wait === null && error.status !== 401) {
    locks.delete(tried);
    choices.delete(tried);
    tried = null;
    more = " The lock was taken off.";
    setState("done");
    refresh(); // the answer before it still stands
  }
  showNotice(error.message + more, wait !== null || error.status >= 500);
  if (error.status === 401) askKey();
});

// Showing

function showStep({ number, total, rows, masked }) {
  setState("reading");
  formula.show({ rows, masked, locked: locks.keys() });
  $("progress").style.transform = `scaleX(${number / total})`;
  $("status").textContent = `Step ${number} of ${total}`;
}

function showResult(next) {
  answer = next;
  const { latex, confidence, seconds, warnings } = answer.data;
  if (selected !== null && selected >= answer.data.symbols.length) selected = null;
  setState("done");
  $("progress").style.transform = "scaleX(0)";
  $("latex").textContent = latex;
  $("status").textContent = `${percent(confidence)} sure · ${Math.round(1000 * seconds)} ms`;
  $("live").textContent = `Read as ${latex}, ${percent(confidence)} sure.${warnings.length ? ` Note: ${warnings[0]}.` : ""}`;
  if (warnings.length) $("status").textContent += ` · ${warnings[0]}`;
  $("status").title = $("status").textContent;
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
  for (const id of ["copy-latex", "copy-mathml", "replay"]) $(id).disabled = !answer;
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
  $("status").textContent = $("live").textContent = "";
  $("progress").style.transform = "scaleX(0)";
  hideNotice();
  refresh();
}

function setState(state) {
  document.body.dataset.state = state;
}

function showNotice(text, retry = false) {
  $("notice-text").textContent = text;
  $("notice-retry").hidden = !retry;
  $("notice").hidden = false;
}

function hideNotice() {
  $("notice").hidden = true;
}

// Writing

drawing.addEventListener("change", () => {
  const { now } = drawing;
  if (!writings.has(now)) writings.set(now, writing ?? crypto.randomUUID?.() ?? String(Math.random()));
  writing = drawing.empty ? null : writings.get(now);
  locks = new Map();
  choices = new Map();
  tried = null;
  selected = null;
  pad.light();
  showTools();
  saveDraft();
  if (keepAnswer) keepAnswer = false;
  else {
    incoming = null;
    if (answer) refresh();
    ask();
  }
});
pad.addEventListener("start", () => {
  reader.stop();
  player.stop();
});
pad.addEventListener("end", () => {
  if (["waiting", "reading"].includes(document.body.dataset.state)) ask();
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

function openSnapshot(snapshot) {
  writing = null;
  const { photo } = snapshot;
  drawing.open({ ...BLANK, ...snapshot, pen: photo ? Math.max(PEN, photo.width / 220) : (snapshot.pen ?? PEN) });
  pad.fit();
}

async function openFile(file) {
  try {
    const kind = kindOf(file);
    if (kind === "inkml") openInkml(await file.text());
    else if (kind === "photo") openSnapshot({ strokes: null, photo: await readPhoto(file) });
    else throw new Error(`${file.name} is neither a picture nor InkML.`);
  } catch (error) {
    showNotice(error.message);
  }
}

function openInkml(text) {
  incoming = text;
  writing = null;
  ask(0);
}

function saveDraft() {
  try {
    const { pen } = drawing.now;
    if (drawing.strokes.length) sessionStorage.setItem(DRAFT, JSON.stringify({ writing, pen, strokes: drawing.strokes }));
    else sessionStorage.removeItem(DRAFT);
  } catch {
    // No room or no storage: a reload loses the ink, as on any page.
  }
}

function keep() {
  const { latex } = answer.data;
  if (!latex || !writing || !drawing.strokes.length) return;
  const strokes = drawing.strokes.map(({ points }) => points.map(([x, y]) => [Math.round(10 * x) / 10, Math.round(10 * y) / 10]));
  history.keep({ id: writing, time: Date.now(), latex, pen: drawing.now.pen, strokes });
}

// Correcting

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
  const before = answer.data.symbols[position];
  if (!choices.has(position)) {
    choices.set(position, [[before.symbol, before.confidence], ...before.alternatives]);
  }
  locks.set(position, symbol);
  tried = position;
  refresh();
  ask(0);
}

function unlock(positions) {
  for (const position of positions) {
    locks.delete(position);
    choices.delete(position);
  }
  refresh();
  ask(0);
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

// Buttons, keys and dialogs

async function copy(text, what) {
  if (!answer) return;
  try {
    await copyText(text());
    toast(`${what} copied`);
  } catch (error) {
    showNotice(error.message);
  }
}

function setSteps(value) {
  const slider = $("steps");
  slider.value = value;
  $("steps-value").textContent = slider.value;
  if (!drawing.empty) ask(250);
}

const actions = {
  undo: () => drawing.undo(),
  redo: () => drawing.redo(),
  clear: () => drawing.clear(),
  fit: () => pad.fit(),
  "zoom-in": () => pad.zoomBy(1.25),
  "zoom-out": () => pad.zoomBy(0.8),
  open: () => $("file").click(),
  replay: () => answer && player.replay(answer.steps, answer),
  "copy-latex": () => copy(() => answer.data.latex, "LaTeX"),
  "copy-mathml": () => copy(() => answer.data.mathml, "MathML"),
  "save-png": () => drawing.strokes.length && downloadPng(drawing.strokes, drawing.now.pen),
  "save-inkml": () => drawing.strokes.length && downloadInkml(drawing.strokes, answer?.data.latex),
  "help-open": () => $("help").showModal(),
  "notice-retry": () => ask(0),
  "notice-close": hideNotice,
};
for (const [id, run] of Object.entries(actions)) $(id).addEventListener("click", run);
for (const button of document.querySelectorAll("[data-tool]")) {
  button.addEventListener("click", () => useTool(button.dataset.tool));
}
$("steps").addEventListener("input", () => setSteps($("steps").value));
$("file").addEventListener("change", () => {
  const [file] = $("file").files;
  $("file").value = "";
  if (file) openFile(file);
});
acceptDrops(openFile, openInkml, $("drop"));
const historyDialog = new HistoryDialog(history, ({ strokes, pen }) => {
  openSnapshot({ pen, strokes: strokes.map((points) => ({ points })) });
});
const toggleTheme = installTheme(() => pad.redraw());

function askKey() {
  $("key-value").value = apiKey.get();
  if (!$("key").open) $("key").showModal();
}
$("key").addEventListener("close", () => {
  if ($("key").returnValue === "cancel" || !$("key-value").value) return;
  apiKey.set($("key-value").value);
  loadModel();
  ask(0);
});

installKeys(
  [
    ["Write", [
      ["mod+z", "Undo", actions.undo],
      ["mod+shift+z", "Redo", actions.redo],
      ["mod+y", null, actions.redo],
      ["p", "Pen", () => useTool("pen")],
      ["e", "Erase strokes", () => useTool("eraser")],
      ["h", "Move the paper (or hold space)", () => useTool("hand")],
      ["x", "Clear", actions.clear],
      ["+ - 0", "Zoom in, out, fit", (key) => ({ "+": actions["zoom-in"], "-": actions["zoom-out"], 0: actions.fit })[key]()],
    ]],
    ["Read", [
      ["ArrowLeft ArrowRight", "Previous, next symbol", (key) => step(key === "ArrowLeft" ? -1 : 1)],
      ["1 2 3 4 5", "Lock an alternative", (key) => document.querySelectorAll(".others button")[key - 1]?.click()],
      ["l", "Lock or unlock the symbol", () => document.querySelector(".chosen .lock")?.click()],
      ["Delete Backspace", "Erase the symbol's ink", () => eraseInk(selected)],
      ["Escape", "Leave the symbol", () => select(null)],
      [", .", "Fewer, more steps", (key) => setSteps(Number($("steps").value) + (key === "," ? -1 : 1))],
      ["r", "Replay the refinement", actions.replay],
    ]],
    ["Keep", [
      ["c", "Copy LaTeX", actions["copy-latex"]],
      ["m", "Copy MathML", actions["copy-mathml"]],
      ["g", "Download PNG", actions["save-png"]],
      ["s", "Download InkML", actions["save-inkml"]],
      ["o", "Open a photo or InkML", actions.open],
      ["y", "History", () => historyDialog.open()],
      ["t", "Light or dark", toggleTheme],
      ["?", "This help", actions["help-open"]],
    ]],
  ],
  pad,
);

async function loadModel() {
  try {
    const { symbols, max_steps: most } = await model();
    panel.vocabulary = symbols;
    if (most) $("steps").max = Math.min(50, most);
  } catch {
    // The page works without the list of symbols; reading says what is wrong.
  }
}

// Start

try {
  const draft = JSON.parse(sessionStorage.getItem(DRAFT));
  if (draft?.strokes.length) {
    writing = draft.writing;
    drawing.open({ ...BLANK, pen: draft.pen, strokes: draft.strokes });
  }
} catch {
  // A damaged draft is no reason not to start.
}
showTools();
if (drawing.empty) refresh();
loadModel();
