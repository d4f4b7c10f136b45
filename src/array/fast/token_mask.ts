/**
 * Masks of tokens as arrays: which arrays are masks, and masked logits in primitives.
 *
 * @module
 */

import { uint32 } from "../../graph/dtype.ts";
import { DtypeError, ShapeError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { formatShape, sizeOf } from "../../graph/shape.ts";
import { MASK_BITS, maskWords } from "../../graph/token_mask.ts";
import * as op from "../ops/binary.ts";
import { arange } from "../ops/creation.ts";
import { slice } from "../ops/gather.ts";
import { reshape, reshapeNode } from "../ops/movement.ts";
import { type TensorLike, toNode } from "../tensor/convert.ts";
import type { Tensor } from "../tensor/tensor.ts";

/** The node (rows, words) of a mask for logits (rows, cols); throws, with the name of the function that was called, for anything else. */
export function tokenMaskNode(name: string, mask: TensorLike, rows: number, cols: number): Node {
  const node = toNode(name, mask);
  const words = maskWords(cols);
  if (node.dtype !== uint32) {
    throw new DtypeError(`${name}() expected a mask of uint32 words: found ${node.dtype.name}`);
  }
  if (node.shape.at(-1) !== words || sizeOf(node.shape) !== rows * words) {
    throw new ShapeError(
      `${name}() expected a mask of ${words} words for each of ${rows} rows of ${cols} logits: found shape ${
        formatShape(node.shape)
      }`,
    );
  }
  return reshapeNode(node, [rows, words]);
}

/** Logits (rows, cols) with -Infinity if the mask (rows, words) has the bit 0; the others keep their bits. */
export function maskLogits(logits: Tensor, mask: Tensor): Tensor {
  const [rows, cols] = logits.shape;
  const words = mask.shape[1];
  const bits = reshape(arange(0, MASK_BITS, 1, uint32), [1, 1, MASK_BITS]);
  const allowed = op.notEqual(op.bitwiseAnd(op.rightShift(reshape(mask, [rows, words, 1]), bits), 1), 0);
  const all = reshape(allowed, [rows, words * MASK_BITS]);
  return op.where(cols === words * MASK_BITS ? all : slice(all, [0, 0], [0, 1], [rows, cols]), logits, -Infinity);
}
