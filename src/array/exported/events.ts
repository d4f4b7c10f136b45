/**
 * The events that a callback of exportFunction() gets, in the form and in the names of MLX.
 *
 * @module
 */

import { type Dtype, isComplex } from "../../graph/dtype.ts";
import { attrsOf } from "../../graph/node.ts";
import type { Shape } from "../../graph/shape.ts";
import type { Tensor } from "../tensor/tensor.ts";
import type { Value } from "./op_table.ts";
import type { Program, Step } from "./program.ts";

/** A value of a traced function: its name there, shape and dtype. */
export type ExportedValue = [name: string, shape: Shape, dtype: Dtype];

/** A step of the export, as the callback gets it. */
export type ExportEvent =
  | { readonly type: "inputs"; readonly inputs: ExportedValue[] }
  | { readonly type: "keyword_inputs"; readonly keywords: [keyword: string, name: string][] }
  | { readonly type: "outputs"; readonly outputs: ExportedValue[] }
  | { readonly type: "constants"; readonly constants: [name: string, array: Tensor][] }
  | {
    readonly type: "primitive";
    readonly name: string;
    readonly arguments: unknown[];
    readonly inputs: ExportedValue[];
    readonly outputs: ExportedValue[];
  };

/** Steps that MLX tells by another name, or with other arguments. */
const NAMED: Readonly<Record<string, (step: Step) => readonly [name: string, ...args: unknown[]]>> = {
  cast: ({ dtype }) => ["AsType", dtype],
  log2: () => ["Log", 0],
  log10: () => ["Log", 1],
  log: () => ["Log", 2],
  rsqrt: () => ["Sqrt", true],
  sqrt: () => ["Sqrt", false],
  arctan2: () => ["ArcTan2"],
  broadcast: ({ shape }) => ["Broadcast", shape],
  reshape: ({ shape }) => ["Reshape", shape],
};

/** A name with the first letter of each of its words large. */
function pascal(name: string): string {
  return name.replaceAll(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function primitive(step: Step): { readonly name: string; readonly arguments: unknown[] } {
  const fn = step.op === "elementwise" ? attrsOf(step, "elementwise").fn : step.op;
  const named = Object.hasOwn(NAMED, fn) ? NAMED[fn](step) : undefined;
  if (named) return { name: named[0], arguments: named.slice(1) };
  const args = step.op === "elementwise" ? [] : Object.entries(step.attrs).filter(([key]) => key !== "donate");
  return { name: pascal(fn), arguments: args.map(([, value]) => isComplex(value) ? { ...value } : value) };
}

/** Names A, B, …, Z, AA, AB, … in the order in which they are asked for. */
function letters(at: number): string {
  const rest = Math.floor(at / 26);
  return (rest > 0 ? letters(rest - 1) : "") + String.fromCharCode(65 + at % 26);
}

/** All events of a program, in MLX's order: what goes in and comes out, constants, then each step. */
export function* stepEvents(program: Program, arrays: readonly Tensor[]): Generator<ExportEvent> {
  const { inputs, steps, outputs } = program;
  const constants = program.constants.map((i) => arrays[i]);
  const values: Value[] = [...inputs, ...constants, ...steps];
  const names = new Map<number, string>();
  const told = (at: number): ExportedValue => {
    if (!names.has(at)) names.set(at, letters(names.size));
    return [names.get(at)!, values[at].shape, values[at].dtype];
  };
  yield { type: "inputs", inputs: inputs.map((_, i) => told(i)) };
  const keywords = inputs.flatMap(({ name }, i): [string, string][] => name === undefined ? [] : [[name, told(i)[0]]]);
  yield { type: "keyword_inputs", keywords };
  yield { type: "outputs", outputs: outputs.map(told) };
  yield { type: "constants", constants: constants.map((array, i) => [told(inputs.length + i)[0], array]) };
  for (const [i, step] of steps.entries()) {
    const own = step.inputs.map(told);
    const result = told(inputs.length + constants.length + i);
    yield { type: "primitive", ...primitive(step), inputs: own, outputs: [result] };
  }
}
