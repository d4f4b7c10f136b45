/**
 * Codes of widths that no fused kernel reads, unpacked to the next width that they read. The numbers, scales and biases are the same; the
 * copy is kept beside them (weight_layouts.ts). A token reads up to twice the bytes then, which takes less than a product of its own for
 * each matrix.
 *
 * @module
 */

import { uint32 } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { bytesOf, type Layout, prepare } from "../plan/weight_layouts.ts";
import { unpackedBits } from "./spec.ts";

/** Codes (rows, words) of a number of bits. */
interface Codes {
  readonly codes: Node;
  readonly bits: number;
}

/**
 * The codes of matrices as kernels read them, if those are others. Undefined if some are not stored by themselves or there is no room for
 * all of them.
 */
export function unpackMatrices(
  l: Lowering,
  matrices: readonly Codes[],
  leaf: (node: Node) => Value | undefined,
): ReadonlyMap<Node, Value> | undefined {
  const found = new Map<Node, Value>();
  const others = matrices.filter(({ bits }) => unpackedBits(bits) !== bits)
    .map(({ codes, bits }) => ({ codes, layout: unpackedLayout(codes.shape, bits, unpackedBits(bits)) }));
  let bytes = others.reduce((sum, { layout }) => sum + bytesOf(layout.results[0]), 0);
  for (const { codes, layout } of others) {
    const stored = leaf(codes);
    const [value] = stored ? prepare(l, [stored], layout, bytes) ?? [] : [];
    if (!value) return undefined;
    found.set(codes, value);
    bytes -= bytesOf(layout.results[0]);
  }
  return found;
}

function unpackedLayout([rows, words]: readonly number[], bits: number, wide: number): Layout {
  const count = rows * words / bits * 4; // eights
  return {
    key: `codes ${bits} ${wide}`,
    results: [{ shape: [rows, words / bits * wide], dtype: uint32 }],
    emit(l, [codes], [out]) {
      l.emit("unpack_codes", [codes, out], {
        spec: { BITS: bits, WIDE: wide },
        push: { count },
        workgroups: l.groups(count),
      });
    },
  };
}
