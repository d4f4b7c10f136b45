/**
 * Regions of a prompt: what surrounds attention in the layers of a decoder when many rows pass through it. The rows are of a prompt, or of
 * a step of several sequences.
 *
 * A layer falls into two of them. Its {@link AttentionPrologue} is everything before attention: norm, q, k and v, the norms and rotation of
 * their heads, the rows that go into the cache. Its {@link LayerEpilogue} is everything after it: output projection, residual, norm,
 * gate and up, their activation, down projection, residual. Each is found by itself, so whatever does not match runs op by op between those
 * that do. Attention itself stays an op. So does what a layer has in its place, such as a gated delta net.
 *
 * @module
 */

import { isFloat } from "../../../graph/dtype.ts";
import { isCoded } from "../../../graph/kv_codes.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { sameShape, sizeOf } from "../../../graph/shape.ts";
import { columnSlice, expect, type GraphView, isProduct, Mismatch, Walk } from "../../plan/pattern.ts";
import { placeKey } from "../kv_place.ts";
import { type Append, type CachedHeads, cachedHeads } from "./kv_update.ts";
import { type GatedPart, gatedPart } from "./gated.ts";
import { type Joint, joint } from "./joint.ts";
import { type FeedForward, findFeedForward, findHeads, findPrologue, isAttention, type RopeAngles } from "./layer.ts";
import { findExpertLayer, type OutsideSum } from "./prompt_experts.ts";
import { findMixerOutput, type Mixed, OTHER_SUMS } from "./prompt_mixer.ts";
import { withBias } from "./projection.ts";

/**
 * Rows of a prompt from which on whole matrices pay: prompts are padded to no fewer. They come here where the kernels of a chunk do not serve
 * them, as do sequences of a step, which may be fewer.
 */
const MIN_ROWS = 8;
/** Widest residual. */
const MAX_WIDTH = 16384;

/** The part before attention. */
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
  /** Weights (headDim,) of the norms of heads before they are rotated: of q and k, if there is q, or of none. */
  readonly qNorm: Node | undefined;
  readonly kNorm: Node | undefined;
  /** 0 if heads are not normalised. */
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

/** The part after attention, or after what a layer has in its place. */
export interface LayerEpilogue {
  readonly mixed: Mixed;
  /** The residual before it. */
  readonly x: Node;
  /** The factors of what the mixer and the feed-forward part add to the residual. */
  readonly scales: readonly [mixer: number, feedForward: number];
  readonly rows: number;
  /** Undefined where `mixed` is its result. */
  readonly o: Joint | undefined;
  /** Added to its products (features,). */
  readonly oBias: Node | undefined;
  readonly norm: Node;
  readonly eps: number;
  readonly feedForward: GatedPart | OutsideSum;
  /** The residual after the epilogue, or its selected rows. */
  readonly out: Node;
  /** Integers (n,): those rows, if they are not all. */
  readonly selected: Node | undefined;
  readonly inside: ReadonlySet<Node>;
}

/** The matches in a graph, in its order, and the reasons why similar parts do not match. */
export interface PromptRegions {
  readonly prologues: readonly AttentionPrologue[];
  readonly epilogues: readonly LayerEpilogue[];
  readonly reasons: ReadonlySet<string>;
}

/** The regions of a prompt in a graph. */
export function findPrompt(graph: GraphView, wanted: ReadonlySet<Node>): PromptRegions {
  const prologues: AttentionPrologue[] = [];
  const found: LayerEpilogue[] = [];
  const reasons = new Map<Node, string>();
  const attempt = <T>(node: Node, find: (walk: Walk) => T | undefined, to: T[]): void => {
    try {
      const region = find(new Walk(graph, wanted));
      if (region) to.push(region);
    } catch (error) {
      if (!(error instanceof Mismatch)) throw error;
      reasons.set(node, error.message);
    }
  };
  const rotated = new Map<Node, Node[]>();
  const written = new Map<Node, CachedHeads>();
  for (const node of graph.order) {
    const norm = node.op === "rope" ? normBehind(new Walk(graph, wanted), node) : undefined;
    if (norm && isMany(norm)) rotated.set(norm, [...rotated.get(norm) ?? [], node]);
    const cached = cachedHeads(node);
    if (cached && cached.block % 4 === 0) written.set(cached.source, cached);
  }
  for (const [norm, ropes] of rotated) {
    attempt(norm, (walk) => findAttentionPrologue(walk, ropes, written), prologues);
  }
  for (const node of graph.order) {
    if (node.op !== "elementwise" || attrsOf(node, "elementwise").fn !== "add" || !isMany(node)) continue;
    attempt(node, (walk) => findLayerEpilogue(walk, node), found);
  }
  const epilogues = found.filter((region) => !overlaps(region, found));
  for (const { inside, feedForward } of epilogues) { // sums within a layer, which end none
    const beside = "sum" in feedForward ? [new Walk(graph, wanted).peek(feedForward.sum)] : [];
    for (const node of [...inside, ...beside]) reasons.delete(node);
  }
  return { prologues, epilogues, reasons: new Set(reasons.values()) };
}

function tokensOfNode({ shape }: Node): number {
  return sizeOf(shape.slice(0, -1));
}

/** Whether a region begins within another one: of two feed-forward parts in a row the first is no mixer. */
function overlaps({ x, mixed }: LayerEpilogue, regions: readonly LayerEpilogue[]): boolean {
  return regions.some(({ inside, out }) => [x, mixed.node].some((node) => node !== out && inside.has(node)));
}

/** Rows of each sequence. */
function rowsOfEach({ shape }: Node): number {
  return shape[shape.length - 2];
}

function isMany(node: Node): boolean {
  const rows = tokensOfNode(node);
  return rows >= MIN_ROWS || (rows > 1 && rowsOfEach(node) === 1);
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

// ---- after attention ------------------------------------------------------------------------------------------------

function findLayerEpilogue(walk: Walk, node: Node): LayerEpilogue | undefined {
  const experts = findExpertLayer(walk, node);
  if (experts) return findEpilogueOf(walk, node, experts, experts, { out: node, selected: undefined });
  const feedForward = findFeedForward(walk, node);
  if (!feedForward || feedForward.experts) return undefined;
  expect(!feedForward.postNorm && !feedForward.clips, OTHER_SUMS);
  return findEpilogueOf(walk, node, feedForward, gatedPart(feedForward), findSelected(walk, node));
}

/** The region of a feed-forward part with what is before it. */
function findEpilogueOf(
  walk: Walk,
  node: Node,
  { x: h, norm, scale }: Pick<FeedForward, "x" | "norm" | "scale">,
  feedForward: LayerEpilogue["feedForward"],
  selection: Pick<LayerEpilogue, "out" | "selected">,
): LayerEpilogue {
  const { mixed, x, o, bias, scale: mixerScale } = findMixerOutput(walk, h);
  const width = node.shape[node.shape.length - 1];
  expect(width <= MAX_WIDTH, `there are more than ${MAX_WIDTH} features`);
  expect(width % 8 === 0, `${width} features are no multiple of 8`);
  expect([norm.weight, x, node, ...(bias ? [bias] : [])].every((n) => isFloat(n.dtype)), "the rows are no floats");
  checkInside(walk, new Set([selection.out, ...("normed" in feedForward ? [feedForward.normed] : [])]));
  return {
    mixed,
    x,
    scales: [mixerScale, scale],
    rows: tokensOfNode(node),
    o,
    oBias: bias,
    norm: norm.weight,
    eps: norm.eps,
    feedForward,
    ...selection,
    inside: walk.inside,
  };
}

/** The rows of the last layer that the head wants: only they need to go through what follows attention. */
function findSelected(walk: Walk, node: Node): Pick<LayerEpilogue, "out" | "selected"> {
  const [gather, ...more] = walk.readers(node);
  const fits = more.length === 0 && gather?.op === "gather" && !walk.wanted.has(node) && gather.inputs[0] === node &&
    gather.inputs[1] !== node && attrsOf(gather, "gather").axis === 1 && node.shape.length === 3 && node.shape[0] === 1;
  if (!fits) return { out: node, selected: undefined };
  walk.inside.add(node);
  return { out: gather, selected: gather.inputs[1] };
}

// ---- before attention -----------------------------------------------------------------------------------------------

/** The norm of the rows whose projection a rope rotates, where it looks like that. */
function normBehind(walk: Walk, rope: Node): Node | undefined {
  try {
    const norm = walk.peek(findHeads(walk, rope, "heads").projection.x);
    return norm.op === "rmsNorm" ? norm : undefined;
  } catch (error) {
    if (error instanceof Mismatch) return undefined;
    throw error;
  }
}

function findAttentionPrologue(
  walk: Walk,
  ropes: readonly Node[],
  written: ReadonlyMap<Node, CachedHeads>,
): AttentionPrologue {
  const { queries, keys } = tellApart(walk, ropes);
  const values = valuesBeside(walk, queries ? [keys, queries] : [keys]);
  const { norm: { x, weight, eps }, q, k, v, headEps } = findPrologue(walk, queries, keys, values);
  const read = behindCast(walk, values);
  const [batch, kvHeads, rows, headDim] = keys.shape;
  const heads = queries ? queries.shape[1] : 0;
  const qkv = joint([...(q ? [q.projection] : []), k.projection, v]);
  checkSizes(qkv, heads, kvHeads, headDim);
  const small = {
    qBias: q?.projection.bias,
    kBias: k.projection.bias,
    vBias: v.bias,
    qNorm: q?.norm?.weight,
    kNorm: k.norm?.weight,
  };
  const ofHeads = Object.values(small).filter((node) => node !== undefined);
  expect(ofHeads.every(({ dtype }) => dtype === ofHeads[0].dtype), "norms and biases of heads have different dtypes");

  const appends = [keys, values].map((source) => findAppend(walk, written.get(source), kvHeads, headDim));
  const updates = appends.filter((a) => a !== undefined);
  checkAppends(updates, k.angles.perSequence ? batch : 1);
  expect([x, weight, ...ofHeads].every((n) => isFloat(n.dtype)), "the rows are no floats");
  expect(updates.every(isKnownCache), "the cache has neither floats nor codes");
  const results = [...(queries ? [queries] : []), keys, read, ...updates.map((a) => a.update)];
  const { position, freqs } = k.angles;
  const needs = [
    weight,
    ...ofHeads,
    ...[position, freqs].filter((n) => n !== undefined),
    ...updates.flatMap(({ update, start, place }) => [
      update.inputs[0],
      start,
      ...(place.kind === "paged" ? [place.table] : []),
    ]),
  ];
  checkInside(walk, new Set(results), { norm: walk.peek(k.projection.x), needs });
  for (const node of queries ? [queries, keys, read] : [keys, read]) checkReaders(walk, node);
  return {
    x,
    norm: weight,
    eps,
    qkv,
    batch,
    rows,
    heads,
    kvHeads,
    headDim,
    ...small,
    headEps,
    ropeAngles: k.angles,
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

function isElementwise(node: Node, fn: string): boolean {
  return node.op === "elementwise" && attrsOf(node, "elementwise").fn === fn;
}

/** Which of the rotated heads are queries, which attention alone reads, maybe multiplied, and which are keys. */
function tellApart(
  walk: Walk,
  ropes: readonly Node[],
): { readonly queries: Node | undefined; readonly keys: Node } {
  const isAttended = (heads: Node): boolean =>
    walk.readers(heads).length > 0 && walk.readers(heads).every((r) => isAttention(r) && r.inputs[0] === heads);
  const grows = (reader: Node): boolean => isElementwise(reader, "multiply") && isAttended(reader);
  const isQuery = (rope: Node): boolean =>
    isAttended(rope) || (walk.readers(rope).length === 1 && grows(walk.readers(rope)[0]));
  const queries = ropes.find(isQuery);
  const [keys, ...more] = ropes.filter((rope) => rope !== queries);
  expect(keys !== undefined && more.length === 0, "which rope is of q and which of k is not clear");
  return { queries, keys };
}

function checkSizes(qkv: Joint, heads: number, kvHeads: number, headDim: number): void {
  expect([16, 32, 64, 128].includes(headDim), `heads have ${headDim} features`);
  const columns = [...(heads > 0 ? [heads] : []), kvHeads, kvHeads].map((count) => count * headDim);
  expect(sameShape(qkv.columns, columns), "the matrices are no heads of q, k and v");
  expect(qkv.k <= MAX_WIDTH, `there are more than ${MAX_WIDTH} features`);
}

/** The update that writes heads into a cache, if there is one. Views that only it reads are taken. */
function findAppend(
  walk: Walk,
  found: CachedHeads | undefined,
  kvHeads: number,
  headDim: number,
): CachedHeads | undefined {
  if (!found) return undefined;
  expect(found.heads === kvHeads && found.headDim === headDim, "the cache has other heads");
  for (const node of found.path) {
    if (!walk.wanted.has(node) && walk.readers(node).every((r) => walk.inside.has(r) || r === found.update)) {
      walk.inside.add(node);
    }
  }
  return found;
}

/** Whether the kernels write numbers as a cache has them. */
function isKnownCache({ update: { dtype }, place }: Append): boolean {
  return isFloat(dtype) || (place.kind === "paged" && isCoded(dtype));
}

/** Keys and values go into like caches, at so many positions. */
function checkAppends(updates: readonly Append[], positions: number): void {
  const alike = updates.every((a) =>
    a.start === updates[0].start && placeKey(a.place) === placeKey(updates[0].place) &&
    a.update.dtype === updates[0].update.dtype
  );
  expect(updates.length !== 1 && alike, "keys and values are not cached alike");
  expect(
    updates.every((a) => sizeOf(a.start.shape) === positions),
    "sequences are rotated and cached at different positions",
  );
}

/** The projection to values that reads the same rows as others, with its bias. */
function valuesBeside(walk: Walk, ropes: readonly Node[]): Node {
  const own = new Walk(walk.graph, walk.wanted);
  const [x] = ropes.map((rope) => findHeads(own, rope, "heads").projection.x);
  const sources = new Set([x, walk.peek(x)]); // with a cast between, products read what it gives
  const product = [...sources].flatMap((n) => walk.readers(n)).find((r) => isProduct(r) && !own.inside.has(r));
  if (product !== undefined) return withBias(walk, product);
  // Or more columns of the same product.
  const isOther = (node: Node): boolean =>
    columnSlice(node) !== undefined && isProduct(walk.peek(node.inputs[0])) && !own.inside.has(node);
  const columns = [...own.inside].flatMap((n) => walk.readers(n)).find(isOther);
  expect(columns !== undefined, "there are no values beside q and k");
  return columns;
}

/**
 * The cast, if it is the only reader of a node; else the node. Values are given after their cast, as keys are, so that both have one dtype.
 */
function behindCast(walk: Walk, node: Node): Node {
  const [cast, ...others] = walk.readers(node);
  const isCast = cast?.op === "elementwise" && attrsOf(cast, "elementwise").fn === "cast" && isFloat(cast.dtype);
  return isCast && others.length === 0 && !walk.wanted.has(node) ? cast : node;
}

/** A value that becomes float16 in any case may be read by attention, by a cast, and by views of these. */
function checkReaders(walk: Walk, node: Node): void {
  expect(!walk.wanted.has(node), `the result of ${node.op} is asked for`);
  for (const reader of walk.readers(node)) {
    if (walk.inside.has(reader) || reader.op === "elementwise") continue;
    if (["reshape", "transpose", "slice", "contiguous"].includes(reader.op)) checkReaders(walk, reader);
    else expect(isAttention(reader) && !walk.graph.replaced.has(reader), `${reader.op} reads heads`);
  }
}
