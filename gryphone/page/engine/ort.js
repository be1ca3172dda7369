// ONNX Runtime's WebAssembly build, called directly: its own JavaScript API answers with promises,
// and the Python that decodes waits for none. Handles are addresses in its memory.

import start from "./onnxruntime/ort-wasm-simd-threaded.mjs";

const CPU = 1; // where tensors are

export class Ort {
  #wasm;
  #data = new Map(); // tensor -> its bytes, of those that were made here

  async start(threads) {
    this.#wasm = await start({ numThreads: threads });
    this.#check(this.#wasm._OrtInit(threads, 3));
  }

  /** A graph, ready to run: its handle. Nothing is optimised: the graphs are as they should be. */
  session(graph) {
    const wasm = this.#wasm;
    const options = wasm._OrtCreateSessionOptions(0, false, false, 0, false, 0, 0, 3, 0, 0);
    const at = wasm._malloc(graph.length);
    wasm.HEAPU8.set(graph, at);
    const session = wasm._OrtCreateSession(at, graph.length, options);
    wasm._free(at);
    wasm._OrtReleaseSessionOptions(options);
    return session || this.#check(1);
  }

  /** The names of a session's outputs. */
  outputs(session) {
    const wasm = this.#wasm;
    return this.#onStack(2, (counts, about) => {
      this.#check(wasm._OrtGetInputOutputCount(session, counts, about));
      const [inputs, outputs] = [this.#read(counts), this.#read(about)];
      return Array.from({ length: outputs }, (_, i) => {
        this.#check(wasm._OrtGetInputOutputMetadata(session, inputs + i, counts, about));
        const [name, rest] = [this.#read(counts), this.#read(about)];
        const text = wasm.UTF8ToString(name);
        wasm._OrtFree(name);
        wasm._OrtFree(rest);
        return text;
      });
    });
  }

  /** A tensor of these bytes. */
  tensor(type, bytes, shape) {
    const wasm = this.#wasm;
    const data = wasm._malloc(Math.max(1, bytes.length));
    wasm.HEAPU8.set(bytes, data);
    const tensor = this.#onStack(shape.length, (...places) => {
      shape.forEach((size, i) => this.#write(places[i], size));
      return wasm._OrtCreateTensor(type, data, bytes.length, places[0] ?? 0, shape.length, CPU);
    });
    if (!tensor) this.#check(1);
    this.#data.set(tensor, data);
    return tensor;
  }

  /** { bytes, shape } of a tensor of float32. */
  read(tensor) {
    const wasm = this.#wasm;
    return this.#onStack(4, (...places) => {
      this.#check(wasm._OrtGetTensorData(tensor, ...places));
      const [, data, sizes, rank] = places.map((place) => this.#read(place));
      const shape = Array.from({ length: rank }, (_, i) => this.#read(sizes + 4 * i));
      wasm._OrtFree(sizes);
      const count = shape.reduce((product, size) => product * size, 4);
      return { bytes: wasm.HEAPU8.slice(data, data + count), shape };
    });
  }

  release(tensor) {
    this.#wasm._OrtReleaseTensor(tensor);
    if (this.#data.has(tensor)) this.#wasm._free(this.#data.get(tensor));
    this.#data.delete(tensor);
  }

  /** Run a session; names and tensors of what is given, names of what is wanted: its tensors. */
  run(session, given, tensors, wanted) {
    const wasm = this.#wasm;
    const names = [...given, ...wanted].map((name) => this.#text(name));
    try {
      return this.#onStack(2 * names.length, (...places) => {
        const [n, m] = [given.length, wanted.length];
        const [inputs, values, outputs, found] = [0, n, 2 * n, 2 * n + m];
        names.forEach((name, i) => this.#write(places[i < n ? inputs + i : outputs + i - n], name));
        tensors.forEach((tensor, i) => this.#write(places[values + i], tensor));
        for (let i = 0; i < m; i++) this.#write(places[found + i], 0);
        const at = (i) => places[i] ?? 0;
        this.#check(wasm._OrtRun(session, at(inputs), at(values), n, at(outputs), m, at(found), 0));
        return wanted.map((_, i) => this.#read(places[found + i]));
      });
    } finally {
      for (const name of names) wasm._free(name);
    }
  }

  #text(text) {
    const size = this.#wasm.lengthBytesUTF8(text) + 1;
    const at = this.#wasm._malloc(size);
    this.#wasm.stringToUTF8(text, at, size);
    return at;
  }

  #read(place) {
    return this.#wasm.getValue(place, "*");
  }

  #write(place, value) {
    this.#wasm.setValue(place, value, "*");
  }

  /** Call with so many places for words, given back afterwards. */
  #onStack(count, use) {
    const wasm = this.#wasm;
    const top = wasm.stackSave();
    try {
      const first = wasm.stackAlloc(4 * count);
      return use(...Array.from({ length: count }, (_, i) => first + 4 * i));
    } finally {
      wasm.stackRestore(top);
    }
  }

  #check(code) {
    if (code === 0) return;
    const why = this.#onStack(2, (number, message) => {
      this.#wasm._OrtGetLastError(number, message);
      return this.#wasm.UTF8ToString(this.#read(message));
    });
    throw new Error(`ONNX Runtime: ${why}`);
  }
}
