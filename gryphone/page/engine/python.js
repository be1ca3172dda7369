// Python (Pyodide) for the engine: started anew, or as a snapshot of its memory has it.

import { loadPyodide } from "./pyodide/pyodide.mjs";

export const MODULES = "/modules";
export const PACKAGES = "/lib/python3.13/site-packages";

/** Start Python with libraries, [[path, WebAssembly.Module], ...], in place before anything runs:
 * so they have the same addresses every time, and a snapshot finds them where it left them. */
export async function withLibraries(libraries, options) {
  if (!globalThis._createPyodideModule) await import("./pyodide/pyodide.asm.js");
  const create = globalThis._createPyodideModule;
  const flags = { loadAsync: true, nodelete: true };
  globalThis._createPyodideModule = (settings) => {
    settings.preRun.push(async (python) => {
      python.addRunDependency("libraries");
      for (const [path, library] of await libraries) {
        python.preloadedWasm[path] = await python.loadWebAssemblyModule(library, flags, path, {});
      }
      python.removeRunDependency("libraries");
    });
    return create(settings);
  };
  return loadPyodide(options);
}

/** Let Python import our modules, and ONNX Runtime by the name that `onnxruntime.py` knows. */
export function addModules(python, ort) {
  python.registerJsModule("gryphone_ort", ort);
  python.runPython(`import sys; sys.path.insert(0, "${MODULES}")`);
}

/** A file of a header in JSON behind its length, libraries, and Pyodide's own snapshot. */
export function packed(libraries, memory) {
  const sizes = libraries.map(([path, library]) => [path, library.length]);
  const header = new TextEncoder().encode(JSON.stringify(sizes).padEnd(4096));
  const start = new Uint8Array(new Uint32Array([header.length]).buffer);
  const parts = [start, header, ...libraries.map(([, library]) => library)];
  const before = parts.reduce((sum, part) => sum + part.length, 0);
  return [...parts, new Uint8Array(-before & 15), memory]; // which is read as words
}

/** Python as it was when the snapshot was made, with ONNX Runtime in the place of the maker's. */
export function thawed(file, ort, options) {
  const parts = file.then((bytes) => {
    const length = new Uint32Array(bytes.buffer, 0, 1)[0];
    let at = 4 + length;
    const sizes = JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)));
    const compiled = sizes.map(async ([path, size]) => {
      return [path, await WebAssembly.compile(bytes.subarray(at, (at += size)))];
    });
    return { libraries: Promise.all(compiled), memory: bytes.subarray(at + (-at & 15)) };
  });
  return withLibraries(
    parts.then(({ libraries }) => libraries),
    { ...options, _loadSnapshot: parts.then(({ memory }) => memory), _snapshotDeserializer: () => ort },
  );
}
