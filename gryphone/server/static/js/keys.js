// Keyboard shortcuts: one table runs them and fills the help.

import { $, h } from "./dom.js";
import { recall, remember } from "./storage.js";

const LETTERS = "gryphone.letters";
const MAC = /mac|iphone|ipad/i.test(navigator.platform);

/** `groups`: [[title, [[keys, what, run], ...]], ...]; keys such as "mod+z", "e", "ArrowLeft". */
export function installKeys(groups, pad) {
  const table = new Map();
  for (const [, rows] of groups) {
    for (const [keys, , run] of rows) for (const key of keys.split(" ")) table.set(key.toLowerCase(), run);
  }
  const letters = $("letters");
  letters.checked = recall("localStorage", LETTERS) !== "off";
  letters.addEventListener("change", () => {
    remember("localStorage", LETTERS, letters.checked ? "on" : "off");
  });
  addEventListener("keydown", (event) => {
    if (event.key === " " && [document.body, $("pad")].includes(event.target)) {
      pad.panKey = true;
      $("pad").classList.add("panning");
      event.preventDefault();
      return;
    }
    if (event.defaultPrevented || event.isComposing || isTyping(event.target)) return;
    if (event.target.closest("dialog") || (event.key.startsWith("Arrow") && needsArrows(event.target))) return;
    const modified = event.ctrlKey || event.metaKey;
    if (!modified && event.target.closest("select")) return; // letters and arrows choose in the list
    if (event.altKey || (!modified && event.key.length === 1 && !letters.checked)) return;
    const run = table.get(nameOf(event, modified));
    if (!run || run(event.key) === false) return;
    event.preventDefault();
  });
  const release = () => {
    pad.panKey = false;
    $("pad").classList.remove("panning");
  };
  addEventListener("keyup", (event) => event.key === " " && release());
  addEventListener("blur", release); // the key is let go in another window
  fillHelp(groups);
}

/** Whether keys and pasted text belong to a field. */
export const isTyping = (element) => Boolean(element.closest?.("input:not([type=range], [type=checkbox]), textarea"));

/** Whether arrows move a slider, or show the rest of a long formula. */
function needsArrows(element) {
  return element.type === "range" || (element.id === "formula" && element.scrollWidth > element.clientWidth);
}

function nameOf(event, modified) {
  const named = event.key.length > 1;
  const shift = event.shiftKey && (modified || named) ? "shift+" : "";
  // On a Cyrillic or Greek keyboard the letters are where they are on a Latin one.
  const foreign = !named && event.key > "\u024f" && event.code.startsWith("Key");
  return ((modified ? "mod+" : "") + shift + (foreign ? event.code.slice(3) : event.key)).toLowerCase();
}

function fillHelp(groups) {
  const signs = {
    mod: MAC ? "⌘" : "Ctrl",
    arrowleft: "←",
    arrowright: "→",
    arrowup: "↑",
    arrowdown: "↓",
    delete: "Del",
    backspace: "⌫",
    escape: "Esc",
    shift: "Shift",
  };
  const cap = (key) => h("kbd", {}, signs[key.toLowerCase()] ?? (key.length === 1 ? key.toUpperCase() : key));
  for (const [title, rows] of groups) {
    const list = h("dl", {});
    for (const [keys, what] of rows) {
      if (!what) continue; // a second way to the same
      const term = h("dt", {});
      const all = keys.split(" ");
      const shown = all.length > 3 ? [all[0], "…", all.at(-1)] : all;
      shown.forEach((combination, i) => {
        if (i) term.append(" ");
        const parts = combination === "+" ? ["+"] : combination.split("+");
        term.append(...parts.map(cap));
      });
      list.append(h("div", {}, term, h("dd", {}, what)));
    }
    $("keys").append(h("section", {}, h("h3", {}, title), list));
  }
}
