// The page: what happens to its elements goes to the session, and what the session says is shown.

import { askKey, installControls } from "./controls.js";
import { $, percent, toast } from "./dom.js";
import { loadDraft } from "./draft.js";
import { completeOffline, isLocal, keepOffline, model } from "./engine.js";
import { kindOf, learnFormats, readPhoto } from "./files.js";
import { FormulaView } from "./formula.js";
import { Pad } from "./pad.js";
import { Player } from "./player.js";
import { Reader } from "./reader.js";
import { Session } from "./session.js";
import { spoken, SymbolPanel } from "./symbols.js";

const session = new Session();
const { drawing } = session;
const pad = new Pad($("pad"), drawing);
const formula = new FormulaView($("formula"));
const panel = new SymbolPanel();
const reader = new Reader(() => session.question(Number($("steps").value) || "auto"));
const player = new Player(showStep, showResult);

// Asking

function ask(pause) {
  player.stop();
  if (drawing.empty && !session.incoming) {
    reader.stop();
    forget();
    return;
  }
  setState("waiting");
  reader.read(pause);
}

reader.addEventListener("begin", () => {
  setState("reading");
  $("status").textContent = "Reading…";
});
reader.addEventListener("step", ({ detail }) => player.step(detail.data));
reader.addEventListener("result", ({ detail }) => {
  hideNotice("reading");
  const answer = session.receive(detail);
  if (answer.refused) {
    refuseLock(`No well-formed formula has ${answer.refused} there.`);
    return;
  }
  if (detail.question.opened) pad.fit();
  else if (detail.question.photo) showTools();
  player.result(answer);
  if (!panel.vocabulary.length) loadModel();
});
reader.addEventListener("slow", () => {
  if (!isLocal) showNotice("The server has not answered yet. Your ink is kept.", true);
});
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
  } else if (session.incoming) {
    session.incoming = null; // what was there before stays, and is read if it was not
    if (session.current) showResult(session.current);
    showNotice(error.message, !session.current && !drawing.empty, "file");
  } else if (session.tried) {
    refuseLock(error.message);
  } else {
    showNotice(error.message, error.status >= 500);
  }
});

// Showing

const LOOKS = ["Step", "Second look, step", "Read another way, step"];

function showStep({ number, total, rows, masked, look }) {
  setState("reading");
  // Further readings of a doubtful picture go on side by side: nothing to show of one.
  if (look < 3) formula.show({ rows, masked, locked: session.locks.keys() });
  $("progress").style.transform = `scaleX(${number / total})`;
  $("status").textContent = `${LOOKS[Math.min(look, 3) - 1]} ${number} of ${total}`;
}

function showResult(answer) {
  session.show(answer);
  const { latex, confidence, seconds, warnings } = answer.data;
  setState("done");
  $("progress").style.transform = "scaleX(0)";
  $("latex").textContent = latex;
  $("status").textContent = `${percent(confidence)} sure · ${Math.round(1000 * seconds)} ms`;
  $("note").textContent = warnings.join("; ");
  $("live").textContent = `Read as ${latex}, ${percent(confidence)} sure. ${$("note").textContent}`;
  refresh();
}

function refresh() {
  const { answer, current, symbols, locks, selected } = session;
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
    symbols.map((s) => ({ ...s, choices: locks.get(s.position)?.choices ?? s.alternatives })),
    locks,
    selected,
  );
  light(selected);
  for (const id of ["copy-latex", "replay"]) $(id).disabled = !current;
  $("copy-mathml").disabled = !current?.data.mathml;
}

function light(position) {
  const symbol = session.symbols[position];
  if (!symbol) return pad.light();
  const strokes = session.inkOf(position);
  pad.light(strokes, strokes.length || session.answer.moved ? null : symbol.box);
}

/** Nothing is written: nothing is read. */
function forget() {
  session.show(null);
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
  const { answered, appeared } = session.followInk();
  pad.light();
  showTools();
  if (drawing.empty) pad.resetView();
  else if (appeared && (drawing.now.photo || drawing.strokes.length > 1)) pad.fit(); // undone clearing
  if (answered) return;
  if (session.answer) refresh();
  ask();
});
pad.addEventListener("start", () => {
  reader.stop();
  if (!player.finish() && session.answer) refresh();
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

function openSnapshot(snapshot) {
  session.open(snapshot);
  pad.fit();
}

async function openFile(file) {
  hideNotice();
  try {
    await learned;
    const kind = kindOf(file);
    if (!kind) throw new Error(`${file.name} is neither a picture (PNG, JPEG, …) nor InkML.`);
    const photo = kind === "photo" ? await readPhoto(file) : null;
    if (photo) return openSnapshot({ strokes: null, photo });
    // Ink, or a picture that this browser cannot show: the server says which strokes are in it.
    session.incoming = file;
    ask(0);
  } catch (error) {
    showNotice(error.message, false, "file");
  }
}

// Correcting

function setSteps(value) {
  const slider = $("steps");
  slider.value = value;
  const shown = Number(slider.value) ? slider.value : "as needed";
  $("steps-value").textContent = shown;
  slider.setAttribute("aria-valuetext", shown);
  if (!drawing.empty) ask(250);
}

function select(position) {
  session.selected = position;
  refresh();
  if (position === null) return;
  pad.reveal(coveredPaper());
  const { symbol, confidence } = session.symbols[position];
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
  if (session.lock(position, symbol)) corrected();
  else toast("The new ink is not read yet");
}

function unlock(positions) {
  session.unlock(positions);
  corrected();
}

/** The locks are others: the rest is read again. */
function corrected() {
  refresh();
  ask(0);
}

function refuseLock(why) {
  session.takeLockBack();
  player.stop();
  showResult(session.answer);
  showNotice(`${why} The lock was taken off.`);
}

function step(by) {
  const position = session.neighbour(by);
  if (position === undefined) return false;
  select(position);
}

function eraseInk(position) {
  if (position === null || !session.answer) return false;
  const gone = session.inkOf(position);
  if (gone.length) drawing.erase(new Set(gone));
  else toast("This symbol has no ink of its own");
}

panel.addEventListener("pick", ({ detail }) => select(detail));
panel.addEventListener("lock", ({ detail }) => lock(detail));
panel.addEventListener("unlock", ({ detail }) => unlock([detail.position]));
panel.addEventListener("unlock-all", () => unlock([...session.locks.keys()]));
panel.addEventListener("erase", ({ detail }) => eraseInk(detail));
formula.addEventListener("pick", ({ detail }) => {
  if (document.body.dataset.state === "done") select(detail === session.selected ? null : detail);
});
formula.addEventListener("hover", ({ detail }) => {
  if (document.body.dataset.state === "done") light(detail ?? session.selected);
});

installControls({
  drawing,
  pad,
  history: session.history,
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
  selected: () => session.selected,
  answer: () => session.current?.data ?? null,
  replay: () =>
    document.body.dataset.state === "done" && session.current !== null && player.replay(session.current),
});

async function loadModel() {
  try {
    const { symbols, formats, max_steps: most, threads } = await model(showLoading);
    panel.vocabulary = symbols;
    learnFormats(formats);
    if (most) $("steps").max = Math.min(50, most);
    if (isLocal) {
      engineIs("in this browser", `${threads > 1 ? `${threads} threads, ` : ""}nothing leaves it`);
      completeOffline();
    }
  } catch (error) {
    // The page works without the lists of symbols and files; reading says what is wrong.
    if (isLocal) showNotice(`The engine could not be loaded: ${error.message}`, true);
  } finally {
    $("loading").hidden = true;
  }
}

/** Which engine reads. */
function engineIs(where, more) {
  $("engine").textContent = `Read ${where}: ${more}.`;
}

function showLoading(part) {
  $("loading").hidden = false;
  $("loading").querySelector("progress").value = part;
}

function tellOffline(what, use) {
  if (what === "complete") $("engine").dataset.offline = "ready";
  if (what !== "update") return;
  $("update").hidden = false;
  $("update-use").onclick = use;
}

// Start

keepOffline(tellOffline);
const draft = loadDraft();
if (draft) openSnapshot(draft);
showTools();
if (drawing.empty) refresh();
if (!isLocal) engineIs("by this server", "it keeps nothing");
const learned = loadModel();
