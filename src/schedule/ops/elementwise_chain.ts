/**
 * Elementwise chains: runs of elementwise nodes that one dispatch of the `elementwise` kernel computes.
 *
 * A node whose only reader is an elementwise node of the same shape is held back. The reader takes over its steps while they fit the kernel
 * (3 inputs, 2 immediates, 5 steps). Each step rounds its result as a separate op would have stored it, so a chain gives the same bits as
 * its parts.
 *
 * @module
 */

import { ELEMENTWISE, type ElementwiseRow, type KernelName } from "../../backend/kernels.ts";
import {
  bfloat16,
  type Dtype,
  float16,
  float32Bits,
  hostValue,
  hostView,
  type Scalar,
  setHostValue,
} from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { broadcastStrides, collapse, sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";

const MAX_INPUTS = 3;
const MAX_IMMEDIATES = 2;
const MAX_STEPS = 5;
const MAX_RANK = 4;
const FIRST_IMMEDIATE = 3;
const FIRST_STEP = 5;
/** Elements of a result from which on a thread of the kernel takes four: smaller ones make do with one pipeline. */
const MIN_FOURS = 1 << 16;

/** How many operands each function of elementwise nodes has, `cast` included. */
export const ARITIES: ReadonlyMap<string, number> = new Map([
  ["cast", 1],
  ...Object.entries(ELEMENTWISE).map(([name, { arity }]) => [name, arity] as const),
]);

type Operand =
  | { readonly kind: "input"; readonly value: Value }
  | { readonly kind: "immediate"; readonly bits: number }
  | { readonly kind: "step"; readonly index: number };

interface Step {
  readonly row: number;
  readonly domain: number;
  readonly round: number;
  readonly operands: readonly Operand[];
}

/** Steps over inputs, not yet dispatched. The result is the last step, or the single input when there is none. */
export interface Chain {
  readonly node: Node;
  readonly inputs: Value[];
  /** The nodes that inputs are the values of. */
  readonly sources: Node[];
  readonly immediates: number[];
  readonly steps: Step[];
}

/** Rows of floats that kernels have only where they are needed. */
const MATH: ReadonlySet<number> = new Set(
  Object.values<ElementwiseRow>(ELEMENTWISE).filter((r) => r.math).map((r) => r.id),
);

/** Whether a row of a domain, as step words count that, needs a kernel with long functions. */
export function isMath(row: number, domain: number): boolean {
  return domain === 0 && MATH.has(row);
}

/** The shortest kernel with room for some steps, and with long functions or not: drivers read all of it for each pipeline. */
export function elementwiseKernel(steps: number, math: boolean): KernelName {
  if (steps > 1) return math ? "elementwise_math" : "elementwise";
  return math ? "elementwise_math_single" : "elementwise_single";
}

/** Domain of a dtype as the step words count it: 0 float, 1 int, 2 uint (bool too). */
function domainOf(dtype: Dtype): number {
  return dtype.kind === "float" ? 0 : dtype.kind === "int" ? 1 : 2;
}

/** How a step narrows its register to what a store in `dtype` would keep: 0 not at all, 1 or 2 as elementwise.h says. */
function roundingOf(dtype: Dtype): number {
  if (dtype.kind === "float") return dtype === float16 ? 1 : dtype === bfloat16 ? 2 : 0;
  return dtype.kind === "bool" || dtype.bytes === 4 ? 0 : dtype.bytes;
}

/** Bits of a scalar in a register, rounded to its dtype first. */
export function immediateBits(dtype: Dtype, value: Scalar): number {
  if (dtype.kind === "bool") return value !== 0 ? 1 : 0;
  const host = hostView(dtype, new Uint8Array(dtype.bytes));
  setHostValue(dtype, host, 0, value);
  const rounded = Number(hostValue(dtype, host, 0));
  return dtype.kind === "float" ? float32Bits(rounded) : rounded >>> 0;
}

/** Row and domain of a cast; undefined if the register is right as it is. */
function castStep(from: Dtype, to: Dtype): { readonly row: string; readonly domain: number } | undefined {
  const domain = domainOf(from);
  if (to.kind === "bool") return from.kind === "bool" ? undefined : { row: "to_bool", domain };
  if (from.kind === "float" && to.kind !== "float") {
    return { row: to.kind === "int" ? "float_to_int" : "float_to_uint", domain };
  }
  if (from.kind !== "float" && to.kind === "float") {
    return { row: from.kind === "int" ? "int_to_float" : "uint_to_float", domain };
  }
  // int and uint are the same bits: what matters is how the target narrows them.
  return roundingOf(to) ? { row: "identity", domain: domainOf(to) } : undefined;
}

/**
 * The chain of an elementwise node. `held` gives the chain of an input that was held back for this node. `value` gives an input as it lies
 * in memory, and dispatches its chain if it was held.
 */
export function buildChain(node: Node, held: (input: Node) => Chain | undefined, value: (input: Node) => Value): Chain {
  const chain: Chain = { node, inputs: [], sources: [], immediates: [], steps: [] };
  const { fn } = attrsOf(node, "elementwise");
  const operands = new Map<Node, Operand>();
  // Scalars first: a chain that is taken over must leave room for them.
  for (const input of node.inputs.toSorted((a, b) => Number(b.op === "full") - Number(a.op === "full"))) {
    if (operands.has(input)) continue;
    operands.set(
      input,
      scalarOperand(chain, input) ?? takeOver(chain, held(input)) ?? inputOperand(chain, input, value(input)),
    );
  }
  const of = (i: number): Operand => operands.get(node.inputs[i])!;
  const source = node.inputs[fn === "select" ? 1 : 0].dtype;
  const push = (name: string, domain: number, list: Operand[]): void => {
    const row = ELEMENTWISE[name as keyof typeof ELEMENTWISE];
    if (!row) throw new Error(`no row "${name}" in shaders/include/elementwise.h`);
    chain.steps.push({ row: row.id, domain, round: roundingOf(node.dtype), operands: list });
  };
  if (fn === "cast") {
    const step = castStep(source, node.dtype);
    if (step) push(step.row, step.domain, [of(0)]);
    else if (of(0).kind === "immediate") push("identity", domainOf(node.dtype), [of(0)]);
  } else if (fn === "select") {
    push(fn, domainOf(source), [of(1), of(2), of(0)]); // the condition is operand c
  } else {
    push(fn, domainOf(source), node.inputs.map((_, i) => of(i)));
  }
  return chain;
}

function scalarOperand(chain: Chain, input: Node): Operand | undefined {
  if (input.op !== "full") return undefined;
  const bits = immediateBits(input.dtype, attrsOf(input, "full").value);
  return addImmediates(chain, [bits]) ? { kind: "immediate", bits } : undefined;
}

function inputOperand(chain: Chain, source: Node, value: Value): Operand {
  addInput(chain, source, value);
  return { kind: "input", value };
}

function addInput({ inputs, sources }: Chain, source: Node, value: Value): void {
  inputs.push(value);
  sources.push(source);
}

/** Adds immediates that the chain does not have yet; false if there is no room. */
function addImmediates({ immediates }: Chain, more: readonly number[]): boolean {
  const added = [...new Set(more)].filter((bits) => !immediates.includes(bits));
  if (immediates.length + added.length > MAX_IMMEDIATES) return false;
  immediates.push(...added);
  return true;
}

/** Moves the steps of a held chain before those of this one, when both fit together. */
function takeOver(chain: Chain, held: Chain | undefined): Operand | undefined {
  if (!held) return undefined;
  const inputs = new Set([...chain.inputs, ...held.inputs]);
  // Inputs of this node that are still to come may need a register each.
  const coming = chain.node.inputs.length - 1;
  if (inputs.size + coming > MAX_INPUTS) return undefined;
  if (chain.steps.length + held.steps.length + 1 > MAX_STEPS) return undefined;
  if (!addImmediates(chain, held.immediates)) return undefined;
  const base = chain.steps.length;
  held.inputs.forEach((input, i) => chain.inputs.includes(input) || addInput(chain, held.sources[i], input));
  for (const step of held.steps) {
    chain.steps.push({
      ...step,
      operands: step.operands.map((o) => o.kind === "step" ? { kind: "step", index: base + o.index } : o),
    });
  }
  if (held.steps.length === 0) return { kind: "input", value: held.inputs[0] };
  return { kind: "step", index: chain.steps.length - 1 };
}

/** Whether a chain can still be taken over by a reader. */
export function canGrow(chain: Chain): boolean {
  return chain.steps.length < MAX_STEPS;
}

/** Dispatches a chain into `out` (contiguous), which may be one of its inputs. */
export function emitChain(lowering: Lowering, chain: Chain, out: Value): void {
  const { shape } = out;
  let inputs = chain.inputs;
  const layout = (): { shape: number[]; strides: number[][] } =>
    collapse(shape, [...inputs.map((v) => broadcastStrides(v.shape, v.strides, shape)), out.strides]);
  let walk = layout();
  if (walk.shape.length > MAX_RANK) {
    inputs = inputs.map((v) => lowering.contiguous(v));
    walk = layout();
  }
  if (walk.shape.length > MAX_RANK) {
    inputs = inputs.map((v) => lowering.contiguous(lowering.broadcast(v, shape)));
    walk = layout();
  }
  const register = (o: Operand): number =>
    o.kind === "input"
      ? chain.inputs.indexOf(o.value)
      : o.kind === "immediate"
      ? FIRST_IMMEDIATE + chain.immediates.indexOf(o.bits)
      : FIRST_STEP + o.index;
  const word = (step: Step | undefined): number => {
    if (!step) return 0;
    const [a = 0, b = 0, c = 0] = step.operands.map(register);
    return step.row | (step.domain << 8) | (step.round << 10) | (a << 12) | (b << 16) | (c << 20);
  };
  const count = sizeOf(shape);
  const dense = walk.shape.length === 1 && inputs.every((_, i) => walk.strides[i][0] === 1 || walk.shape[0] === 1);
  const code = (i: number): number => inputs[i]?.dtype.code ?? 0;
  const last = walk.shape.length - 1;
  const neighbours = (v: Value, strides: readonly number[]): boolean =>
    strides[last] === 1 && [v.offset, ...strides.slice(0, -1)].every((n) => n % 4 === 0);
  const fours = count >= MIN_FOURS && lowering.backend.limits.subgroup > 1 && out.offset % 4 === 0 &&
    (dense || walk.shape[last] % 4 === 0);
  // The last dimension is the kernel's last one too.
  const aligned = (list: readonly number[], fill: number): readonly number[] =>
    fours ? [...new Array<number>(MAX_RANK - list.length).fill(fill), ...list] : list;
  const kernel = elementwiseKernel(chain.steps.length, chain.steps.some(({ row, domain }) => isMath(row, domain)));
  lowering.emit(kernel, [inputs[0], inputs[1], inputs[2], out], {
    spec: {
      DTYPE_A: code(0),
      DTYPE_B: code(1),
      DTYPE_C: code(2),
      DTYPE_OUT: out.dtype.code,
      CONTIGUOUS: dense ? 1 : 0,
      STEPS: chain.steps.length,
      STEP0: word(chain.steps[0]),
      STEP1: word(chain.steps[1]),
      STEP2: word(chain.steps[2]),
      STEP3: word(chain.steps[3]),
      STEP4: word(chain.steps[4]),
      FOURS: fours ? 1 : 0,
      WIDE: inputs.reduce((bits, v, i) => bits | Number(fours && neighbours(v, walk.strides[i])) << i, 0),
    },
    push: {
      count,
      shape: aligned(walk.shape, 1),
      a_strides: inputs[0] ? aligned(walk.strides[0], 0) : [],
      b_strides: inputs[1] ? aligned(walk.strides[1], 0) : [],
      c_strides: inputs[2] ? aligned(walk.strides[2], 0) : [],
      imm0: chain.immediates[0] ?? 0,
      imm1: chain.immediates[1] ?? 0,
    },
    workgroups: lowering.groups(fours ? Math.ceil(count / 4) : count),
  });
}
