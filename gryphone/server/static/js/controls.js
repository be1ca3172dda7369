// Buttons, keys, dialogs and files: every way to ask the page for something.

import { apiKey } from "./client.js";
import { $, toast } from "./dom.js";
import { convert } from "./engine.js";
import { EXAMPLE } from "./example.js";
import { acceptDrops, copyText, downloadInkml, downloadPng } from "./files.js";
import { HistoryDialog } from "./history-dialog.js";
import { installKeys } from "./keys.js";
import { FORMS } from "./lines.js";
import { installTheme } from "./theme-button.js";

const PAN = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80] };

/** `page`: what app.js can do. */
export function installControls(page) {
  const { drawing, pad } = page;
  const copyAs = async (what, text) => {
    try {
      await copyText(text);
      page.hideNotice("copy");
      toast(`${what} copied`);
    } catch (error) {
      page.showNotice(error.message, false, "copy");
    }
  };
  const copy = (what, text) => {
    if (page.answer()) copyAs(what, text(page.answer()));
    else if (!drawing.empty) toast("The new ink is not read yet");
  };
  const save = (download, ...more) => drawing.strokes.length && download(drawing.strokes, ...more);
  const actions = {
    undo: () => drawing.undo(),
    redo: () => drawing.redo(),
    clear: () => {
      const focused = document.activeElement === $("clear");
      drawing.clear();
      if (focused) $("undo").focus(); // it cannot be pressed twice
    },
    fit: () => pad.fit(),
    "zoom-in": () => pad.zoomBy(1.25),
    "zoom-out": () => pad.zoomBy(0.8),
    open: () => $("file").click(),
    replay: page.replay,
    "copy-latex": () => copy("LaTeX", ({ latex }) => latex),
    "copy-mathml": () => page.answer()?.mathml !== null && copy("MathML", ({ mathml }) => mathml),
    "copy-as": () => {
      const { value, selectedOptions } = $("format");
      return copy(selectedOptions[0]?.text, (answer) => converted(answer, value));
    },
    "save-png": () => save(downloadPng, drawing.now.pen),
    "save-inkml": () => save(downloadInkml, page.answer()?.latex),
    "help-open": () => $("help").showModal(),
    "notice-retry": () => page.ask(),
    "notice-close": () => page.hideNotice(),
  };
  for (const [id, run] of Object.entries(actions)) $(id).addEventListener("click", run);
  for (const button of document.querySelectorAll("[data-tool]")) {
    button.addEventListener("click", () => page.useTool(button.dataset.tool));
  }
  $("steps").addEventListener("input", () => page.setSteps($("steps").value));
  const openWritten = ({ strokes, ...more }) =>
    page.openSnapshot({ ...more, strokes: strokes.map((points) => ({ points })) });
  $("example").addEventListener("click", () => openWritten({ strokes: EXAMPLE }));
  const historyDialog = new HistoryDialog(page.history, {
    open: openWritten,
    copy: (latex) => copyAs("LaTeX", latex),
  });
  const toggleTheme = installTheme(() => pad.redraw());
  installFiles(page);
  installKeyDialog(page);
  installKeys(
    [
      [
        "Write",
        [
          ["mod+z", "Undo", actions.undo],
          ["mod+shift+z", "Redo", actions.redo],
          ["mod+y", null, actions.redo],
          ["p", "Pen", () => page.useTool("pen")],
          ["e", "Erase strokes", () => page.useTool("eraser")],
          ["h", "Move the paper (or hold space)", () => page.useTool("hand")],
          ["x", "Clear", actions.clear],
          [
            "shift+ArrowLeft shift+ArrowRight shift+ArrowUp shift+ArrowDown",
            "Move the paper by keys",
            (key) => pad.scrollBy(...PAN[key]),
          ],
          [
            "+ - 0",
            "Zoom in, out, fit",
            (key) => ({ "+": actions["zoom-in"], "-": actions["zoom-out"], 0: actions.fit })[key](),
          ],
        ],
      ],
      [
        "Read",
        [
          ["ArrowLeft ArrowRight", "Previous, next symbol", (key) => page.step(key === "ArrowLeft" ? -1 : 1)],
          [
            "1 2 3 4 5",
            "Lock an alternative",
            (key) => document.querySelectorAll(".others button")[key - 1]?.click(),
          ],
          ["l", "Lock or unlock the symbol", () => document.querySelector(".chosen .lock")?.click()],
          ["Delete Backspace", "Erase the symbol's ink", () => page.eraseInk(page.selected())],
          ["Escape", "Leave the symbol", () => page.select(null)],
          [
            ", .",
            "Fewer, more steps",
            (key) => page.setSteps(Number($("steps").value) + (key === "," ? -1 : 1)),
          ],
          ["r", "Replay the refinement", actions.replay],
        ],
      ],
      [
        "Keep",
        [
          ["mod+c", "Copy LaTeX", () => getSelection().isCollapsed && actions["copy-latex"]()],
          ["c", null, actions["copy-latex"]],
          ["m", "Copy for Word (MathML)", actions["copy-mathml"]],
          ["g", "Download PNG", actions["save-png"]],
          ["s", "Download InkML", actions["save-inkml"]],
          ["o", "Open a photo or InkML", actions.open],
          ["y", "History", () => historyDialog.open()],
          ["t", "Light or dark", toggleTheme],
          ["?", "This help", actions["help-open"]],
        ],
      ],
    ],
    page.pad,
  );
}

/** Several lines in another notation: put together as they are in LaTeX where it has a way to, else one by one. */
async function converted({ latex, lines, form }, notation) {
  if (form !== FORMS.separate) {
    try {
      return await convert(latex, notation);
    } catch (error) {
      if (lines.length < 2 || !error.final) throw error;
    }
  }
  return (await Promise.all(lines.map((line) => convert(line, notation)))).join("\n");
}

function installFiles({ openFile }) {
  $("file").addEventListener("change", () => {
    const [file] = $("file").files;
    $("file").value = "";
    if (file) openFile(file);
  });
  acceptDrops(openFile, $("drop"));
}

function installKeyDialog({ ask, onKey }) {
  $("key").addEventListener("close", () => {
    if ($("key").returnValue !== "use") return;
    apiKey.set($("key-value").value);
    onKey();
    ask();
  });
}

export const keyIsWrong = () => Boolean(apiKey.get());

/** The server wants a key, or another one. */
export function askKey() {
  const dialog = $("key");
  $("key-wrong").hidden = !keyIsWrong();
  $("key-value").setAttribute("aria-invalid", String(keyIsWrong()));
  if (dialog.open) return;
  $("key-value").value = apiKey.get();
  dialog.returnValue = "";
  dialog.showModal();
  $("key-value").select();
}
