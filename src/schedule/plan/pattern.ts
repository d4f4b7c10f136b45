/**
 * Walking a graph from results to inputs in search of a region: nodes on the way become part of it.
 *
 * @module
 */

import { isFloat, isHalf } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { DENSE, type MatrixFormat, smallFloatMode } from "../../graph/quantization.ts";
import { sameShape, sizeOf } from "../../graph/shape.ts";
import type { RowRange } from "./value.ts";

/** Facts about the graph that the matcher needs. */
export interface GraphView {
  readonly order: readonly Node[];
  /** Distinct nodes that read each node. */
  readonly readers: ReadonlyMap<Node, readonly Node[]>;
  /** Nodes that are lowered as their composites. */
  readonly replaced: ReadonlyMap<Node, Node>;
}

/** Why a graph is no region. */
export class Mismatch extends Error {}

/** Ends the search with a reason unless the condition holds. */
export function expect(holds: boolean, reason: string): asserts holds {
  if (!holds) throw new Mismatch(reason);
}

/**
 * A matrix (rows, columns) as nodes: codes with scales, or, if it is dense, its numbers as codes without any. A stack of matrices (n, rows,
 * columns) has their rows one after the other.
 */
export interface Matrix extends MatrixFormat {
  readonly codes: Node;
  readonly scales: Node | undefined;
  /** Of affine codes; undefined of symmetric ones. */
  readonly biases: Node | undefined;
  /** The rows of these arrays that it has; absent for all. */
  readonly rows?: RowRange;
}

/** How many rows a matrix has. */
export function rowCount({ codes, rows }: Matrix): number {
  return rows?.count ?? sizeOf(codes.shape.slice(0, -1));
}

/** One that is quantized. */
export interface QuantizedMatrix extends Matrix {
  readonly scales: Node;
}

/** Whether a matrix has scales. */
export function isQuantized(matrix: Matrix): matrix is QuantizedMatrix {
  return matrix.scales !== undefined;
}

/** Whether the codes of a matrix are of mode "symmetric": integers with scales, but without biases. */
export function isSymmetric({ scales, biases, mode }: Matrix): boolean {
  return scales !== undefined && biases === undefined && mode === undefined;
}

/** The arrays of floats that make up a matrix: none if its scales are bytes. */
export function parametersOf({ codes, scales, biases, mode }: Matrix): readonly Node[] {
  if (mode) return [];
  return scales ? [scales, ...(biases ? [biases] : [])] : [codes];
}

/** A product with one transposed matrix. */
export interface Product {
  readonly matrix: Matrix;
  readonly x: Node;
}

/** Whether a node may be one. */
export function isProduct({ op }: Node): boolean {
  return op === "quantizedMatmul" || op === "matmul";
}

/** Whether a node is an elementwise function. */
export function isFn(node: Node, fn: string): boolean {
  return node.op === "elementwise" && attrsOf(node, "elementwise").fn === fn;
}

/** Neighbouring elements of all rows of a node. */
export interface ColumnSlice {
  readonly source: Node;
  readonly columns: RowRange;
}

/** What a node takes of the last axis of another; undefined if it is something else. */
export function columnSlice(node: Node): ColumnSlice | undefined {
  if (node.op !== "slice") return undefined;
  const { starts, steps } = attrsOf(node, "slice");
  const [source] = node.inputs;
  const last = node.shape.length - 1;
  const takes = steps.every((step) => step === 1) && sameShape(source.shape.slice(0, -1), node.shape.slice(0, -1));
  return takes ? { source, columns: { first: starts[last], count: node.shape[last] } } : undefined;
}

/** A normalisation with a weight. */
export interface Norm {
  readonly x: Node;
  readonly weight: Node;
  readonly eps: number;
}

/** The nodes of a region so far, and the steps by which it grows. */
export class Walk {
  readonly graph: GraphView;
  /** Nodes whose values are asked for. */
  readonly wanted: ReadonlySet<Node>;
  /** Nodes that the region computes. */
  readonly inside: Set<Node> = new Set();

  constructor(graph: GraphView, wanted: ReadonlySet<Node>) {
    this.graph = graph;
    this.wanted = wanted;
  }

  /** Distinct nodes that read a node. */
  readers(node: Node): readonly Node[] {
    return this.graph.readers.get(node) ?? [];
  }

  /** Steps through what does not change the elements of a row: views in order, casts between floats. */
  stripViews(node: Node): Node {
    for (;;) {
      if (!this.isView(node)) return node;
      this.inside.add(node);
      node = node.inputs[0];
    }
  }

  /** Whether a node shows the elements of a row of its input in their order, maybe as another float dtype. */
  isView(node: Node): boolean {
    if (this.graph.replaced.has(node)) return false;
    switch (node.op) {
      case "reshape":
      case "contiguous":
        return true;
      case "broadcast":
        return sizeOf(node.shape) === sizeOf(node.inputs[0].shape);
      case "transpose": {
        const { shape } = node.inputs[0];
        const axes = attrsOf(node, "transpose").axes.filter((a) => shape[a] !== 1);
        return axes.every((a, i) => i === 0 || axes[i - 1] < a);
      }
      case "elementwise":
        return attrsOf(node, "elementwise").fn === "cast" && isFloat(node.dtype) && isFloat(node.inputs[0].dtype);
      default:
        return false;
    }
  }

  /** What nodes on a way of views show, if each of them and it are read once. */
  shownOnce(node: Node): Node | undefined {
    for (let at = node; !this.wanted.has(at) && this.readers(at).length === 1; at = at.inputs[0]) {
      if (!this.isView(at)) return at;
    }
    return undefined;
  }

  /** The last node that shows the same row: through views and casts that alone read it. */
  upward(node: Node): Node {
    for (;;) {
      const readers = this.readers(node);
      if (this.wanted.has(node) || readers.length !== 1 || !this.isView(readers[0])) return node;
      this.inside.add(node);
      node = readers[0];
    }
  }

  take<K extends Node["op"]>(node: Node, op: K, what: string): Node {
    expect(node.op === op && !this.graph.replaced.has(node), `${what} is ${node.op}, expected ${op}`);
    this.inside.add(node);
    return node;
  }

  elementwise(node: Node, fn: string): readonly [Node, Node] | undefined {
    if (node.op !== "elementwise" || attrsOf(node, "elementwise").fn !== fn) return undefined;
    this.inside.add(node);
    return [node.inputs[0], node.inputs[1]];
  }

  product(node: Node, what: string): Product {
    const found = this.stripViews(node);
    const slice = columnSlice(found);
    if (slice) return this.#productSlice(found, slice, what);
    if (found.op === "matmul") return this.#denseProduct(found, what);
    const product = this.take(found, "quantizedMatmul", what);
    const { transpose, bits, groupSize, mode } = attrsOf(product, "quantizedMatmul");
    const small = smallFloatMode(mode);
    const [x, codes, scales, biases] = product.inputs;
    expect(transpose && codes.shape.length === 2, `${what} is not x times one transposed matrix`);
    return { matrix: { codes, scales, biases, bits, groupSize, ...(small && { mode: small }) }, x };
  }

  /** Some columns of a product: the product with those rows of the matrix. */
  #productSlice(node: Node, { source, columns: { first, count } }: ColumnSlice, what: string): Product {
    this.inside.add(node);
    const { matrix, x } = this.product(source, what);
    return { matrix: { ...matrix, rows: { first: (matrix.rows?.first ?? 0) + first, count } }, x };
  }

  #denseProduct(node: Node, what: string): Product {
    const [x, factor] = this.take(node, "matmul", what).inputs;
    const transposed = this.peekIndex(factor);
    const isTransposed = transposed.op === "transpose" && transposed.shape.length === 2 &&
      attrsOf(transposed, "transpose").axes[0] === 1 && sameShape(factor.shape.slice(-2), transposed.shape);
    expect(isTransposed, `${what} is not x times one transposed matrix`);
    const [codes] = transposed.inputs;
    expect(isHalf(codes.dtype), `${what} has ${codes.dtype.name} weights`);
    return { matrix: { codes, scales: undefined, biases: undefined, ...DENSE }, x };
  }

  norm(node: Node, what: string): Norm {
    const norm = this.take(this.stripViews(node), "rmsNorm", what);
    expect(norm.inputs.length === 2, `${what} has no weight`);
    return { x: norm.inputs[0], weight: norm.inputs[1], eps: attrsOf(norm, "rmsNorm").eps };
  }

  /** The result of {@link Walk.stripViews}, but nothing is taken. */
  peek(node: Node): Node {
    while (this.isView(node)) node = node.inputs[0];
    return node;
  }

  /** Positions, looking through views. The views are not taken: others may read them. */
  peekIndex(node: Node): Node {
    while (
      ["reshape", "contiguous", "broadcast"].includes(node.op) && sizeOf(node.shape) === sizeOf(node.inputs[0].shape)
    ) node = node.inputs[0];
    return node;
  }

  peekFull(node: Node): number | undefined {
    while (
      ["reshape", "broadcast"].includes(node.op) ||
      (node.op === "elementwise" && attrsOf(node, "elementwise").fn === "cast")
    ) node = node.inputs[0];
    const value = node.op === "full" ? attrsOf(node, "full").value : undefined;
    return typeof value === "number" ? value : undefined;
  }

  /** Whether a node is position + count. */
  sum(node: Node, position: Node, count: number = 1): boolean {
    const sum = this.peekIndex(node);
    return sum.op === "elementwise" && attrsOf(sum, "elementwise").fn === "add" &&
      sum.inputs.some((i) => this.peekIndex(i) === position) && sum.inputs.some((i) => this.peekFull(i) === count);
  }
}
