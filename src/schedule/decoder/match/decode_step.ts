/**
 * Regions: sequences of nodes in plain model code that a few fused kernels compute together.
 *
 * One region is known: a decoder step, that is embedding, layers of attention and feed-forward part over a cache, head and argmax. A part of
 * a model has hidden states in the places of the embedding and the head. A step has one token of a sequence, one of each of several, or a chunk of few tokens of one. Of a chunk the last layer may compute no more than the
 * row that the head reads. The last layer of a prompt, which does so, is one too. The matcher walks from the result up. Every shape, dtype
 * and attribute that the kernels assume is checked, and every node inside must be read inside only. A graph that does not match is lowered
 * op by op, with the same answers. `VKMX_EXPLAIN=1` prints on stderr which nodes were taken, or why not.
 *
 * @module
 */

import type { StateUpdate } from "../../plan/fusion.ts";
import { float32, isFloat, isHalf, uint32 } from "../../../graph/dtype.ts";
import { attrsOf, Node } from "../../../graph/node.ts";
import { DENSE, type MatrixFormat, smallFloatMode } from "../../../graph/quantization.ts";
import { sizeOf } from "../../../graph/shape.ts";
import {
  type DecoderSpec,
  headTokensOf,
  kindsOf,
  MAX_ROPES,
  MAX_SEQUENCES,
  slotsOf,
  type TokenChunk,
} from "../spec.ts";
import { type DecoderHead, headOf, resultOf, updatesOf } from "../ends.ts";
import { findSamplingTail } from "./sampling_tail.ts";
import { findLayer, type Layer } from "./decode_layer.ts";
import { updateOf } from "./kv_update.ts";
import { findRecurrentLayer, type FoundRecurrent } from "./recurrent.ts";
import { isAttention, unscaled } from "./layer.ts";
import { findStoredNorms } from "./stored_norms.ts";
import { isDense, productsOfLayer, productUnsupportedReason } from "../formats.ts";
import { capacityOf, placeKey } from "../kv_place.ts";
import { productsOfNet, type RecurrentPart, resultsOfNet } from "../recurrent_layer.ts";
import {
  expect,
  type GraphView,
  isFn,
  type Matrix,
  Mismatch,
  parametersOf,
  rowCount,
  Walk,
} from "../../plan/pattern.ts";

/** A decoder, and the nodes that it computes. */
export interface DecoderRegion {
  readonly decoder: DecoderSpec;
  /** Where it stands in the order: its logits. */
  readonly last: Node;
  /** Nodes that need no lowering of their own. */
  readonly inside: ReadonlySet<Node>;
  /** Whether it comes after everything else: it ends a prompt, whose layers read the state that it overwrites. */
  readonly runsLast: boolean;
}

/** The attention of the last layer, by the kind of step. A chunk is there only where the graph writes one into a cache. */
export interface LastAttention {
  readonly chunk: Node | undefined;
  readonly token: Node | undefined;
}

/** Where the last layer of a decoder may be in a graph. */
export function findLastAttention(graph: GraphView): LastAttention {
  let last: Node | undefined;
  let token: Node | undefined;
  let hasChunk = false;
  for (const node of graph.order) {
    hasChunk ||= writesChunk(node);
    if (!isAttention(node) || !attrsOf(node, "attention").hasLengths) continue;
    last = node;
    if (node.shape[2] === 1) token = node;
  }
  return { chunk: hasChunk ? last : undefined, token };
}

/**
 * The decoder of one token in a graph, or with `chunks` of a chunk. A reason if the graph has something similar that does not match; else
 * undefined.
 */
export function findDecoder(
  graph: GraphView,
  wanted: ReadonlySet<Node>,
  state: readonly StateUpdate[],
  chunks: boolean = false,
  { chunk, token }: LastAttention = findLastAttention(graph),
): DecoderRegion | string | undefined {
  const attention = chunks ? chunk : token;
  if (!attention) return undefined;
  const [sequences, , rows] = attention.shape;
  const isOfAll = ({ shape }: Node): boolean => sizeOf(shape) === sequences * rows * shape[shape.length - 1];
  const walk = new Walk(graph, wanted);
  const hidden = graph.order.findLast((node) => wanted.has(node) && isOfAll(node) && isHidden(walk, node));
  // The head is the last product of those rows.
  const head = (op: Node["op"]): Node | undefined => graph.order.findLast((n) => n.op === op && isOfAll(n));
  const logits = head("quantizedMatmul") ?? head("matmul");
  const found = attempt(() => {
    const part = hidden && findPart(walk, hidden, state, chunks);
    if (part || logits) return part ?? findWhole(new Walk(graph, wanted), logits!, state, chunks);
    return "there is no head";
  });
  if (typeof found !== "string") return found;
  // Others read what the head reads, as where a head drafts: then the layers are a part that ends before the last norm.
  const shared = graph.order.findLast((node) => node.op === "rmsNorm" && isOfAll(node) && isShared(walk, node));
  const last = shared && walk.peek(shared.inputs[0]);
  if (!last || !isFn(last, "add")) return found;
  const part = attempt(() => findPart(new Walk(graph, wanted), last, state, chunks));
  if (typeof part === "object") return part;
  return found;
}

/** What `find` gives, or why there is nothing. */
function attempt<T>(find: () => T): T | string {
  try {
    return find();
  } catch (error) {
    if (error instanceof Mismatch) return error.message;
    throw error;
  }
}

/** Whether a node may be what a layer adds up. */
function isHidden(walk: Walk, node: Node): boolean {
  const shown = walk.peek(node);
  return isFloat(node.dtype) && node.shape.length > 1 && (isFn(shown, "add") || isFn(shown, "minimum"));
}

/** Whether a product and others read a norm, or it is asked for too. The products of a layer alone read its norms. */
function isShared(walk: Walk, norm: Node): boolean {
  const readers = readersOfViews(walk, norm);
  const products = readers.filter(({ op }) => op === "quantizedMatmul" || op === "matmul").length;
  return products > 0 && (products < readers.length || walk.wanted.has(norm));
}

/** What reads a node, maybe through views that are not asked for. */
function readersOfViews(walk: Walk, node: Node): readonly Node[] {
  return walk.readers(node).flatMap((reader) =>
    walk.isView(reader) && !walk.wanted.has(reader) ? readersOfViews(walk, reader) : [reader]
  );
}

/** Whether a node writes a chunk into a cache. */
function writesChunk(node: Node): boolean {
  const update = updateOf(node);
  return update !== undefined && update.count > 1 && update.sequences * update.count <= MAX_SEQUENCES;
}

/** A decoder with a head, whose logits are a `product`. */
function findWhole(walk: Walk, product: Node, state: readonly StateUpdate[], chunks: boolean): DecoderRegion {
  const head = walk.product(product, "the head");
  const headReason = productUnsupportedReason([head.matrix]);
  expect(headReason === undefined, `of the head: ${headReason}`);
  const last = walk.norm(head.x, "the final norm");
  const { weights: { norm }, offset } = findStoredNorms(walk, { norm: last.weight });
  const found = findLayers(walk, last.x, chunks, state);
  expect(found !== undefined, "no layer was found below the head");
  const { layers } = found;
  const [first] = layers;
  expect(last.eps === first.eps, "the norms have different eps");
  expect(offset === first.features.normOffset, "norms have different offsets of their weights");
  const isAlike = first.features.experts !== undefined || isDense(first.q) === isDense(head.matrix);
  expect(isAlike, DENSE_AND_QUANTIZED);
  const { late, ...ending } = findEnd(walk, product, layers, chunks ? chunkOf(layers) : undefined, state);
  const vocabulary = product.shape[product.shape.length - 1];
  return regionOf(walk, found, { norm, head: head.matrix, vocabulary, ...ending }, chunks, state, late);
}

/** A part of a decoder, which ends with the residual after its last layer; undefined if `node` is none. */
function findPart(
  walk: Walk,
  node: Node,
  state: readonly StateUpdate[],
  chunks: boolean,
): DecoderRegion | undefined {
  const found = findLayers(walk, node, chunks, state);
  if (!found) return undefined;
  const isWhole = found.layers.every(({ selected, cached }) => !selected && !cached);
  expect(isWhole, "rows are left out before the last layer of a model");
  return regionOf(walk, found, { hidden: node, hiddenState: replacedBy(walk, node, state) }, chunks, state, false);
}

/** The decoder of some layers, and the nodes that it computes. */
function regionOf(
  walk: Walk,
  { layers, recurrent, x }: FoundLayers,
  out: DecoderSpec["out"],
  chunks: boolean,
  state: readonly StateUpdate[],
  runsLast: boolean,
): DecoderRegion {
  const [first] = layers;
  const chunk = chunks ? chunkOf(layers) : undefined;
  const decoder: DecoderSpec = {
    sizes: first.sizes,
    features: first.features,
    layout: first.layout,
    chunk,
    x: embedding(walk, x, first.features.experts && "head" in out ? out.head : first.q),
    layers,
    recurrent,
    position: chunk ? first.start : layers[layers.length - 1].position,
    cache: first.cache,
    eps: first.eps,
    headEps: first.headEps,
    scoreScale: first.scoreScale,
    growth: first.growth,
    residualScale: first.residualScale,
    clips: first.clips,
    out,
  };
  checkDtypes(decoder);
  const end = headOf(decoder)?.end;
  const updates = end ? updatesOf(end) : [];
  takeResults(walk, decoder, layers, updates);
  if (runsLast) checkLast(walk, state, updates);
  takeDead(walk, decoder);
  return { decoder, last: resultOf(decoder), inside: walk.inside, runsLast };
}

/** The state that a result replaces and nothing reads. */
function replacedBy(walk: Walk, result: Node, state: readonly StateUpdate[]): Node | undefined {
  return state.find(({ parameter, value }) => value === result && walk.readers(parameter).length === 0)?.parameter;
}

/** The layers of a decoder, and what the first one reads. */
interface FoundLayers {
  readonly layers: readonly Layer[];
  readonly recurrent: RecurrentPart | undefined;
  readonly x: Node;
}

/**
 * The layers whose last one gives `x`, the first one first; undefined if there is none. They end where experts take the place of a
 * feed-forward part, or it theirs.
 */
function findLayers(
  walk: Walk,
  x: Node,
  chunks: boolean,
  state: readonly StateUpdate[],
): FoundLayers | undefined {
  const layers: Layer[] = [];
  const recurrent: (FoundRecurrent & { readonly after: number })[] = [];
  const mayRecur = walk.graph.order.some(({ op }) => op === "gatedDelta");
  let at = x;
  for (;;) {
    let own = new Walk(walk.graph, walk.wanted);
    const found = mayRecur ? findRecurrentLayer(own, at, state) : undefined;
    if (!found) own = new Walk(walk.graph, walk.wanted);
    const layer = found ? undefined : findLayer(own, at, chunks);
    const isLike = layer && (layers.length === 0 || !layer.features.experts === !layers[0].features.experts);
    if (!found && !isLike) break;
    for (const node of own.inside) walk.inside.add(node);
    if (found) recurrent.unshift({ ...found, after: layers.length });
    else layers.unshift(layer!);
    at = (found ?? layer!).x;
  }
  if (layers.length + recurrent.length === 0) return undefined;
  expect(layers.length > 0, "no layer has attention");
  for (const [i, layer] of layers.entries()) checkLikeFirst(layer, layers[0], i);
  const kinds = kindsOf(layers).length;
  expect(kinds <= MAX_ROPES, `the layers have ${kinds} different ropes and windows, not up to ${MAX_ROPES}`);
  return { layers, recurrent: recurrentPart(recurrent, layers), x: at };
}

/** The recurrent layers of a decoder, `after` as many layers with attention as come later. */
function recurrentPart(
  found: readonly (FoundRecurrent & { readonly after: number })[],
  layers: readonly Layer[],
): RecurrentPart | undefined {
  if (found.length === 0) return undefined;
  const [{ net, dtype, unitEps, outputEps }] = found;
  const [{ eps, sizes, features, residualScale, clips, rows, selected, cached }] = layers;
  const shared = JSON.stringify([net, unitEps, outputEps]);
  for (const other of found) {
    const { feedForward: { gate, experts, activation }, layer } = other;
    const alike = JSON.stringify([other.net, other.unitEps, other.outputEps]) === shared && other.dtype === dtype;
    expect(alike, "recurrent layers differ");
    const { count = 1 } = experts ?? {};
    const isLike = other.eps === eps && activation === features.activation && rowCount(layer.o) === sizes.hidden &&
      rowCount(gate.matrix) / count * slotsOf({ experts }) === sizes.intermediate &&
      experts?.count === features.experts?.count && experts?.chosen === features.experts?.chosen &&
      experts?.among === features.experts?.among && experts?.shared === features.experts?.shared &&
      !experts?.biases;
    expect(isLike, "recurrent layers have other sizes or features than those with attention");
  }
  expect(
    residualScale === 1 && !clips && !features.postNorm,
    "layers with attention add otherwise than recurrent ones",
  );
  const [{ position }] = layers;
  const isOfRows = found.every((net) => net.rows[0] === sizeOf(position.shape) && net.rows[1] === rows);
  expect(isOfRows && !selected && !cached, "recurrent layers have other rows than those with attention");
  const before = (after: number): number => layers.length - after;
  return {
    net,
    dtype,
    unitEps,
    outputEps,
    layers: found.map(({ layer, after }) => ({ ...layer, before: before(after) })),
  };
}

/** The tokens that go through the layers of a chunk; the last layer may leave some out. */
function chunkOf(layers: readonly Layer[]): TokenChunk {
  const { selected } = layers[layers.length - 1];
  expect(layers.every((l, i) => !l.selected || i === layers.length - 1), "a layer leaves rows out");
  expect(!selected || sizeOf(layers[0].start.shape) === 1, "rows of several sequences are left out");
  expect(!selected || selected.dtype === uint32, "the row of the head is no uint32"); // others may count from the end
  return { count: layers[0].rows, selected };
}

/** The end of a step, after the logits. `late` ends come after everything else: they end a prompt. */
interface StepEnd extends Omit<DecoderHead, "norm" | "head" | "vocabulary"> {
  readonly late: boolean;
}

/** Finds the readers of the logits, which the head's `product` gives. */
function findEnd(
  walk: Walk,
  product: Node,
  layers: readonly Layer[],
  chunk: TokenChunk | undefined,
  state: readonly StateUpdate[],
): StepEnd {
  const [first] = layers;
  const { position, selected } = layers[layers.length - 1];
  const logits = walk.upward(product);
  // The caches hold the row of a prompt already; one of many rows is only the last layer's.
  const isPrompt = first.cached || selected !== undefined;
  const tail = chunk && !selected ? undefined : findSamplingTail(walk, logits, position, state, isPrompt);
  // The head finds the largest logits of all tokens, not of those that a mask allows.
  const found = (isPrompt || !tail?.end.fed) && !tail?.end.mask ? tail : undefined;
  const token = found ? undefined : argmax(walk, logits, headTokensOf({ position: first.start, chunk }));
  const keepsLogits = walk.wanted.has(logits) || (!token && !found) ||
    walk.readers(logits).some((r) => !walk.inside.has(r) && !found?.inside.has(r));
  // Penalised logits are not those that others ask for.
  const end = found && !(keepsLogits && found.end.penalty) ? found : undefined;
  const late = isPrompt && end !== undefined;
  if (first.cached) expect(late && !keepsLogits, "more is asked of the last row of a prompt than its token");
  walk.inside.delete(logits);
  if (token) walk.inside.delete(token);
  for (const node of end?.inside ?? []) walk.inside.add(node);
  return { logits, logitsState: replacedBy(walk, logits, state), token, keepsLogits, end: end?.end, late };
}

/** Takes the results of a region. All else in it is read inside only, and so are the caches. */
function takeResults(
  walk: Walk,
  decoder: DecoderSpec,
  layers: readonly Layer[],
  updates: readonly StateUpdate[],
): void {
  const states = decoder.recurrent?.layers.flatMap(resultsOfNet) ?? [];
  const token = headOf(decoder)?.token;
  const results = new Set<Node>([
    resultOf(decoder),
    ...layers.flatMap((l) => l.cached ? [] : [l.keys, l.values]),
    ...states,
  ]);
  if (token) results.add(token);
  for (const update of updates) results.add(update.value);
  for (const node of walk.inside) {
    if (results.has(node)) continue;
    expect(!walk.wanted.has(node), `the result of ${node.op} is asked for`);
    const outside = walk.readers(node).find((r) => !walk.inside.has(r) && !results.has(r));
    expect(outside === undefined, `${outside?.op} also reads the result of ${node.op}`);
  }
  for (const update of layers.flatMap(({ keys, values }) => [keys, values])) {
    const outside = walk.readers(update).find((r) => !walk.inside.has(r));
    expect(outside === undefined, `${outside?.op} also reads the cache`);
  }
  for (const node of results) walk.inside.add(node);
}

/** No node outside reads the new state, and the other state in it is no view of overwritten memory. */
function checkLast(walk: Walk, state: readonly StateUpdate[], updates: readonly StateUpdate[]): void {
  for (const { value } of updates) {
    const outside = walk.readers(value).find((r) => !walk.inside.has(r));
    expect(outside === undefined, `${outside?.op} also reads the new state`);
  }
  const own = new Set(updates.map(({ value }) => value));
  const stays = ({ parameter, value }: StateUpdate): boolean =>
    own.has(value) || value === parameter || value.inputs[0] === parameter;
  expect(state.every(stays), "other state is computed anew");
}

/** Takes what only the region read and the kernels do not need, such as the lengths of attention. */
function takeDead(walk: Walk, decoder: DecoderSpec): void {
  const { position, cache, recurrent } = decoder;
  const { norm, head, end } = headOf(decoder) ?? {};
  const table = cache.kind === "paged" ? cache.table : undefined;
  const needed = new Set<unknown>([position, table, norm, end?.fed, end?.settings, ...Object.values(head ?? {})]);
  if ("table" in decoder.x) {
    for (const node of [decoder.x.ids, ...Object.values(decoder.x.table)]) {
      needed.add(node);
    }
  } else needed.add(decoder.x);
  const need = (part: unknown): void => {
    if (part instanceof Node) needed.add(part);
    else if (typeof part === "object" && part !== null) Object.values(part).forEach(need);
  };
  for (const layer of [...decoder.layers, ...recurrent?.layers ?? []]) Object.values(layer).forEach(need);
  for (const layer of decoder.layers) needed.add(layer.keys.inputs[0]).add(layer.values.inputs[0]);
  for (const node of walk.graph.order.toReversed()) {
    if (needed.has(node) || walk.wanted.has(node) || walk.inside.has(node)) continue;
    if (walk.readers(node).every((r) => walk.inside.has(r))) walk.inside.add(node);
  }
}

/** The embedding of tokens in a table that is dense or quantized as a matrix is, or the rows as they are. */
function embedding(walk: Walk, node: Node, like: Matrix): DecoderSpec["x"] {
  const { node: unfactored, scale } = unscaled(walk, node);
  const row = walk.peek(unfactored);
  const format = tableFormat(row);
  if (!format || isDense(format) !== isDense(like)) return node;
  const gathers = (row.op === "dequantize" ? row.inputs : [row]).map((n) => walk.peek(n));
  const [ids] = gathers.map((g) => g.op === "gather" ? walk.peekIndex(g.inputs[1]) : undefined);
  const same = gathers.every((g) =>
    g.op === "gather" && attrsOf(g, "gather").axis === 0 && walk.peekIndex(g.inputs[1]) === ids
  );
  const [codes, scales, biases] = gathers.map((g) => g.inputs[0]);
  if (
    !same || !ids || ids.dtype.bytes !== 4 || ids.dtype.kind === "float" || codes.shape.length !== 2 ||
    !(format.mode || isHalf((scales ?? codes).dtype))
  ) return node;
  // Readers from outside keep the parts as they are.
  const parts: Node[] = [];
  const collect = (n: Node): void => {
    if (n.op === "full") return; // others may read the same one
    parts.push(n);
    if (n.op !== "gather") n.inputs.forEach(collect);
  };
  collect(node);
  const own = new Set([...parts, ...walk.inside]);
  if (parts.some((n) => walk.wanted.has(n) || walk.readers(n).some((r) => !own.has(r)))) {
    return node;
  }
  const table: Matrix = { codes, scales, biases, ...format };
  if (productUnsupportedReason([table]) !== undefined) return node;
  for (const part of parts) walk.inside.add(part);
  return { ids, table, scale, dtype: row.dtype };
}

/** The format of a table whose rows a node makes numbers of; undefined if it does not, or kernels do not read it. */
function tableFormat(row: Node): MatrixFormat | undefined {
  if (row.op === "gather") return DENSE;
  if (row.op !== "dequantize") return undefined;
  const { bits, groupSize, mode } = attrsOf(row, "dequantize");
  const small = smallFloatMode(mode);
  return { bits, groupSize, ...(small && { mode: small }) };
}

/** The argmax of rows that reads them, and nothing else between. */
function argmax(walk: Walk, logits: Node, rows: number): Node | undefined {
  const reader = walk.readers(logits).find((r) => r.op === "reduce" && attrsOf(r, "reduce").fn === "argmax");
  if (!reader || sizeOf(reader.shape) !== rows || reader.dtype !== uint32) return undefined;
  walk.inside.add(reader);
  return reader;
}

/** Fields that all layers must share, since kernels get them once; their ropes and windows may differ. */
const ALIKE: Readonly<Record<string, (layer: Layer) => unknown>> = {
  "sizes": (l) => JSON.stringify(l.sizes),
  "features": (l) => JSON.stringify(l.features),
  "layouts of caches": (l) => JSON.stringify(l.layout),
  "numbers of rows": (l) => l.rows,
  "capacities": (l) => capacityOf(l.cache),
  "pages": (l) => placeKey(l.cache),
  "eps of norms": (l) => l.eps,
  "eps of the norms of heads": (l) => l.headEps,
  "scales of scores": (l) => l.scoreScale,
  "growth of queries": (l) => JSON.stringify(l.growth),
  "factors of what they add": (l) => l.residualScale,
  "bounds of the residual": (l) => l.clips,
  "dtypes of caches": (l) => l.keys.dtype,
  "positions": (l) => l.start,
};

const DENSE_AND_QUANTIZED = "some matrices are dense and others quantized";

/** Layer `i` must be like the first one, but for its kind. */
function checkLikeFirst(layer: Layer, first: Layer, i: number): void {
  const other = Object.keys(ALIKE).find((what) => ALIKE[what](layer) !== ALIKE[what](first));
  expect(other === undefined, `layers 0 and ${i} have different ${other}`);
  const matrices = Object.values(productsOfLayer(layer)).flat();
  const isAlike = layer.features.experts !== undefined || matrices.every((m) => isDense(m) === isDense(first.q));
  expect(isAlike, DENSE_AND_QUANTIZED);
  expect(layer.keys.dtype === layer.values.dtype, "keys and values have different dtypes");
}

function checkDtypes(d: DecoderSpec): void {
  const head = headOf(d);
  const weights = head ? [head.norm, ...parametersOf(head.head)] : [];
  for (const l of d.layers) {
    const norms = [l.qNorm, l.kNorm, l.attentionPostNorm, l.mlpPostNorm];
    const optional = [...norms, l.qBias, l.kBias, l.vBias, l.oBias, l.sinks, ...Object.values(l.expertBiases ?? {})]
      .filter((node) => node !== undefined);
    weights.push(l.norm, l.mlpNorm, ...optional);
    weights.push(...Object.values(productsOfLayer(l)).flat().flatMap(parametersOf));
  }
  for (const l of d.recurrent?.layers ?? []) {
    weights.push(l.norm, l.mlpNorm, l.conv, l.outputNorm);
    weights.push(...Object.values(productsOfNet(l)).flat().flatMap(parametersOf));
    expect([l.logRate, l.dtBias].every((node) => isFloat(node.dtype)), "the rates of decay are no floats");
  }
  if ("table" in d.x) weights.push(...parametersOf(d.x.table));
  const [{ dtype }] = weights;
  expect(
    isHalf(dtype) && weights.every((w) => w.dtype === dtype),
    "scales or dense weights, norm weights and biases are not all float16 or all bfloat16",
  );
  expect("table" in d.x || isFloat(d.x.dtype), "the activations are no floats");
  expect(isFloat(resultOf(d).dtype), "the logits are no floats");
  expect(
    d.layers.every(({ rope }) => (rope.freqs?.dtype ?? float32) === float32),
    "the frequencies of rope are no float32",
  );
  const indices = [d.position, ...(d.cache.kind === "paged" ? [d.cache.table] : [])];
  expect(indices.every(({ dtype }) => dtype.bytes === 4), "the positions or pages are no int32");
}
