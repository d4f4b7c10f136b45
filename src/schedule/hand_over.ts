/**
 * Handing a node over to another device: where its op has no kernel on the one that the graph runs on.
 *
 * The inputs are evaluated where they are, read, and the node is computed on the CPU; its result goes back. Only factorizations
 * are handed over, which MLX computes on the CPU as well. `VKMX_STRICT=1` refuses every other op.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { environment, getBackend } from "../backend/devices.ts";
import { explainFallback } from "../backend/explain.ts";
import { ValueError } from "../graph/error.ts";
import { makeNode, type Node, type OpName } from "../graph/node.ts";
import { contiguousStrides, sizeOf } from "../graph/shape.ts";
import { kernelOf } from "./ops/factorization.ts";
import { inputsFirst } from "./plan/order.ts";
import { Storage } from "./plan/storage.ts";

/** Ops that may be handed over also under VKMX_STRICT=1. */
const HANDED: ReadonlySet<OpName> = new Set<OpName>(["factorization"]);

/** The factorizations behind nodes that are not evaluated yet, inputs first. */
export function pendingFactorizations(nodes: readonly Node[]): Node[] {
  return inputsFirst(nodes, (node) => node.inputs).filter(({ op }) => op === "factorization");
}

/** Computes a node of `backend` on the CPU; it is settled on `backend` on return. `evaluate` does so with nodes of a device. */
export function handOver(node: Node, backend: Backend, evaluate: (nodes: readonly Node[], on: Backend) => void): void {
  if (!HANDED.has(node.op) && environment("VKMX_STRICT") === "1") {
    throw new ValueError(
      `${backend.name} has no kernel for ${node.op}, and VKMX_STRICT=1 forbids to compute it on the CPU`,
    );
  }
  const cpu = getBackend("wasm");
  explainFallback(`${kernelOf(node)}: on ${cpu.name}, because ${backend.name} has no kernel of it`);
  const dense = node.inputs.map((input) => makeNode("contiguous", [input], input.shape, input.dtype, {}));
  for (const input of dense) input.retain();
  const inputs = (): Node[] => {
    try {
      evaluate(dense, backend);
      return dense.map(({ stored, shape, dtype }) =>
        makeNode("data", [], shape, dtype, { bytes: bytesOf(stored!, sizeOf(shape) * dtype.bytes, dtype.bytes) })
      );
    } finally {
      for (const input of dense) input.release();
    }
  };
  const copy = makeNode(node.op, inputs(), node.shape, node.dtype, node.attrs);
  copy.retain();
  try {
    evaluate([copy], cpu);
    const { stored, shape, dtype } = copy;
    const bytes = bytesOf(stored!, sizeOf(shape) * dtype.bytes, dtype.bytes);
    const storage = new Storage(backend, bytes.length);
    storage.countAsResult();
    if (bytes.length > 0) backend.write(storage.buffer, 0, bytes);
    node.settle({ storage, offset: 0, strides: contiguousStrides(shape) });
  } finally {
    copy.release();
  }
}

/** Host bytes of an evaluated, contiguous array. */
function bytesOf(stored: NonNullable<Node["stored"]>, length: number, elementBytes: number): Uint8Array {
  const { backend, buffer } = stored.storage as Storage;
  const bytes = new Uint8Array(length);
  if (length > 0) backend.read(buffer, stored.offset * elementBytes, bytes);
  return bytes;
}
