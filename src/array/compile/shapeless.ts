/**
 * Traces that are built anew over arguments of other sizes: what `compile` with `shapeless` replays instead of running its function.
 *
 * A trace can be built anew if every node follows from the shapes of its inputs. These are elementwise ops that broadcast as before,
 * reductions, products, transposes, and reshapes to sizes that the program gave. A graph with another op, or with a number that a
 * function made of shapes, cannot. The function is then traced again, which is right for every function.
 *
 * @module
 */

import { ShapeError } from "../../graph/error.ts";
import { attrsOf, makeNode, type Node, type OpName } from "../../graph/node.ts";
import { broadcastShapes, formatShape, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { inputsFirst } from "../../schedule/plan/order.ts";
import { convShape } from "../signal/conv_shape.ts";

/** A node, or a step that stands for one: the shapes are those of the trace. */
export interface Traced {
  readonly op: OpName;
  readonly shape: Shape;
  readonly attrs: Node["attrs"];
  readonly inputs: readonly { readonly shape: Shape }[];
}

/** The shape of a node for inputs of other shapes; undefined if that is not known. */
type Follow = (node: Traced, inputs: readonly Shape[]) => Shape | undefined;

const keepShape: Follow = (_, [x]) => x;

/** The shape of the first input, whose last axis and all that the other inputs hold are as they were. */
const sameRows: Follow = ({ inputs: [x, ...rest] }, [first, ...others]) =>
  first.at(-1) === x.shape.at(-1) && others.every((shape, i) => sameShape(shape, rest[i].shape)) ? first : undefined;

/** The shape that shapes broadcast to, if every axis is repeated exactly when it was in the trace. */
function broadcastAs(inputs: readonly Shape[], traced: readonly Shape[], whole: Shape): Shape | undefined {
  const shape = broadcastShapes(...inputs);
  const repeats = (x: Shape, all: Shape): string =>
    `${all.length - x.length} ${x.map((d, i) => d === all.at(i - x.length))}`;
  return shape && inputs.every((x, i) => repeats(x, shape) === repeats(traced[i], whole)) ? shape : undefined;
}

/** The batch of a product, whose last two axes are matrices. */
function batchAs(node: Traced, inputs: readonly Shape[], count: number): Shape | undefined {
  const lead = (x: Shape): Shape => x.slice(0, -2);
  const traced = node.inputs.slice(0, count).map((x) => lead(x.shape));
  return broadcastAs(inputs.slice(0, count).map(lead), traced, lead(node.shape));
}

/** Shapes that follow, by op. */
const FOLLOW: { readonly [K in OpName]?: Follow } = {
  softmax: keepShape,
  scan: keepShape,
  sort: keepShape,
  argsort: keepShape,
  contiguous: keepShape,
  elementwise(node, inputs) {
    return broadcastAs(inputs, node.inputs.map((x) => x.shape), node.shape);
  },
  transpose: (node, [x]) => attrsOf(node, "transpose").axes.map((axis) => x[axis]),
  reduce(node, [x]) {
    const { axes } = attrsOf(node, "reduce");
    if (axes.some((axis) => x[axis] === 0)) return undefined;
    const keeps = node.shape.length === x.length;
    return x.flatMap((d, i) => !axes.includes(i) ? [d] : keeps ? [1] : []);
  },
  matmul(node, inputs) {
    const [a, b] = inputs;
    const batch = batchAs(node, inputs, 2);
    return batch && a.at(-1) === b.at(-2) ? [...batch, a.at(-2)!, b.at(-1)!] : undefined;
  },
  quantizedMatmul(node, inputs) {
    const batch = batchAs(node, inputs, 2);
    const [x, w] = inputs;
    const [before, weights] = node.inputs.map(({ shape }) => shape);
    // Weights keep their sizes, whatever is multiplied by them.
    const fits = batch && x.at(-1) === before.at(-1) && sameShape(w.slice(-2), weights.slice(-2));
    return fits ? [...batch, x.at(-2)!, node.shape.at(-1)!] : undefined;
  },
  conv: (node, [x, w]) => convShape(x, w, attrsOf(node, "conv")),
  rmsNorm: sameRows,
  rope: (node, inputs) => attrsOf(node, "rope").offsetInput === "batch" ? undefined : sameRows(node, inputs),
  reshape(node, [x]) {
    const { asked, inserted } = attrsOf(node, "reshape");
    if (inserted) {
      const sizes = [...x];
      return node.shape.map((_, i) => inserted.includes(i) ? 1 : sizes.shift()!);
    }
    if (!asked) return undefined;
    const known = asked.reduce((n, d) => d === -1 ? n : n * d, 1);
    const shape = asked.map((d) => d === -1 ? sizeOf(x) / known : d);
    if (shape.every(Number.isInteger) && sizeOf(shape) === sizeOf(x)) return shape;
    throw new ShapeError(
      `a function with shapeless reshapes to ${formatShape(asked)}: found ${formatShape(x)}`,
    );
  },
};

/** Whether there are ways in which the shape of an op follows from those of its inputs. */
export function isFollowed(op: OpName): boolean {
  return FOLLOW[op] !== undefined;
}

/** The shape of a node for inputs of other shapes. Throws a ShapeError if none follows. */
export function followShape(node: Traced, inputs: readonly Shape[]): Shape {
  const shape = FOLLOW[node.op]?.(node, inputs);
  if (shape) return shape;
  throw new ShapeError(
    `a function without shapes cannot make ${node.op} of ${inputs.map(formatShape).join(" and ")}: it was traced for ${
      node.inputs.map((x) => formatShape(x.shape)).join(" and ")
    }`,
  );
}

/** Leaves that are the same for all shapes. */
export function isConstant(node: Node): boolean {
  if (node.op === "full") return node.shape.length === 0 && !attrsOf(node, "full").derived;
  return node.op === "stored" || node.op === "data" || node.op === "file";
}

/** A graph without shapes. */
export class ShapelessTrace implements Disposable {
  readonly #nodes: readonly Node[];
  readonly #outputs: readonly Node[];

  private constructor(nodes: readonly Node[], outputs: readonly Node[]) {
    this.#nodes = nodes;
    this.#outputs = outputs;
    for (const node of nodes) node.retain();
  }

  /** The trace of results, if it can be built anew. */
  static of(outputs: readonly Node[]): ShapelessTrace | undefined {
    const found = inputsFirst(outputs, (node) => node.inputs);
    const follows = found.every((node) => node.op === "parameter" || isConstant(node) || FOLLOW[node.op]);
    if (!follows) return undefined;
    // Copies: lowering may change the nodes that it is given.
    const copies = new Map<Node, Node>();
    for (const node of found) {
      copies.set(
        node,
        isConstant(node) ? node : copied(
          node,
          node.shape,
          node.inputs.map((x) => copies.get(x)!),
        ),
      );
    }
    return new ShapelessTrace([...copies.values()], outputs.map((node) => copies.get(node)!));
  }

  /** The graph over other parameters; undefined if shapes do not follow. Throws a ShapeError for a reshape that does not fit. */
  build(parameters: readonly Node[]): Node[] | undefined {
    const made = new Map<Node, Node>();
    for (const node of this.#nodes) {
      if (node.op === "parameter") made.set(node, parameters[attrsOf(node, "parameter").index]);
      else if (isConstant(node)) made.set(node, node);
      else {
        const inputs = node.inputs.map((x) => made.get(x)!);
        const shape = FOLLOW[node.op]!(node, inputs.map((x) => x.shape));
        if (!shape) return undefined;
        made.set(node, copied(node, shape, inputs));
      }
    }
    return this.#outputs.map((node) => made.get(node)!);
  }

  /** Lets the nodes go. */
  [Symbol.dispose](): void {
    for (const node of this.#nodes) node.release();
  }
}

function copied({ op, dtype, attrs, composite }: Node, shape: Shape, inputs: readonly Node[]): Node {
  return makeNode(op, inputs, shape, dtype, attrs, composite);
}
