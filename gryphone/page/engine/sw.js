// Keeps the page for when there is no network. Written with its folder: other files, other version.

const VERSION = "VERSION";
const FILES = { FILES: 0 }; // path -> digest
const NAME = `gryphone-${VERSION}`;
const LIST = "gryphone-files"; // the digests of a cache, kept in it
const ISOLATED = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
};

const PACKED = ".gz"; // what lies so on the host is kept unpacked: compiled code is kept with it

/** The address of a file of the list, as the page knows it. */
const address = (path) => new URL(path.replace(/\.gz$/, ""), registration.scope).href;

async function fetched(path) {
  const response = await fetch(new URL(path, registration.scope), { cache: "no-cache" });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  if (!path.endsWith(PACKED)) return isolated(response);
  const type = path.endsWith(".wasm.gz") ? "application/wasm" : "application/octet-stream";
  const stream = response.body.pipeThrough(new DecompressionStream("gzip"));
  return isolated(new Response(stream, { headers: { "Content-Type": type } }));
}

/** The cache of an earlier version, and what is in it. */
async function earlier() {
  for (const name of await caches.keys()) {
    if (!name.startsWith("gryphone-") || name === NAME) continue;
    const cache = await caches.open(name);
    const list = await cache.match(address(LIST));
    if (list) return { cache, digests: await list.json() };
  }
  return null;
}

async function install() {
  const [cache, old] = [await caches.open(NAME), await earlier()];
  await cache.put(address(LIST), new Response(JSON.stringify(FILES)));
  if (!old) return skipWaiting(); // nobody uses another version, and the page waits
  await Promise.all(
    Object.entries(FILES).map(async ([path, digest]) => {
      const same = old.digests[path] === digest && (await old.cache.match(address(path)));
      await cache.put(address(path), same || (await fetched(path)));
    }),
  );
}

async function activate() {
  const others = (await caches.keys()).filter((name) => name.startsWith("gryphone-") && name !== NAME);
  await Promise.all(others.map((name) => caches.delete(name)));
  await clients.claim();
}

/** The same with the headers that let a page have threads; kept so, lest it is done every time. */
function isolated(response) {
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(ISOLATED)) headers.set(name, value);
  return new Response(response.body, { status: response.status, headers });
}

async function answer(request) {
  const url = new URL(request.url);
  url.search = url.hash = "";
  const path = url.href.slice(registration.scope.length) || "index.html";
  const listed = [path, path + PACKED].find((name) => Object.hasOwn(FILES, name));
  if (!listed) return fetch(request);
  const cache = await caches.open(NAME);
  const known = await cache.match(address(path));
  if (known) return known;
  const response = await fetched(listed);
  keeping = Promise.all([keeping, cache.put(address(path), response.clone())]);
  return response;
}

let keeping = Promise.resolve(); // what is on its way into the cache

/** Fetch what the page has not needed yet; whether everything is there. */
async function complete() {
  await keeping;
  const cache = await caches.open(NAME);
  for (const path of Object.keys(FILES)) {
    if (await cache.match(address(path))) continue;
    await cache.put(address(path), await fetched(path));
  }
  return true;
}

addEventListener("install", (event) => event.waitUntil(install()));
addEventListener("activate", (event) => event.waitUntil(activate()));
addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method === "GET" && request.url.startsWith(registration.scope)) {
    event.respondWith(answer(request));
  }
});
addEventListener("message", (event) => {
  if (event.data === "use") skipWaiting();
  else if (event.data === "complete") {
    const done = complete().catch(() => false);
    event.waitUntil(done.then((whole) => event.source.postMessage({ complete: whole })));
  }
});
