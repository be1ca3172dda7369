// Where the engine computes: Python (Pyodide) with the recogniser's own modules, and ONNX Runtime.

import { Ort } from "./ort.js";
import { addModules, MODULES, PACKAGES, thawed, withLibraries } from "./python.js";

const here = new URL(".", import.meta.url);
const SNAPSHOT = "pyodide/snapshot.bin";
const PACKED = ".gz";
const PLUS = "[[[0, 5], [10, 5]], [[5, 0], [5, 10]]]";

/** Fetch as ever, and say how much has come of how much. */
function countBytes(sizes) {
  const plain = self.fetch;
  const total = Object.values(sizes).reduce((sum, size) => sum + size, 0);
  let come = 0;
  let told = 0;
  const add = (size) => {
    come += size;
    if (come - told < total / 200) return;
    told = come;
    postMessage({ progress: Math.min(1, come / total) });
  };
  self.fetch = async (address, ...options) => {
    const response = await plain(address, ...options);
    const name = response.url.slice(here.href.length);
    // Of its own responses alone does a browser keep WebAssembly compiled: those of the service
    // worker, which has unpacked it. Without one it is done here.
    if (name + PACKED in sizes) {
      add(sizes[name + PACKED]);
      return response.ok ? response : unpacked(await plain(response.url + PACKED), name);
    }
    if (response.ok && response.body) {
      const counter = new TransformStream({
        transform(chunk, out) {
          add(chunk.length);
          out.enqueue(chunk);
        },
      });
      const { status, headers } = response;
      return new Response(response.body.pipeThrough(counter), { status, headers });
    }
    return response;
  };
  return () => (self.fetch = plain);
}

function unpacked(response, name) {
  if (!response.ok) return response;
  const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
  const stream = response.body.pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream, { headers: { "Content-Type": type } });
}

async function bytes(name) {
  const response = await fetch(new URL(name, here));
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

async function start() {
  const sizes = JSON.parse(new TextDecoder().decode(await bytes("files.json")));
  const isFrozen = SNAPSHOT + PACKED in sizes;
  const later = isFrozen ? /pillow|LICENCES|\.d\.ts$|\.zip$/ : /pillow|LICENCES|\.d\.ts$/;
  const needed = Object.entries(sizes).filter(([name]) => !later.test(name));
  const done = countBytes(Object.fromEntries(needed));
  const threads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency || 1) : 1;
  const ort = new Ort();
  const ready = ort.start(threads);
  const session = async (name) => {
    const graph = await bytes(`model/${name}.onnx`);
    await ready;
    return ort.session(graph);
  };
  const options = { indexURL: new URL("pyodide/", here).href };
  const [python, about, ...graphs] = await Promise.all([
    isFrozen
      ? thawed(bytes(SNAPSHOT), ort, options)
      : withLibraries([], { ...options, packages: ["numpy"] }),
    bytes("model/model.json"),
    session("encoder"),
    session("decoder"),
    session("lone"),
  ]);
  const unpack = async (name, extractDir) => {
    python.unpackArchive(await bytes(name), "zip", { extractDir });
  };
  if (!isFrozen) {
    await unpack("python.zip", MODULES);
    addModules(python, ort);
  }
  done();
  // A snapshot has imported what ink needs; the files of other modules come behind it, once.
  let come = isFrozen ? null : Promise.resolve();
  const files = () =>
    (come ??= Promise.all([unpack("python.zip", MODULES), unpack("pyodide/numpy.zip", PACKAGES)]));
  const { Local } = python.pyimport("gryphone.page.local");
  const local = Local(new TextDecoder().decode(about), ...graphs);
  return { python, local, about: { ...JSON.parse(local.about()), threads }, files };
}

const started = start();
let asked = false;
started.then(
  ({ local, about, files }) => {
    postMessage({ about });
    // While the first formula is being written: what is imported and compiled by being used.
    setTimeout(() => {
      if (!asked) local.recognize(PLUS, "plus", "{}", () => false);
      files().catch(console.error);
    }, 500);
  },
  (error) => postMessage({ broken: error.message }),
);

self.onmessage = async ({ data: { id, strokes, file, options, stop, latex, format } }) => {
  asked = true;
  try {
    const { python, local, files } = await started;
    if (format) {
      await files();
      return postMessage({ id, answer: JSON.parse(local.convert(latex, format)) });
    }
    const emit = (step) => {
      postMessage({ id, step: JSON.parse(step) });
      return stop !== null && Atomics.load(stop, 0) === id;
    };
    let source = JSON.stringify(strokes);
    if (file) {
      await files();
      await python.loadPackage("pillow", { messageCallback: () => {} }); // if it is not there yet
      source = python.globals.get("bytes")(python.toPy(await file.arrayBuffer()));
    }
    const found = local.recognize(source, file?.name || "ink", JSON.stringify(options), emit);
    if (file) source.destroy();
    postMessage({ id, answer: JSON.parse(found) });
  } catch (error) {
    postMessage({ id, answer: { error: { message: error.message } } });
  }
};
