/**
 * `mx.fast.vulkanKernel`: kernels that a program brings, in GLSL or SPIR-V for Vulkan devices and in TypeScript for the CPU.
 *
 * A kernel is checked when it is made, and a call when it is made. The source is checked at evaluation, when the device is known.
 *
 * @module
 */

import type {
  CustomCall,
  CustomKernel,
  HostKernel,
  KernelVariant,
  TemplateValue,
  Triple,
} from "../../graph/custom_kernel.ts";
import { checkDtype, type Dtype, isDtype, uint32 } from "../../graph/dtype.ts";
import { kindOf, quoted, ValueError } from "../../graph/error.ts";
import { makeNode, type Node } from "../../graph/node.ts";
import { checkOptions } from "../../graph/options.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";
import { MAX_ARRAYS } from "../../schedule/ops/custom_kernel.ts";
import { type TensorLike, toNode, toShape } from "../tensor/convert.ts";
import {
  checkDistinct,
  checkKernelName,
  checkName,
  checkNames,
  checkReads,
  checkText,
  OP,
} from "./custom_kernel_source.ts";
import { reshapeNode, sliceNode } from "../ops/movement.ts";
import { type AnyTensor, wrap } from "../tensor/tensor.ts";

export type { HostKernel, HostKernelCall, KernelVariant, TemplateValue } from "../../graph/custom_kernel.ts";

/** The description of a kernel; see {@link vulkanKernel}. */
export interface VulkanKernelOptions {
  /** Name in messages and profiles. */
  readonly name: string;
  /** Names of the inputs in the source. */
  readonly inputNames: readonly string[];
  /** Names of the outputs in the source. */
  readonly outputNames: readonly string[];
  /** Body of main() in GLSL. */
  readonly source?: string;
  /** GLSL before main(): functions, constants, shared memory. */
  readonly header?: string;
  /** Whether inputs that are not contiguous are copied (default true); else the kernel uses their strides. */
  readonly ensureRowContiguous?: boolean;
  /** Whether there are `name_atomic_add(i, x)`, `_min` and `_max` for each output. */
  readonly atomicOutputs?: boolean;
  /** The kernel as SPIR-V, in place of `source`: one module, or a function that gives that for the dtypes and the template of a call. */
  readonly spirv?: Uint8Array | ((variant: KernelVariant) => Uint8Array);
  /** The same in TypeScript, which the CPU runs. */
  readonly wasm?: HostKernel;
}

/** The arguments of a kernel's call; see {@link vulkanKernel}. */
export interface VulkanKernelCall {
  /** Inputs in the order of their names. */
  readonly inputs: readonly TensorLike[];
  /** Names that are dtypes, whole numbers or booleans in the source: an object, or pairs. */
  readonly template?: Readonly<Record<string, TemplateValue>> | readonly (readonly [string, TemplateValue])[];
  /** Threads along each axis. */
  readonly grid: readonly number[];
  /** Threads of a workgroup along each axis; no more than those of the grid are taken. */
  readonly threadgroup: readonly number[];
  /** Shapes of the outputs. */
  readonly outputShapes: readonly Shape[];
  /** Dtypes of the outputs. */
  readonly outputDtypes: readonly Dtype[];
  /** The value of all elements of the outputs before the kernel runs; default undefined memory. */
  readonly initValue?: number | null;
  /** Prints the shader when it is compiled for this call. */
  readonly verbose?: boolean;
}

/** A kernel that can be called. Outputs come in the order of their names. */
export type VulkanKernel = (call: VulkanKernelCall) => AnyTensor[];

const OPTIONS = {
  name: true,
  inputNames: true,
  outputNames: true,
  source: true,
  header: true,
  ensureRowContiguous: true,
  atomicOutputs: true,
  spirv: true,
  wasm: true,
} as const satisfies Record<keyof VulkanKernelOptions, true>;
const CALL_OPTIONS = {
  inputs: true,
  template: true,
  grid: true,
  threadgroup: true,
  outputShapes: true,
  outputDtypes: true,
  initValue: true,
  verbose: true,
} as const satisfies Record<keyof VulkanKernelCall, true>;

/** Outputs begin at multiples of so many bytes. */
const ALIGN = 64;
/** Most threads along an axis. */
const MAX_THREADS = 2 ** 32 - 1;

function checkFlag(what: string, value: unknown): boolean {
  if (typeof value === "boolean") return value;
  throw new ValueError(`${OP}() expected ${what} to be true or false: found ${quoted(value)}`);
}

/** Checks the description of a kernel. */
function kernelOf(options: VulkanKernelOptions): CustomKernel {
  checkOptions(OP, options, OPTIONS);
  const { spirv, wasm, ensureRowContiguous = true, atomicOutputs = false } = options;
  const name = checkKernelName(options.name);
  const inputNames = checkNames("inputNames", options.inputNames);
  const outputNames = checkNames("outputNames", options.outputNames);
  const names = [...inputNames, ...outputNames];
  checkDistinct(names);
  if (outputNames.length === 0) throw new ValueError(`${OP}() expected at least one output`);
  if (names.length > MAX_ARRAYS) {
    throw new ValueError(`${OP}() takes at most ${MAX_ARRAYS} inputs and outputs together: found ${names.length}`);
  }
  if (spirv !== undefined && typeof spirv !== "function" && !(spirv instanceof Uint8Array)) {
    throw new ValueError(
      `${OP}() expected spirv to be a Uint8Array or a function that gives one: found ${kindOf(spirv)}`,
    );
  }
  if (wasm !== undefined && typeof wasm !== "function") {
    throw new ValueError(`${OP}() expected wasm to be a function: found ${kindOf(wasm)}`);
  }
  const source = checkText("source", options.source ?? "");
  checkReads(name, source, inputNames);
  if (source === "" && !spirv && !wasm) throw new ValueError(`${OP}() expected source, spirv or wasm`);
  return {
    name,
    inputNames,
    outputNames,
    source,
    header: checkText("header", options.header ?? ""),
    ensureRowContiguous: checkFlag("ensureRowContiguous", ensureRowContiguous),
    atomicOutputs: checkFlag("atomicOutputs", atomicOutputs),
    spirv: spirv instanceof Uint8Array ? spirv.slice() : spirv,
    wasm,
  };
}

function checkTriple(what: string, value: unknown, least: number): Triple {
  const fits = Array.isArray(value) && value.length === 3 &&
    value.every((n) => Number.isInteger(n) && n >= least && n <= MAX_THREADS);
  if (fits) return [value[0], value[1], value[2]];
  throw new ValueError(
    `${OP}() expected ${what} to be three whole numbers from ${least} to ${MAX_THREADS}: found ${quoted(value)}`,
  );
}

function checkTemplate(template: VulkanKernelCall["template"], names: readonly string[]): CustomCall["template"] {
  if (template === undefined) return [];
  if (typeof template !== "object" || template === null) {
    throw new ValueError(`${OP}() expected template to be an object or a list of pairs: found ${kindOf(template)}`);
  }
  const entries: readonly unknown[] = Array.isArray(template) ? template : Object.entries(template);
  const taken = new Set(names);
  return entries.map((entry) => {
    if (!Array.isArray(entry) || entry.length !== 2) {
      throw new ValueError(`${OP}() expected template to be pairs of a name and a value: found ${quoted(entry)}`);
    }
    const [key, value] = [checkName("a name of the template", entry[0]), entry[1] as TemplateValue];
    if (taken.has(key)) throw new ValueError(`${OP}() expected names that differ: found ${key} twice`);
    taken.add(key);
    const isInt = typeof value === "number" && Number.isInteger(value) && Math.abs(value) < 2 ** 31;
    if (isInt || typeof value === "boolean" || isDtype(value)) return [key, value];
    throw new ValueError(
      `${OP}() expected template argument ${key} to be a dtype, a whole number of 32 bits or a boolean: found ${
        quoted(value)
      }`,
    );
  });
}

function checkList(what: string, list: unknown, length: number): readonly unknown[] {
  if (!Array.isArray(list)) throw new ValueError(`${OP}() expected ${what} to be a list: found ${kindOf(list)}`);
  if (list.length !== length) {
    throw new ValueError(`${OP}() expected ${length} ${what}, one for each name: found ${list.length}`);
  }
  return list;
}

/** Checks a call and gives its node. */
function callNode(kernel: CustomKernel, options: VulkanKernelCall): { readonly node: Node; readonly call: CustomCall } {
  checkOptions(OP, options, CALL_OPTIONS);
  const { inputNames, outputNames } = kernel;
  const { initValue, verbose = false } = options;
  const inputs = checkList("inputs", options.inputs, inputNames.length).map((input) => toNode(OP, input as TensorLike));
  const shapes = checkList("outputShapes", options.outputShapes, outputNames.length) as readonly Shape[];
  const dtypes = checkList("outputDtypes", options.outputDtypes, outputNames.length) as readonly Dtype[];
  const grid = checkTriple("grid", options.grid, 0);
  const asked = checkTriple("threadgroup", options.threadgroup, 1);
  // As in Metal: a workgroup is no larger than the grid. A module may have its size written into it.
  const threadgroup = kernel.spirv ? asked : asked.map((size, axis) => Math.max(1, Math.min(size, grid[axis])));
  const whole = grid.every((size, axis) => size % threadgroup[axis] === 0);
  if (!whole && !kernel.spirv && /\bbarrier\s*\(/.test(kernel.source + kernel.header)) {
    throw new ValueError(
      `${OP} "${kernel.name}" has barriers, which need whole workgroups: found a grid ${
        grid.join(" x ")
      } of threadgroups ${threadgroup.join(" x ")}`,
    );
  }
  if (initValue !== undefined && initValue !== null && typeof initValue !== "number") {
    throw new ValueError(`${OP}() expected initValue to be a number: found ${kindOf(initValue)}`);
  }
  let bytes = 0;
  const outputs = shapes.map((given, i) => {
    const shape = toShape(OP, given);
    const dtype = dtypes[i];
    checkDtype(dtype, OP);
    const byteOffset = Math.ceil(bytes / ALIGN) * ALIGN;
    bytes = byteOffset + sizeOf(shape) * dtype.bytes;
    return { shape, dtype, byteOffset };
  });
  const call: CustomCall = {
    kernel,
    template: checkTemplate(options.template, [...inputNames, ...outputNames]),
    grid,
    threadgroup: threadgroup as unknown as Triple,
    outputs,
    initValue: initValue ?? undefined,
    verbose: checkFlag("verbose", verbose),
  };
  const [first, ...others] = outputs;
  const node = others.length === 0
    ? makeNode("customKernel", inputs, first.shape, first.dtype, call)
    : makeNode("customKernel", inputs, [Math.ceil(bytes / ALIGN) * ALIGN / uint32.bytes], uint32, call);
  return { node, call };
}

/** The output that begins at a byte of the words of all. */
function outputAt(all: Node, { shape, dtype, byteOffset }: CustomCall["outputs"][number]): Node {
  const count = sizeOf(shape);
  const words = Math.ceil(count * dtype.bytes / uint32.bytes);
  const part = sliceNode(all, [byteOffset / uint32.bytes], [1], [words]);
  if (dtype === uint32) return reshapeNode(part, shape);
  const cast = makeNode("bitcast", [part], [words * uint32.bytes / dtype.bytes], dtype, {});
  return reshapeNode(sliceNode(cast, [0], [1], [count]), shape);
}

/**
 * A kernel of your own. `source` is the body of a compute shader's main() in GLSL. The system's glslc compiles it when a call is
 * evaluated on a Vulkan device, once for the same text. Inputs and outputs are arrays by their names, of the types of the call's arrays;
 * an input without axes is its value. Threads have MLX's names, such as `thread_position_in_grid`. `a_shape`, `a_strides` and `a_ndim` are
 * there for an input `a`, and `elem_to_loc(i, a_shape, a_strides, a_ndim)`. Template arguments are names in the source: types, whole
 * numbers and booleans. MLX's `metal_kernel`.
 *
 * The call gives its outputs, lazily, inside of graphs and of `mx.compile`. Derivatives and batches are the program's: `mx.customFunction`.
 * On the CPU the function `wasm` runs. Accesses beyond the arrays are not checked. docs/custom-kernels.md has all of it.
 *
 * Throws a {@link ValueError} for an invalid kernel or call. At evaluation, a source that does not compile throws a
 * `KernelError` with the line. A compiler that is missing or may not be started is a `RuntimeError`.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const scale = mx.fast.vulkanKernel({
 *   name: "scale",
 *   inputNames: ["x", "factor"],
 *   outputNames: ["y"],
 *   source: "uint i = thread_position_in_grid.x; y[i] = T(x[i] * factor);",
 *   wasm: ([x, factor], [y]) => y.forEach((_, i) => y[i] = Number(x[i]) * Number(factor[0])),
 * });
 * const x = mx.array([1, 2, 3]);
 * const [y] = scale({
 *   inputs: [x, 10],
 *   template: { T: x.dtype },
 *   grid: [x.size, 1, 1],
 *   threadgroup: [64, 1, 1],
 *   outputShapes: [x.shape],
 *   outputDtypes: [x.dtype],
 * });
 * ```
 */
export function vulkanKernel(options: VulkanKernelOptions): VulkanKernel {
  const kernel = kernelOf(options);
  return (call) => {
    const { node, call: checked } = callNode(kernel, call);
    if (checked.outputs.length === 1) return [wrap(node)];
    return checked.outputs.map((output) => wrap(outputAt(node, output)));
  };
}
