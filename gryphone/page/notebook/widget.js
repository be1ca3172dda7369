// A canvas in a notebook's cell: the page's own paper and formula, read by the kernel.

import { h, percent } from "./dom.js";
import { BLANK, Drawing } from "./drawing.js";
import { FormulaView, icon } from "./formula.js";
import { markedLatex } from "./latex.js";
import { FONTS, PROPERTIES, SPRITE, STYLE } from "./look.js";
import { Pad } from "./pad.js";

const PAUSE = 380; // ms after the pen was lifted
const PACE = 60; // ms that a step is seen, at least
const OWN_STYLE = `
:host { color-scheme: light; display: block; max-width: 760px; color: var(--text); font: 15px/1.5 var(--sans); }
.result, .paper { grid-area: auto; margin: 2px 2px 10px; }
.paper { height: var(--height); }
.formula { height: 110px; }`;

/** What a shadow root cannot declare for itself. */
function prepare(document) {
  if (document.getElementById("gryphone-properties")) return;
  document.head.append(h("style", { id: "gryphone-properties" }, PROPERTIES));
  for (const [family, style, weight, data] of FONTS) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    document.fonts.add(new FontFace(family, bytes, { style, weight }));
  }
}

export function render({ model, el }) {
  prepare(document);
  // In a root of its own, lest the notebook's styles and ours change each other.
  const host = h("div", { "data-lm-suppress-shortcuts": "true", style: `--height: ${model.get("height")}px` });
  const root = host.attachShadow({ mode: "open" });
  root.innerHTML = `<style>${STYLE}${OWN_STYLE}</style>${SPRITE}
    <section class="card result">
      <div class="progress" aria-hidden="true"><span></span></div>
      <div class="formula" data-state="empty" role="region" aria-label="The formula as it was read">
        <p class="placeholder">Your formula appears here.</p>
        <div class="stage"><div class="boxes" aria-hidden="true"></div><div class="math"></div></div>
      </div>
      <div class="source"><code class="latex" aria-label="LaTeX"></code><span class="status" role="status"></span></div>
    </section>
    <section class="card paper">
      <canvas class="pad" tabindex="0" role="img" aria-label="Canvas: write a formula here with pen, finger or mouse"></canvas>
      <p class="invite" aria-hidden="true">Write here<span>with a pen, a finger or the mouse</span></p>
      <div class="tools" role="toolbar" aria-label="Canvas tools"></div>
    </section>`;
  el.append(host);
  const $ = (selector) => root.querySelector(selector);

  const drawing = new Drawing();
  const pad = new Pad($(".pad"), drawing);
  const formula = new FormulaView($(".formula"));
  const tool = (name) => () => {
    pad.tool = $(".pad").dataset.mode = name;
    for (const each of ["pen", "eraser"]) buttons[each].setAttribute("aria-pressed", String(each === name));
  };
  const button = (name, label, onclick) =>
    h("button", { type: "button", "aria-label": label, title: label, onclick }, icon(name));
  const buttons = {
    pen: button("pen", "Pen", tool("pen")),
    eraser: button("eraser", "Erase strokes", tool("eraser")),
    undo: button("undo", "Undo", () => drawing.undo()),
    redo: button("redo", "Redo", () => drawing.redo()),
    clear: button("clear", "Clear", () => drawing.clear()),
    fit: button("fit", "Fit everything", () => pad.fit()),
  };
  buttons.fit.replaceChildren("100 %");
  buttons.fit.className = "zoom";
  $(".tools").append(...Object.values(buttons));

  function showTools() {
    buttons.undo.disabled = !drawing.canUndo;
    buttons.redo.disabled = !drawing.canRedo;
    buttons.clear.disabled = drawing.empty;
    buttons.fit.textContent = `${Math.round(100 * pad.zoom)} %`;
    $(".paper").classList.toggle("written", !drawing.empty);
  }

  function show(rows, more) {
    formula.show({ latex: markedLatex(rows), ...more });
  }

  function say(status, latex = $(".latex").textContent, share = 0) {
    $(".status").textContent = status;
    $(".latex").textContent = latex;
    $(".progress span").style.transform = `scaleX(${share})`;
  }

  // Asking the kernel: what it says of ink that is there no more is not shown.
  let asked = 0;
  let timer = 0;
  let said = []; // what is still to be shown

  function stop() {
    clearTimeout(timer);
    timer = asked = 0;
    said = [];
  }

  function read() {
    stop();
    timer = setTimeout(ask, drawing.empty ? 0 : PAUSE);
  }

  function ask() {
    timer = 0;
    asked = Math.random(); // another view of this pad hears the answer, too
    model.send({ id: asked, strokes: drawing.strokes.map(({ points }) => points.map(([x, y]) => [x, y])) });
    if (drawing.empty) {
      formula.clear();
      say("", "");
    } else say("Reading…");
  }

  function hear(message) {
    if (message.id !== asked) return;
    said.push(message);
    timer ||= setTimeout(play);
  }

  function play() {
    const { event, data } = said.shift();
    timer = said.length ? setTimeout(play, PACE) : 0;
    if (event === "step") {
      show(data.rows, { masked: data.masked });
      say("Reading…", data.latex, data.number / data.total);
    } else if (event === "result") {
      const rows = data.symbols.map(({ symbol, modifier }) => [symbol, modifier]);
      show(rows, { confidence: data.symbols.map(({ confidence }) => confidence) });
      say(`${percent(data.confidence)} sure`, data.latex);
      model.set("seen", asked); // marimo runs the cells that use a widget again where the browser changes it
      model.save_changes();
    } else say(data);
  }

  model.on("msg:custom", hear);
  drawing.addEventListener("change", () => {
    showTools();
    if (drawing.empty) pad.resetView();
    read();
  });
  pad.addEventListener("start", stop);
  pad.addEventListener("end", () => drawing.empty || read());
  pad.addEventListener("view", showTools);
  // The wheel alone moves the notebook, not the paper.
  $(".paper").addEventListener("wheel", (event) => event.ctrlKey || event.stopPropagation(), { capture: true });

  tool("pen")();
  showTools();
  const before = model.get("ink");
  if (before.length) drawing.open({ ...BLANK, strokes: before.map((points) => ({ points })) });
  return () => {
    stop();
    model.off("msg:custom", hear);
    host.remove();
  };
}
