// The ink of this tab, so that a reload does not lose it.

const KEY = "gryphone.draft";

/** Keep { writing, pen, strokes, locks }; without strokes, nothing. */
export function saveDraft(draft) {
  try {
    if (draft.strokes.length) sessionStorage.setItem(KEY, JSON.stringify(draft));
    else sessionStorage.removeItem(KEY);
  } catch {
    // No room or no storage: a reload loses the ink, as on any page.
  }
}

export function loadDraft() {
  try {
    const draft = JSON.parse(sessionStorage.getItem(KEY));
    // A duplicated tab has the ink too, and must not go on with the first tab's entry in the history.
    const [{ type }] = performance.getEntriesByType("navigation");
    if (type !== "reload") delete draft.writing;
    return draft.strokes.length ? draft : null;
  } catch {
    return null; // a damaged draft is no reason not to start
  }
}
