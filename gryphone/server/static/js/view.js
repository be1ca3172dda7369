// Which part of the paper is seen: pure functions of a view { scale, x, y }, boxes and sizes.
//
// A box is [left, top, right, bottom] in the drawing's units, a size [width, height] in pixels.

const ZOOM = [0.1, 12];
const [MARGIN, TOOLBAR] = [28, 56];
const [EDGE, FOOT] = [24, 84]; // what ink keeps free, where it did, as the paper shrinks: edges, toolbar

/** A scale within the limits. */
export const clamped = (scale) => Math.min(ZOOM[1], Math.max(ZOOM[0], scale));

/** A view of the whole box, in the middle, at most `most` times as large as it is. */
export function fitted(box, [width, height], most) {
  const [w, h] = [Math.max(box[2] - box[0], 1), Math.max(box[3] - box[1], 1)];
  const room = Math.min((width - 2 * MARGIN) / w, (height - 2 * MARGIN - TOOLBAR) / h);
  const scale = Math.min(most, Math.max(ZOOM[0], room));
  return {
    scale,
    x: (width - w * scale) / 2 - box[0] * scale,
    y: (height - TOOLBAR - h * scale) / 2 - box[1] * scale,
  };
}

/** The view, moved no more than needed for a box to be seen above the lowest `covered` pixels. */
export function shifted(view, box, [width, height], covered) {
  const { scale, x, y } = view;
  const shift = (low, high, room) => {
    const margin = Math.min(EDGE, Math.max(0, (room - (high - low)) / 2));
    return low < margin ? margin - low : Math.min(0, Math.max(room - margin - high, margin - low));
  };
  const dx = shift(box[0] * scale + x, box[2] * scale + x, width);
  const dy = shift(box[1] * scale + y, box[3] * scale + y, Math.max(60, height - Math.max(covered, 64)));
  return dx || dy ? { scale, x: x + dx, y: y + dy } : view;
}

/** A view of paper that had another size, moved and shrunk no more than keeps in sight what was. */
export function inSight({ view, size: old }, box, size) {
  const axes = [view.x, view.y].map((origin, i) => {
    // Before there is a size, ink comes from an earlier visit: all of it is to be seen.
    const [least, most] = old[i] ? [0, old[i]] : [-Infinity, Infinity];
    const low = Math.max(least, box[i] * view.scale + origin);
    const high = Math.min(most, box[i + 2] * view.scale + origin);
    const before = Math.max(0, Math.min(EDGE, low));
    const after = Math.min(i ? FOOT : EDGE, most - high);
    return { origin, low, length: high - low, before, end: size[i] - after };
  });
  if (axes.some(({ length }) => length < 0)) return view;
  const room = axes.map(({ length, before, end }) => (end - before) / Math.max(1, length));
  const scale = Math.max(ZOOM[0], view.scale * Math.min(1, ...room));
  const shrink = scale / view.scale;
  const [x, y] = axes.map(({ origin, low, length, before, end }) => {
    const to = Math.max(before, Math.min(low, end - length * shrink));
    return to - (low - origin) * shrink;
  });
  return { scale, x, y };
}
