// Where the engine computes: Python (Pyodide) with the recogniser's own modules, and ONNX Runtime.

import { Ort } from "./ort.js";
import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = new URL(".", import.meta.url);
const MODULES = "/modules";
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
    // Of its own responses alone does a browser keep WebAssembly compiled.
    if (/\.wasm$/.test(response.url)) add(sizes[response.url.slice(here.href.length)] ?? 0);
    else if (response.ok && response.body) {
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

async function bytes(name) {
  const response = await fetch(new URL(name, here));
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

async function start() {
  const sizes = JSON.parse(new TextDecoder().decode(await bytes("files.json")));
  const needed = Object.entries(sizes).filter(([name]) => !/pillow|LICENCES|\.d\.ts$/.test(name));
  const done = countBytes(Object.fromEntries(needed));
  const threads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency || 1) : 1;
  const [python, ort, modules, about, encoder, decoder] = await Promise.all([
    loadPyodide({ indexURL: new URL("pyodide/", here).href, packages: ["numpy"] }),
    Ort.start(threads),
    bytes("python.zip"),
    bytes("model/model.json"),
    bytes("model/encoder.onnx"),
    bytes("model/decoder.onnx"),
  ]);
  done();
  python.unpackArchive(modules, "zip", { extractDir: MODULES });
  python.registerJsModule("gryphone_ort", ort);
  python.runPython(`import sys; sys.path.insert(0, "${MODULES}")`);
  const { Local } = python.pyimport("gryphone.page.local");
  const local = Local(new TextDecoder().decode(about), encoder, decoder);
  return { python, local, about: { ...JSON.parse(local.about()), threads } };
}

const started = start();
let asked = false;
started.then(
  ({ local, about }) => {
    postMessage({ about });
    // While the first formula is being written: what is imported and compiled by being used.
    setTimeout(() => asked || local.recognize(PLUS, "plus", "{}", () => false), 100);
  },
  (error) => postMessage({ broken: error.message }),
);

self.onmessage = async ({ data: { id, strokes, file, options, stop, latex, format } }) => {
  asked = true;
  try {
    const { python, local } = await started;
    if (format) return postMessage({ id, answer: JSON.parse(local.convert(latex, format)) });
    const emit = (step) => {
      postMessage({ id, step: JSON.parse(step) });
      return stop !== null && Atomics.load(stop, 0) === id;
    };
    let source = JSON.stringify(strokes);
    if (file) {
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
