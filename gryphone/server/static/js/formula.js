// The rendered formula: KaTeX sets it, and every symbol's glyphs can be boxed, tinted and clicked.

import { symbolLatex } from "./latex.js";

const OPTIONS = {
  throwOnError: false,
  strict: "ignore",
  maxExpand: 200,
  trust: ({ command }) => command === "\\htmlData", // only the marks that latex.js writes
};
const SURE = 0.9; // below this a symbol is tinted
const SMALLEST = 15; // pixels; a longer formula is scrolled
const EDGE = 8; // pixels that a symbol which is scrolled into sight keeps free
const ROOT = 0.8; // width of KaTeX's root sign, in em
const ACCENT = ".accent-body *, svg, .overline-line, .underline-line";
const SVG = "http://www.w3.org/2000/svg";

/** Set LaTeX into an element; what KaTeX refuses is shown as it is written. */
export function typeset(element, latex, { display = false } = {}) {
  try {
    window.katex.render(latex, element, { ...OPTIONS, displayMode: display });
  } catch {
    element.textContent = latex;
  }
}

export const typesetSymbol = (element, symbol) => typeset(element, symbolLatex(symbol));

export class FormulaView extends EventTarget {
  #host;
  #stage;
  #boxes;
  #math;
  #pieces = new Map(); // position -> { elements, rects }
  #shown = null;

  constructor(host) {
    super();
    this.#host = host;
    this.#stage = host.querySelector(".stage");
    this.#boxes = host.querySelector(".boxes");
    this.#math = host.querySelector(".math");
    this.#stage.addEventListener("click", (event) => this.#click(event));
    this.#stage.addEventListener("pointermove", (event) => this.#hover(this.#near(event)));
    this.#stage.addEventListener("pointerleave", () => this.#hover(null));
    new ResizeObserver(() => this.#layout()).observe(host);
    document.fonts.addEventListener("loadingdone", () => this.#layout());
  }

  clear() {
    this.#shown = null;
    this.#pieces.clear();
    this.#math.replaceChildren();
    this.#boxes.replaceChildren();
    this.#host.dataset.state = "empty";
  }

  /**
   * Show marked LaTeX; `masked` positions are boxes, `confidence` tints, locked and selected are marked,
   * and what is not about the present ink is dim.
   */
  show({ latex, masked = [], confidence = [], locked = [], selected = null, stale = false }) {
    const same = this.#shown?.latex === latex;
    this.#shown = { latex, masked: new Set(masked), confidence, locked: new Set(locked), selected };
    this.#host.dataset.state = "shown";
    this.#host.classList.toggle("stale", stale);
    if (!same) {
      typeset(this.#math, latex, { display: true });
      this.#collect();
      this.#layout();
    } else {
      this.#paint();
    }
  }

  /** Scroll a long formula, and nothing else, so that a symbol is seen. */
  reveal(position) {
    const rects = this.#pieces.get(position)?.rects ?? [];
    if (!rects.length) return;
    const [stage, host] = [this.#stage, this.#host].map((element) => element.getBoundingClientRect());
    const end = (pick, i) => pick(...rects.map((rect) => rect[i]));
    const shift = (low, high, room) => {
      if (low < EDGE) return low - EDGE;
      return Math.max(0, Math.min(high + EDGE - room, low - EDGE)); // of what is wider its beginning
    };
    const [x, y] = [stage.left - host.left, stage.top - host.top];
    this.#host.scrollBy(
      shift(x + end(Math.min, 0), x + end(Math.max, 2), this.#host.clientWidth),
      shift(y + end(Math.min, 1), y + end(Math.max, 3), this.#host.clientHeight),
    );
  }

  /** The glyphs that are a symbol's own: those of its arguments and scripts are others'. */
  #collect() {
    this.#pieces.clear();
    for (const wrapper of this.#math.querySelectorAll(".katex-html [data-p]")) {
      const leaves = glyphs(wrapper);
      let own = leaves.filter((leaf) => leaf.closest("[data-p]") === wrapper);
      if (wrapper.dataset.letter) {
        const accent = own.filter((leaf) => leaf.matches(ACCENT));
        const letter = own.filter((leaf) => !leaf.matches(ACCENT));
        this.#pieces.set(Number(wrapper.dataset.letter), { elements: letter, rects: [] });
        own = accent;
      }
      const elements = own.length ? own : leaves; // \mathbb has no glyph but its letter's
      this.#pieces.set(Number(wrapper.dataset.p), { elements, rects: [] });
    }
  }

  #layout() {
    if (!this.#shown) return;
    this.#stage.style.fontSize = "";
    const { paddingLeft, paddingTop, paddingBottom } = getComputedStyle(this.#host);
    const [width, height] = [this.#stage.offsetWidth, this.#stage.offsetHeight];
    const share = Math.min(
      (this.#host.clientWidth - 2 * parseFloat(paddingLeft)) / width,
      (this.#host.clientHeight - parseFloat(paddingTop) - parseFloat(paddingBottom)) / height,
    );
    if (share < 1) {
      const size = parseFloat(getComputedStyle(this.#stage).fontSize);
      this.#stage.style.fontSize = `${Math.max(SMALLEST, size * share - 0.2)}px`;
    }
    const origin = this.#stage.getBoundingClientRect();
    for (const piece of this.#pieces.values()) {
      const rects = joined(piece.elements.flatMap(inkRects));
      piece.rects = rects.map(([left, top, right, bottom]) => [
        left - origin.left,
        top - origin.top,
        right - origin.left,
        bottom - origin.top,
      ]);
    }
    this.#paint();
  }

  #paint() {
    const { masked, confidence, locked, selected } = this.#shown;
    this.#boxes.replaceChildren();
    for (const [position, { elements, rects }] of this.#pieces) {
      const hidden = masked.has(position);
      const sure = confidence[position] ?? 1;
      const doubt = !hidden && !locked.has(position) && selected !== position && sure < SURE;
      for (const element of elements) {
        element.classList.toggle("hidden-glyph", hidden);
        element.classList.toggle("doubt", doubt);
        element.style.setProperty("--doubt-share", `${Math.round(100 * Math.min(1, 0.35 + (SURE - sure)))}%`);
      }
      const kinds = { masked: hidden, doubt, selected: selected === position, locked: locked.has(position) };
      const classes = Object.keys(kinds).filter((kind) => kinds[kind]);
      if (classes.length) rects.forEach((rect, i) => this.#boxes.append(box(rect, classes, position, i)));
    }
  }

  #click(event) {
    const position = this.#near(event);
    this.dispatchEvent(new CustomEvent("pick", { detail: position }));
  }

  #hover(position) {
    this.#stage.classList.toggle("on-symbol", position !== null);
    this.dispatchEvent(new CustomEvent("hover", { detail: position }));
  }

  /** The symbol at or next to a pointer. */
  #near({ clientX, clientY }) {
    const origin = this.#stage.getBoundingClientRect();
    const [x, y] = [clientX - origin.left, clientY - origin.top];
    let [best, least] = [null, 14];
    for (const [position, { rects }] of this.#pieces) {
      for (const [left, top, right, bottom] of rects) {
        const away = Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
        // Inside several boxes (a root around its content), the smallest is meant.
        const score = away || ((right - left) * (bottom - top)) / 1e6 - 1;
        if (score < least) [best, least] = [position, score];
      }
    }
    return best;
  }
}

/** Elements that draw something: text, rules and stretched shapes. */
function glyphs(wrapper) {
  const found = [];
  for (const element of wrapper.querySelectorAll("*")) {
    if (element.closest("svg") && element.localName !== "svg") continue;
    const text = [...element.childNodes].some(
      (n) => n.nodeType === 3 && n.data.replace(/\u200b/g, "").trim(),
    );
    const drawn =
      text ||
      element.localName === "svg" ||
      element.matches(".frac-line, .overline-line, .underline-line, .rule");
    if (drawn) found.push(element);
  }
  return found;
}

const ruler = document.createElement("canvas").getContext("2d");

/** Left, top, right, bottom of an element's ink on the screen, not of its line box. */
function inkRects(element) {
  const text = [...element.childNodes].find((node) => node.nodeType === 3 && node.data.trim());
  if (!text) {
    const rect = element.getBoundingClientRect();
    const clip = element.closest(".hide-tail")?.getBoundingClientRect();
    const right = clip ? Math.min(rect.right, clip.right) : rect.right;
    if (!element.closest(".sqrt")) return [[rect.left, rect.top, right, rect.bottom]];
    // A root is its sign and its bar, not what stands under them.
    const em = parseFloat(getComputedStyle(element).fontSize);
    const [sign, top] = [rect.left + ROOT * em, rect.top + 0.07 * em];
    return [
      [rect.left, top, sign, rect.bottom],
      [sign + 4, top, right, top + 2],
    ];
  }
  const range = document.createRange();
  range.selectNodeContents(text);
  const rect = range.getBoundingClientRect();
  const style = getComputedStyle(element);
  ruler.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const ink = ruler.measureText(text.data);
  const baseline = rect.top + ink.fontBoundingBoxAscent;
  return [
    [
      rect.left - ink.actualBoundingBoxLeft,
      baseline - ink.actualBoundingBoxAscent,
      rect.left + ink.actualBoundingBoxRight,
      baseline + ink.actualBoundingBoxDescent,
    ],
  ];
}

/** Rectangles that stand next to each other (the letters of `mod`) as one. */
function joined(rects) {
  const out = [];
  for (const rect of rects) {
    const last = out.at(-1);
    const beside =
      last && rect[0] - last[2] < 1.5 && rect[0] >= last[0] && rect[1] < last[3] && rect[3] > last[1];
    if (beside)
      out[out.length - 1] = [
        last[0],
        Math.min(last[1], rect[1]),
        Math.max(last[2], rect[2]),
        Math.max(last[3], rect[3]),
      ];
    else out.push(rect);
  }
  return out;
}

function box([left, top, right, bottom], classes, position, index) {
  const element = document.createElement("span");
  element.className = ["box", ...classes].join(" ");
  element.dataset.position = position;
  const [padX, padY] = [1, 1.5];
  const least = (size) => Math.max(size, 5); // a minus sign is a box too
  const [width, height] = [least(right - left), least(bottom - top)];
  Object.assign(element.style, {
    left: `${(left + right - width) / 2 - padX}px`,
    top: `${(top + bottom - height) / 2 - padY}px`,
    width: `${width + 2 * padX}px`,
    height: `${height + 2 * padY}px`,
  });
  if (index === 0 && classes.includes("locked")) element.append(icon("lock"));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.classList.add("icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}
