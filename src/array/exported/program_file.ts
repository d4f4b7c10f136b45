/**
 * Files of functions: a header that lists programs, then the arrays that they share, one after the other.
 *
 * A file has eight bytes of name and version, eight of the header's length, and a JSON header whose keys come in one order. Then come the
 * values of the arrays in the order of the header, little-endian, to the last byte of the file. Nothing in it is executed: a step is an
 * entry of op_table.ts or the file is refused. Everything is checked against the size of the file before anything is allocated for it.
 *
 * @module
 */

import type { InputFile } from "../../../ffi/file.ts";
import { type Complex, type Dtype, DTYPES, isComplex } from "../../graph/dtype.ts";
import { ArrayError, quoted } from "../../graph/error.ts";
import type { OpAttrs, OpName } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import { JsonReader } from "../files/json_reader.ts";
import { tensorPieces, writeFile } from "../files/pieces.ts";
import { failFile, opened } from "../files/safetensors.ts";
import { make, type Tensor, wrap } from "../tensor/tensor.ts";
import { untrack } from "../tensor/tracking.ts";
import { type AttributeKind, attrKinds, MAX_RANK, type Value, withDonate } from "./op_table.ts";
import { checkProgram, type Input, type Program, type Step } from "./program.ts";

const MAGIC = "VKMXFN";
/** Of the format; a file of another one is refused. */
const VERSION = 1;
const START = 16;
const MAX_HEADER = 2 ** 26;
/** Most arrays, and most programs, of a file. */
const MAX_CONSTANTS = 100_000;
const MAX_PROGRAMS = 10_000;
/** Most steps of all programs of a file, and most numbers in their lists. */
const MAX_STEPS = 500_000;
const MAX_NUMBERS = 4_000_000;
const MAX_NAME = 2 ** 16;
/** Most bytes of the metadata as they are written in the header. */
export const MAX_METADATA = 2 ** 24;
/** Longest text of an attribute. */
const MAX_WORD = 64;

/** The contents of a file. */
export interface FunctionFile {
  readonly metadata: string;
  readonly constants: readonly Tensor[];
  readonly programs: readonly Program[];
}

// ---- writing ------------------------------------------------------------------------------------------------------------

type Json = number | string | boolean | readonly Json[];

/** A number as JSON has it; as text where JSON has none. */
function numberJson(value: number | bigint): Json {
  if (typeof value === "bigint") return `${value}n`;
  return Number.isFinite(value) && !Object.is(value, -0) ? value : Object.is(value, -0) ? "-0" : String(value);
}

function attrJson(value: unknown): Json {
  if (Array.isArray(value)) return value.map((whole: number) => whole + 0); // -0 is a number like others there
  if (isComplex(value)) return [numberJson(value.re), numberJson(value.im)];
  if (typeof value === "number" || typeof value === "bigint") return numberJson(value);
  return value as Json;
}

const valueJson = ({ dtype, shape }: Value): object => ({ dtype: dtype.name, shape });

function stepJson({ op, inputs, dtype, shape, attrs }: Step): object {
  const own = Object.entries(attrs).filter(([name, value]) => name in attrKinds(op)! && value !== undefined);
  const written = own.map(([name, value]) => [name, attrJson(value)]);
  return { op, inputs, dtype: dtype.name, shape, attrs: Object.fromEntries(written) };
}

function programJson({ shapeless, inputs, constants, steps, outputs }: Program): object {
  const named = inputs.filter((input) => input.name !== undefined);
  return {
    shapeless,
    inputs: inputs.filter((input) => input.name === undefined).map(valueJson),
    keywords: named.map((input) => ({ name: input.name, ...valueJson(input) })),
    constants,
    steps: steps.map(stepJson),
    outputs,
  };
}

/** Writes a file under another name, which then becomes `path`. Throws an {@link ArrayError} with code "file". */
export function writeFunctions(path: string, { metadata, constants, programs }: FunctionFile): void {
  const header = { metadata, constants: constants.map(valueJson), programs: programs.map(programJson) };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(text.length / 16) * 16).fill(0x20);
  padded.set(text);
  if (padded.length > MAX_HEADER) failFile(path, `cannot be written: its header would have ${padded.length} bytes`);
  const start = new Uint8Array(START);
  new TextEncoder().encodeInto(MAGIC, start);
  const view = new DataView(start.buffer);
  view.setUint16(MAGIC.length, VERSION, true);
  view.setBigUint64(8, BigInt(padded.length), true);
  const content = function* (): Generator<Uint8Array> {
    yield start;
    yield padded;
    for (const constant of constants) yield* tensorPieces(constant);
  };
  writeFile(path, content());
}

// ---- reading ------------------------------------------------------------------------------------------------------------

/** Reads the next value, in the place of a key. */
type Read = (json: JsonReader) => void;

/** The header of a file on its way into programs. */
class HeaderReader {
  readonly #path: string;
  readonly #json: JsonReader;
  #steps = 0;
  #numbers = 0;

  constructor(path: string, json: JsonReader) {
    this.#path = path;
    this.#json = json;
  }

  #fail(what: string): never {
    failFile(this.#path, `is no file of functions: it ${what}`);
  }

  /** Passes an object with these keys, in this order. */
  #fields(what: string, reads: Readonly<Record<string, Read>>): void {
    const names = Object.keys(reads);
    let at = 0;
    if (!this.#json.begins("{")) this.#fail(`has no object of ${what}`);
    this.#json.object(MAX_WORD, (key) => {
      if (key !== names[at]) {
        this.#fail(`has ${quoted(key)} in ${what}, in place of ${quoted(names[at] ?? "the end")}`);
      }
      reads[names[at++]](this.#json);
    });
    if (at < names.length) this.#fail(`has no ${quoted(names[at])} in ${what}`);
  }

  #list(what: string, most: number, read: () => void): void {
    let count = 0;
    if (!this.#json.begins("[")) this.#fail(`has no list of ${what}`);
    this.#json.list(() => {
      if (++count > most) this.#fail(`has more than ${most} ${what}`);
      read();
    });
  }

  #wholes(what: string, most = MAX_NUMBERS): number[] {
    const list: number[] = [];
    this.#list(what, most, () => {
      if (++this.#numbers > MAX_NUMBERS) this.#fail(`has more than ${MAX_NUMBERS} numbers`);
      list.push(this.#json.whole() ?? this.#fail(`has ${what} that are not whole numbers`));
    });
    return list;
  }

  #boolean(what: string): boolean {
    return this.#json.boolean() ?? this.#fail(`has ${what} that is neither true nor false`);
  }

  #dtype(): Dtype {
    const name = this.#json.begins('"') ? this.#json.string(MAX_WORD) : this.#fail("has no dtype");
    return DTYPES.find((dtype) => dtype.name === name) ?? this.#fail(`has an unknown dtype ${quoted(name)}`);
  }

  #shape(): number[] {
    const shape = this.#wholes("axes", MAX_RANK);
    // Every step is checked, as a 0 after an overflow would hide it.
    let size = 1;
    for (const d of shape) if ((size *= d) >= 2 ** 31) this.#fail(`has a shape [${shape}] that is too large`);
    if (shape.some((d) => d >= 2 ** 31)) this.#fail(`has a shape [${shape}] that is too large`);
    return shape;
  }

  #value(what: string, named: true): Value & { readonly name: string };
  #value(what: string, named?: false): Value;
  #value(what: string, named = false): Value & { readonly name?: string } {
    let [name, dtype, shape]: [string | undefined, Dtype | undefined, number[] | undefined] = [
      undefined,
      undefined,
      undefined,
    ];
    const fields = { dtype: () => void (dtype = this.#dtype()), shape: () => void (shape = this.#shape()) };
    const read = (json: JsonReader): void => {
      name = json.begins('"') ? json.string(MAX_NAME) : this.#fail(`has a name of ${what} that is no text`);
    };
    this.#fields(what, named ? { name: read, ...fields } : fields);
    return { name, dtype: dtype!, shape: shape! };
  }

  /** A number, or the text that stands for one. */
  #number(): number | bigint {
    if (!this.#json.begins('"')) return this.#json.number();
    const text = this.#json.string(MAX_WORD);
    if (/^-?(0|[1-9][0-9]{0,19})n$/.test(text)) return BigInt(text.slice(0, -1));
    if (["NaN", "Infinity", "-Infinity", "-0"].includes(text)) return Number(text);
    return this.#fail(`has ${quoted(text)} in place of a number`);
  }

  #integer(): number {
    const value = this.#json.number();
    return Number.isSafeInteger(value) ? value : this.#fail("has an attribute that is no whole number");
  }

  #attr(kind: AttributeKind): unknown {
    if (typeof kind !== "string") {
      const text = this.#json.begins('"')
        ? this.#json.string(MAX_WORD)
        : this.#fail("has an attribute that is no text");
      return kind.includes(text) ? text : this.#fail(`has an attribute ${quoted(text)} that is unknown`);
    }
    const list: (number | bigint)[] = [];
    const most = (count: number, read: () => number | bigint): void => {
      this.#list("numbers of an attribute", count, () => void list.push(read()));
    };
    switch (kind) {
      case "boolean":
      case "boolean?":
        return this.#boolean("an attribute");
      case "integer":
      case "integer?":
        return this.#integer();
      case "integers":
      case "integers?":
        most(MAX_RANK, () => this.#integer());
        return list;
      case "number": {
        const value = this.#number();
        return typeof value === "number" ? value : this.#fail("has an attribute that is no number");
      }
      case "scalar": {
        if (!this.#json.begins("[")) return this.#number();
        most(2, () => this.#number());
        const [re, im] = list;
        if (typeof re !== "number" || typeof im !== "number") return this.#fail("has a complex number without parts");
        return { re, im } satisfies Complex;
      }
    }
  }

  #attrs(op: OpName): OpAttrs[OpName] {
    const kinds = attrKinds(op)!;
    const found: Record<string, unknown> = {};
    if (!this.#json.begins("{")) this.#fail("has no object of attributes");
    this.#json.object(MAX_WORD, (name) => {
      if (!Object.hasOwn(kinds, name)) this.#fail(`has an attribute ${quoted(name)} that ${op} does not know`);
      if (Object.hasOwn(found, name)) this.#fail(`has the attribute ${quoted(name)} twice`);
      found[name] = this.#attr(kinds[name]);
    });
    for (const [name, kind] of Object.entries(kinds)) {
      const needed = typeof kind !== "string" || !kind.endsWith("?");
      if (needed && !Object.hasOwn(found, name)) this.#fail(`has no attribute ${quoted(name)} of ${op}`);
    }
    return withDonate(op, found);
  }

  #step(): Step {
    let step: Partial<{ -readonly [K in keyof Step]: Step[K] }> = {};
    if (++this.#steps > MAX_STEPS) this.#fail(`has more than ${MAX_STEPS} steps`);
    this.#fields("a step", {
      op: (json) => {
        const op = json.begins('"') ? json.string(MAX_WORD) : this.#fail("has a step without an op");
        if (!attrKinds(op)) this.#fail(`has an op ${quoted(op)} that is unknown`);
        step = { op: op as OpName };
      },
      inputs: () => void (step.inputs = this.#wholes("inputs")),
      dtype: () => void (step.dtype = this.#dtype()),
      shape: () => void (step.shape = this.#shape()),
      attrs: () => void (step.attrs = this.#attrs(step.op!)),
    });
    return step as Step;
  }

  #program(constants: readonly Value[]): Program {
    const inputs: Input[] = [];
    const steps: Step[] = [];
    let [shapeless, own, outputs]: [boolean, number[], number[]] = [false, [], []];
    this.#fields("a program", {
      shapeless: () => void (shapeless = this.#boolean("shapeless")),
      inputs: () =>
        this.#list("inputs", MAX_CONSTANTS, () => void inputs.push({ ...this.#value("an input"), name: undefined })),
      keywords: () => this.#list("keywords", MAX_CONSTANTS, () => void inputs.push(this.#value("a keyword", true))),
      constants: () => void (own = this.#wholes("constants")),
      steps: () => this.#list("steps", MAX_STEPS, () => void steps.push(this.#step())),
      outputs: () => void (outputs = this.#wholes("outputs")),
    });
    const names = inputs.flatMap(({ name }) => name === undefined ? [] : [name]);
    if (new Set(names).size < names.length) this.#fail("names a keyword twice");
    if (own.some((i) => i >= constants.length)) this.#fail("has a program with a constant that is not there");
    const program = { shapeless, inputs, constants: own, steps, outputs };
    try {
      checkProgram("it", program, constants);
    } catch (error) {
      if (error instanceof ArrayError) failFile(this.#path, `is no file of functions: ${error.message}`);
      throw error;
    }
    return program;
  }

  /** The whole header. */
  read(): { readonly metadata: string; readonly constants: readonly Value[]; readonly programs: readonly Program[] } {
    let metadata = "";
    const constants: Value[] = [];
    const programs: Program[] = [];
    this.#fields("the header", {
      metadata: (json) => {
        metadata = json.begins('"') ? json.string(MAX_METADATA) : this.#fail("has metadata that are no text");
      },
      constants: () => this.#list("constants", MAX_CONSTANTS, () => void constants.push(this.#value("a constant"))),
      programs: () => this.#list("programs", MAX_PROGRAMS, () => void programs.push(this.#program(constants))),
    });
    this.#json.finish();
    return { metadata, constants, programs };
  }
}

/**
 * Reads and checks the header of a file; its arrays are read when they are needed. Throws an {@link ArrayError} with code "file" that
 * says what is wrong.
 */
export function readFunctions(given: string): FunctionFile {
  return opened(given, (file) => parse(given, file));
}

function parse(given: string, file: InputFile): FunctionFile {
  const { size, version } = file;
  if (size < START) failFile(given, "is too short for a file of functions");
  const start = file.read(0, START);
  if (new TextDecoder().decode(start.subarray(0, MAGIC.length)) !== MAGIC) {
    failFile(given, "is no file of functions: exportFunction() writes them, those of MLX are others");
  }
  const view = new DataView(start.buffer, start.byteOffset);
  const found = view.getUint16(MAGIC.length, true);
  if (found !== VERSION) failFile(given, `is a file of functions of version ${found}: this library reads ${VERSION}`);
  const length = Number(view.getBigUint64(8, true));
  if (length > MAX_HEADER) failFile(given, `has a header of ${length} bytes, at most ${MAX_HEADER} are allowed`);
  if (START + length > size) failFile(given, `is cut off: its header has ${length} bytes, the file ${size}`);
  const json = new JsonReader(file, START, START + length, (what, at) => {
    failFile(given, `its header ${what}, at byte ${at}`);
  });
  const { metadata, constants, programs } = new HeaderReader(given, json).read();
  const path = file.resolve();
  let at = START + length;
  const places = constants.map(({ shape, dtype }) => {
    const byteOffset = at;
    at += sizeOf(shape) * dtype.bytes;
    return byteOffset;
  });
  if (at !== size) failFile(given, `needs ${at} bytes and has ${size}: it is ${at > size ? "cut off" : "too long"}`);
  return {
    metadata,
    programs,
    constants: constants.map(({ shape, dtype }, i) => {
      const tensor = make("file", [], shape, dtype, { path, byteOffset: places[i], version });
      untrack(tensor); // the function outlives the scope that it is imported in
      return tensor;
    }),
  };
}

/** A Tensor of a node that no scope ends. */
export function kept(node: Parameters<typeof wrap>[0]): Tensor {
  const tensor = wrap(node);
  untrack(tensor);
  return tensor;
}
