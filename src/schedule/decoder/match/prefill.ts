/**
 * Regions of a prompt: what surrounds attention in the layers of a decoder when many rows go through it.
 *
 * A layer falls into two of them. Its {@link AttentionPrologue} is everything before attention: norm, q, k and v, the norms and turns of
 * their heads, the rows that go into the cache. Its {@link AttentionEpilogue} is everything behind it: output projection, residual, norm,
 * gate and up, silu, down projection, residual. Each is found by itself, so whatever does not match runs op by op between those
 * that do. Attention itself stays an op.
 *
 * @module
 */

import { isFloat } from "../../../graph/dtype.ts";
import { attrsOf, Node } from "../../../graph/node.ts";
import { sizeOf } from "../../../graph/shape.ts";

import type { Activation } from "../spec.ts";
import { type Append, appendOf, headOf, isHeadSwap, type Written } from "./qkv_heads.ts";
import { gatedBy, residual } from "./layer.ts";
import { expect, type GraphView, Mismatch, type Product, type QuantizedMatrix, Walk } from "../../plan/pattern.ts";

/** Rows from which on whole matrices pay. */
const LEAST_ROWS = 16;
/** Widest residual. */
const MOST_WIDTH = 16384;

/** Quantized matrices that are multiplied as one. */
export interface Joint {
  readonly matrices: readonly QuantizedMatrix[];
  readonly columns: readonly number[];
  readonly k: number;
  readonly bits: number;
  readonly groupSize: number;
}

/** Rotation by positions from `offset` on. */
export interface RopeAngles {
  readonly dims: number;
  readonly base: number;
  readonly scale: number;
  readonly offset: number;
  /** int32 (1,), instead of `offset`. */
  readonly position: Node | undefined;
  readonly freqs: Node | undefined;
}

/** What comes before attention. */
export interface AttentionPrologue {
  /** The residual (…, T, hidden). */
  readonly x: Node;
  readonly norm: Node;
  readonly eps: number;
  /** Of q, k and v; of k and v where nothing asks for attention. */
  readonly qkv: Joint;
  readonly batch: number;
  readonly rows: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Added to the products (features,): of all or of none. */
  readonly qBias: Node | undefined;
  readonly kBias: Node | undefined;
  readonly vBias: Node | undefined;
  /** Weights (headDim,) of the norms of heads before they are rotated: of q and k, where there is q, or of none. */
  readonly qNorm: Node | undefined;
  readonly kNorm: Node | undefined;
  /** 0 where heads are not normalised. */
  readonly headEps: number;
  readonly ropeAngles: RopeAngles;
  /** Rotated heads (B, H, T, D). */
  readonly queries: Node | undefined;
  readonly keys: Node;
  /** The product (…, T, kvHeads * headDim). */
  readonly values: Node;
  readonly appendKeys: Append | undefined;
  readonly appendValues: Append | undefined;
  /** Whether anything but the cache reads keys or values. */
  readonly keepsRows: boolean;
  /** Nodes whose values it makes. */
  readonly results: readonly Node[];
  readonly inside: ReadonlySet<Node>;
}

/** What comes behind attention. */
export interface AttentionEpilogue {
  readonly attention: Node;
  /** The residual before attention. */
  readonly x: Node;
  readonly rows: number;
  readonly o: Joint;
  readonly norm: Node;
  readonly eps: number;
  readonly gateUp: Joint;
  readonly activation: Activation;
  readonly down: Joint;
  /** The residual behind it all, or the rows of it that are asked for. */
  readonly out: Node;
  /** Integers (n,): those rows, where they are not all. */
  readonly taken: Node | undefined;
  readonly inside: ReadonlySet<Node>;
}

/** What was found in a graph, in its order, and why other parts that look like it do not match. */
export interface PromptRegions {
  readonly prologues: readonly AttentionPrologue[];
  readonly epilogues: readonly AttentionEpilogue[];
  readonly reasons: ReadonlySet<string>;
}

/** The regions of a prompt in a graph. */
export function findPrompt(graph: GraphView, wanted: ReadonlySet<Node>): PromptRegions {
  const prologues: AttentionPrologue[] = [];
  const epilogues: AttentionEpilogue[] = [];
  const reasons = new Set<string>();
  const attempt = <T>(find: (walk: Walk) => T | undefined, found: T[]): void => {
    try {
      const region = find(new Walk(graph, wanted));
      if (region) found.push(region);
    } catch (error) {
      if (!(error instanceof Mismatch)) throw error;
      reasons.add(error.message);
    }
  };
  const turned = new Map<Node, Node[]>();
  const written = new Map<Node, Written>();
  for (const node of graph.order) {
    const norm = node.op === "rope" ? normBehind(node) : undefined;
    if (norm && rowsOf(norm) >= LEAST_ROWS) turned.set(norm, [...turned.get(norm) ?? [], node]);
    const append = node.op === "dynamicSliceUpdate" ? appendOf(node) : undefined;
    if (append) written.set(append.source, append);
  }
  for (const [norm, ropes] of turned) attempt((walk) => findOpening(walk, norm, ropes, written), prologues);
  for (const node of graph.order) {
    if (node.op !== "elementwise" || attrsOf(node, "elementwise").fn !== "add" || rowsOf(node) < LEAST_ROWS) continue;
    attempt((walk) => findClosing(walk, node), epilogues);
  }
  return { prologues, epilogues, reasons };
}

function rowsOf({ shape }: Node): number {
  return sizeOf(shape.slice(0, -1));
}

/** Several products with the same x as one. */
function joint(products: readonly Product[]): Joint {
  const [{ bits, groupSize, matrix }] = products;
  const k = matrix.scales.shape[1] * groupSize;
  for (const p of products) {
    expect(p.bits === bits && p.groupSize === groupSize, "matrices with the same input are quantized differently");
    expect(p.matrix.scales.shape[1] * groupSize === k, "matrices with the same input have different depths");
  }
  return {
    matrices: products.map((p) => p.matrix),
    columns: products.map((p) => p.matrix.codes.shape[0]),
    k,
    bits,
    groupSize,
  };
}

/** Every node inside but the results is read inside only; what the region reads was there before it. */
function checkInside(walk: Walk, results: ReadonlySet<Node>, before?: { norm: Node; needs: readonly Node[] }): void {
  for (const node of results) walk.inside.add(node);
  for (const node of walk.inside) {
    if (results.has(node)) continue;
    expect(!walk.wanted.has(node), `the result of ${node.op} is asked for`);
    const outside = walk.readers(node).find((r) => !walk.inside.has(r));
    expect(outside === undefined, `${outside?.op} also reads the result of ${node.op}`);
  }
  for (const node of before?.needs ?? []) {
    const isThere = node.inputs.length === 0 || node.id < before!.norm.id;
    expect(isThere, `${node.op} comes later than what it is for`);
  }
}

// ---- behind attention -----------------------------------------------------------------------------------------------

function findClosing(walk: Walk, node: Node): AttentionEpilogue | undefined {
  const isMultiply = (n: Node): boolean => n.op === "elementwise" && attrsOf(n, "elementwise").fn === "multiply";
  const mlp = residual(walk, node, isMultiply);
  if (!mlp) return undefined;
  const down = walk.product(mlp.product, "the down projection");
  const { gate, up } = gatedBy(walk, walk.elementwise(walk.bare(down.x), "multiply")!);
  const norm = walk.norm(gate.x, "the norm before the feed-forward part");
  expect(walk.bare(up.x) === walk.peek(gate.x), "gate and up read different rows");

  const isAttended = (n: Node): boolean => isHeadSwap(n) && n.inputs[0].op === "attention";
  const block = residual(walk, mlp.x, isAttended);
  expect(block !== undefined, "there is no attention below a feed-forward part");
  expect(walk.peek(norm.x) === walk.peek(mlp.x), "the norm and the residual of a feed-forward part differ");
  walk.bare(norm.x);
  const o = walk.product(block.product, "the output projection");
  const attention = walk.take(walk.bare(o.x), "transpose", "what the output projection reads").inputs[0];

  const attended = walk.readers(attention).length === 1 && !walk.wanted.has(attention) && attention.shape.length === 4;
  expect(attended && attention.op === "attention", "more than a projection reads what attention gives");

  const rows = rowsOf(node);
  const region = {
    attention,
    x: block.x,
    rows,
    o: joint([o]),
    norm: norm.weight,
    eps: norm.eps,
    gateUp: joint([gate, up]),
    activation: "silu" as const,
    down: joint([down]),
    ...taken(walk, node),
    inside: walk.inside,
  };
  expect(region.gateUp.columns.every((n) => n % 64 === 0), "the intermediate size is no multiple of 64");
  expect(region.down.columns[0] <= MOST_WIDTH, `there are more than ${MOST_WIDTH} features`);
  expect([norm.weight, block.x, node].every((n) => isFloat(n.dtype)), "the rows are no floats");
  checkInside(walk, new Set([region.out]));
  return region;
}

/** The rows of the last layer that the head wants: only they need to go through what follows attention. */
function taken(walk: Walk, node: Node): Pick<AttentionEpilogue, "out" | "taken"> {
  const [gather, ...more] = walk.readers(node);
  const fits = more.length === 0 && gather?.op === "gather" && !walk.wanted.has(node) && gather.inputs[0] === node &&
    gather.inputs[1] !== node && attrsOf(gather, "gather").axis === 1 && node.shape.length === 3 && node.shape[0] === 1;
  if (!fits) return { out: node, taken: undefined };
  walk.inside.add(node);
  return { out: gather, taken: gather.inputs[1] };
}

// ---- before attention -----------------------------------------------------------------------------------------------

/** The norm of the rows whose product a rotation turns, where it looks like that. */
function normBehind(rope: Node): Node | undefined {
  const ops = ["transpose", "rmsNorm", "quantizedMatmul", "rmsNorm"];
  let node = rope;
  for (const op of ops) {
    do node = node.inputs[0]; while (node && ["reshape", "elementwise"].includes(node.op));
    if (node?.op !== op) return undefined;
  }
  return node;
}

function turnsOf(walk: Walk, rope: Node): RopeAngles {
  const { dims, traditional, base, scale, offset, offsetInput, hasFreqs } = attrsOf(rope, "rope");
  expect(!traditional && offsetInput !== "batch", "heads are not turned half by half from one position on");
  expect(dims === rope.shape[3], "the heads are not turned whole");
  const inputs = rope.inputs.map((n) => walk.peekIndex(n));
  const position = offsetInput === "scalar" ? inputs[1] : undefined;
  return { dims, base, scale, offset, position, freqs: hasFreqs ? inputs[inputs.length - 1] : undefined };
}

function findOpening(
  walk: Walk,
  norm: Node,
  ropes: readonly Node[],
  written: ReadonlyMap<Node, Written>,
): AttentionPrologue {
  const isQuery = (rope: Node): boolean =>
    walk.readers(rope).length > 0 && walk.readers(rope).every((r) => r.op === "attention" && r.inputs[0] === rope);
  const queries = ropes.find(isQuery);
  const [keys, ...more] = ropes.filter((rope) => rope !== queries);
  expect(keys !== undefined && more.length === 0, "q and k cannot be told apart");
  const q = queries && headOf(walk, queries);
  const k = headOf(walk, keys);
  const sources = new Set([k.product.x, walk.peek(k.product.x)]); // with a cast between, products read what it gives
  const values = [...sources].flatMap((n) => walk.readers(n)).find((r) =>
    r.op === "quantizedMatmul" && !walk.inside.has(r)
  );
  expect(values !== undefined, "there are no values beside q and k");
  const v = walk.product(values, "the value projection");
  const read = behindCast(walk, values);
  const { x, weight, eps } = walk.norm(k.product.x, "the norm before attention");
  for (const p of q ? [q.product, v] : [v]) expect(walk.bare(p.x) === norm, "q, k and v read different rows");

  const [batch, kvHeads, rows, headDim] = keys.shape;
  const turns = turnsOf(walk, keys);
  const same = !queries || (JSON.stringify(turnsOf(walk, queries), bare) === JSON.stringify(turns, bare) &&
    q!.eps === k.eps && q!.norm.dtype === k.norm.dtype);
  expect(same, "q and k are turned differently");
  const qkv = joint([...(q ? [q.product] : []), k.product, v]);
  expect([16, 32, 64, 128].includes(headDim), `heads have ${headDim} features`);
  expect(qkv.columns.at(-1) === kvHeads * headDim, "keys and values have different sizes");
  expect(qkv.k <= MOST_WIDTH, `there are more than ${MOST_WIDTH} features`);

  const appends = [keys, values].map((source) => {
    const found = written.get(source);
    if (!found) return undefined;
    expect(found.heads === kvHeads && found.headDim === headDim, "the cache has other heads");
    // Views on the way to the cache alone are not needed.
    for (const node of found.path) {
      if (!walk.wanted.has(node) && walk.readers(node).every((r) => walk.inside.has(r) || r === found.update)) {
        walk.inside.add(node);
      }
    }
    return found;
  });
  const updates = appends.filter((a) => a !== undefined);
  const alike = updates.every((a) =>
    a.start === updates[0].start && a.capacity === updates[0].capacity && a.update.dtype === updates[0].update.dtype
  );
  expect(updates.length !== 1 && alike, "keys and values are not cached alike");
  expect([x, weight, k.norm, ...updates.map((a) => a.update)].every((n) => isFloat(n.dtype)), "the rows are no floats");
  const results = [...(queries ? [queries] : []), keys, read, ...updates.map((a) => a.update)];
  const needs = [
    weight,
    k.norm,
    q?.norm,
    turns.position,
    turns.freqs,
    ...updates.flatMap((a) => [a.update.inputs[0], a.start]),
  ];
  checkInside(walk, new Set(results), { norm, needs: needs.filter((n) => n !== undefined) });
  for (const node of queries ? [queries, keys, read] : [keys, read]) checkReaders(walk, node);
  return {
    x,
    norm: weight,
    eps,
    qkv,
    batch,
    rows,
    heads: queries ? queries.shape[1] : 0,
    kvHeads,
    headDim,
    qBias: undefined,
    kBias: undefined,
    vBias: undefined,
    qNorm: q?.norm,
    kNorm: k.norm,
    headEps: k.eps,
    ropeAngles: turns,
    queries,
    keys,
    values: read,
    appendKeys: appends[0],
    appendValues: appends[1],
    keepsRows: [keys, read].some((node) => walk.readers(node).some((r) => !walk.inside.has(r))),
    results,
    inside: walk.inside,
  };
}

/** The cast that alone reads a node, or the node: values are given behind theirs, as keys are, so that both have one dtype. */
function behindCast(walk: Walk, node: Node): Node {
  const [cast, ...others] = walk.readers(node);
  const isCast = cast?.op === "elementwise" && attrsOf(cast, "elementwise").fn === "cast" && isFloat(cast.dtype);
  return isCast && others.length === 0 && !walk.wanted.has(node) ? cast : node;
}

/** What becomes float16 whatever its dtype may be read by attention, by a cast, and by views of these. */
function checkReaders(walk: Walk, node: Node): void {
  expect(!walk.wanted.has(node), `the result of ${node.op} is asked for`);
  for (const reader of walk.readers(node)) {
    if (walk.inside.has(reader) || reader.op === "elementwise") continue;
    if (["reshape", "transpose", "slice", "contiguous"].includes(reader.op)) checkReaders(walk, reader);
    else expect(reader.op === "attention" && !walk.graph.replaced.has(reader), `${reader.op} reads heads`);
  }
}

/** Nodes by their number. */
function bare(_: string, value: unknown): unknown {
  return value instanceof Node ? value.id : value;
}
