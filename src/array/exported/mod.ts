/**
 * Functions in files: traced on placeholders, written as lists of steps, read back as functions that make the same nodes again.
 *
 * @module
 */

import { type Dtype, uint32 } from "../../graph/dtype.ts";
import { ArrayError, quoted, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { formatShape, type Shape } from "../../graph/shape.ts";
import { traceNodes } from "../compile/compile.ts";
import "../fast/fast.ts"; // defines the fused ops that programs may hold
import { nodeOf, Tensor, wrap } from "../tensor/tensor.ts";
import { stepEvents } from "./events.ts";
import { kept, MAX_METADATA, readFunctions, writeFunctions } from "./program_file.ts";
import { type Input, type Program, programOf, runProgram, sameValue } from "./program.ts";
import type { Value } from "./op_table.ts";
import type { ExportEvent } from "./events.ts";

export type { ExportedValue, ExportEvent } from "./events.ts";

/** Arrays by name. */
export type Keywords = Readonly<Record<string, Tensor>>;

/** Options of {@link exporter}. */
export interface ExportOptions {
  /** Whether the function takes arrays of other sizes with as many axes. Default false. */
  readonly shapeless?: boolean;
  /** A text that is kept beside the function, such as a configuration in JSON. */
  readonly metadata?: string | null;
}

/** A function of arrays that may be written to a file: keyword arguments come as an object at the end. */
// deno-lint-ignore no-explicit-any
export type Exportable = (...args: any[]) => unknown;

/** A function that was read from a file. Disposing it lets its arrays go. */
export interface ImportedFunction extends Disposable {
  (...args: readonly (Tensor | readonly Tensor[] | Keywords)[]): Tensor[];
}

/** Writes traces of a function to a file, which appears whole when this is closed. */
export interface FunctionExporter extends Disposable {
  /** Traces the function for arrays such as these. */
  (...args: readonly (Tensor | readonly Tensor[] | Keywords)[]): void;
  /** Writes the file; the same as disposing. Nothing is written if nothing was traced. */
  close(): void;
}

/** Arguments of a call by kind. */
interface Arguments {
  readonly positional: readonly Tensor[];
  readonly keywords: readonly (readonly [name: string, array: Tensor])[];
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || value instanceof Tensor) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function argumentsOf(op: string, args: readonly unknown[]): Arguments {
  const keywords = isObject(args.at(-1)) ? Object.entries(args.at(-1) as object) : [];
  const rest = isObject(args.at(-1)) ? args.slice(0, -1) : args;
  const positional = rest.length === 1 && Array.isArray(rest[0]) ? rest[0] : rest;
  const wrong = [...positional, ...keywords.map(([, value]) => value)].find((value) => !(value instanceof Tensor));
  if (wrong !== undefined || positional.includes(undefined)) {
    const found = Array.isArray(wrong) ? "a list" : isObject(wrong) ? "an object" : quoted(wrong);
    throw new ValueError(
      `${op}() takes arrays, or one list of arrays, and keyword arguments as an object of arrays at the end: found ${found}`,
    );
  }
  return { positional: positional as Tensor[], keywords: keywords as [string, Tensor][] };
}

const valueOf = (array: Tensor): Value => ({ shape: array.shape, dtype: array.dtype as Dtype });

function inputsOf({ positional, keywords }: Arguments): Input[] {
  return [
    ...positional.map((array) => ({ ...valueOf(array), name: undefined })),
    ...keywords.map(([name, array]) => ({ ...valueOf(array), name })),
  ];
}

/** Arrays that functions read from outside of them, each once. */
class Constants implements Disposable {
  readonly #indices = new Map<Node, number>();
  readonly arrays: Tensor[] = [];

  indexOf(node: Node): number {
    let index = this.#indices.get(node);
    if (index === undefined) {
      this.#indices.set(node, index = this.arrays.length);
      this.arrays.push(kept(node));
    }
    return index;
  }

  [Symbol.dispose](): void {
    for (const array of this.arrays.splice(0)) array.dispose();
    this.#indices.clear();
  }
}

/** The results of a function as a list. */
function resultsOf(result: unknown): Tensor[] {
  const list = Array.isArray(result) ? result : [result];
  const wrong = list.find((value) => !(value instanceof Tensor));
  if (wrong === undefined && !list.includes(undefined)) return list;
  const found = Array.isArray(wrong) ? "a list in a list" : wrong instanceof Promise ? "a promise" : quoted(wrong);
  throw new ValueError(`exportFunction() needs a function that returns an array or a list of arrays: found ${found}`);
}

function trace(fn: Exportable, args: Arguments, shapeless: boolean, constants: Constants): Program {
  const inputs = inputsOf(args);
  let parameters: Node[] = [];
  const { id: first } = makeNode("full", [], [], uint32, { value: 0 }); // older nodes are no part of the trace
  const outputs = traceNodes(() => {
    parameters = inputs.map(({ shape, dtype }, index) => makeNode("parameter", [], shape, dtype, { index }));
    const arrays = parameters.map((node) => wrap(node));
    const count = args.positional.length;
    const named = args.keywords.map(([name], i) => [name, arrays[count + i]] as const);
    return resultsOf(fn(...arrays.slice(0, count), ...(named.length > 0 ? [Object.fromEntries(named)] : []))).map((t) =>
      nodeOf(t)
    );
  });
  for (const node of outputs) node.retain();
  try {
    return programOf(inputs, parameters, outputs, shapeless, first, (node) => constants.indexOf(node));
  } finally {
    for (const node of outputs) node.release();
  }
}

/** Whether a program serves inputs, in whatever order keywords come. */
function serves(program: Program, inputs: readonly Input[]): boolean {
  return program.inputs.length === inputs.length && program.inputs.every((input, i) => {
    const given = input.name === undefined ? inputs[i] : inputs.find(({ name }) => name === input.name);
    return given !== undefined && given.name === input.name && sameValue(input, given, program.shapeless);
  });
}

function describeInputs(inputs: readonly Input[]): string {
  const text = inputs.map(({ name, dtype, shape }) => {
    return `${name === undefined ? "" : `${quoted(name)}: `}${dtype.name} ${formatShape(shape as Shape)}`;
  });
  return text.length === 0 ? "no arrays" : text.join(", ");
}

function checkFunction(op: string, fn: unknown): void {
  if (typeof fn !== "function") throw new ValueError(`${op}() expected a function: found ${quoted(fn)}`);
}

function checkMetadata(op: string, metadata: unknown): string {
  if (metadata === undefined || metadata === null) return "";
  if (typeof metadata !== "string") {
    throw new ValueError(`${op}() expected metadata to be a text: found ${quoted(metadata)}`);
  }
  const bytes = new TextEncoder().encode(JSON.stringify(metadata)).length;
  if (bytes <= MAX_METADATA && metadata.isWellFormed()) return metadata;
  throw new ValueError(
    `${op}() takes metadata of valid Unicode and at most ${MAX_METADATA} bytes: found ${bytes} bytes`,
  );
}

function checkShapeless(op: string, shapeless: unknown): boolean {
  if (shapeless === undefined || typeof shapeless === "boolean") return shapeless ?? false;
  throw new ValueError(`${op}() expected shapeless to be true or false: found ${quoted(shapeless)}`);
}

/**
 * Writes several traces of a function to one file. Call the result with arrays for each, and dispose it: that writes the file whole or
 * not at all. An imported function takes the trace that fits its arguments: their number, names, dtypes and shapes. With `shapeless`
 * their numbers of axes count instead of shapes. MLX's `exporter`.
 *
 * Throws a ValueError for a trace that there is already, and for ops that files cannot hold.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const path = `${await Deno.makeTempDir()}/sum.vkmxfn`;
 * {
 *   using add = mx.exporter(path, (...all: mx.Tensor[]) => all.reduce((a, b) => mx.add(a, b)));
 *   add(mx.array(1));
 *   add(mx.array(1), mx.array(2));
 * }
 * using sum = mx.importFunction(path);
 * sum(mx.array(3), mx.array(4))[0].item(); // 7
 * ```
 */
export function exporter(file: string, fn: Exportable, options: ExportOptions = {}): FunctionExporter {
  const op = "exporter";
  if (typeof file !== "string") throw new ValueError(`${op}() expected a path: found ${quoted(file)}`);
  checkFunction(op, fn);
  const shapeless = checkShapeless(op, options.shapeless);
  const metadata = checkMetadata(op, options.metadata);
  const constants = new Constants();
  const programs: Program[] = [];
  let open = true;
  const call = (...args: readonly unknown[]): void => {
    if (!open) throw new ArrayError("disposed", `${op}() was closed: it writes no more traces to its file`);
    const given = argumentsOf(op, args);
    const inputs = inputsOf(given);
    const same = programs.find((program) => serves(program, inputs));
    if (same) throw new ValueError(`${op}() has a trace for these arguments already: ${describeInputs(same.inputs)}`);
    programs.push(trace(fn, given, shapeless, constants));
  };
  const close = (): void => {
    if (!open) return;
    open = false;
    using held = constants;
    if (programs.length > 0) writeFunctions(file, { metadata, constants: held.arrays, programs });
  };
  return Object.assign(call, { close, [Symbol.dispose]: close });
}

/**
 * Writes a function of arrays to a file, traced for arrays such as `args`. These are variable arguments or one list of arrays. An object
 * at the end holds keyword arguments, which the function gets as its last argument. In that object `shapeless` and `metadata` are
 * options as for {@link exporter}. Captured arrays become part of the file. MLX's `export_function`.
 *
 * Given a callback instead of a path, that is called with each step, and nothing is written.
 *
 * Throws a ValueError if the function takes or returns anything but arrays, and for ops that files cannot hold.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const path = `${await Deno.makeTempDir()}/scale.vkmxfn`;
 * const weight = mx.array([1, 10]);
 * mx.exportFunction(path, (x: mx.Tensor) => mx.multiply(x, weight), mx.zeros([2]));
 * using scale = mx.importFunction(path);
 * scale(mx.array([2, 3]))[0].tolist(); // [2, 30]
 * ```
 */
export function exportFunction(
  file: string | ((event: ExportEvent) => void),
  fn: Exportable,
  ...args: readonly (Tensor | readonly Tensor[] | Readonly<Record<string, Tensor | boolean | string | null>>)[]
): void {
  const op = "exportFunction";
  checkFunction(op, fn);
  const last = args.at(-1);
  const { shapeless, metadata, ...named } = (isObject(last) ? last : {}) as Record<string, unknown>;
  const rest = isObject(last) ? [...args.slice(0, -1), named] : args;
  const given = argumentsOf(op, rest);
  if (typeof file === "function") {
    if (metadata !== undefined && metadata !== null) {
      throw new ValueError(`${op}() keeps metadata in files only: it was given a callback`);
    }
    using constants = new Constants();
    const program = trace(fn, given, checkShapeless(op, shapeless), constants);
    for (const event of stepEvents(program, constants.arrays)) file(event);
    return;
  }
  const writer = exporter(file, fn, { shapeless, metadata } as ExportOptions);
  writer(given.positional, Object.fromEntries(given.keywords));
  writer.close();
}

/**
 * A function that {@link exportFunction} or {@link exporter} wrote. It takes arrays, or one list of them, and keyword arguments as an
 * object at the end, and returns a list of arrays. It makes nodes as the function did, so it may be compiled and transformed. With
 * `returnMetadata` a pair of it and the text that was kept beside it. MLX's `import_function`.
 *
 * Throws an {@link ArrayError} with code "file" for a file that does not follow the format exactly. The function throws a ValueError if
 * no trace fits its arguments.
 */
export function importFunction(file: string, returnMetadata: true): [fn: ImportedFunction, metadata: string];
/** The function alone. */
export function importFunction(file: string, returnMetadata?: false): ImportedFunction;
export function importFunction(
  file: string,
  returnMetadata: boolean = false,
): ImportedFunction | [ImportedFunction, string] {
  const { metadata, constants, programs } = readFunctions(file);
  const call = (...args: readonly unknown[]): Tensor[] => {
    const given = argumentsOf("imported function", args);
    const inputs = inputsOf(given);
    const program = programs.find((program) => serves(program, inputs));
    if (!program) {
      const there = programs.map((program, i) => {
        return `\n ${i + 1}. ${describeInputs(program.inputs)}${program.shapeless ? ", of any sizes" : ""}`;
      });
      throw new ValueError(
        `an imported function has no trace for ${describeInputs(inputs)}. It has ${there.join("") || "none"}`,
      );
    }
    const named = new Map(given.keywords);
    const arrays = program.inputs.map(({ name }, i) => name === undefined ? given.positional[i] : named.get(name)!);
    return runProgram(program, arrays.map((t) => nodeOf(t)), constants.map((t) => nodeOf(t))).map((node) => wrap(node));
  };
  const dispose = (): void => {
    for (const constant of constants) constant.dispose();
  };
  const imported: ImportedFunction = Object.assign(call, { [Symbol.dispose]: dispose });
  return returnMetadata ? [imported, metadata] : imported;
}
