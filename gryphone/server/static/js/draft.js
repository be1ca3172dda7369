// The ink of this tab, so that a reload does not lose it.

const KEY = "gryphone.draft";

/** Keep { writing, pen, strokes }; without strokes, nothing. */
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
    return draft?.strokes.length ? draft : null;
  } catch {
    return null; // a damaged draft is no reason not to start
  }
}
