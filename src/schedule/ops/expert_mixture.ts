/**
 * The rule of a layer of experts over many rows. One dispatch orders choices by expert, the next makes the gated units of all. Then come
 * their products with the third stack, and weighted sums.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import type { KernelName } from "../../backend/kernels.ts";
import { float16, uint32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { arraysOfMatrix } from "../../graph/quantization.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { FLOATS } from "./matmul/coopmat.ts";
import {
  type DirectFormat,
  type DirectKernel,
  directKernel,
  emitDirect,
  type OrderedChoices,
} from "./matmul/direct_experts.ts";
import type { Inputs } from "./rule.ts";

/** Threads that order the choices of an expert. */
const ORDERING_THREADS = 512;
/** Features of a thread of the sum. */
const FEATURES = 8;

/** Tiles that so many choices have at most, and where those of an expert begin: expert_order leaves gaps. */
function countTiles(choices: number, experts: number, height: number): number {
  return Math.floor(choices / height) + experts;
}

/** The sizes of a mixture, its format and its kernel. */
interface Mixture {
  readonly rows: number;
  readonly chosen: number;
  readonly experts: number;
  readonly hidden: number;
  readonly size: number;
  readonly format: DirectFormat;
  readonly kernel: DirectKernel;
}

/** What serves a node; undefined if nothing does. */
function mixtureOf(node: Node, backend: Backend): Mixture | undefined {
  const { mode, bits, groupSize } = attrsOf(node, "expertMixture");
  const [x, choice, weight, scales] = node.inputs;
  if (backend.has("packed_matvec")) return undefined; // the CPU has kernels of its own for the primitives
  if (mode === "dense" || !FLOATS.has(x.dtype)) return undefined;
  const [rows, hidden] = x.shape;
  const [experts, size] = weight.shape;
  const chosen = choice.shape[1] / 2;
  const format = { mode, bits, groupSize, scales: scales.dtype };
  const kernel = directKernel(backend, format, { rows: rows * chosen, experts, sizes: [hidden, size] });
  if (!kernel || countTiles(rows * chosen, experts, kernel.rows) > backend.limits.maxGrid) return undefined;
  return { rows, chosen, experts, hidden, size, format, kernel };
}

/** The kernel of the products, if there is one for the format and the sizes. */
export function mixtureKernel(node: Node, backend: Backend): KernelName | undefined {
  return mixtureOf(node, backend)?.kernel.direct;
}

/** Choices by expert, and their tiles. */
function orderOf(l: Lowering, choice: Value, { rows, chosen, experts, kernel }: Mixture): OrderedChoices {
  const left = l.temporary([rows * chosen], uint32);
  const tiles = l.temporary([countTiles(rows * chosen, experts, kernel.rows), 2], uint32);
  l.emit("expert_order", [choice, left, tiles], {
    threads: Math.min(ORDERING_THREADS, l.backend.limits.maxThreads),
    spec: { HEIGHT: kernel.rows, CHOSEN: chosen },
    push: { rows },
    workgroups: [experts, 1, 1],
  });
  return { left, tiles, inPlace: true };
}

/** What the chosen experts give: products (rows, chosen, hidden), and the choice with their weights. */
export interface MixtureParts {
  readonly products: Value;
  readonly choice: Value;
}

/** The weighted sum of the chosen experts. */
export function expertMixture(l: Lowering, node: Node, inputs: Inputs): Value {
  const { products, choice } = mixtureParts(l, node, inputs);
  const [rows, chosen, hidden] = products.shape;
  const out = l.temporary(node.shape, node.dtype);
  l.emit("expert_mix", [products, choice, out], {
    spec: { DTYPE: node.dtype.code },
    push: { rows, chosen, cols: hidden },
    workgroups: l.groups(rows * hidden / FEATURES),
  });
  return out;
}

/** What the chosen experts give, before it is weighed. */
export function mixtureParts(l: Lowering, node: Node, [x, ...rest]: Inputs): MixtureParts {
  const mixture = mixtureOf(node, l.backend)!;
  const { rows, chosen, hidden, size, format, kernel } = mixture;
  const { unit, hasBias, mode, bits, groupSize } = attrsOf(node, "expertMixture");
  const choice = l.contiguous(rest[0]);
  const each = mode === "dense" ? 1 : arraysOfMatrix({ mode, bits, groupSize });
  const [gate, up, down] = [0, 1, 2].map((i) => ({
    arrays: rest.slice(1 + i * each, 1 + (i + 1) * each),
    bias: hasBias ? rest[1 + 3 * each + i] : undefined,
  }));
  const isDistinct = node.inputs[1].op === "expertChoice";
  const choices = kernel.findsChoices && rows <= kernel.rows && isDistinct
    ? { choice, experts: mixture.experts }
    : orderOf(l, choice, mixture);
  const units = l.temporary([rows * chosen, size], float16);
  emitDirect(
    l,
    kernel,
    format,
    { x, xRows: rows, depth: hidden, n: size, stacks: [gate, up], unit, choices, divisor: chosen },
    units,
  );
  const products = l.temporary([rows, chosen, hidden], node.dtype);
  emitDirect(
    l,
    kernel,
    format,
    { x: units, xRows: rows * chosen, areUnits: true, depth: size, n: hidden, stacks: [down], choices, divisor: 1 },
    products,
  );
  return { products, choice };
}
