// The page's first script: its service worker shall serve it, for that lets it have threads. Once,
// lest a browser that never isolates a page turns round and round.
(() => {
  const ASKED = "gryphone.isolating";
  const { serviceWorker } = navigator;
  if (crossOriginIsolated || !serviceWorker || sessionStorage.getItem(ASKED)) return;
  sessionStorage.setItem(ASKED, "1");
  window.stop(); // nothing of it would be used
  const again = () => location.reload();
  serviceWorker.addEventListener("controllerchange", again, { once: true });
  serviceWorker.register("sw.js").then(({ active }) => active && again(), again);
})();
