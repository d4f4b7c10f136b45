/**
 * Products with a bias in the graph of a decoder.
 *
 * @module
 */

import type { Node } from "../../../graph/node.ts";
import { expect, isFn, isProduct, type Product, rowCount, type Walk } from "../../plan/pattern.ts";

/** A product, and the bias (features,) that is added to it. */
export interface Projection extends Product {
  readonly bias: Node | undefined;
}

/** A product with a matrix, and a bias. */
export function findProjection(walk: Walk, node: Node, what: string): Projection {
  const adding = walk.peek(node);
  const sum = biasOf(walk, adding);
  if (!sum) return { ...walk.product(node, what), bias: undefined };
  walk.inside.add(walk.stripViews(node));
  // Casts of a bias may be there for others too, or for rows that repeat it.
  const isOwn = walk.readers(sum.bias).every((reader) => reader === adding);
  const bias = isOwn ? walk.stripViews(sum.bias) : walk.peek(sum.bias);
  const product = walk.product(sum.product, what);
  expect(bias.shape[0] === rowCount(product.matrix), `the bias of ${what} has another size`);
  return { ...product, bias };
}

/** A product and an array of one dimension that a node adds. */
export function biasOf(walk: Walk, sum: Node): { readonly product: Node; readonly bias: Node } | undefined {
  if (!isFn(sum, "add")) return undefined;
  const [a, b] = sum.inputs;
  for (const [product, bias] of [[a, b], [b, a]]) {
    const row = rowBehind(bias);
    if (isProduct(walk.peek(product)) && row.shape.length === 1) return { product, bias: row };
  }
  return undefined;
}

/** The array of one dimension that a node repeats as rows, maybe cast; or the node. */
function rowBehind(node: Node): Node {
  let row = node;
  while (row.op === "broadcast" || row.op === "reshape" || isFn(row, "cast")) {
    row = row.inputs[0];
    if (row.shape.length === 1 && row.shape[0] === node.shape.at(-1)) return row;
  }
  return node;
}

/** The sum of a product and its bias, or the product. */
export function withBias(walk: Walk, product: Node): Node {
  for (let node = product;;) {
    const [reader, ...others] = walk.readers(node);
    if (!reader || others.length > 0) return product;
    if (biasOf(walk, reader)) return reader;
    if (!walk.isView(reader)) return product;
    node = reader;
  }
}
