/** A stroke: its points in the order in which they were written; y grows downwards. */
export type Stroke = ReadonlyArray<readonly [x: number, y: number, ...rest: number[]]>;

/** One refinement step. */
export interface Step {
  /** From 1, of each look. */
  number: number;
  /** Of this look, at most. */
  total: number;
  latex: string;
  /** Symbol and modifier of each position. */
  rows: [symbol: string, modifier: string][];
  /** Positions that were hidden from the model in this step. */
  masked: number[];
  /** Where the first look leaves doubt, there is a second. */
  look: number;
}

export interface Symbol {
  position: number;
  symbol: string;
  modifier: string;
  confidence: number;
  /** Other symbols with their probabilities. */
  alternatives: [symbol: string, probability: number][];
  /** Left, top, right, bottom in the input's coordinates; null where it has no ink. */
  box: [number, number, number, number] | null;
  /** The numbers of its strokes. */
  strokes: number[];
  /** [start, end) of its own glyph in `latex`. */
  span: [number, number];
}

export interface Answer {
  latex: string;
  mathml: string | null;
  tokens: string[];
  confidence: number;
  symbols: Symbol[];
  n_best: { latex: string; weight: number }[];
  steps: number;
  seconds: number;
  seed: number;
  warnings: string[];
  /** The ink that was read, of a file and where `ink` is asked for. */
  ink?: { strokes: [number, number][][] };
}

/** A page: its formulas in reading order, and what is none. */
export interface PageAnswer {
  /** The one formula, or all of them aligned. */
  latex: string;
  aligned: string;
  /** Their symbols' strokes are the page's. */
  formulas: (Answer & { box: [number, number, number, number]; strokes: number[] })[];
  /** "text", "number", "crossed out" or "margin line". */
  asides: { kind: string; box: [number, number, number, number]; strokes: number[]; guess: string }[];
  seconds: number;
  warnings: string[];
  ink?: { strokes: [number, number][][] };
}

/** A symbol of the answer before; its strokes as indices into those that are given now, -1: gone. */
export interface Known {
  symbol: string;
  modifier: string;
  strokes: number[];
  /** The user chose it. */
  locked?: boolean;
}

/** What ink says while it is written; an empty formula where all of it was erased. */
export interface LiveAnswer extends Answer {
  /** Positions that are as they were known before. */
  kept: number[];
  /** Strokes that a gesture took away, the gesture among them where it is no ink. */
  erased: number[];
  gestures: ("scratched" | "overwritten")[];
  final: boolean;
}

export interface LiveOptions extends Pick<Options, "alternatives" | "seed" | "signal"> {
  known?: Known[];
  /** Whether a stroke that nothing is known of may erase others; true by default. */
  gestures?: boolean;
  /** The pen rests: read it as `recognize` does. */
  final?: boolean;
}

/** The options of the Python package's `recognize`, of which these are the most used. */
export interface Options {
  /** Refinement steps, 1 to 1000; "auto", the default, takes as many as are needed. */
  steps?: number | "auto";
  deadline_ms?: number;
  /** The same seed gives the same answer. */
  seed?: number;
  n_best?: number;
  samples?: number;
  /** Position -> symbol to keep, or symbol and modifier. */
  lock?: Record<number, string | [string, string]>;
  /** LaTeX with holes: `?` is one symbol, `...` any run. */
  hint?: string;
  /** Positions of `given` (without it, of a first answer) to solve again, while the rest stays. */
  remask?: number[];
  /** An earlier answer about the same ink; what is not in `remask` or `lock` is kept. */
  given?: Pick<Answer, "symbols">;
  /** The only symbols to use. */
  allowed?: string | string[];
  alternatives?: number;
  boxes?: boolean;
  views?: number;
  method?: "diffusion" | "mask-predict";
  plain?: boolean;
  /** Send back the ink that was read. */
  ink?: boolean;
  onStep?: (step: Step) => void;
  signal?: AbortSignal;
}

export interface About {
  name: string;
  version: string;
  parameters: number;
  symbols: string[];
  /** The notations of `convert`, and their titles. */
  targets: Record<string, string>;
  max_steps: number;
  formats: { name: string; suffixes: string[]; types: string[]; picture: boolean; read: boolean }[];
  /** That ONNX Runtime computes with: several only where the page is cross-origin isolated. */
  threads: number;
}

/** What a user can cause or the engine cannot do: one clear line. */
export class EngineError extends Error {}

/** Load the engine, about 60 MB, once; `onProgress` is told the part that has come, 0 to 1. */
export function load(options?: { onProgress?: (part: number) => void }): Promise<About>;

/** Follow ink that is being written: all its strokes, the newest last. */
export function follow(strokes: ReadonlyArray<Stroke>, options?: LiveOptions): Promise<LiveAnswer>;

/** Read strokes, or a file: a photo, InkML, or strokes as JSON. Loads the engine if need be. */
export function recognize(source: ReadonlyArray<Stroke> | Blob, options?: Options): Promise<Answer>;

/** Write LaTeX in another notation, one of the engine's `targets`. */
export function convert(latex: string, format: string): Promise<string>;

/** Find and read all formulas; without the options about one: `lock`, `hint`, `remask`, `deadline_ms`. */
export function recognizePage(source: ReadonlyArray<Stroke> | Blob, options?: Options): Promise<PageAnswer>;
