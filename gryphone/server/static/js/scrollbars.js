// Paper as large as the writing needs: bars that show and move it, and buttons for more room.

import { $, h } from "./dom.js";

const AXES = [
  { name: "across", start: "left", size: "width", client: "clientX" },
  { name: "down", start: "top", size: "height", client: "clientY" },
];

export function installScrollbars(pad) {
  const bars = AXES.map((axis, i) => {
    const thumb = h("span", {});
    const bar = h("div", { class: `bar ${axis.name}`, "aria-hidden": "true", hidden: true }, thumb);
    $("pad").after(bar);
    let from = null; // where the pointer was last
    const drag = (event) => {
      if (from === null) return;
      const { seen, paper } = pad.sight;
      const share = (event[axis.client] - from) / bar.getBoundingClientRect()[axis.size];
      from = event[axis.client];
      const by = share * (paper[i + 2] - paper[i]) * pad.zoom;
      if (seen[i] > paper[i] || by > 0) pad.scrollBy(...(i ? [0, by] : [by, 0]));
    };
    thumb.addEventListener("pointerdown", (event) => {
      thumb.setPointerCapture(event.pointerId);
      from = event[axis.client];
    });
    thumb.addEventListener("pointermove", drag);
    for (const name of ["pointerup", "pointercancel"]) thumb.addEventListener(name, () => (from = null));
    return { bar, thumb };
  });
  const room = [$("room-right"), $("room-down")];
  room.forEach((button, i) => button.addEventListener("click", () => pad.makeRoom(i)));

  const show = () => {
    const { seen, paper, near } = pad.sight;
    AXES.forEach(({ start, size }, i) => {
      const length = paper[i + 2] - paper[i];
      const part = (seen[i + 2] - seen[i]) / length;
      bars[i].bar.hidden = part > 0.999;
      bars[i].thumb.style[start] = `${(100 * (seen[i] - paper[i])) / length}%`;
      bars[i].thumb.style[size] = `${100 * part}%`;
      room[i].hidden = !near[i];
    });
  };
  pad.addEventListener("view", show);
  pad.addEventListener("end", show);
  return show;
}
