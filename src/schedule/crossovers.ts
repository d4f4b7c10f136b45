/**
 * Where the derivative of a fused op is faster in primitives than in its kernels: the one place for sizes that were measured.
 *
 * @module
 */

import { defaultDevice, getBackend } from "../backend/devices.ts";
import type { Node, OpAttrs } from "../graph/node.ts";
import { scopeStream } from "../graph/stream.ts";
import { hasMatrices } from "./ops/matmul/coopmat_dense.ts";

/**
 * Scores of a head, and of all heads, between which primitives are faster where a query sees all keys. On the CPU the products of whole
 * matrices outrun those of blocks from about 96 rows on, 1.4 to 1; with a causal mask, of which they compute both halves, they do not. The upper
 * bound is one of memory: primitives hold several matrices of scores.
 */
const ALL_KEYS: Readonly<Record<string, { readonly head: number; readonly all: number }>> = {
  wasm: { head: 96 * 96, all: 2 ** 25 },
};

/**
 * Scores of a head, at least, and of all heads, at most, whose gradients in halves are faster as products on matrix units. In a
 * step of a 100M-parameter transformer on an H200 (1,024 tokens) they and what lies between them took 58 ms, the kernels, which multiply
 * without those units, 104.
 */
const ON_MATRICES = { head: 64 * 64, all: 2 ** 29 } as const;

const deviceName = (): string => scopeStream()?.deviceName ?? defaultDevice();

/** Whether gradients of an attention over halves are products on the device's matrix units. */
export function attentionOnMatrices(q: Node, k: Node): boolean {
  const head = q.shape[2] * k.shape[2];
  const fits = head >= ON_MATRICES.head && head * q.shape[0] * q.shape[1] <= ON_MATRICES.all;
  return fits && hasMatrices(getBackend(deviceName()), q.dtype);
}

/** Whether the gradient of an attention is taken in primitives. */
export function attentionInPrimitives(q: Node, k: Node, { mask }: OpAttrs["attention"]): boolean {
  const bounds = ALL_KEYS[deviceName()];
  if (!bounds || mask === "causal") return false;
  const head = q.shape[2] * k.shape[2];
  return head >= bounds.head && head * q.shape[0] * q.shape[1] <= bounds.all;
}
