// Reads formulas, one a line, and prints those that KaTeX refuses, each with KaTeX's reason.
// usage: node katex_check.mjs katex.min.js (UMD, the copy that the page uses)
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const katex = createRequire(import.meta.url)(resolve(process.argv[2]));
for (const formula of readFileSync(0, "utf8").split("\n")) {
  if (!formula) continue;
  try {
    katex.renderToString(formula, { strict: false, throwOnError: true });
  } catch (error) {
    console.log(`${formula}\t${error.message}`);
  }
}
