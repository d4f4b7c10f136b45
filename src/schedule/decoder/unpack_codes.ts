/**
 * Codes of widths that no fused kernel reads, unpacked to the next width that they read. Matrices of a product all get the width of the
 * widest. The numbers, scales and biases are the same; the copy is kept beside them (weight_layouts.ts). A token reads up to twice the bytes then, which
 * takes less than a product of its own for each matrix.
 *
 * @module
 */

import { uint32 } from "../../graph/dtype.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Node } from "../../graph/node.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { bytesOf, type Layout, prepare } from "../plan/weight_layouts.ts";
import { isSymmetric, type Matrix } from "../plan/pattern.ts";
import { productFormat } from "./formats.ts";

/** A matrix, and the bits in which kernels read its codes. */
interface ReadMatrix {
  readonly matrix: Matrix;
  readonly bits: number;
}

/** The matrices of products, as kernels read them. */
export function readMatrices(products: readonly (readonly Matrix[])[]): readonly ReadMatrix[] {
  return products.flatMap((matrices) => {
    const { bits } = productFormat(matrices);
    return matrices.map((matrix) => ({ matrix, bits }));
  });
}

/** What is added to each code, so that symmetric ones are 2^(bits - 1) too large in their new width too. */
function shiftOf({ matrix, bits }: ReadMatrix): number {
  return isSymmetric(matrix) ? 2 ** (bits - 1) - 2 ** (matrix.bits - 1) : 0;
}

/**
 * The codes of matrices as kernels read them, if those are others. Undefined if some are not stored by themselves or there is no room for
 * all of them.
 */
export function unpackMatrices(
  l: Lowering,
  matrices: readonly ReadMatrix[],
  leaf: (node: Node) => Value | undefined,
): ReadonlyMap<Node, Value> | undefined {
  const found = new Map<Node, Value>();
  const others = matrices.filter(({ matrix, bits }) => matrix.bits !== bits)
    .map((read) => ({ codes: read.matrix.codes, layout: unpackedLayout(read) }))
    .filter(({ codes, layout }, i, all) =>
      all.findIndex((o) => o.codes === codes && o.layout.key === layout.key) === i
    );
  let bytes = others.reduce((sum, { layout }) => sum + bytesOf(layout.results[0]), 0);
  const keys = new Map<Node, string>();
  for (const { codes, layout } of others) {
    if (keys.has(codes) && keys.get(codes) !== layout.key) return undefined; // products share it in several widths
    keys.set(codes, layout.key);
    const stored = leaf(codes);
    const [value] = stored ? prepare(l, [stored], layout, bytes) ?? [] : [];
    if (!value) return undefined;
    found.set(codes, value);
    bytes -= bytesOf(layout.results[0]);
  }
  return found;
}

function unpackedLayout(read: ReadMatrix): Layout {
  const { matrix: { codes: { shape }, bits }, bits: wide } = read;
  const words = shape[shape.length - 1];
  const shift = shiftOf(read);
  const count = sizeOf(shape) / bits * 4; // eights
  return {
    key: `codes ${bits} ${wide} ${shift}`,
    results: [{ shape: shape.with(-1, words / bits * wide), dtype: uint32 }],
    emit(l, [codes], [out]) {
      l.emit("unpack_codes", [codes, out], {
        spec: { BITS: bits, WIDE: wide, SHIFT: shift },
        push: { count },
        workgroups: l.groups(count),
      });
    },
  };
}
