// The page: what happens to its elements goes to the session, and what the session says is shown.

import { Computing } from "./computing.js";
import { askKey, installControls, keyIsWrong } from "./controls.js";
import { $, h, percent, toast } from "./dom.js";
import { loadDraft } from "./draft.js";
import { completeOffline, isLocal, keepOffline, model } from "./engine.js";
import { kindOf, learnFormats, readPhoto } from "./files.js";
import { FormulaView } from "./formula.js";
import { FORMS, laidOut, missed } from "./lines.js";
import { Pad } from "./pad.js";
import { Player } from "./player.js";
import { Reader } from "./reader.js";
import { installScrollbars } from "./scrollbars.js";
import { Session } from "./session.js";
import { damaged, recall, remember } from "./storage.js";
import { spoken, SymbolPanel } from "./symbols.js";

const FORM = "gryphone.form";

const session = new Session();
const { drawing } = session;
const pad = new Pad($("pad"), drawing);
const formula = new FormulaView($("formula"));
const panel = new SymbolPanel();
const computing = new Computing();
const reader = new Reader(() => {
  const question = session.question(Number($("steps").value) || "auto");
  // While the pen is down, lines can wait.
  return question?.rest && pad.busy ? { ...question, rest: 200 } : question;
});
const player = new Player(showStep, showAnswer);
let keyTimer = 0;
let slowly = false; // the reading under way is a replay

// Asking

function ask(pause) {
  if (drawing.empty && !session.incoming) {
    reader.stop();
    forget();
    return;
  }
  setState("waiting");
  reader.wake(pause);
}

function askAgain(pause) {
  reader.stop();
  ask(pause);
}

reader.addEventListener("begin", () => {
  setState("reading");
  if (!session.current) $("status").textContent = "Reading…";
});
reader.addEventListener("step", ({ detail }) => {
  if (!session.isAbout(detail.question)) return;
  player.step(session.watch(detail, slowly), slowly ? "slow" : session.isLive ? "live" : "once");
});
reader.addEventListener("result", ({ detail }) => {
  hideNotice("reading");
  if (!session.isAbout(detail.question)) return;
  const news = detail.question.live ? session.news(detail) : null;
  const { refused, gesture } = session.receive(detail);
  if (refused) {
    refuseLock(`No well-formed formula has ${refused} there.`);
    return;
  }
  if (gesture) toast(gesture === "scratched" ? "Scratched out; undo brings it back" : "Written over; undo brings it back");
  else if (news) player.step(news, "live");
  if (detail.question.opened) pad.fit();
  showTools();
  player.end();
  if (!panel.vocabulary.length) loadModel();
});
reader.addEventListener("idle", settle);
reader.addEventListener("slow", () => {
  if (!isLocal) showNotice("The server has not answered yet. Your ink is kept.", true);
});
reader.addEventListener("failure", ({ detail: { question, error, wait } }) => {
  player.stop();
  setState("error");
  $("status").textContent = "";
  refresh(); // an answer that stays says again how sure it is
  session.refuse(question, error);
  if (error.status === 401) {
    showNotice(keyIsWrong() ? "The server did not take this API key." : "This server asks for an API key.", true);
    askKeyAtRest();
  } else if (wait !== null) {
    showNotice(`${error.message} Trying again in ${Math.round(wait / 1000)} s.`, true);
  } else if (session.incoming) {
    session.incoming = null; // what was there before stays, and is read if it was not
    showNotice(error.message, false, "file");
    if (!drawing.empty) reader.wake();
  } else if (session.onTrial) {
    refuseLock(error.message);
  } else {
    showNotice(error.message, error.status >= 500);
  }
});

/** Not under the pen of somebody who is writing. */
function askKeyAtRest() {
  clearTimeout(keyTimer);
  keyTimer = setTimeout(() => (pad.busy || session.isLive ? askKeyAtRest() : askKey()), 300);
}

// Showing

const LOOKS = ["Step", "Second look, step", "Read another way, step"];

function showStep(step) {
  const { number, total, look } = step;
  // Further readings of a doubtful picture go on side by side: nothing to show of one.
  if (!(look >= 3)) {
    formula.show({ ...laidOut(session.page.lines, session.form, step), locked: session.locks.keys() });
  }
  if (!look) return; // new ink was followed
  $("progress").style.transform = `scaleX(${number / total})`;
  $("status").textContent = `${LOOKS[Math.min(look, 3) - 1]} ${number} of ${total}`;
}

function showAnswer() {
  refresh();
  settle();
}

/** Nothing is left to read or to show: this is the answer. */
function settle() {
  if (!reader.idle || player.busy) return;
  if (!session.current) return tellRefused();
  slowly = false;
  if (document.body.dataset.state === "done") return;
  setState("done");
  hideNotice("reading");
  session.keep();
  const { latex, confidence } = session.current;
  $("live").textContent = `Read as ${latex}, ${percent(confidence)} sure. ${$("note").textContent}`;
}

/** Why a photo is not read; what was said meanwhile stays. */
function tellRefused() {
  const { photo } = drawing.now;
  if (!photo?.refused) return;
  setState("error");
  if ($("notice").hidden) showNotice(photo.refused);
}

/** Everything as it is now. */
function refresh() {
  player.stop();
  const { page, shown, current, symbols, locks, selected } = session;
  $("progress").style.transform = "scaleX(0)";
  $("latex").textContent = shown?.latex ?? "";
  if (shown) {
    formula.show({ ...laidOut(page.lines, session.form), locked: locks.keys(), selected, stale: !current });
  } else {
    formula.clear();
  }
  if (current) {
    const { count, confidence, seconds } = current;
    const sure = `${percent(confidence)} sure`;
    const several = count > 1;
    $("status").textContent = several ? `${count} formulas · ${sure}` : `${sure} · ${Math.round(1000 * seconds)} ms`;
    $("status").title = several ? "That the least sure of them is right" : "The chance that the whole formula is right";
  }
  $("note").textContent = $("note").title = current ? notes(current, page.asides) : "";
  $("form").hidden = !(shown?.count > 1);
  panel.show(
    symbols.map((s) => ({ ...s, choices: locks.get(s.position)?.choices ?? s.alternatives })),
    locks,
    selected,
    shown?.confidence,
  );
  light(selected);
  const left = page.lines.map(missed).filter((strokes) => strokes.length);
  pad.frame({
    lines: page.lines.length + page.asides.length > 1 ? page.lines : [],
    asides: [...page.asides, ...left.map((strokes) => ({ strokes, kind: "not read" }))],
  });
  for (const id of ["copy-latex", "copy-as", "replay"]) $(id).disabled = !current;
  computing.show(current?.lines ?? []);
  $("copy-mathml").disabled = !current?.mathml;
}

/** What a person should know of an answer. */
function notes({ warnings }, asides) {
  const left = asides.map(({ kind, guess }) => `${kind || "ink"} was left out${guess ? `: ${guess}` : ""}`);
  return [...warnings, ...left].join("; ");
}

function light(position) {
  const symbol = session.symbols[position];
  if (symbol) pad.light(symbol.ink, session.boxOf(symbol));
  else pad.light();
}

/** Nothing is written: nothing is read. */
function forget() {
  setState("idle");
  for (const id of ["status", "live"]) $(id).textContent = "";
  hideNotice();
  refresh();
}

function setState(state) {
  document.body.dataset.state = state;
}

/** `about`: "reading", which an answer settles, "copy", which the next copy does, "file", "lock" or "storage". */
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
  const appeared = session.follow();
  showTools();
  if (drawing.empty) pad.resetView();
  else if (appeared && (drawing.now.photo || drawing.strokes.length > 1)) pad.fit(); // undone clearing
  if (reader.question && !session.isAbout(reader.question)) reader.stop();
  if (!player.busy || session.current) refresh(); // steps of a reading that goes on are shown on
  ask();
});
pad.addEventListener("view", showTools);
const showBars = installScrollbars(pad);

function showTools() {
  $("undo").disabled = !drawing.canUndo;
  $("redo").disabled = !drawing.canRedo;
  $("clear").disabled = drawing.empty;
  for (const id of ["save-png", "save-inkml"]) $(id).disabled = !drawing.strokes.length;
  document.body.classList.toggle("written", !drawing.empty);
  showBars();
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
    askAgain();
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
  if (drawing.empty) return;
  session.readAgain();
  askAgain(250);
}

function select(position) {
  session.selected = position;
  refresh();
  if (position === null) return;
  formula.reveal(position);
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
  const refused = session.lock(position, symbol);
  if (refused) toast(refused);
}

function refuseLock(why) {
  drawing.revert();
  showNotice(`${why} The lock was taken off.`, false, "lock");
}

function step(by) {
  const position = session.neighbour(by);
  if (position === undefined) return false;
  select(position);
}

function eraseInk(position) {
  const symbol = session.symbols[position];
  if (!symbol) return false;
  if (symbol.ink.length) drawing.erase(new Set(symbol.ink));
  else toast("This symbol has no ink of its own");
}

$("form").addEventListener("change", () => {
  session.form = $("form").value;
  remember("localStorage", FORM, session.form);
  refresh();
  if (document.body.dataset.state === "done") session.keep();
});
panel.addEventListener("pick", ({ detail }) => select(detail));
panel.addEventListener("lock", ({ detail }) => lock(detail));
panel.addEventListener("unlock", ({ detail }) => session.unlock([detail.position]));
panel.addEventListener("unlock-all", () => session.unlock([...session.locks.keys()]));
panel.addEventListener("erase", ({ detail }) => eraseInk(detail));
formula.addEventListener("pick", ({ detail }) => {
  if (!player.busy) select(detail === session.selected ? null : detail);
});
formula.addEventListener("hover", ({ detail }) => {
  if (!player.busy) light(detail ?? session.selected);
});

installControls({
  drawing,
  pad,
  history: session.history,
  ask: askAgain,
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
  answer: () => session.current,
  replay,
});

/** The last refinement again, slowly. */
function replay() {
  if (document.body.dataset.state !== "done") return;
  setState("reading");
  slowly = true;
  const lines = session.page.lines.filter(({ steps }) => steps.length);
  for (const { read, steps } of lines) {
    for (const data of steps) player.step(session.watch({ question: { read }, data }, true), "slow");
  }
  if (lines.length) return player.end();
  session.readAgain(); // the page was read as a whole, which has no steps
  askAgain();
}

async function loadModel() {
  try {
    const { symbols, formats, targets, compute, max_steps: most, threads } = await model(showLoading);
    panel.vocabulary = symbols;
    learnFormats(formats);
    $("format").replaceChildren(...Object.entries(targets).map(([value, title]) => h("option", { value }, title)));
    $("format").disabled = false;
    computing.offer(compute);
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
session.form = FORMS[recall("localStorage", FORM)] ?? FORMS.aligned;
$("form").value = session.form;
const draft = loadDraft();
if (draft) openSnapshot(draft);
showTools();
if (drawing.empty) refresh();
if (damaged.size) {
  const kept = [...damaged].map((key) => `${key}.damaged`).join(", ");
  showNotice(`What this browser kept of the page is damaged in part; it was put aside (${kept}).`, false, "storage");
}
if (!isLocal) engineIs("by this server", "it keeps nothing");
const learned = loadModel();
