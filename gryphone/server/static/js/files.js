// Files in and out: photos and InkML opened, dropped or pasted; PNG and InkML downloaded.

import { $ } from "./dom.js";
import { bounds } from "./drawing.js";
import { isTyping } from "./keys.js";
import { drawPicture } from "./pen.js";

const LARGEST_SIDE = 2600; // larger photos are made smaller before they are sent

let formats = []; // what the server knows, and which of it it reads; none before it has told

export function learnFormats(told) {
  formats = told;
  const ink = told.filter(({ read, picture }) => read && !picture);
  $("file").accept = ["image/*", ...ink.flatMap(({ suffixes, types }) => [...suffixes, ...types])].join();
}

/** A photo ready to show and send; null if this browser cannot show it. */
export async function readPhoto(file) {
  let image;
  try {
    image = await createImageBitmap(file, { imageOrientation: "from-image" });
  } catch {
    return null;
  }
  const shrink = Math.min(1, LARGEST_SIDE / Math.max(image.width, image.height));
  const sentAsIs = formats.some(({ read, types }) => read && types.includes(file.type));
  if (shrink < 1 || !sentAsIs) {
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(image.width * shrink);
    canvas.height = Math.round(image.height * shrink);
    const context = canvas.getContext("2d");
    context.fillStyle = "#fff"; // where it is transparent there is paper; JPEG would make it black
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
    return photo(await createImageBitmap(blob), new File([blob], file.name, { type: "image/jpeg" }));
  }
  return photo(image, file);
}

const photo = (image, file) => ({ image, file, width: image.width, height: image.height, traced: null, refused: null });

/** "photo", "ink", or null for what the page cannot open. */
export function kindOf({ name, type }) {
  const known =
    formats.find(({ suffixes }) => suffixes.some((suffix) => name.toLowerCase().endsWith(suffix))) ??
    formats.find(({ types }) => types.includes(type));
  if (known ? known.picture : type.startsWith("image/")) return "photo"; // browsers show more than is read
  return known?.read || !formats.length ? "ink" : null; // the server says what is wrong with it
}

/** Files, and InkML as text, that are dropped or pasted anywhere on the page. */
export function acceptDrops(onFile, zone) {
  let depth = 0;
  const show = (change) => {
    depth = Math.max(0, depth + change);
    zone.hidden = depth === 0;
  };
  addEventListener("dragenter", (event) => {
    if ([...event.dataTransfer.types].includes("Files")) show(1);
  });
  addEventListener("dragleave", () => show(-1));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    show(-depth);
    receive(event.dataTransfer);
  });
  addEventListener("paste", (event) => isTyping(event.target) || receive(event.clipboardData));
  const receive = (data) => {
    const [file] = data.files;
    const text = data.getData("text/plain").trim();
    if (file) onFile(file);
    else if (/^(<\?xml[^>]*>\s*)?<ink\b/.test(text)) onFile(new File([text], "ink.inkml"));
  };
}

export function toInkml(strokes, latex) {
  const timed = strokes.every(({ points }) => points.every((point) => point.length > 2));
  const channels = timed ? ["X", "Y", "T"] : ["X", "Y"];
  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  return [
    '<ink xmlns="http://www.w3.org/2003/InkML">',
    "  <traceFormat>",
    ...channels.map((name) => `    <channel name="${name}" type="decimal"/>`),
    "  </traceFormat>",
    ...(latex ? [`  <annotation type="truth">$${escape(latex)}$</annotation>`] : []),
    ...strokes.map(({ points }, i) => {
      const trace = points.map((point) => point.slice(0, channels.length).join(" ")).join(", ");
      return `  <trace id="${i}">${trace}</trace>`;
    }),
    "</ink>",
    "",
  ].join("\n");
}

export function downloadInkml(strokes, latex) {
  download(new Blob([toInkml(strokes, latex)], { type: "application/inkml+xml" }), "formula.inkml");
}

export function downloadPng(strokes, pen) {
  drawPicture(strokes, bounds(strokes), pen).toBlob((blob) => download(blob, "formula.png"), "image/png");
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Text, or the promise of it, to the clipboard, also where the page is not served over https. */
export async function copyText(text) {
  try {
    // The promise goes with it: who waits for it first may no longer copy in some browsers.
    const blob = Promise.resolve(text).then((found) => new Blob([found], { type: "text/plain" }));
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
  } catch {
    const area = document.createElement("textarea");
    area.value = await text;
    area.className = "sr";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("This browser did not allow copying.");
  }
}
