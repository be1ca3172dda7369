// The page's first script: which service worker serves it is settled before anything is fetched.
(() => {
  const ASKED = "gryphone.isolating";
  const UPDATING = "gryphone.updating"; // set where the user wants the version that waits
  const PATIENCE = 5000; // milliseconds
  const { serviceWorker } = navigator;
  if (!serviceWorker) return;
  const again = () => location.reload();
  const turn = () => {
    window.stop(); // nothing of it would be used
    serviceWorker.addEventListener("controllerchange", again, { once: true });
  };
  if (sessionStorage.getItem(UPDATING)) {
    // Here: a worker that still has something to answer is not replaced, and a page that loads asks a lot.
    sessionStorage.removeItem(UPDATING);
    turn();
    setTimeout(again, PATIENCE); // and it is offered again
    serviceWorker.getRegistration().then((found) => (found?.waiting ? found.waiting.postMessage("use") : again()));
  } else if (!crossOriginIsolated && !sessionStorage.getItem(ASKED)) {
    // Served by its worker it may have threads. Once, lest a browser that never isolates a page turns round and round.
    sessionStorage.setItem(ASKED, "1");
    turn();
    serviceWorker.register("sw.js").then(({ active }) => active && again(), again);
  }
})();
