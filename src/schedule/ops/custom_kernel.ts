/**
 * The rule of kernels that a program brings: SPIR-V of it, checked, and one dispatch.
 *
 * The CPU runs their TypeScript form instead, before lowering (fallback.ts). So this rule runs on Vulkan devices, or in a graph that is
 * lowered for one device as a whole.
 *
 * @module
 */

import type { Backend, ShaderFacts } from "../../backend/backend.ts";
import { PLAN_MAX_BUFFERS } from "../../backend/kernels.ts";
import { print } from "../../backend/explain.ts";
import { compileGlsl, judgeSpirv, spirvWords, whyNoKernel } from "../../backend/spirv.ts";
import { type CustomCall, type CustomKernel, isIdle, variantOf } from "../../graph/custom_kernel.ts";
import { float64 } from "../../graph/dtype.ts";
import { DtypeError, KernelError, kindOf, quoted, ValueError } from "../../graph/error.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { contiguousStrides } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { needsMetadata, type ShaderInput, shaderText } from "./custom_glsl.ts";
import { fillInto } from "./fill.ts";
import type { Inputs } from "./rule.ts";

/** Arrays that a kernel may have: the last address is that of shapes and strides. */
export const MAX_ARRAYS = PLAN_MAX_BUFFERS - 1;

const CALL = "vulkanKernel";

/** Lowers a call. */
export function customKernel(l: Lowering, node: Node, inputs: Inputs): Value {
  const call = attrsOf(node, "customKernel");
  const { kernel, initValue, grid, threadgroup } = call;
  const facts = l.backend.shaders;
  if (!facts) {
    throw new ValueError(
      `a loop cannot hold vulkanKernel "${kernel.name}" on ${l.backend.name}: call it outside of it`,
    );
  }
  const out = l.temporary(node.shape, node.dtype);
  const outputs = call.outputs.map(({ shape, dtype, byteOffset }): Value => ({
    ...out,
    offset: byteOffset / dtype.bytes,
    strides: contiguousStrides(shape),
    shape,
    dtype,
  }));
  const idle = isIdle(call);
  if (initValue !== undefined || idle) { for (const output of outputs) fillInto(l, output, initValue ?? 0); }
  if (idle) return out;
  checkSizes(call, facts);
  const arrays = inputs.map((x) =>
    kernel.ensureRowContiguous || x.strides.some((stride) => stride < 0) ? l.contiguous(x) : l.plain(x)
  );
  const buffers = [...arrays, ...outputs];
  if (buffers.some(({ dtype }) => dtype === float64)) {
    throw new DtypeError(`vulkanKernel "${kernel.name}" cannot take float64, which is there on the CPU only`);
  }
  const metadata = kernel.spirv || needsMetadata(call) ? l.keep(...metadataOf(arrays)) : undefined;
  const id = idOf(l.backend, facts, call, arrays.map(({ dtype, shape }) => ({ dtype, rank: shape.length })));
  l.emitShader(`${CALL} ${kernel.name}`, [...buffers, metadata], {
    id,
    threadgroup,
    push: grid,
    workgroups: grid.map((threads, axis) => Math.ceil(threads / threadgroup[axis])),
  });
  return out;
}

/** Refuses what the device's limits do not allow. */
function checkSizes({ kernel, grid, threadgroup }: CustomCall, facts: ShaderFacts): void {
  const threads = threadgroup[0] * threadgroup[1] * threadgroup[2];
  if (threads > facts.maxThreads || threadgroup.some((size, axis) => size > facts.maxWorkgroup[axis])) {
    throw new ValueError(
      `vulkanKernel "${kernel.name}" expected a threadgroup of at most ${facts.maxThreads} threads, ` +
        `${facts.maxWorkgroup.join(" x ")} along the axes: found ${threadgroup.join(" x ")}`,
    );
  }
  const most = facts.maxGrid.map((groups, axis) => groups * threadgroup[axis]);
  if (grid.some((size, axis) => size > most[axis])) {
    throw new ValueError(
      `vulkanKernel "${kernel.name}" expected a grid of at most ${
        most.join(" x ")
      } threads with this threadgroup: found ${grid.join(" x ")}, use larger threadgroups or more axes`,
    );
  }
}

/** Shapes and strides as int32: of each input ndim, shape, strides. */
function metadataOf(arrays: readonly Value[]): [bytes: number, hostVisible: boolean, content: Uint8Array] {
  const words = Int32Array.from(arrays.flatMap(({ shape, strides }) => [shape.length, ...shape, ...strides]));
  const content = words.length > 0 ? new Uint8Array(words.buffer) : new Uint8Array(4);
  return [content.length, false, content];
}

/** Ids of kernels by device, kernel, and what a module hangs on besides. */
const known = new WeakMap<Backend, WeakMap<CustomKernel, Map<string, number>>>();

/** The id of the kernel that serves a call. */
function idOf(backend: Backend, facts: ShaderFacts, call: CustomCall, inputs: readonly ShaderInput[]): number {
  const { kernel, outputs } = call;
  let kernels = known.get(backend);
  if (!kernels) known.set(backend, kernels = new WeakMap());
  let ids = kernels.get(kernel);
  if (!ids) kernels.set(kernel, ids = new Map());
  const { threadgroup, ...variant } = variantOf(call, inputs.map(({ dtype }) => dtype));
  const key = JSON.stringify([variant, inputs.map(({ rank }) => rank), kernel.spirv ? threadgroup : 0]);
  let id = call.verbose ? undefined : ids.get(key);
  if (id === undefined) {
    id = backend.kernel({
      name: kernel.name,
      spirv: moduleOf(call, inputs, facts),
      buffers: inputs.length + outputs.length + 1,
      writes: outputs.reduce((bits, _, i) => bits | 1 << (inputs.length + i), 0),
      optional: 1 << (inputs.length + outputs.length),
    });
    ids.set(key, id);
  }
  return id;
}

/** The module of a call, checked. */
function moduleOf(
  call: CustomCall,
  inputs: readonly ShaderInput[],
  facts: ShaderFacts,
): Uint32Array<ArrayBuffer> {
  const { kernel, threadgroup, verbose } = call;
  const given = typeof kernel.spirv === "function"
    ? kernel.spirv(variantOf(call, inputs.map(({ dtype }) => dtype)))
    : kernel.spirv;
  if (kernel.spirv && !(given instanceof Uint8Array)) {
    throw new ValueError(
      `vulkanKernel "${kernel.name}" expected its spirv function to return a Uint8Array: found ${kindOf(given)}`,
    );
  }
  if (!given && kernel.source === "") {
    throw new ValueError(
      `vulkanKernel "${kernel.name}" has neither source nor spirv, so it runs on the CPU only: use mx.withDevice("wasm", …)`,
    );
  }
  const bytes = given ?? compiled(call, inputs, facts);
  if (given && verbose) print(`vulkanKernel "${kernel.name}": ${given.length} bytes of SPIR-V`);
  const words = spirvWords(bytes);
  const why = whyNoKernel(words, facts, threadgroup) ?? (given ? judgeSpirv(given, CALL) : undefined);
  if (why !== undefined) throw new KernelError(`vulkanKernel "${kernel.name}" cannot run: ${why}`, why);
  return words!;
}

function compiled(
  call: CustomCall,
  inputs: readonly ShaderInput[],
  facts: ShaderFacts,
): Uint8Array {
  const text = shaderText(call, inputs, facts);
  if (call.verbose) print(`Generated source code for vulkanKernel "${call.kernel.name}":\n${text}`);
  const found = compileGlsl(text, CALL);
  if ("log" in found) throw compileError(call, found.log);
  return found.spirv;
}

/** A line of a compiler: "place:line: error: text". */
const SAYS = /^(source|header|template|[^\n:]*?):(\d+): error: (.*)$/m;

/** The first thing that the compiler found, and the line of the program that it is in. */
function compileError({ kernel, template }: CustomCall, log: string): KernelError {
  const [, place, number, text] = SAYS.exec(log) ?? [];
  const names = [...kernel.inputNames, ...kernel.outputNames];
  const shown = (said: string): string => said.replaceAll(/vkmx_buffer_(\d+)/g, (_, i) => names[Number(i)]);
  const line = Number(number);
  const lines = { source: kernel.source, header: kernel.header }[place ?? ""]?.split("\n");
  const what = lines
    ? `line ${line} of its ${place}: ${shown(text)}, in ${quoted(lines[line - 1]?.trim() ?? "")}`
    : place === "template"
    ? `template argument ${template[line - 1]?.[0]}: ${shown(text)}`
    : shown(text ?? log.trim().split("\n")[0]);
  return new KernelError(
    `vulkanKernel "${kernel.name}" cannot be compiled: ${what}`,
    shown(log),
    lines ? line : undefined,
  );
}
