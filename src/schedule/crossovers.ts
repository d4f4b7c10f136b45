/**
 * Where an op is faster in primitives than in its kernels, as the record of the device says.
 *
 * @module
 */

import { defaultDevice, getBackend } from "../backend/devices.ts";
import type { Backend } from "../backend/backend.ts";
import type { Node, OpAttrs } from "../graph/node.ts";
import { scopeStream } from "../graph/stream.ts";
import { hasMatrices } from "./ops/matmul/coopmat_dense.ts";
import { tuningOf } from "./tuning/choose.ts";
import type { ScoreRange } from "./tuning/tuning.ts";

/** The device that an op runs on. */
const device = (): Backend => getBackend(scopeStream()?.deviceName ?? defaultDevice());

function isWithin({ minOfHead, maxOfAll }: ScoreRange, q: Node, k: Node): boolean {
  const head = q.shape[2] * k.shape[2];
  return head >= minOfHead && head * q.shape[0] * q.shape[1] <= maxOfAll;
}

/** Whether gradients of an attention over halves are products on the device's matrix units. */
export function attentionOnMatrices(q: Node, k: Node): boolean {
  const backend = device();
  return isWithin(tuningOf(backend).attentionGradients.onMatrices, q, k) && hasMatrices(backend, q.dtype);
}

/** Whether the gradient of an attention is taken in primitives. */
export function attentionInPrimitives(q: Node, k: Node, { mask }: OpAttrs["attention"]): boolean {
  const range = tuningOf(device()).attentionGradients.inPrimitives;
  return range !== undefined && mask !== "causal" && isWithin(range, q, k);
}

/** Whether the choices of so many rows, `chosen` of `count` experts each, are worth sorting by expert. */
export function sortsChoices(rows: number, chosen: number, count: number): boolean {
  const { minSorted, maxUnsortedRows } = tuningOf(device()).experts;
  const choices = rows * chosen;
  return choices >= minSorted && (rows > maxUnsortedRows || choices > count);
}
