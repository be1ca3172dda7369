// Run by Node.js when the folder is written: Python in the state of its second answer, as a file.
// node snapshot.mjs ENGINE TREE, where TREE holds numpy and our modules, unpacked.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const [engine, tree] = process.argv.slice(2).map((path) => resolve(path));
const UNUSED = /fft|lapack_lite/; // by no module of ours
const PLUS = "[[[0, 5], [10, 5]], [[5, 0], [5, 10]]]";

// Pyodide wants to be a CommonJS module here.
globalThis.require = createRequire(import.meta.url);
globalThis.__dirname = join(engine, "pyodide");
globalThis.__filename = join(engine, "pyodide", "pyodide.asm.js");
const url = (name) => pathToFileURL(join(engine, name)).href;
const { addModules, MODULES, packed, PACKAGES, withLibraries } = await import(url("python.js"));
const { Ort } = await import(url("ort.js"));

const names = readdirSync(join(tree, "numpy"), { recursive: true })
  .filter((name) => name.endsWith(".so") && !UNUSED.test(name))
  .sort();
const libraries = names.map((name) => [
  `${PACKAGES}/numpy/${name}`,
  readFileSync(join(tree, "numpy", name)),
]);
const compiled = libraries.map(([path, bytes]) => [path, new WebAssembly.Module(bytes)]);
const ort = new Ort();
const python = await withLibraries(compiled, {
  indexURL: join(engine, "pyodide/"),
  _makeSnapshot: true,
  _sysExecutable: "python",
});
python.mountNodeFS(`${PACKAGES}/numpy`, join(tree, "numpy"));
python.mountNodeFS(MODULES, join(tree, "modules"));
addModules(python, ort);
await ort.start(1);
const read = (name) => readFileSync(join(engine, "model", name));
const graphs = ["encoder", "decoder", "lone"].map((name) => ort.session(read(`${name}.onnx`)));
const { Local } = python.pyimport("gryphone.page.local");
const local = Local(String(read("model.json")), ...graphs);
for (const options of ["{}", '{"hint": "...", "n_best": 2}']) {
  const found = JSON.parse(local.recognize(PLUS, "plus", options, () => false));
  if (found.error) throw new Error(found.error.message);
}
// What else an ink may want, before there are any files.
python.runPython("import difflib, numpy.ma, gryphone.photo.trace, gryphone.recognition.opinion, gryphone.recognition.written");
local.destroy();
Local.destroy();
python.runPython("import gc; gc.collect()");
const memory = python.makeMemorySnapshot({ serializer: (found) => found === ort });
const file = Buffer.concat(packed(libraries, memory));
writeFileSync(join(engine, "pyodide", "snapshot.bin.gz"), gzipSync(file, { level: 9 }));
process.exit(0); // whatever threads ONNX Runtime has
