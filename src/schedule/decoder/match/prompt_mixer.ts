/**
 * What the layers of a prompt have around a mixer of tokens, which is attention or something in its place. Before it a norm, which projections
 * read. After it the output projection, which is added to the residual.
 *
 * @module
 */

import { isFloat } from "../../../graph/dtype.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { expect, type GraphView, Mismatch, type Norm, Walk } from "../../plan/pattern.ts";
import { type Joint, joint } from "./joint.ts";
import { isHeadSwap } from "./kv_update.ts";
import { residual } from "./layer.ts";
import { findProjection } from "./projection.ts";

/** What the output projection of a layer reads. */
export interface Mixed {
  /** (…, T, features), or attention (B, H, T, D). */
  readonly node: Node;
  /** Whether it is attention, whose heads are still to be put beside each other. */
  readonly isAttention: boolean;
}

/** The output projection of a layer, and the residual that it is added to. */
export interface MixerOutput {
  readonly x: Node;
  /** The factor of what is added. */
  readonly scale: number;
  /** Undefined where its matrix is not quantized: `mixed` is its result then. */
  readonly o: Joint | undefined;
  /** Added to its products (features,). */
  readonly bias: Node | undefined;
  readonly mixed: Mixed;
}

/** A norm of a residual that only products with quantized matrices read. */
export interface PromptNorm extends Norm {
  /** The normalised rows. */
  readonly out: Node;
  /** The products that read them, and their matrices as one; undefined if they are not to be joined. */
  readonly products: readonly Node[];
  readonly joint: Joint | undefined;
}

/** Columns of a matrix in fragment order. */
const COLUMNS = 16;

/** Why regions do not add up to a residual. */
export const OTHER_SUMS = "what is added to the residual is normalised, or the sum is clipped";

/** mixer → output projection → residual, whose result is `node`. The mixer is not taken. */
export function findMixerOutput(walk: Walk, node: Node): MixerOutput {
  const sum = residual(walk, node, () => true, "a mixer of tokens");
  expect(sum !== undefined, "there is no projection below a feed-forward part");
  expect(!sum.postNorm && !sum.clips, OTHER_SUMS);
  const { x, scale, product } = sum;
  const own = new Walk(walk.graph, walk.wanted);
  try {
    const { bias, ...o } = findProjection(own, product, "the output projection");
    const found = { x, scale, o: joint([o]), bias, mixed: mixedBy(own, o.x) };
    for (const node of own.inside) walk.inside.add(node);
    return found;
  } catch (error) {
    if (!(error instanceof Mismatch)) throw error;
    return { x, scale, o: undefined, bias: undefined, mixed: { node: product, isAttention: false } };
  }
}

/** Attention where a node shows that alone, else the node. */
function mixedBy(walk: Walk, node: Node): Mixed {
  const shown = walk.peek(node);
  const isSwapped = isHeadSwap(shown);
  const attention = isSwapped ? shown.inputs[0] : shown;
  const isAttention = attention.op === "attention" && attention.shape.length === 4 && !walk.wanted.has(attention) &&
    walk.readers(attention).length === 1 && (isSwapped || attention.shape[2] === 1);
  if (!isAttention) return { node, isAttention };
  walk.stripViews(node);
  if (isSwapped) walk.inside.add(shown);
  return { node: attention, isAttention };
}

/** The norms of `residuals` that are in no region, and that only products with quantized matrices read. */
export function findPromptNorms(
  graph: GraphView,
  wanted: ReadonlySet<Node>,
  residuals: ReadonlySet<Node>,
  inside: ReadonlySet<Node>,
): readonly PromptNorm[] {
  const isFree = (node: Node): boolean => {
    const [x, weight, ...more] = node.inputs;
    const readers = graph.readers.get(node) ?? [];
    return node.op === "rmsNorm" && more.length === 0 && residuals.has(x) && weight !== undefined &&
      isFloat(weight.dtype) && !inside.has(node) && !wanted.has(node) && !graph.replaced.has(node) &&
      readers.length > 0 &&
      readers.every((r) => r.op === "quantizedMatmul" && r.inputs.lastIndexOf(node) === 0 && !inside.has(r));
  };
  return graph.order.filter(isFree).map((out) => {
    const [x, weight] = out.inputs;
    const products = graph.readers.get(out)!.filter((r) => r.op === "quantizedMatmul");
    const joint = joined(new Walk(graph, wanted), products);
    return { x, weight, eps: attrsOf(out, "rmsNorm").eps, out, products, joint };
  });
}

/** The matrices of several products as one, where their columns can be beside each other and are of one dtype. */
function joined(walk: Walk, products: readonly Node[]): Joint | undefined {
  const [first, ...others] = products;
  if (others.length === 0 || others.some(({ dtype }) => dtype !== first.dtype) || !isFloat(first.dtype)) {
    return undefined;
  }
  try {
    const found = joint(products.map((node) => walk.product(node, "a product")));
    return found.columns.every((n) => n % COLUMNS === 0) ? found : undefined;
  } catch (error) {
    if (!(error instanceof Mismatch)) throw error;
    return undefined;
  }
}
