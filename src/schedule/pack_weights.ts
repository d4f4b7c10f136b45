/**
 * Packs quantized matrices as they are read from files or computed; packed.ts says what for.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { getBackend } from "../backend/devices.ts";
import type { Node } from "../graph/node.ts";
import type { CodeFormat } from "../graph/quantization.ts";
import { contiguousStrides, sizeOf } from "../graph/shape.ts";
import { openLeaf, uploadLeaf } from "./leaves.ts";
import { TILE } from "./ops/matmul/packed_weights.ts";
import { Lowering, PARTS } from "./plan/context.ts";
import type { Value } from "./plan/value.ts";
import { Storage } from "./plan/storage.ts";
import { runOnce } from "./plan/weight_layouts.ts";
import { readNode } from "./realize.ts";

/** Columns that a step of the kernels takes, and the longest row that they know. */
const STEP = 32;
const MAX_COLUMNS = 16384;

/**
 * Reads or computes the codes, scales and biases of a quantized matrix. It is packed if the device has use for that; else it stays as it is.
 * Resolves when it is done.
 */
export async function packLeaves(leaves: readonly Node[], quantization: CodeFormat): Promise<void> {
  const backend = getBackend();
  const ticket = pack(backend, leaves, quantization);
  if (ticket) await backend.waitAsync(ticket);
}

function pack(backend: Backend, leaves: readonly Node[], quantization: CodeFormat): number | undefined {
  const [codes, scales, biases] = leaves;
  const { bits, groupSize } = quantization;
  const [rows, words] = codes.shape;
  const columns = words * 32 / bits;
  const fits = (bits === 4 || bits === 8) && rows % TILE === 0 && groupSize % STEP === 0 && columns <= MAX_COLUMNS;
  const bytes = (node: Node): number => sizeOf(node.shape) * node.dtype.bytes;
  const all = leaves.reduce((sum, node) => sum + bytes(node), 0); // of one buffer
  if (!fits || all > backend.limits.maxBufferBytes || !backend.has("pack_quantized")) return undefined;

  const storage = new Storage(backend, all);
  try {
    // Kernels pack from the end of the matrix to its beginning's place.
    const end = storage.bytes - bytes(codes);
    if (codes.op === "file") openLeaf(codes)(backend, storage.buffer, end);
    else backend.write(storage.buffer, end, readNode(codes));
    for (const node of [scales, biases]) place(node, backend);
  } catch (error) {
    storage.release();
    throw error;
  }
  const factors = [scales, biases].map((node) => node.stored!.storage as Storage);
  const l = new Lowering(backend, () => false, false);
  const values = [storage, ...factors].map((from, i): Value => {
    const { shape, dtype } = leaves[i];
    return { slot: l.storageSlot(from), offset: 0, strides: contiguousStrides(shape), shape, dtype };
  });
  l.emit("pack_quantized", values, {
    spec: { BITS: bits, GROUP: groupSize, DTYPE_SCALES: scales.dtype.code },
    push: { rows, columns, count: rows },
    workgroups: 1,
  });
  const ticket = runOnce(l);

  const packing = { rows, columns, bits, groupSize, scales: scales.dtype };
  leaves.forEach((node, i) => {
    const stored = {
      storage,
      offset: 0,
      strides: contiguousStrides(node.shape),
      packing: { ...packing, part: PARTS[i] },
    };
    if (node.op === "file") return node.settle(stored);
    const { storage: before } = node.stored!;
    node.stored = stored;
    if (i > 0) storage.retain(); // the codes have the first reference
    before.release();
  });
  return ticket;
}

/** Puts the elements of a node into storage of their own, one after the other. */
function place(node: Node, backend: Backend): void {
  if (uploadLeaf(node, backend)) return;
  const content = readNode(node);
  const storage = new Storage(backend, content.length);
  backend.write(storage.buffer, 0, content);
  const { storage: before } = node.stored!;
  node.stored = { storage, offset: 0, strides: contiguousStrides(node.shape) };
  before.release();
}
