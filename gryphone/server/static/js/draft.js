// The ink of this tab, so that a reload does not lose it.

import { arePoints } from "./drawing.js";
import { remember, restore } from "./storage.js";

const KEY = "gryphone.draft";

/** Keep { writing, pen, strokes, lines, locks }; without strokes, nothing. */
export function saveDraft(draft) {
  remember("sessionStorage", KEY, draft.strokes.length ? JSON.stringify(draft) : null);
}

export function loadDraft() {
  const draft = restore("sessionStorage", KEY, (found) => {
    const sound = found.strokes.length > 0 && found.strokes.every(({ points }) => arePoints(points));
    return [sound ? found : null, sound];
  });
  // A duplicated tab has the ink too, and must not go on with the first tab's entry in the history.
  const [{ type }] = performance.getEntriesByType("navigation");
  if (draft && type !== "reload") delete draft.writing;
  return draft;
}
