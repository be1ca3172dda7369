// The server: recognition as a stream of events, and errors as one clear line.

import { recall, remember } from "./storage.js";

const KEY = "gryphone.key";
const TELLING = 5000; // ms the server has to say what it serves; files that are opened wait for that

export class ServerError extends Error {
  constructor(message, { status = 0, code = "", retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, code, retryAfter });
  }

  /** Whether asking again later may help by itself. */
  get passing() {
    return [0, 429, 502, 503].includes(this.status);
  }

  /** Whether the same question will be refused again; a key that is missing may come. */
  get final() {
    return this.status >= 400 && this.status < 500 && this.status !== 401 && !this.passing;
  }
}

let typedKey = ""; // where storage is off

export const apiKey = {
  get: () => recall("sessionStorage", KEY) ?? typedKey,
  set(key) {
    typedKey = key;
    remember("sessionStorage", KEY, key);
  },
};

function headers() {
  const key = apiKey.get();
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function request(path, init = {}) {
  let response;
  try {
    response = await fetch(path, { ...init, headers: { ...headers(), ...init.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached. Your ink is kept.", { code: "offline" });
  }
  if (response.ok) return response;
  throw await failure(response);
}

async function failure(response) {
  const { error } = await response.json().catch(() => ({}));
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  const message = error?.message ?? `The server answered ${response.status} ${response.statusText}.`;
  return new ServerError(message, { status: response.status, code: error?.code, retryAfter });
}

export async function model() {
  return (await request("v1/model", { signal: AbortSignal.timeout(TELLING) })).json();
}

const ask = async (path, question, signal) => {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", body: JSON.stringify(question), headers, signal })).json();
};

/** LaTeX in another notation. */
export const convert = async (latex, format) => (await ask("v1/convert", { latex, format })).text;

/** What one line of LaTeX comes to, or each of several against the next. */
export const compute = (lines, signal) => ask("v1/compute", { lines }, signal);

function post(path, { strokes, file, options, live }, signal) {
  if (!file) {
    const body = JSON.stringify({ strokes, options, ...live });
    return request(path, { method: "POST", signal, body, headers: { "Content-Type": "application/json" } });
  }
  const body = new FormData();
  body.append("file", file, file.name || "photo");
  body.append("options", JSON.stringify(options));
  return request(path, { method: "POST", signal, body });
}

/** Find and read all formulas. */
export const recognizePage = async (question, signal) => (await post("v1/page", question, signal)).json();

/** Follow ink that is being written. */
export const follow = async (question, signal) => (await post("v1/live", question, signal)).json();

/** Read one formula; yields { event: "step" | "result", data }. */
export async function* recognize(question, signal) {
  const response = await post("v1/recognize/stream", question, signal);
  let done = false;
  for await (const { event, data } of events(response.body)) {
    if (event === "error") throw new ServerError(data.error.message, { status: 500, ...data.error });
    done ||= event === "result";
    yield { event, data };
  }
  if (!done) {
    throw new ServerError("The server stopped before it had finished. Your ink is kept.");
  }
}

/** Server-sent events of a response's body. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const found = parseEvent(block);
        if (found) yield found;
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The connection to the server was lost. Your ink is kept.");
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseEvent(block) {
  let event = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return data.length ? { event, data: JSON.parse(data.join("\n")) } : null;
}
