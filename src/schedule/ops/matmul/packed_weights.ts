/**
 * Quantized matrices in the packed layout (runtime-c/wasm/quantized/packed.h), which the CPU multiplies several times faster.
 *
 * A matrix is packed when its files are read, in place, so that there is never a second copy. Its codes, scales and biases then share one
 * storage and say so ({@link Packing}). Products and row lookups read that as it is; any other reader gets it unpacked by
 * {@link Lowering.plain}.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import { float32, int8 } from "../../../graph/dtype.ts";
import type { Node } from "../../../graph/node.ts";
import { isContiguous, sameShape, sizeOf } from "../../../graph/shape.ts";
import { type Lowering, PARTS, partShape } from "../../plan/context.ts";
import type { Value } from "../../plan/value.ts";

/** Rows that share a tile. */
export const TILE = 16;

/**
 * Bytes that an activation is rounded to. Two are as good as float32; one is twice as fast in products of many rows, with an
 * NMSE of about 3e-5 a product. So decoding and short prompts get two, and long prompts one.
 */
function activationBytes(rows: number): number {
  return rows < LONG_PROMPT ? 2 : 1;
}

/** Rows of x from which on speed is worth more than the last digits. */
const LONG_PROMPT = 64;

/** Most rows of x whose products keep the last digits on a device. */
export function maxPreciseRows(backend: Backend): number {
  return backend.has("quantize_activations") ? LONG_PROMPT - 1 : Infinity;
}

// ---- reading --------------------------------------------------------------------------------------------------------

/** Whether a value is one whole part of a packed matrix, as it was stored. */
export function isPackedWhole({ packing, shape, strides, offset }: Value): boolean {
  return packing !== undefined && offset === 0 && isContiguous(shape, strides) && sameShape(shape, partShape(packing));
}

/** The packed bytes themselves, for kernels that know them. */
function bytesOf({ packing: _, ...value }: Value): Value {
  return value;
}

/** The packed matrix that three values are the whole parts of; undefined if they are not. */
export function packedMatrix(parts: readonly Value[]): Value | undefined {
  const [codes] = parts;
  const whole = parts.every((v, i) => isPackedWhole(v) && v.slot === codes.slot && v.packing!.part === PARTS[i]);
  return whole ? codes : undefined;
}

/** Rows of x as integers and factors; one conversion serves all products of the same x. */
interface Activations {
  readonly codes: Value;
  readonly factors: Value;
}

const known = new WeakMap<Value, Map<number, Activations>>();

function activations(l: Lowering, x: Value, rows: number, groupSize: number, bytes: number): Activations {
  const table = known.get(x) ?? new Map<number, Activations>();
  known.set(x, table);
  let found = table.get(groupSize);
  if (!found) {
    const columns = x.shape[x.shape.length - 1];
    const padded = rows === 1 ? 1 : Math.ceil(rows / 4) * 4;
    found = {
      codes: l.temporary([padded, columns * bytes], int8),
      factors: l.temporary([2, padded, columns / groupSize], float32),
    };
    l.emit("quantize_activations", [l.contiguous(x, true), found.codes, found.factors], {
      spec: { GROUP: groupSize, DTYPE_X: x.dtype.code, BYTES: bytes },
      push: { rows: 0, columns, count: rows },
      workgroups: padded,
    });
    table.set(groupSize, found);
  }
  return found;
}

/** x (…, k) times the transpose of a packed matrix (n, k). */
export function packedProduct(l: Lowering, node: Node, x: Value, matrix: Value): Value {
  const { rows, columns, bits, groupSize, scales } = matrix.packing!;
  const count = sizeOf(node.shape) / rows;
  const bytes = activationBytes(count);
  const { codes, factors } = activations(l, x, count, groupSize, bytes);
  const out = l.temporary(node.shape, node.dtype);
  l.emit(count === 1 ? "packed_matvec" : "packed_matmul", [codes, factors, bytesOf(matrix), out], {
    spec: {
      BITS: bits,
      GROUP: groupSize,
      DTYPE_SCALES: scales.code,
      BYTES: bytes,
      DTYPE_OUT: node.dtype.code,
    },
    push: { rows, columns, count },
    workgroups: rows / TILE,
  });
  return out;
}
