// Strokes as smooth curves, as wide as the pen was pressed.

import { bounds } from "./drawing.js";

const SVG = "http://www.w3.org/2000/svg";
const LEVELS = 8; // widths of a pressed stroke
const cache = new WeakMap(); // finished strokes never change

/** Paths of a stroke with their widths in pens: one, or several where pressure varies. */
export function strokePaths(stroke) {
  if (Object.hasOwn(stroke, "kind")) return makePaths(stroke.points); // still being written
  let paths = cache.get(stroke);
  if (!paths) cache.set(stroke, (paths = makePaths(stroke.points)));
  return paths;
}

function makePaths(points) {
  const pressed = points.length > 1 && points[0].length > 3;
  const out = [];
  let [path, level] = [null, -1];
  for (let i = 0; i < Math.max(1, points.length - 1); i++) {
    const wanted = pressed ? Math.round(LEVELS * (points[i][3] ?? 0.5)) : LEVELS / 2;
    if (wanted !== level) {
      level = wanted;
      path = new Path2D();
      out.push({ path, width: pressed ? 0.45 + (1.1 * level) / LEVELS : 1 });
      path.moveTo(...middle(points[Math.max(0, i - 1)], points[i], i === 0));
    }
    const next = points[i + 1];
    if (!next)
      path.lineTo(points[i][0] + 0.01, points[i][1]); // a dot
    else if (i + 1 === points.length - 1) path.quadraticCurveTo(points[i][0], points[i][1], next[0], next[1]);
    else path.quadraticCurveTo(points[i][0], points[i][1], ...middle(points[i], next, false));
  }
  return out;
}

function middle(a, b, first) {
  return first ? [b[0], b[1]] : [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
}

/** Strokes as a picture of their own: dark ink on white, cropped. */
export function drawPicture(strokes, [left, top, right, bottom], pen) {
  const size = Math.max(right - left, bottom - top, 1);
  const scale = Math.min(4000 / size, Math.max(2, 600 / size));
  const margin = 24;
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil((right - left) * scale + 2 * margin);
  canvas.height = Math.ceil((bottom - top) * scale + 2 * margin);
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.translate(margin - left * scale, margin - top * scale);
  context.scale(scale, scale);
  context.strokeStyle = "black";
  context.lineCap = context.lineJoin = "round";
  for (const stroke of strokes) {
    for (const { path, width } of strokePaths(stroke)) {
      context.lineWidth = pen * width;
      context.stroke(path);
    }
  }
  return canvas;
}

/** Strokes ([[x, y], ...] each) as a small picture in the colour of the text around it. */
export function thumbnail(strokes) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  const [left, top, right, bottom] = bounds(strokes.map((points) => ({ points })));
  const margin = 0.06 * Math.max(right - left, bottom - top, 1);
  const sides = [left - margin, top - margin, right - left + 2 * margin, bottom - top + 2 * margin];
  svg.setAttribute("viewBox", sides.map(Math.round).join(" "));
  svg.setAttribute("class", "thumbnail");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", strokes.map((points) => `M${[...points, points.at(-1)].map((p) => p.slice(0, 2))}`).join(""));
  svg.append(path);
  return svg;
}
