// What the browser keeps for this page. Storage may be off, full, or hold what others wrote there.

export const damaged = new Set(); // keys whose content was put aside

/** A text that was kept; null without one. `area`: "localStorage" or "sessionStorage". */
export function recall(area, key) {
  try {
    return window[area].getItem(key);
  } catch {
    return null;
  }
}

/** Keep a text, or with null nothing; where that cannot be, it lasts as long as the page. */
export function remember(area, key, text) {
  try {
    if (text === null) window[area].removeItem(key);
    else window[area].setItem(key, text);
  } catch {
    // No room, or storage is off.
  }
}

/** What `check` makes of kept JSON: [value, whether all of it is sound]. The rest is put aside. */
export function restore(area, key, check) {
  const text = recall(area, key);
  if (text === null) return null;
  let [value, sound] = [null, false];
  try {
    [value, sound] = check(JSON.parse(text));
  } catch {
    // No JSON, or of another shape.
  }
  if (!sound) {
    remember(area, `${key}.damaged`, text);
    remember(area, key, value === null ? null : JSON.stringify(value));
    damaged.add(key);
  }
  return value;
}
