// Who reads in a notebook: the kernel. Asked as the page's other engines are.

import { ServerError } from "./client.js";

/** Yields { event: "step" | "result", data }; `model` is the widget's. */
export async function* recognize({ model, strokes }, signal) {
  const id = Math.random();
  const come = [];
  let wake = () => {};
  const hear = (message) => {
    if (message.id === id) come.push(message);
    wake();
  };
  model.on("msg:custom", hear);
  signal.addEventListener("abort", () => wake());
  try {
    model.send({ id, strokes });
    while (!signal.aborted) {
      const { event, data } = come.shift() ?? {};
      if (event === "error") throw new ServerError(data, { status: 400 });
      if (event) yield { event, data };
      else await new Promise((resolve) => (wake = resolve));
      if (event === "result") return;
    }
  } finally {
    model.off("msg:custom", hear);
  }
}
