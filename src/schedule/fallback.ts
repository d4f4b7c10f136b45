/**
 * Fallback: how a node is computed beside the Plan of the graph. Its op has no kernel on the device, or other processes take part.
 *
 * The inputs are evaluated where they are, read, and the node is computed elsewhere; its result goes back. Factorizations of a GPU are
 * computed by the CPU device, as in MLX. Kernels that a program brings are computed on the CPU device by their TypeScript form.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { getBackend } from "../backend/devices.ts";
import { explainFallback } from "../backend/explain.ts";
import { isIdle, variantOf } from "../graph/custom_kernel.ts";
import { complex64, type HostArray, hostView, setHostValue } from "../graph/dtype.ts";
import { ValueError } from "../graph/error.ts";
import { attrsOf, makeNode, type Node, type OpName } from "../graph/node.ts";
import { contiguousStrides, isContiguous, sizeOf } from "../graph/shape.ts";
import { kernelOf } from "./ops/factorization.ts";
import { inputsFirst } from "./plan/order.ts";
import { Storage } from "./plan/storage.ts";

/** How nodes of an op are computed beside a Plan. */
interface HostOp {
  /** Whether a node is, on a device. */
  runsElsewhere(node: Node, backend: Backend): boolean;
  /** Whether a node stands for several results: once it is computed it is kept, since the others may be asked for later. */
  hasParts(node: Node): boolean;
  /** Computes a node of `backend`; it is settled on `backend` on return. */
  run(node: Node, backend: Backend, evaluate: Evaluate): void;
}

/** Evaluates nodes of a device. */
type Evaluate = (nodes: readonly Node[], on: Backend) => void;

const HOST_OPS: Readonly<Partial<Record<OpName, HostOp>>> = {
  factorization: {
    runsElsewhere: (node, backend) => !backend.has(kernelOf(node)),
    hasParts: () => true,
    run: runOnCpu,
  },
  customKernel: {
    runsElsewhere: (_, backend) => !backend.shaders,
    hasParts: (node) => attrsOf(node, "customKernel").outputs.length > 1,
    run: runOnHost,
  },
  collective: { runsElsewhere: () => true, hasParts: () => false, run: runTogether },
};

/** Whether a node may have to fall back. */
export function mayFallBack({ op }: Node): boolean {
  return HOST_OPS[op] !== undefined;
}

/** Such nodes among those that `nodes` depend on and that are not evaluated yet, inputs first. */
export function pendingFallbacks(nodes: readonly Node[]): Node[] {
  return inputsFirst(nodes, (node) => node.inputs).filter(mayFallBack);
}

/** Whether such a node must fall back on a device. */
export function runsElsewhere(node: Node, backend: Backend): boolean {
  return HOST_OPS[node.op]!.runsElsewhere(node, backend);
}

/** See {@link HostOp.hasParts}. */
export function hasParts(node: Node): boolean {
  return HOST_OPS[node.op]!.hasParts(node);
}

/** Computes a node of `backend` elsewhere; it is settled on `backend` on return. */
export function runFallback(node: Node, backend: Backend, evaluate: Evaluate): void {
  HOST_OPS[node.op]!.run(node, backend, evaluate);
}

/** Settles a node with bytes. */
function settleWith(node: Node, backend: Backend, bytes: Uint8Array): void {
  const storage = new Storage(backend, bytes.length);
  storage.countAsResult();
  if (bytes.length > 0) backend.write(storage.buffer, 0, bytes);
  node.settle({ storage, offset: 0, strides: contiguousStrides(node.shape) });
}

/** Runs the TypeScript form of a kernel. */
function runOnHost(node: Node, backend: Backend, evaluate: Evaluate): void {
  const call = attrsOf(node, "customKernel");
  const { name, wasm, ensureRowContiguous } = call.kernel;
  if (!wasm) {
    throw new ValueError(
      `vulkanKernel "${name}" has no wasm function, which ${backend.name} would run: give one, or use a Vulkan device`,
    );
  }
  const outputs = call.outputs.map(({ shape, dtype }) => {
    const values = hostView(dtype, new Uint8Array(sizeOf(shape) * dtype.bytes));
    const of = dtype === complex64 ? values.length / 2 : values.length;
    for (let i = 0; call.initValue !== undefined && i < of; i++) setHostValue(dtype, values, i, call.initValue);
    return values;
  });
  if (!isIdle(call)) {
    const inputs = hostInputs(node.inputs, ensureRowContiguous, backend, evaluate);
    const { template } = variantOf(call, node.inputs.map(({ dtype }) => dtype));
    const returned: unknown = wasm(inputs.map(({ values }) => values), outputs, {
      shapes: node.inputs.map(({ shape }) => shape),
      strides: inputs.map(({ strides }) => strides),
      outputShapes: call.outputs.map(({ shape }) => shape),
      template,
      grid: call.grid,
      threadgroup: call.threadgroup,
    });
    if (returned instanceof Promise) {
      returned.catch(() => {});
      throw new ValueError(`vulkanKernel "${name}" expected its wasm function to be done when it returns: it is async`);
    }
  }
  const bytes = new Uint8Array(sizeOf(node.shape) * node.dtype.bytes);
  outputs.forEach((values, i) => {
    bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), call.outputs[i].byteOffset);
  });
  settleWith(node, backend, bytes);
}

/** The values of inputs, in the strides in which they lie unless they are to be contiguous. */
function hostInputs(
  nodes: readonly Node[],
  contiguous: boolean,
  backend: Backend,
  evaluate: Evaluate,
): { readonly values: HostArray; readonly strides: readonly number[] }[] {
  evaluate(nodes.filter(({ op }) => op !== "stored"), backend);
  const mustCopy = ({ shape, stored }: Node): boolean =>
    stored!.packing !== undefined ||
    (contiguous ? !isContiguous(shape, stored!.strides) : stored!.strides.some((stride) => stride < 0));
  const held = nodes.map((node) => mustCopy(node) ? makeNode("contiguous", [node], node.shape, node.dtype, {}) : node);
  for (const node of held) node.retain();
  try {
    evaluate(held.filter(({ op }) => op !== "stored"), backend);
    return held.map(({ stored, shape, dtype }) => {
      const { strides } = stored!;
      const reach = sizeOf(shape) === 0 ? 0 : shape.reduce((last, size, i) => last + (size - 1) * strides[i], 1);
      return { values: hostView(dtype, bytesOf(stored!, reach * dtype.bytes, dtype.bytes)), strides };
    });
  } finally {
    for (const node of held) node.release();
  }
}

/** Computes a node of `backend` on the CPU device, as MLX does with factorizations. */
function runOnCpu(node: Node, backend: Backend, evaluate: Evaluate): void {
  const cpu = getBackend("wasm");
  explainFallback(`${kernelOf(node)}: on ${cpu.name}, because ${backend.name} has no kernel of it`);
  const inputs = denseInputs(node.inputs, backend, evaluate).map((bytes, i) => {
    const { shape, dtype } = node.inputs[i];
    return makeNode("data", [], shape, dtype, { bytes });
  });
  const copy = makeNode(node.op, inputs, node.shape, node.dtype, node.attrs);
  copy.retain();
  try {
    evaluate([copy], cpu);
    const { stored, shape, dtype } = copy;
    settleWith(node, backend, bytesOf(stored!, sizeOf(shape) * dtype.bytes, dtype.bytes));
  } finally {
    copy.release();
  }
}

/** Computes a node with other processes. */
function runTogether(node: Node, backend: Backend, evaluate: Evaluate): void {
  const { kind, processes, peer } = attrsOf(node, "collective");
  const [input] = denseInputs(node.inputs, backend, evaluate);
  const result = processes.exchange(kind, node.dtype, input, sizeOf(node.shape) * node.dtype.bytes, peer);
  settleWith(node, backend, kind === "send" ? input : result);
}

/** The bytes of inputs, each contiguous. */
function denseInputs(nodes: readonly Node[], backend: Backend, evaluate: Evaluate): Uint8Array[] {
  const dense = nodes.map((input) => makeNode("contiguous", [input], input.shape, input.dtype, {}));
  for (const input of dense) input.retain();
  try {
    evaluate(dense, backend);
    return dense.map(({ stored, shape, dtype }) => bytesOf(stored!, sizeOf(shape) * dtype.bytes, dtype.bytes));
  } finally {
    for (const input of dense) input.release();
  }
}

/** Host bytes of an evaluated, contiguous array. */
function bytesOf(stored: NonNullable<Node["stored"]>, length: number, elementBytes: number): Uint8Array {
  const { backend, buffer } = stored.storage as Storage;
  const bytes = new Uint8Array(length);
  if (length > 0) backend.read(buffer, stored.offset * elementBytes, bytes);
  return bytes;
}
