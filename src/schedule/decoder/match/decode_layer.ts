/**
 * One layer of a decoder in the graph of a step. It is the patterns of `layer.ts` around a cache and attention, of one row per sequence or
 * of a chunk of each.
 *
 * @module
 */

import { isFloat } from "../../../graph/dtype.ts";
import { isCoded } from "../../../graph/kv_codes.ts";
import { attrsOf, type Node } from "../../../graph/node.ts";
import { sizeOf } from "../../../graph/shape.ts";
import { expect, type Matrix, type Product, rowCount, Walk } from "../../plan/pattern.ts";
import { lengthsOfKeys, offsetOfPosition } from "../../plan/row_position.ts";
import { type LayerFormats, layerFormats, productsOfLayer, productUnsupportedReason } from "../formats.ts";
import { capacityOf, placeKey } from "../kv_place.ts";
import { type DecoderLayer, type DecoderSizes, type DecoderStep, type ExpertFeatures, slotsOf } from "../spec.ts";
import { type CachedHeads, cachedHeads, shownUpdate, type Update } from "./kv_update.ts";
import type { ExpertPart } from "./experts.ts";
import { findEpilogue, findPrologue, type Heads, isAttention, isUnrotated, type Prologue } from "./layer.ts";
import { findGrowth, type GrowingQueries } from "./query_growth.ts";
import { findStoredNorms } from "./stored_norms.ts";

/** A layer as found, with what all layers must share. */
export interface Layer extends DecoderLayer, DecoderStep {
  /** The residual that it reads: of all rows where it computes them. */
  readonly x: Node;
  /** How many rows of each sequence its caches get, and where the first of them stands. */
  readonly rows: number;
  readonly start: Node;
  /** The index of the row that alone is asked for, if there are more. */
  readonly selected: Node | undefined;
  /** Whether the caches hold that row already: another part has written those of a prompt. */
  readonly cached: boolean;
}

/** Attention over the caches of a layer, and where their new rows stand. */
interface CachedAttention extends GrowingQueries {
  readonly lengths: Node;
  readonly sinks: Node | undefined;
  readonly scale: number;
  readonly window: number | undefined;
  readonly keys: Update;
  readonly values: Update;
  /** How many rows of each sequence the caches get, and where the first of them stands. */
  readonly rows: number;
  readonly start: Node;
  /** Whether one of these rows alone is asked for, and where its query stands. */
  readonly takes: boolean;
  readonly position: Node;
}

/** The part before attention, with queries, and the index of the only row that is read. */
interface LayerPrologue extends Prologue {
  readonly q: Heads;
  readonly taken: Node | undefined;
}

/** The matrices of a layer, with what they are multiplied by. */
type LayerProducts = Readonly<Record<"q" | "k" | "v" | "o" | "gate" | "up" | "down", Product>>;

/** The layer whose result is `node`; undefined when it is something else. With `chunks` it computes as many rows as its caches get. */
export function findLayer(walk: Walk, node: Node, chunks: boolean): Layer | undefined {
  const { shape } = walk.peek(node);
  const many = chunks && shape.length > 1 && shape[shape.length - 2] > 1;
  const epilogue = findEpilogue(walk, node, many);
  if (!epilogue) return undefined;
  const { output: { x, o, ...output }, feedForward } = epilogue;
  const attention = findCachedAttention(walk, output.attention, many, chunks);
  const prologue = findLayerPrologue(walk, attention, x, chunks, output.gate);
  const { norm, cachedNorm, q, k, v, headEps, taken: selected } = prologue;
  const norms = [norm, feedForward.norm, output.postNorm, feedForward.postNorm].filter((n) => n !== undefined);
  expect(norms.every(({ eps }) => eps === norm.eps), "the norms have different eps");
  expect((output.postNorm === undefined) === (feedForward.postNorm === undefined), "only one part is normalised");
  expect(output.clips === feedForward.clips, "only one sum of a layer is clipped");
  expect(output.clips ? output.postNorm !== undefined : true, "sums without a norm are clipped");
  const stored = findStoredNorms(walk, {
    norm: norm.weight,
    mlpNorm: feedForward.norm.weight,
    qNorm: q.norm?.weight,
    kNorm: k.norm?.weight,
    attentionPostNorm: output.postNorm?.weight,
    mlpPostNorm: feedForward.postNorm?.weight,
  });
  expect(output.scale === feedForward.scale, "attention and the feed-forward part are added with different factors");
  const { gate, up, down, activation, experts, shared } = feedForward;
  const products = { q: q.projection, k: k.projection, v, o, gate, up, down };
  const matrices = { ...matricesOf(products), router: experts?.router.matrix, shared };
  const { keys, values, rows, start, takes: selects, position, scale, window, growth } = attention;
  return {
    ...matrices,
    formats: formatsOf(matrices),
    ...stored.weights,
    clips: output.clips,
    qBias: q.projection.bias,
    kBias: k.projection.bias,
    vBias: v.bias,
    oBias: o.bias,
    sinks: attention.sinks,
    expertBiases: experts?.biases,
    keys: keys.update,
    values: values.update,
    x: selects && chunks ? cachedNorm.x : x,
    rows,
    start,
    selected,
    cached: selects && !chunks,
    sizes: sizesOf(attention, products, experts, output.gate !== undefined),
    features: {
      ...(experts && { experts: featuresOf(experts) }),
      ...(output.gate && { gated: true }),
      ...(o.bias && { outputBias: true }),
      ...(attention.sinks && { sinks: true }),
      headNorm: k.norm !== undefined,
      postNorm: output.postNorm !== undefined,
      normOffset: stored.offset,
      qkvBias: v.bias !== undefined,
      activation,
      ropeForm: q.angles.form,
      ropeDims: q.angles.dims,
    },
    layout: { keys: keys.block, values: values.block },
    position,
    cache: keys.place,
    eps: norm.eps,
    headEps,
    scoreScale: scale,
    growth,
    residualScale: output.scale,
    window,
    rope: { base: q.angles.base, scale: q.angles.scale, factor: q.angles.factor, freqs: q.angles.freqs },
  };
}

function featuresOf({ count, chosen, among, shared, biases }: ExpertPart): ExpertFeatures {
  return { count, chosen, among, ...(shared && { shared }), ...(biases && { biases: true }) };
}

function matricesOf({ q, k, v, o, gate, up, down }: LayerProducts): Readonly<Record<keyof LayerProducts, Matrix>> {
  return {
    q: q.matrix,
    k: k.matrix,
    v: v.matrix,
    o: o.matrix,
    gate: gate.matrix,
    up: up.matrix,
    down: down.matrix,
  };
}

/** Attention that reads the caches which the same graph writes, up to the new rows. */
function findCachedAttention(walk: Walk, node: Node, many: boolean, chunks: boolean): CachedAttention {
  const op = isAttention(node) ? node.op : "attention";
  const attention = walk.take(node, op, "what the output projection reads");
  const { scale, mask, hasLengths, window } = attrsOf(attention, "attention");
  expect(
    mask === (many ? "causal" : "none") && hasLengths,
    many ? "a chunk is not causal, or has no lengths" : "attention has a mask, or no lengths",
  );
  const [given, cachedKeys, cachedValues, lengths, heads] = attention.inputs;
  const keys = updated(walk, cachedKeys, "keys", chunks);
  const values = updated(walk, cachedValues, "values", chunks);
  const start = walk.peekIndex(keys.start);
  const rows = keys.count;
  const takes = rows > 1 && !many;
  const growing = findGrowth(walk, given, start);
  const { query } = growing;
  const position = takes ? positionOf(walk, query) : start;
  expect(takes || query.shape[2] === rows, "attention has other rows than the cache gets");
  expect(sizeOf(position.shape) === query.shape[0], "the cache is not written at a position of each sequence");
  expect(
    walk.peekIndex(values.start) === start && values.count === rows && placeKey(values.place) === placeKey(keys.place),
    "keys and values are written at different rows",
  );
  if (!takes) expect(walk.sum(lengths, position, rows), "the lengths of attention do not end with the new rows");
  const sinks = heads && walk.stripViews(heads);
  return { ...growing, lengths, sinks, scale, window, keys, values, rows, start, takes, position };
}

/** Norm, projections and rotation of the rows that attention and the caches read; `x` is the residual of the layer, `gate` that of heads. */
function findLayerPrologue(
  walk: Walk,
  attention: CachedAttention,
  x: Node,
  chunks: boolean,
  gate: Node | undefined,
): LayerPrologue {
  const { query, keys, values, rows, takes } = attention;
  // Rows beside the one that is taken have a walk of their own, and without chunks are no part of this layer.
  const other = takes ? new Walk(walk.graph, walk.wanted) : walk;
  const written = rows > 1 ? [keys, values].map(headsOf) : [];
  const [newKeys, newValues] = rows > 1 ? written.map(({ source }) => source) : [keys.rows, values.rows];
  const found = findPrologue(walk, query, newKeys, newValues, other, query.shape[3], gate);
  const prologue = { ...found, q: found.q! };
  checkRotation(prologue, attention);
  const taken = takes ? findTaken(walk, prologue, attention) : undefined;
  expect(attention.row === taken || !attention.growth, "queries grow by the position of another row");
  expect(walk.peek(found.norm.x) === walk.peek(x), "the norm and the residual of attention differ");
  const row = walk.stripViews(found.norm.x);
  if (chunks && rows > 1) {
    walk.stripViews(x);
    const nodes = [...other.inside, ...written.flatMap(({ path }) => path), ...(takes ? [row] : [])];
    for (const n of nodes) walk.inside.add(n);
  }
  return { ...prologue, taken };
}

/** Queries are rotated to their position, keys to where they are cached; or neither is rotated. */
function checkRotation({ q, k }: Prologue & { readonly q: Heads }, { position, start }: CachedAttention): void {
  if (isUnrotated(q.angles) && isUnrotated(k.angles)) return;
  const perSequence = sizeOf(position.shape) !== 1;
  expect(
    q.angles.position === position && q.angles.perSequence === perSequence,
    "q is not rotated to the position of its sequence in the cache",
  );
  expect(
    k.angles.position === start && k.angles.perSequence === perSequence,
    "k is not rotated to the rows where it is cached",
  );
}

/** The index, among the rows that the caches get, of the one that attention is asked for. */
function findTaken(walk: Walk, { norm, cachedNorm }: Prologue, attention: CachedAttention): Node {
  const { position, start, lengths, keys } = attention;
  const taken = selectedRow(walk, norm.x, cachedNorm.x, position, start);
  expect(taken !== undefined, "q reads another row than that of its position");
  expect(seesUpTo(walk, lengths, taken, keys), "attention sees other keys than those up to its row");
  return taken;
}

/** The sizes that the matrices of a layer have together. */
function sizesOf(
  { query, keys, values }: CachedAttention,
  products: LayerProducts,
  experts: ExpertPart | undefined,
  gated: boolean,
): DecoderSizes {
  const { q, k, v, o, gate, up, down } = products;
  const columns = ({ matrix }: Product): number => rowCount(matrix);
  const { count = 1 } = experts ?? {};
  const [, heads, , headDim] = query.shape;
  const sizes: DecoderSizes = {
    hidden: columns(down) / count,
    intermediate: columns(gate) / count * slotsOf({ experts }),
    heads,
    kvHeads: keys.heads,
    headDim,
  };
  const { hidden, kvHeads } = sizes;
  expect(
    columns(q) === (gated ? 2 : 1) * heads * headDim && columns(k) === kvHeads * headDim &&
      columns(v) === kvHeads * headDim &&
      columns(o) === hidden && columns(up) === columns(gate) && values.heads === kvHeads,
    "the sizes of the matrices do not fit together",
  );
  return sizes;
}

/** The formats of the products of a layer. */
function formatsOf(matrices: Parameters<typeof layerFormats>[0]): LayerFormats {
  for (const product of Object.values(productsOfLayer(matrices))) {
    const reason = productUnsupportedReason(product);
    expect(reason === undefined, reason!);
  }
  return layerFormats(matrices);
}

/** Where rotated heads stand. */
function positionOf(walk: Walk, node: Node): Node {
  const rope = walk.peek(node);
  expect(rope.op === "rope" && attrsOf(rope, "rope").offsetInput === "scalar", "q is not rotated to a position");
  return walk.peekIndex(rope.inputs[1]);
}

/** Where the rows of a cache's update come from: rotated keys, or the projection to values. */
function headsOf({ update }: Update): CachedHeads {
  const found = cachedHeads(update);
  expect(found !== undefined, "the rows of a cache are not known");
  return found;
}

/** The index of `row` among x if it is the row cached at `position`, and the cache gets all of them from `start` on. */
function selectedRow(walk: Walk, row: Node, x: Node, position: Node, start: Node): Node | undefined {
  const gather = walk.peek(row);
  if (gather.op !== "gather" || attrsOf(gather, "gather").axis !== 1 || walk.peek(gather.inputs[0]) !== walk.peek(x)) {
    return undefined;
  }
  const [, index] = gather.inputs;
  const offset = offsetOfPosition(position, index, gather.inputs[0].shape[1]);
  return offset && walk.peekIndex(offset) === start ? index : undefined;
}

/** Whether `lengths` are the keys up to row `index` of those that a cache is given from `start` on, and of those before. */
function seesUpTo(walk: Walk, lengths: Node, index: Node, { place, count, start }: Update): boolean {
  const all = lengthsOfKeys(walk.peekIndex(lengths), capacityOf(place), index, count);
  return all !== undefined && walk.sum(all, walk.peekIndex(start), count);
}

/** The update that attention sees: in place, by one row of each sequence, or by more of one; with `chunks` by more of each. */
function updated(walk: Walk, node: Node, kind: "keys" | "values", chunks: boolean): Update {
  const shown = shownUpdate(node);
  expect(shown !== undefined, `the ${kind} are not those of a cache`);
  const { update, count, sequences, views } = shown;
  expect(count === 1 || sequences === 1 || chunks, `${count} rows of several sequences are cached at once`);
  const isKnown = isFloat(update.dtype) || (shown.place.kind === "paged" && isCoded(update.dtype));
  expect(isKnown && update.inputs[0].op !== "data", `the cached ${kind} are ${update.dtype.name}`);
  for (const n of count === 1 || chunks ? [...views, update] : views) walk.inside.add(n);
  return shown;
}
