// Small help with the page's elements.

export const $ = (id) => document.getElementById(id);

/** An element: h("button", { class: "chip", onclick }, "text", child). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

export function percent(p) {
  if (p < 0.005) return "<1 %";
  return `${p > 0.995 && p < 1 ? ">99" : Math.round(100 * p)} %`;
}

let toastTimer = 0;

/** A short word that something was done. */
export function toast(text) {
  const element = $("toast");
  element.textContent = text;
  element.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    element.classList.remove("shown");
    element.textContent = "";
  }, 1800);
}
