// The canvas: pen, touch and mouse to strokes; strokes, photo and lit ink to pixels.

import { bounds, round } from "./drawing.js";
import { strokePaths } from "./pen.js";
import { clamped, fitted, inSight, shifted } from "./view.js";

const REACH = 9; // how near the eraser must come, in screen pixels
const NEAR = [90, 130]; // screen pixels from the right and the lower edge, where paper runs out
const PALM_MS = 700; // touches this soon after the pen are the palm

export class Pad extends EventTarget {
  #canvas;
  #context;
  #drawing;
  #view = { scale: 1, x: 0, y: 0 };
  #home = { view: this.#view, size: [0, 0] }; // as the user left it; resizing starts from here
  #pointers = new Map(); // id -> { x, y, type }
  #gesture = null; // what the pointers are doing: { kind: "draw" | "erase" | "pan" | "pinch", ... }
  #lit = { strokes: new Set(), box: null };
  #frames = []; // { box, label, dash }
  #penAt = -Infinity;
  #penSeen = false;
  #frame = 0;
  #size = [0, 0];
  tool = "pen";
  panKey = false;

  constructor(canvas, drawing) {
    super();
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#drawing = drawing;
    const on = (name, handler, options) => canvas.addEventListener(name, handler, options);
    on("pointerdown", (event) => this.#down(event));
    on("pointermove", (event) => this.#move(event));
    on("pointerup", (event) => this.#up(event));
    on("pointercancel", (event) => this.#cancel(event));
    on("wheel", (event) => this.#wheel(event), { passive: false });
    on("contextmenu", (event) => event.preventDefault());
    // Writing neither selects text nor drags it along, and ends typing in a field.
    on("mousedown", (event) => {
      event.preventDefault();
      document.activeElement?.blur();
    });
    new ResizeObserver(() => this.#resize()).observe(canvas);
    this.#watchRatio();
    addEventListener("beforeprint", () => this.#print(true));
    addEventListener("afterprint", () => this.#print(false));
    drawing.addEventListener("change", () => {
      this.#home = { view: this.#view, size: this.#size };
      this.redraw();
    });
  }

  get busy() {
    return this.#gesture?.kind === "draw" || this.#gesture?.kind === "erase";
  }

  get zoom() {
    return this.#view.scale;
  }

  /** Light up strokes, or a box where there are none. */
  light(strokes = [], box = null) {
    this.#lit = { strokes: new Set(strokes), box };
    this.redraw();
  }

  /** Frame and number the lines of a page, and what is none. */
  frame({ lines, asides }) {
    this.#frames = [
      ...lines.map(({ strokes }, i) => ({ box: bounds(strokes), label: String(i + 1), dash: [] })),
      ...asides.map(({ strokes, kind }) => ({ box: bounds(strokes), label: kind, dash: [5, 5] })),
    ];
    this.redraw();
  }

  zoomBy(factor, at = this.#size.map((side) => side / 2)) {
    const scale = clamped(this.#view.scale * factor);
    this.#zoomTo(scale, at, this.#toWorld(at));
  }

  /**
   * The paper's part that is seen, the paper (what is seen and written, and room behind the writing), and
   * whether the last stroke comes near the right or the lower edge; boxes in the drawing's units.
   */
  get sight() {
    const { strokes } = this.#drawing;
    const seen = [...this.#toWorld([0, 0]), ...this.#toWorld(this.#size)];
    const ink = this.#box();
    if (!ink) return { seen, paper: seen, near: [false, false] };
    const room = seen.slice(2).map((end, i) => (end - seen[i]) / 3);
    // What is written in sight needs no bar yet.
    const reach = [0, 1].map((i) => (ink[i + 2] > seen[i + 2] ? ink[i + 2] + room[i] : seen[i + 2]));
    const paper = [Math.min(ink[0], seen[0]), Math.min(ink[1], seen[1]), ...reach];
    const last = bounds(this.#drawing.now.photo ? [] : strokes.slice(-1));
    const near = [0, 1].map((i) => {
      const end = seen[i + 2] - NEAR[i] / this.#view.scale;
      return last !== null && last[i + 2] > end && last[i] < seen[i + 2];
    });
    return { seen, paper, near };
  }

  scrollBy(dx, dy) {
    this.#setView({ ...this.#view, x: this.#view.x - dx, y: this.#view.y - dy });
  }

  /** Move the last stroke to where there is room behind it: across (0) or down (1). */
  makeRoom(axis) {
    const end = bounds(this.#drawing.strokes.slice(-1))[axis + 2];
    const by = end * this.#view.scale + [this.#view.x, this.#view.y][axis] - 0.35 * this.#size[axis];
    this.scrollBy(...(axis ? [0, by] : [by, 0]));
  }

  resetView() {
    this.#setView({ scale: 1, x: 0, y: 0 });
  }

  /** Show everything; writing that fits as it is stays as large as it is. */
  fit(most = 1) {
    const box = this.#box();
    if (!box || !this.#size[0]) return this.resetView();
    this.#setView(fitted(box, this.#size, most));
  }

  /** Move the paper, no more than needed, so that lit ink is seen above the lowest `covered` pixels. */
  reveal(covered = 0) {
    const box = this.#lit.box ?? bounds(this.#lit.strokes);
    if (!box) return;
    const view = shifted(this.#view, box, this.#size, covered);
    if (view !== this.#view) this.#setView(view);
  }

  redraw() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  // Pointers

  #down(event) {
    const { pointerId, pointerType: type } = event;
    const at = this.#at(event);
    if (type === "pen") {
      this.#penSeen = true;
      if (this.#gesture && this.#gesture.type === "touch") this.#drop();
    }
    if (type === "touch" && this.#isPalm()) return;
    if (type === "mouse" && event.button === 2) return;
    this.#canvas.setPointerCapture(pointerId);
    this.#pointers.set(pointerId, { at, type });
    const fingers = [...this.#pointers.values()].filter((pointer) => pointer.type === "touch");
    if (fingers.length === 2 && this.#gesture?.type === "touch") return this.#startPinch();
    if (this.#gesture) return;
    this.#gesture = this.#start(event, type, at);
    if (this.busy) this.dispatchEvent(new Event("start"));
    this.redraw();
  }

  #start(event, type, at) {
    const base = { id: event.pointerId, type };
    // Who writes with a pen moves the paper with a finger.
    const finger = type === "touch" && this.#penSeen;
    if (this.tool === "hand" || this.panKey || event.button === 1 || finger) {
      return { ...base, kind: "pan", at };
    }
    const world = this.#toWorld(at);
    if (this.tool === "eraser" || event.button === 5) {
      const gesture = { ...base, kind: "erase", gone: new Set(), at: world };
      this.#rub(gesture, world);
      return gesture;
    }
    return { ...base, kind: "draw", began: event.timeStamp, points: [this.#point(event, world, 0)] };
  }

  #move(event) {
    const pointer = this.#pointers.get(event.pointerId);
    if (!pointer) return;
    const at = this.#at(event);
    const before = pointer.at;
    pointer.at = at;
    const gesture = this.#gesture;
    if (gesture?.kind === "pinch") return this.#pinch();
    if (gesture?.id !== event.pointerId) return;
    if (event.pointerType === "pen") this.#penAt = event.timeStamp;
    if (gesture.kind === "pan") {
      this.scrollBy(before[0] - at[0], before[1] - at[1]);
      return;
    }
    const coalesced = event.getCoalescedEvents?.() ?? [];
    for (const each of coalesced.length ? coalesced : [event]) {
      const world = this.#toWorld(this.#at(each));
      if (gesture.kind === "erase") this.#rub(gesture, world);
      else this.#extend(gesture, each, world);
    }
    this.redraw();
  }

  #up(event) {
    if (!this.#pointers.delete(event.pointerId)) return;
    const gesture = this.#gesture;
    if (gesture?.kind === "pinch") {
      if (this.#pointers.size < 2) this.#gesture = null;
      return;
    }
    if (gesture?.id !== event.pointerId) return;
    this.#gesture = null;
    if (event.pointerType === "pen") this.#penAt = event.timeStamp;
    if (gesture.kind === "draw") this.#drawing.add({ points: gesture.points });
    if (gesture.kind === "erase") this.#drawing.erase(gesture.gone);
    if (gesture.kind !== "pan") this.dispatchEvent(new Event("end"));
    this.redraw();
  }

  #cancel(event) {
    this.#pointers.delete(event.pointerId);
    if (this.#gesture?.id === event.pointerId || this.#gesture?.kind === "pinch") this.#drop();
  }

  /** Forget what was under way: it was a palm, or the first finger of a pinch. */
  #drop() {
    const busy = this.busy;
    this.#gesture = null;
    if (busy) this.dispatchEvent(new Event("end"));
    this.redraw();
  }

  #isPalm() {
    return this.#gesture?.type === "pen" || performance.now() - this.#penAt < PALM_MS;
  }

  #point(event, [x, y], time) {
    const point = [round(x), round(y), Math.round(time)];
    if (event.pointerType === "pen" && event.pressure > 0) point.push(round(event.pressure));
    return point;
  }

  #extend({ points, began }, event, world) {
    const last = points.at(-1);
    const moved = Math.hypot(world[0] - last[0], world[1] - last[1]) * this.#view.scale;
    if (moved >= 0.7) points.push(this.#point(event, world, event.timeStamp - began));
  }

  #rub(gesture, to) {
    const reach = REACH / this.#view.scale;
    const [from, length] = [gesture.at, Math.hypot(to[0] - gesture.at[0], to[1] - gesture.at[1])];
    for (let i = 0, n = Math.ceil(length / reach) || 1; i <= n; i++) {
      const at = [from[0] + ((to[0] - from[0]) * i) / n, from[1] + ((to[1] - from[1]) * i) / n];
      for (const stroke of this.#drawing.strokes) {
        if (!gesture.gone.has(stroke) && touches(stroke, at, reach)) gesture.gone.add(stroke);
      }
    }
    gesture.at = to;
  }

  #startPinch() {
    const busy = this.busy;
    this.#gesture = { kind: "pinch", type: "touch", ...this.#fingers(), scale: this.#view.scale };
    this.#gesture.world = this.#toWorld(this.#gesture.middle);
    if (busy) this.dispatchEvent(new Event("end"));
  }

  #pinch() {
    const { middle, apart } = this.#fingers();
    const wanted = (this.#gesture.scale * apart) / this.#gesture.apart;
    const scale = clamped(wanted);
    this.#zoomTo(scale, middle, this.#gesture.world);
  }

  #fingers() {
    const [a, b] = [...this.#pointers.values()].map((pointer) => pointer.at);
    const middle = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
    return { middle, apart: Math.max(10, Math.hypot(a[0] - b[0], a[1] - b[1])) };
  }

  #wheel(event) {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      this.zoomBy(Math.exp(-event.deltaY / 250), this.#at(event));
      return;
    }
    const unit = event.deltaMode === 1 ? 16 : 1;
    const [dx, dy] = event.shiftKey ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    this.scrollBy(dx * unit, dy * unit);
  }

  // View

  #at(event) {
    const rect = this.#canvas.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  }

  #toWorld([x, y]) {
    return [(x - this.#view.x) / this.#view.scale, (y - this.#view.y) / this.#view.scale];
  }

  #zoomTo(scale, [x, y], world) {
    this.#setView({ scale, x: x - world[0] * scale, y: y - world[1] * scale });
  }

  #box() {
    const { photo } = this.#drawing.now;
    return photo ? [0, 0, photo.width, photo.height] : bounds(this.#drawing.strokes);
  }

  #setView(view) {
    this.#home = { view, size: this.#size };
    this.#show(view);
    this.redraw();
  }

  #show(view) {
    this.#view = view;
    const style = this.#canvas.style;
    style.setProperty("--grid", `${28 * view.scale}px`);
    style.setProperty("--grid-x", `${view.x}px`);
    style.setProperty("--grid-y", `${view.y}px`);
    this.dispatchEvent(new Event("view"));
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!width || !height) return;
    this.#size = [width, height];
    const box = this.#box();
    this.#show(box ? inSight(this.#home, box, this.#size) : this.#home.view);
    this.#draw(); // at once, or the old bitmap is seen stretched
  }

  /** A window that goes to another screen keeps its size, but not its pixels. */
  #watchRatio() {
    const changed = () => {
      this.#watchRatio();
      this.redraw();
    };
    matchMedia(`(resolution: ${devicePixelRatio}dppx)`).addEventListener("change", changed, { once: true });
  }

  /** All ink, on paper that is white in either theme; what is drawn only after this event is not printed. */
  #print(on) {
    this.#canvas.style.colorScheme = on ? "light" : "";
    if (!on) return this.#resize(); // back to what was in sight
    const box = this.#box();
    if (box) this.#view = fitted(box, this.#size, 1);
    this.#draw();
  }

  // Pixels

  #draw() {
    const [c, { scale, x, y }, ratio] = [this.#context, this.#view, devicePixelRatio];
    const { photo, pen } = this.#drawing.now;
    const colours = getComputedStyle(this.#canvas);
    const colour = (name) => colours.getPropertyValue(name).trim();
    const pixels = this.#size.map((side) => Math.round(side * ratio));
    if (this.#canvas.width !== pixels[0]) this.#canvas.width = pixels[0];
    if (this.#canvas.height !== pixels[1]) this.#canvas.height = pixels[1];
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, ...pixels);
    c.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
    const untouched = photo && this.#drawing.now.strokes === null;
    if (photo) this.#drawPhoto(photo, untouched ? 1 : 0.35);
    for (const frame of this.#frames) this.#drawFrame(frame, colour("--frame"));
    const { strokes: lit, box } = this.#lit;
    const gone = this.#gesture?.gone;
    const [bright, halo] = photo ? ["--lit-photo", "--halo-photo"] : ["--lit", "--lit-halo"];
    for (const stroke of lit) drawStroke(c, stroke, pen + 9 / scale, colour(halo));
    if (box) this.#drawBox(box, colour(halo));
    for (const stroke of this.#drawing.strokes) {
      const isLit = lit.has(stroke);
      if (untouched && !isLit) continue; // the photo shows it already
      c.globalAlpha = gone?.has(stroke) ? 0.15 : 1;
      drawStroke(c, stroke, pen, colour(isLit ? bright : "--ink"));
    }
    c.globalAlpha = 1;
    if (this.#gesture?.kind === "draw") drawStroke(c, this.#gesture, pen, colour("--ink"));
  }

  /** A transparent picture has white paper under it; both fade as one. */
  #drawPhoto({ image, width, height }, alpha) {
    const c = this.#context;
    c.fillStyle = "white";
    c.fillRect(0, 0, width, height);
    c.drawImage(image, 0, 0, width, height);
    c.globalAlpha = alpha;
    c.globalCompositeOperation = "destination-in";
    c.fillRect(0, 0, width, height);
    c.globalCompositeOperation = "source-over";
    c.globalAlpha = 1;
  }

  #drawFrame({ box: [left, top, right, bottom], label, dash }, colour) {
    const [c, pixel] = [this.#context, 1 / this.#view.scale];
    const margin = 10 * pixel;
    c.strokeStyle = c.fillStyle = colour;
    c.lineWidth = 1.2 * pixel;
    c.setLineDash(dash.map((length) => length * pixel));
    c.beginPath();
    c.roundRect(left - margin, top - margin, right - left + 2 * margin, bottom - top + 2 * margin, margin);
    c.stroke();
    c.setLineDash([]);
    c.font = `${12 * pixel}px system-ui, sans-serif`;
    c.textAlign = label.length > 2 ? "left" : "right";
    c.fillText(label, left - margin + (label.length > 2 ? 4 : -5) * pixel, top - margin + (label.length > 2 ? -4 : 12) * pixel);
  }

  #drawBox([left, top, right, bottom], colour) {
    const margin = 6 / this.#view.scale;
    this.#context.fillStyle = colour;
    this.#context.beginPath();
    const [w, h] = [right - left + 2 * margin, bottom - top + 2 * margin];
    this.#context.roundRect(left - margin, top - margin, w, h, margin);
    this.#context.fill();
  }
}

function drawStroke(context, stroke, pen, colour) {
  context.strokeStyle = context.fillStyle = colour;
  context.lineCap = context.lineJoin = "round";
  for (const { path, width } of strokePaths(stroke)) {
    context.lineWidth = pen * width;
    context.stroke(path);
  }
}

function touches({ points }, [x, y], reach) {
  return points.some((point, i) => {
    const [ax, ay] = points[Math.max(0, i - 1)];
    const [dx, dy] = [point[0] - ax, point[1] - ay];
    const along = Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1)));
    return Math.hypot(x - ax - along * dx, y - ay - along * dy) <= reach;
  });
}
