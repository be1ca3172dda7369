// Reads formulas, one a line, and prints those that KaTeX refuses, each with KaTeX's reason.
// usage: node check.mjs FOLDER, where FOLDER/node_modules/katex is installed
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const katex = createRequire(resolve(process.argv[2], "package.json"))("katex");
for (const formula of readFileSync(0, "utf8").split("\n")) {
  if (!formula) continue;
  try {
    katex.renderToString(formula, { strict: false, throwOnError: true });
  } catch (error) {
    console.log(`${formula}\t${error.message}`);
  }
}
