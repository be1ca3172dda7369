// Light or dark: the system's choice until the user makes one.

import { $ } from "./dom.js";
import { remember } from "./storage.js";

const KEY = "gryphone.theme";

/** Returns the function that changes the theme. */
export function installTheme(onChange) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const toggle = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember("localStorage", KEY, root.dataset.theme);
    onChange();
  };
  system.addEventListener("change", onChange);
  $("theme").addEventListener("click", toggle);
  return toggle;
}
