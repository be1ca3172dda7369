// From rows [symbol, modifier] to LaTeX in which every symbol carries its position.
//
// A step of the refinement may be malformed (a brace without partner, a fraction without
// denominator). What is written here is always well-formed: missing parts become empty groups.

const ARGUMENTS = new Map(
  Object.entries({
    frac: 2,
    binom: 2,
    sqrt: 1,
    mathbb: 1,
    mathcal: 1,
    mathfrak: 1,
    bar: 1,
    hat: 1,
    dot: 1,
    ddot: 1,
    vec: 1,
    tilde: 1,
    check: 1,
    widehat: 1,
    widetilde: 1,
    overline: 1,
    underline: 1,
    overrightarrow: 1,
  }).map(([name, count]) => ["\\" + name, count]),
);
const RELATIONS = new Set(
  String.raw`= < > \leq \geq \le \ge \neq \ne \approx \equiv \sim \simeq \cong \propto \in \subset
    \subseteq \Rightarrow \Leftrightarrow \iff \implies`.split(/\s+/),
);
const FRAME = /^\\(begin|end)\{(cases|[pbBv]matrix)\}$/; // several rows, which no single reading has
const OPENERS = "{^_[";
const HOLE = "{\\square}";

// Where a symbol alone means something else to KaTeX than to the reader.
const SHOWN = new Map([
  ["\\mod", "\\operatorname{mod}"],
  ["\\fint", "\\mathop{\\mathrlap{\\,-}\\int}\\nolimits"], // KaTeX has no \\fint
  ["&", "\\&"],
  ["\\\\", "\\backslash\\backslash"],
  ["<mask>", "\\square"],
  ["<pad>", ""],
  ["<empty>", ""],
]);

/** Rows as one list of marks and symbols: openers lean on the symbol to their right. */
function lex(rows) {
  const out = [];
  rows.forEach(([symbol, modifier = ""], position) => {
    const marks = modifier.startsWith("<") ? "" : modifier;
    let at = 0;
    while (at < marks.length && OPENERS.includes(marks[at])) out.push({ mark: marks[at++] });
    if (symbol !== "<empty>" && symbol !== "<pad>") out.push({ symbol, position });
    while (at < marks.length) out.push({ mark: marks[at++] });
  });
  return out;
}

/** Tokens as the same list: what a frame adds to its symbols has no position. */
function lexTokens(tokens) {
  let [position, framed] = [0, false];
  return tokens.map((token, i) => {
    const index = (token === "[" && tokens[i - 1] === "\\sqrt") || token === "]"; // of a root
    if ("{}^_".includes(token) || index) return { mark: token };
    if (FRAME.test(token)) framed = token.startsWith("\\begin");
    const added = FRAME.test(token) || (framed && (token === "&" || token === "\\\\"));
    return { symbol: token, position: added ? null : position++ };
  });
}

class Parser {
  constructor(items) {
    this.items = items;
    this.at = 0;
  }

  get next() {
    return this.items[this.at];
  }

  take(mark) {
    if (this.next?.mark !== mark) return false;
    this.at++;
    return true;
  }

  /** Nodes up to a closing brace, or to the end of a matrix, or to the end. */
  list(inside) {
    const nodes = [];
    while (this.next) {
      const { mark, symbol } = this.next;
      if (mark === "}") {
        if (inside === "{") break;
        this.at++; // a brace without partner
      } else if (mark === "{") {
        nodes.push({ body: this.group() });
      } else if (mark === "^" || mark === "_") {
        this.at++;
        if (!nodes.length) nodes.push({ body: [] });
        this.script(nodes, mark);
      } else if (mark) {
        this.at++;
      } else if (symbol.startsWith("\\end{")) {
        if (inside === "matrix") break;
        this.at++;
      } else {
        nodes.push(this.atom(inside === "matrix"));
      }
    }
    return nodes;
  }

  script(nodes, mark) {
    let base = nodes.at(-1);
    if (base[mark]) nodes.push((base = { body: [] })); // a second script needs a new base
    base[mark] = this.argument();
  }

  group() {
    this.at++;
    const body = this.list("{");
    this.take("}");
    return body;
  }

  argument() {
    if (this.next?.mark === "{") return this.group();
    return this.next?.symbol && !this.next.symbol.startsWith("\\end{") ? [this.atom(false)] : [];
  }

  atom(inMatrix) {
    const { symbol, position } = this.items[this.at++];
    const node = { symbol, position };
    if (symbol.startsWith("\\begin{")) {
      if (symbol === "\\begin{array}" && this.next?.mark === "{") node.columns = this.group();
      node.body = this.list("matrix");
      if (this.next?.symbol) node.end = this.items[this.at++].position;
    } else if (inMatrix && (symbol === "&" || symbol === "\\\\")) {
      node.separator = true;
    } else if (ARGUMENTS.has(symbol)) {
      if (symbol === "\\sqrt" && this.take("[")) {
        node.index = this.index();
      }
      node.arguments = Array.from({ length: ARGUMENTS.get(symbol) }, () => this.argument());
    }
    return node;
  }

  index() {
    let end = this.at;
    while (end < this.items.length && this.items[end].mark !== "]") end++;
    const inner = new Parser(this.items.slice(this.at, end)).list();
    this.at = Math.min(end + 1, this.items.length);
    return inner;
  }
}

/** Plain LaTeX of one symbol on its own, with holes for what it takes. */
export function symbolLatex(symbol) {
  if (symbol.startsWith("\\begin{")) return "[\\,\\cdots";
  if (symbol.startsWith("\\end{")) return "\\cdots\\,]";
  if (["\\mathbb", "\\mathcal", "\\mathfrak"].includes(symbol)) return `${symbol}{A}`;
  return (SHOWN.get(symbol) ?? symbol) + HOLE.repeat(ARGUMENTS.get(symbol) ?? 0);
}

function write(nodes, mark) {
  return nodes.map((node) => writeNode(node, mark)).join("");
}

/** The one letter under an accent or in a font: KaTeX sets it in its own way if it is bare. */
function single({ symbol, arguments: given }) {
  if (given?.length !== 1 || symbol === "\\sqrt" || given[0].length !== 1) return null;
  const [letter] = given[0];
  const bare = letter.symbol && !letter.arguments && !letter.body && !letter["^"] && !letter["_"];
  return bare ? letter : null;
}

function writeNode(node, mark) {
  if (node.separator) return `${node.symbol} `;
  let core;
  if (node.columns) {
    const columns = node.columns
      .map((c) => c.symbol)
      .filter((c) => /^[lcr|]$/.test(c))
      .join("");
    core = `\\begin{array}{${columns || "c"}}${write(node.body, mark)}\\end{array}`;
  } else if (node.body && node.symbol) {
    const name = FRAME.test(node.symbol) ? node.symbol.slice(7, -1) : "matrix";
    core = `\\begin{${name}}${write(node.body, mark)}\\end{${name}}`;
  } else if (node.body) {
    core = `{${write(node.body, mark)}}`;
  } else {
    core = SHOWN.get(node.symbol) ?? node.symbol;
    if (node.index) core += `[{${write(node.index, mark)}}]`;
    const letter = single(node);
    if (letter) core += `{${SHOWN.get(letter.symbol) ?? letter.symbol}}`;
    else for (const argument of node.arguments ?? []) core += `{${write(argument, mark)}}`;
  }
  for (const script of ["_", "^"]) {
    if (node[script]) core += `${script}{${write(node[script], mark)}}`;
  }
  // A script must stand inside the mark: KaTeX places it by the glyph it hangs on.
  return node.symbol === undefined || node.position === null ? core : mark(node.position, core, single(node)?.position);
}

/**
 * LaTeX of rows, or of a frame's tokens, in which each symbol carries its position, counted from
 * `offset`; with `relation`, "&" stands before the first relation, as `aligned` has it.
 */
export function markedLatex(rows, { offset = 0, relation = false, tokens = null } = {}) {
  const mark = (position, latex, letter) => {
    const data = [`p=${offset + position}`, letter === undefined ? [] : `letter=${offset + letter}`].flat();
    return `\\htmlData{${data}}{${latex}}`;
  };
  const nodes = new Parser(tokens ? lexTokens(tokens) : lex(rows)).list();
  if (!relation) return write(nodes, mark);
  const at = Math.max(0, nodes.findIndex(({ symbol }) => RELATIONS.has(symbol)));
  return `${write(nodes.slice(0, at), mark)}&${write(nodes.slice(at), mark)}`;
}

/** Whether an answer has rows behind a bracket, put together of several readings. */
export const isFramed = ({ tokens }) => tokens.some((token) => FRAME.test(token));

/** A row of `aligned`: the first relation outside of all braces has the mark before it. */
export function atRelation({ latex, tokens }) {
  let [depth, end] = [0, 0];
  for (const token of tokens) {
    const start = latex.indexOf(token, end); // only spaces stand between
    end = start + token.length;
    depth += (token === "{" || token.startsWith("\\begin")) - (token === "}" || token.startsWith("\\end"));
    if (depth === 0 && RELATIONS.has(token)) return `${latex.slice(0, start)} &${latex.slice(start)}`.trim();
  }
  return `&${latex}`;
}
