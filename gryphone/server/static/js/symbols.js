// The symbols as a row of chips, and one of them under the glass: its ink, its alternatives, its lock.

import { $, h, percent } from "./dom.js";
import { icon, typesetSymbol } from "./formula.js";

const SURE = 0.9;
const SHOWN = 5; // alternatives, one for each of the keys 1 to 5

export const spoken = (symbol) => symbol.replace(/^\\/, "").replace(/[{}]/g, " ").trim() || "backslash";

function glyph(symbol, className = "glyph") {
  const element = h("span", { class: className, "aria-hidden": "true" });
  typesetSymbol(element, symbol);
  return element;
}

export class SymbolPanel extends EventTarget {
  #chips = $("chips");
  #body = $("inspector-body");
  #frame = $("inspector");
  #vocabulary = [];
  #last = null; // the position that was shown last

  constructor() {
    super();
    this.#chips.addEventListener("keydown", (event) => this.#arrows(event));
  }

  get vocabulary() {
    return this.#vocabulary;
  }

  set vocabulary(symbols) {
    this.#vocabulary = symbols.filter((symbol) => !symbol.startsWith("<"));
    const list = h("datalist", { id: "vocabulary" });
    list.append(...this.#vocabulary.map((symbol) => h("option", { value: symbol })));
    $("vocabulary")?.remove();
    document.body.append(list);
  }

  /** Show symbols [{ position, symbol, confidence, choices }], locks (position -> symbol), one selected. */
  show(symbols, locks, selected, confidence) {
    const typed = selected === this.#last ? $("other")?.value : "";
    this.#last = selected ?? this.#last;
    this.#showChips(symbols, locks, selected);
    const symbol = symbols.find(({ position }) => position === selected);
    this.#frame.classList.toggle("open", symbol !== undefined);
    const focused = this.#body.querySelector(":focus-visible"); // by the keyboard, not the mouse
    this.#body.replaceChildren(...(symbol ? this.#details(symbol, locks) : this.#rest(symbols, locks, confidence)));
    if (typed && symbol) $("other").value = typed;
    if (focused) this.#refocus(focused);
  }

  /** Go on where the keyboard was: at the same control, the lock, or the row of symbols. */
  #refocus({ dataset: { control } }) {
    const same = control && this.#body.querySelector(`[data-control="${CSS.escape(control)}"]`);
    const next = same || this.#body.querySelector(".lock") || this.#chips.querySelector('[tabindex="0"]');
    next?.focus({ preventScroll: true });
  }

  #showChips(symbols, locks, selected) {
    const focused = this.#chips.contains(document.activeElement);
    const before = focused ? Number(document.activeElement.dataset.position) : null;
    const shown = symbols.filter(({ symbol }) => symbol !== "<empty>");
    const known = (position) => shown.some((symbol) => symbol.position === position);
    const entry = [selected, before, this.#last].find(known) ?? shown[0]?.position;
    const several = shown.some(({ number }) => number > 0);
    this.#chips.replaceChildren(
      ...shown.flatMap(({ position, symbol, confidence, number }, i) => {
        const locked = locks.has(position);
        const doubt = !locked && confidence < SURE;
        const chip = h(
          "button",
          {
            type: "button",
            class: `chip${doubt ? " doubt" : ""}${locked ? " locked" : ""}`,
            "data-position": position,
            "aria-pressed": String(position === selected),
            "aria-label": `${spoken(symbol)}, ${locked ? "locked" : `${percent(confidence)} sure`}`,
            tabindex: position === entry ? 0 : -1,
            onclick: () => this.#emit("pick", position === selected ? null : position),
          },
          glyph(symbol),
          h("span", { class: "meter", style: `--share: ${locked ? 1 : confidence}` }),
        );
        if (locked) chip.append(icon("lock"));
        const first = several && number !== shown[i - 1]?.number;
        return first ? [h("span", { class: "number", "aria-hidden": "true" }, String(number + 1)), chip] : [chip];
      }),
    );
    const chip = this.#chips.querySelector('[tabindex="0"]');
    if (selected !== null) chip?.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (focused) chip?.focus({ preventScroll: true });
  }

  #arrows(event) {
    const chips = [...this.#chips.querySelectorAll(".chip")];
    const at = chips.indexOf(event.target.closest(".chip"));
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: chips.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    const chip = chips[Math.min(chips.length - 1, Math.max(0, to))];
    chips.forEach((each) => (each.tabIndex = each === chip ? 0 : -1));
    chip.focus();
    if (chips[at].getAttribute("aria-pressed") === "true") chip.click();
  }

  #details({ position, symbol, confidence, choices }, locks) {
    const locked = locks.has(position);
    const others = choices.filter(([name]) => name !== symbol && name !== "<empty>").slice(0, SHOWN);
    const head = h(
      "div",
      { class: "chosen" },
      glyph(symbol, "glyph large"),
      h(
        "div",
        {},
        h("code", {}, symbol),
        h("p", { class: "hint" }, locked ? "locked" : `${percent(confidence)} sure`),
      ),
      h(
        "button",
        {
          type: "button",
          class: locked ? "lock on" : "lock",
          "data-control": "lock",
          "aria-pressed": String(locked),
          title: "Lock or unlock (L)",
          onclick: () => this.#emit(locked ? "unlock" : "lock", { position, symbol }),
        },
        icon("lock"),
        locked ? "Unlock" : "Lock",
      ),
    );
    const list = h("ol", { class: "others", "aria-label": "Alternatives" });
    others.forEach(([name, p], i) => {
      const share = h("span", { class: "share", style: `--share: ${p}` }, percent(p));
      const key = h("kbd", { "aria-hidden": "true" }, String(i + 1));
      const label = `Lock ${spoken(name)} instead, ${percent(p)}`;
      const choose = () => this.#emit("lock", { position, symbol: name });
      list.append(
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", "data-symbol": name, "aria-label": label, onclick: choose },
            key,
            glyph(name),
            h("code", {}, name),
            share,
          ),
        ),
      );
    });
    return [
      head,
      others.length ? list : h("p", { class: "hint" }, "The model sees no alternative."),
      this.#other(position),
      this.#erase(position),
    ];
  }

  /** Any symbol of the vocabulary, typed. */
  #other(position) {
    const input = h("input", {
      type: "text",
      id: "other",
      "data-control": "other",
      list: "vocabulary",
      placeholder: "another symbol, \\pi",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      "aria-label": "Another symbol",
    });
    const submit = (event) => {
      event.preventDefault();
      const symbol = input.value.trim();
      if (!symbol) return;
      const known = !this.#vocabulary.length || this.#vocabulary.includes(symbol);
      input.setCustomValidity(known ? "" : "The model does not know this symbol.");
      if (!known) return input.reportValidity();
      input.value = "";
      this.#emit("lock", { position, symbol });
    };
    input.addEventListener("input", () => input.setCustomValidity(""));
    input.addEventListener("keydown", ({ key }) => key === "Escape" && this.#emit("pick", null));
    return h(
      "form",
      { class: "other", onsubmit: submit, novalidate: true },
      input,
      h("button", { type: "submit" }, "Lock"),
    );
  }

  #erase(position) {
    return h(
      "div",
      { class: "row" },
      h(
        "button",
        { type: "button", class: "quiet", title: "Delete", onclick: () => this.#emit("erase", position) },
        icon("eraser"),
        h("span", {}, "Erase its ink"),
      ),
      h(
        "button",
        { type: "button", class: "quiet", title: "Escape", onclick: () => this.#emit("pick", null) },
        icon("close"),
        h("span", {}, "Close"),
      ),
    );
  }

  /** Nothing selected: what needs a look. */
  #rest(symbols, locks, confidence) {
    const open = symbols.filter(({ position, symbol }) => !locks.has(position) && symbol !== "<empty>");
    const out = [h("p", { class: "hint" }, advice(symbols, open, confidence))];
    if (locks.size) {
      const label = locks.size === 1 ? "Remove the lock" : `Remove ${locks.size} locks`;
      out.push(
        h("button", { type: "button", id: "unlock-all", onclick: () => this.#emit("unlock-all") }, label),
      );
    }
    return out;
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

/** What to do with a formula of which nothing is selected; `open` are its symbols without a lock. */
function advice(symbols, open, confidence) {
  if (!symbols.length) return "Once a formula is read, pick a symbol to see its ink and its alternatives.";
  const doubtful = open.filter((each) => each.confidence < SURE).length;
  if (doubtful) {
    const some = doubtful === 1 ? "1 uncertain symbol" : `${doubtful} uncertain symbols`;
    return `${some}. Pick one in the formula to see what else it may be.`;
  }
  if (!open.length || confidence >= SURE) return "Pick a symbol in the formula to see its ink and its alternatives.";
  const least = open.reduce((a, b) => (b.confidence < a.confidence ? b : a));
  return (
    `${percent(confidence)} is the chance that the whole formula is right. No symbol stands out: ` +
    `small doubts add up, and how symbols stand to each other counts too. ` +
    `The least sure is ${spoken(least.symbol)}, ${percent(least.confidence)}.`
  );
}
