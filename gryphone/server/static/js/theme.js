// Runs before the page is drawn, so that a chosen theme does not flash; theme-button.js changes it.
(() => {
  try {
    const theme = localStorage.getItem("gryphone.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is off: the system's choice holds.
  }
})();
