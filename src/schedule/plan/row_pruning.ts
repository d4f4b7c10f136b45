/**
 * Row pruning: rows that nothing reads are not computed.
 *
 * A prompt needs the logits of its last token alone. Model code says so after all layers, with `take(x, row, 1)`. Here that take moves up
 * through every op that computes each row from the same row of its inputs, if nothing reads the other rows. So the last layer multiplies
 * and attends for one row, and what all rows are needed for, its keys and values, stays.
 *
 * The pass rewrites pending nodes: a take becomes the op that it was of, over rows of that one's inputs. Values stay the same within the
 * accuracy of the dtype, also for other holders of the node. Nothing is done unless a product or an attention gets smaller: to take rows
 * earlier is more dispatches if it is of several arrays.
 *
 * @module
 */

import { attrsOf, makeNode, type Node, type OpAttrs, type OpName } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import { inputsFirst } from "./order.ts";
import { keysOfRow, positionOfRow, rowNumber } from "./row_position.ts";

/** A row of a node: the one at `index` (1,) along `axis`. */
interface SelectedRow {
  readonly index: Node;
  readonly axis: number;
}

/** The part of a node that is read. */
interface Use {
  all: boolean;
  row: SelectedRow | undefined;
  /** Whether the row is computed from rows of the inputs. */
  moves: boolean;
}

/** The axis of each input along which its row is needed for the row of the node; undefined where the input is needed whole. */
type InputAxes = readonly (number | undefined)[];

/** Ops that cost enough to move a take for. */
const COSTLY: ReadonlySet<OpName> = new Set<OpName>(["matmul", "quantizedMatmul", "attention", "expertMixture"]);
/** How far above an op of all rows a row is looked for that is taken already. */
const NEAR = 8;

/** Operands that broadcast: what has the row once only is needed whole. */
function broadcasting(node: Node, axis: number): InputAxes {
  return node.inputs.map(({ shape }) => {
    const at = axis - (node.shape.length - shape.length);
    return at < 0 || shape[at] === 1 ? undefined : at;
  });
}

/** Ops along the last axis; parameters after the first input are whole. */
function alongLast(node: Node, axis: number): InputAxes | undefined {
  return axis < node.shape.length - 1 ? node.inputs.map((_, i) => i === 0 ? axis : undefined) : undefined;
}

/** The axis of the input that a reshape keeps as `axis`. */
function reshaped({ shape, inputs: [{ shape: from }] }: Node, axis: number): InputAxes | undefined {
  const before = sizeOf(shape.slice(0, axis));
  const at = from.findIndex((size, i) => size === shape[axis] && sizeOf(from.slice(0, i)) === before);
  return at < 0 ? undefined : [at];
}

/** The axis of the input that a reduction over others keeps as `axis`. */
function reduced(node: Node, axis: number): InputAxes | undefined {
  const { axes } = attrsOf(node, "reduce");
  const { shape } = node.inputs[0];
  if (shape.length === node.shape.length) return axes.includes(axis) ? undefined : [axis];
  return [shape.map((_, i) => i).filter((i) => !axes.includes(i))[axis]];
}

/** How ops compute the rows along an axis of more than one; undefined if rows depend on each other. Other ops do not move. */
const AXES: { readonly [K in OpName]?: (node: Node, axis: number) => InputAxes | undefined } = {
  elementwise: broadcasting,
  broadcast: broadcasting,
  contiguous: (_, axis) => [axis],
  reshape: reshaped,
  transpose: (node, axis) => [attrsOf(node, "transpose").axes[axis]],
  slice(node, axis) {
    const { steps } = attrsOf(node, "slice");
    return steps[axis] === 1 && node.inputs[0].shape[axis] === node.shape[axis] ? [axis] : undefined;
  },
  concatenate: (node, axis) => attrsOf(node, "concatenate").axis === axis ? undefined : node.inputs.map(() => axis),
  reduce: reduced,
  softmax: alongLast,
  rmsNorm: alongLast,
  layerNorm: alongLast,
  expertChoice: alongLast,
  expertMixture: (node, axis) => axis === 0 ? node.inputs.map((_, i) => i < 2 ? 0 : undefined) : undefined,
  matmul(node, axis) {
    const last = node.shape.length - 1;
    return axis < last - 1 ? broadcasting(node, axis) : axis < last ? [axis, undefined] : undefined;
  },
  quantizedMatmul: (node, axis) => node.inputs[1].shape.length === 2 ? alongLast(node, axis) : undefined,
  rope: (node, axis) => axis === node.shape.length - 2 ? alongLast(node, axis) : undefined,
  attention(node, axis) {
    const { mask } = attrsOf(node, "attention");
    return axis === 2 ? node.inputs.map((_, i) => i === 0 || (i === 3 && hasMask(mask)) ? 2 : undefined) : undefined;
  },
};

function hasMask(mask: OpAttrs["attention"]["mask"]): boolean {
  return mask === "bool" || mask === "add";
}

/** The op of one row, if it needs more than that row of its inputs: `number` is the row's index among all. */
const PLACED: { readonly [K in OpName]?: (node: Node, number: () => Node, inputs: readonly Node[]) => Node } = {
  rope(node, number, [x, ...rest]) {
    const { offset, offsetInput, ...attrs } = attrsOf(node, "rope");
    const position = positionOfRow(offsetInput === "none" ? offset : rest[0], number());
    const inputs = [x, position, ...rest.slice(offsetInput === "none" ? 0 : 1)];
    const at = { ...attrs, offset: 0, offsetInput: offsetInput === "none" ? "scalar" : offsetInput } as const;
    return makeNode("rope", inputs, x.shape, node.dtype, at, node.composite);
  },
  attention(node, number, inputs) {
    const attrs = attrsOf(node, "attention");
    const shape = rowShape(node, 2);
    if (attrs.mask !== "causal") return makeNode("attention", inputs, shape, node.dtype, attrs, node.composite);
    const [q, k, v, lengths] = inputs;
    const keys = keysOfRow(lengths, k.shape[2], number(), node.shape[2]);
    const alone = { ...attrs, mask: "none", hasLengths: true } as const;
    return makeNode("attention", [q, k, v, keys], shape, node.dtype, alone, node.composite);
  },
};

function rowShape({ shape }: Node, axis: number): number[] {
  return shape.with(axis, 1) as number[];
}

/** The row that a node takes out of its input, where it takes one of several. */
function selectedRow(node: Node): SelectedRow | undefined {
  if (node.op !== "gather") return undefined;
  const { axis } = attrsOf(node, "gather");
  const [{ shape }, index] = node.inputs;
  return index.shape.length === 1 && index.shape[0] === 1 && shape[axis] > 1 ? { index, axis } : undefined;
}

function isSame(a: SelectedRow | undefined, b: SelectedRow): boolean {
  return a?.index === b.index && a.axis === b.axis;
}

/** Rewrites the pending graph of `outputs` so that rows are not computed which a `take` of one row leaves out. */
export function pruneRows(outputs: readonly Node[]): void {
  const order = inputsFirst(outputs, ({ inputs }) => inputs);
  if (!order.some((node) => selectedRow(node) && AXES[node.inputs[0].op])) return;
  const uses = usesOf(order, outputs);
  const worth = new Set<Node>();
  for (const [{ op }, { all, row, moves }] of uses) if (moves && !all && COSTLY.has(op)) worth.add(row!.index);
  if (worth.size > 0) rewrite(order, uses, worth);
}

/** The part that is read of each node, and the rows that move. Readers come before what they read. */
function usesOf(order: readonly Node[], outputs: readonly Node[]): ReadonlyMap<Node, Use> {
  const uses = new Map<Node, Use>(order.map((node) => [node, { all: false, row: undefined, moves: false }]));
  const joined = new Set(order.filter(({ op }) => op === "slice").map(({ inputs: [node] }) => withoutCast(node)));
  const read = (node: Node, row: SelectedRow | undefined): void => {
    const use = uses.get(node)!;
    if (row && !use.row) use.row = row;
    else if (!row || !isSame(use.row, row)) use.all = true;
  };
  for (const node of outputs) read(node, undefined);
  for (const node of order.toReversed()) {
    const use = uses.get(node)!;
    const { row } = use;
    const axes = row && AXES[node.op]?.(node, row.axis);
    use.moves = axes !== undefined && (!use.all || hasRowNear(uses, node, row!, joined));
    if (use.moves) node.inputs.forEach((input, i) => read(input, rowAlong(row!, axes![i])));
    if (use.moves && !use.all) continue;
    use.all = true;
    const selected = selectedRow(node);
    node.inputs.forEach((input, i) => read(input, i === 0 ? selected : undefined));
  }
  return uses;
}

function withoutCast(node: Node): Node {
  return node.op === "elementwise" && attrsOf(node, "elementwise").fn === "cast" ? node.inputs[0] : node;
}

function rowAlong({ index }: SelectedRow, axis: number | undefined): SelectedRow | undefined {
  return axis === undefined ? undefined : { index, axis };
}

/**
 * Whether to compute a row once more instead of taking it from a node all of whose rows are needed too. That is better if cheap ops of one
 * operand make it from a row that is taken anyway. A product of joined matrices, whose parts are read by themselves, may be among
 * them. Then a layer has the ops that it has where matrices are apart.
 */
function hasRowNear(
  uses: ReadonlyMap<Node, Use>,
  node: Node,
  { index, axis }: SelectedRow,
  joined: ReadonlySet<Node>,
): boolean {
  for (let steps = 0; steps < NEAR && (!COSTLY.has(node.op) || joined.has(node)); steps++) {
    const axes = AXES[node.op]?.(node, axis) ?? [];
    const [i, ...more] = axes.flatMap((at, i) => at === undefined ? [] : [i]);
    if (i === undefined || more.length > 0) return false;
    [node, axis] = [node.inputs[i], axes[i]!];
    if (isSame(uses.get(node)!.row, { index, axis })) return true;
  }
  return false;
}

/** Makes the rows of nodes that move, for indices that are worth it; inputs come before what reads them. */
function rewrite(order: readonly Node[], uses: ReadonlyMap<Node, Use>, worth: ReadonlySet<Node>): void {
  const moves = (node: Node, row: SelectedRow): boolean => {
    const use = uses.get(node)!;
    return use.moves && worth.has(row.index) && isSame(use.row, row);
  };
  /** Takes of each node: those that were there, and new ones. */
  const takes = new Map<Node, Node[]>();
  const note = (take: Node): void => {
    const list = takes.get(take.inputs[0]);
    if (list) list.push(take);
    else takes.set(take.inputs[0], [take]);
  };
  for (const node of order) if (selectedRow(node)) note(node);
  const takesOf = (node: Node, row: SelectedRow): Node[] =>
    takes.get(node)?.filter((take) => take.inputs[1] === row.index && attrsOf(take, "gather").axis === row.axis) ?? [];
  const rows = new Map<Node, Node>();
  const rowIn = (node: Node, row: SelectedRow): Node => {
    if (moves(node, row)) return rows.get(node)!;
    const [found] = takesOf(node, row);
    if (found) return found;
    const { index, axis } = row;
    const take = makeNode("gather", [node, index], rowShape(node, axis), node.dtype, { axis });
    note(take);
    return take;
  };
  const numbers = new Map<string, Node>();
  /** The number of a row; of a signed index it is several ops, which are done once. */
  const numberOf = ({ index, axis }: SelectedRow, { shape }: Node): Node => {
    const key = `${index.id} ${shape[axis]}`;
    const number = numbers.get(key) ?? rowNumber(index, shape[axis]);
    if (index.dtype.kind === "int") numbers.set(key, number);
    return number;
  };
  const before: Node[] = []; // the inputs of takes are needed until all have moved
  for (const node of order) {
    const { row } = uses.get(node)!;
    if (!row || !moves(node, row)) continue;
    const axes = AXES[node.op]!(node, row.axis)!;
    const inputs = node.inputs.map((input, i) => axes[i] === undefined ? input : rowIn(input, rowAlong(row, axes[i])!));
    const alone = PLACED[node.op]?.(node, () => numberOf(row, node), inputs) ??
      makeNode(node.op, inputs, rowShape(node, row.axis), node.dtype, node.attrs, node.composite);
    const [first, ...others] = takesOf(node, row);
    rows.set(node, first ?? alone);
    if (!first) continue;
    node.retain();
    before.push(node);
    first.become(alone);
    alone.retain();
    alone.release(); // lets go of inputs that are the take's now
    for (const take of others) take.become({ op: "reshape", inputs: [first], attrs: {}, composite: undefined });
  }
  for (const node of before) node.release();
}
