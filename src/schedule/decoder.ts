/**
 * One token through a whole decoder: three dispatches a layer, as shaders/decode.glsl says.
 *
 * `regions.ts` finds a {@link Decoder} in a graph; here are the sizes it may have, the layouts of its weights and the
 * dispatches that run it.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import type { KernelName } from "../backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32, uint16, uint32 } from "../graph/dtype.ts";
import type { Node } from "../graph/node.ts";
import { emitEnd, type StepEnd } from "./decoder_end.ts";
import type { Lowering, Value } from "./lowering.ts";
import { options } from "./options.ts";
import { type Layout, prepare } from "./prepared.ts";

/** A quantized matrix (rows, columns) as nodes. */
export interface Matrix {
  readonly codes: Node;
  readonly scales: Node;
  readonly biases: Node;
}

/** One layer. `keys` and `values` are the updates of the cache, in the layout of {@link cacheBlocks}. */
export interface DecoderLayer {
  readonly norm: Node;
  readonly q: Matrix;
  readonly k: Matrix;
  readonly v: Matrix;
  readonly qNorm: Node;
  readonly kNorm: Node;
  readonly o: Matrix;
  readonly keys: Node;
  readonly values: Node;
  readonly mlpNorm: Node;
  readonly gate: Matrix;
  readonly up: Matrix;
  readonly down: Matrix;
}

/** Sizes that the kernels are specialised for. */
export interface DecoderSizes {
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly groupSize: number;
  readonly bits: number;
}

/** What all layers of a decoder share. */
export interface DecoderStep {
  readonly sizes: DecoderSizes;
  /** int32 (1,): rows of the cache before this token. */
  readonly position: Node;
  readonly capacity: number;
  readonly freqs: Node | undefined;
  readonly eps: number;
  readonly headEps: number;
  readonly scoreScale: number;
  readonly ropeScale: number;
  readonly ropeBase: number;
}

/** A decoder of one sequence and one token, found in a graph. */
export interface Decoder extends DecoderStep {
  /** The token's embedding, or the parts to look it up with. */
  readonly x: Node | { readonly ids: Node; readonly table: Matrix; readonly dtype: Dtype };
  readonly layers: readonly DecoderLayer[];
  readonly norm: Node;
  readonly head: Matrix;
  readonly vocabulary: number;
  /** The result (…, vocabulary). */
  readonly logits: Node;
  /** Its argmax. */
  readonly token: Node | undefined;
  /** Whether anything but the argmax reads the logits. */
  readonly keepsLogits: boolean;
  /** The end of a step of a loop, where the token is all that the state's rest needs. */
  readonly end: StepEnd | undefined;
}

const THREADS = 256;
/** Threads that the kernels want to exchange values by shuffles. */
const LANES = 32;
/** Copies of the residual sums: half of the workgroups add to each. */
const COPIES = 2;
/** Positions that a thread has in flight at most. */
const MOST_POSITIONS = 4;
/** Workgroups of the head: four for each of the multiprocessors of a large GPU. */
const HEAD_WORKGROUPS = 528;
/** Workgroups that open a token. */
const BEGIN_WORKGROUPS = 16;

/** Kinds of sums, the best first; a device takes the first one whose kernels it has. */
const SUMS = ["u64", "i32", "f32"] as const;
type Sums = typeof SUMS[number];

function kernel(phase: "begin" | "qkv" | "attend" | "mlp" | "head", sums: Sums): KernelName {
  return `decode_${phase}_${sums}`;
}

/** The kind of sums that decoders run with; undefined where the device has no kernels for them. */
function sumsOf(backend: Backend): Sums | undefined {
  const order = options.sums === undefined ? SUMS : [options.sums, ...SUMS];
  return order.find((sums) => backend.has(kernel("qkv", sums)));
}

/** Why the kernels cannot serve these sizes on this device; undefined when they can. */
export function decoderMisfit(backend: Backend, s: DecoderSizes): string | undefined {
  if (!sumsOf(backend)) return `${backend.name} has no decode kernels`;
  const { maxThreads, subgroup } = backend.limits;
  if (options.regions === "auto" && subgroup < LANES) return `subgroups of ${subgroup} are faster that way`;
  if (maxThreads < THREADS) return `workgroups have at most ${maxThreads} threads, ${THREADS} are needed`;
  const rules: readonly (readonly [boolean, string])[] = [
    [s.bits === 4, `weights have ${s.bits} bits, not 4`],
    [s.groupSize % 32 === 0, `the group size ${s.groupSize} is no multiple of 32`],
    [s.hidden % 128 === 0 && s.hidden <= 8192, `the hidden size ${s.hidden} is no multiple of 128 up to 8192`],
    [s.headDim % 16 === 0 && s.headDim <= 256, `the head size ${s.headDim} is no multiple of 16 up to 256`],
    [s.heads % s.kvHeads === 0 && s.heads / s.kvHeads <= 16, `${s.heads} heads do not share ${s.kvHeads} key heads`],
    [s.intermediate % 8 === 0, `the intermediate size ${s.intermediate} is no multiple of 8`],
    [s.kvHeads * s.headDim / 8 <= 2048, "there are too many key/value features"],
    [
      [s.hidden, s.intermediate, s.heads * s.headDim].every((n) => n % s.groupSize === 0),
      `groups of ${s.groupSize} do not divide the sizes`,
    ],
  ];
  return rules.find(([holds]) => !holds)?.[1];
}

/**
 * Features that lie side by side in a cache of keys and values: (B, H, D / block, capacity, block). With blocks of a whole head
 * that is the plain layout (B, H, capacity, D).
 */
export function cacheBlocks(backend: Backend, sizes: DecoderSizes): { readonly keys: number; readonly values: number } {
  const fits = options.fuse && options.regions !== "off" && decoderMisfit(backend, sizes) === undefined;
  return fits ? { keys: 4, values: 8 } : { keys: sizes.headDim, values: sizes.headDim };
}

// ---- layouts of weights -------------------------------------------------------------------------------------------------

/** The 16-bit half of packed words that holds scales (0) or biases (1). */
function half(words: Value, which: 0 | 1): Value {
  return { ...words, dtype: uint16, offset: 2 * words.offset + which, strides: words.strides.map((s) => 2 * s) };
}

/** Copies scales and biases, walked by `from` strides over `shape`, into words walked by `to` strides. */
function pack(
  l: Lowering,
  scales: Value,
  biases: Value,
  words: Value,
  shape: readonly number[],
  [fromOffset, from]: readonly [number, readonly number[]],
  [toOffset, to]: readonly [number, readonly number[]],
): void {
  const target = { ...words, shape, strides: to, offset: words.offset + toOffset };
  [scales, biases].forEach((source, i) => {
    const view = { ...source, dtype: uint16, shape, strides: from, offset: source.offset + fromOffset };
    l.copy(view, half(target, i as 0 | 1), { disjoint: true });
  });
}

function words(...shape: number[]): { readonly shape: readonly number[]; readonly dtype: Dtype } {
  return { shape, dtype: uint32 };
}

/** [workgroup][task][group][row]: see decode_qkv.comp. */
function qkvAffine({ hidden, heads, kvHeads, headDim, groupSize }: DecoderSizes): Layout {
  const per = heads / kvHeads;
  const groups = hidden / groupSize;
  const slices = headDim / 8;
  const task = 4 * groups;
  const workgroup = 2 * (per + 2) * task;
  const head = headDim * groups;
  return {
    key: `decode qkv ${heads} ${kvHeads}`,
    results: [words(kvHeads * slices, 2 * (per + 2), groups, 4)],
    emit(l, [qs, qb, ks, kb, vs, vb], [out]) {
      // (half, head of its kind, key/value head, slice, place in the half, partner, group)
      const rotated = (types: number, first: number, scales: Value, biases: Value): void =>
        pack(l, scales, biases, out, [2, types, kvHeads, slices, 2, 2, groups], [
          0,
          [2 * groups, head, types * head, 4 * groups, groups, headDim / 2 * groups, 1],
        ], [first * 2 * task, [task, 2 * task, slices * workgroup, workgroup, 2, 1, 4]]);
      rotated(per, 0, qs, qb);
      rotated(1, per, ks, kb);
      pack(l, vs, vb, out, [2, kvHeads, slices, 4, groups], [0, [4 * groups, head, 8 * groups, groups, 1]], [
        (per + 1) * 2 * task,
        [task, slices * workgroup, workgroup, 1, 4],
      ]);
    },
  };
}

/** [row][group][gate, up]. */
function gateUpAffine({ hidden, intermediate, groupSize }: DecoderSizes): Layout {
  const groups = hidden / groupSize;
  return {
    key: "decode gate up",
    results: [words(intermediate, groups, 2)],
    emit(l, [gs, gb, us, ub], [out]) {
      const shape = [intermediate, groups];
      pack(l, gs, gb, out, shape, [0, [groups, 1]], [0, [2 * groups, 2]]);
      pack(l, us, ub, out, shape, [0, [groups, 1]], [1, [2 * groups, 2]]);
    },
  };
}

/**
 * Codes [column / 8][row], scales and biases [group][row]; 128 rows as [row % 32][row / 32 % 4], since a thread takes four that
 * are 32 apart.
 */
function transposed(rows: number, columns: number, groupSize: number): Layout {
  const groups = columns / groupSize;
  return {
    key: "decode transposed",
    results: [words(columns / 8, rows), words(groups, rows)],
    emit(l, [codes, scales, biases], [out, affine]) {
      const per = columns / 8;
      const walk = (outer: number, inner: number): number[] => [outer, 128 * inner, inner, 32 * inner];
      const order = [rows, 128, 4, 1];
      const shape = [rows / 128, 32, 4];
      l.copy({ ...codes, shape: [per, ...shape], strides: walk(1, per) }, {
        ...out,
        shape: [per, ...shape],
        strides: order,
      });
      pack(l, scales, biases, affine, [groups, ...shape], [0, walk(1, groups)], [0, order]);
    },
  };
}

/** [row / 4][group][row % 4]. */
function headAffine(rows: number, hidden: number, groupSize: number): Layout {
  const groups = hidden / groupSize;
  const fours = Math.floor(rows / 4);
  return {
    key: "decode head",
    results: [words(Math.ceil(rows / 4), groups, 4)],
    emit(l, [scales, biases], [out]) {
      const part = (count: number, wide: number, at: number): void =>
        pack(l, scales, biases, out, [count, wide, groups], [at * 4 * groups, [4 * groups, groups, 1]], [
          at * 4 * groups,
          [4 * groups, 1, 4],
        ]);
      part(fours, 4, 0);
      if (rows % 4 > 0) part(1, rows % 4, fours);
    },
  };
}

/** All norm weights in one array: they are needed first, and single ones lie on memory pages that nothing else keeps warm. */
function normWeights(nodes: readonly Node[]): Layout {
  const sizes = nodes.map((node) => node.shape[0]);
  return {
    key: "decode norms",
    results: [{ shape: [sizes.reduce((sum, n) => sum + n, 0)], dtype: nodes[0].dtype }],
    emit(l, sources, [out]) {
      let offset = out.offset;
      sources.forEach((source, i) => {
        l.copy(source, { ...out, shape: source.shape, strides: [1], offset }, { disjoint: i > 0 });
        offset += sizes[i];
      });
    },
  };
}

// ---- dispatches -----------------------------------------------------------------------------------------------------------

/** Bytes of the sums of one token; the same order as in decode.glsl. */
function stateBytes(s: DecoderSizes, capacity: number, sums: Sums): number {
  const per = s.heads / s.kvHeads;
  const residual = s.hidden * COPIES * (sums === "f32" ? 4 : 8);
  const squares = Math.ceil(s.kvHeads * (per + 1) * 8 / 256) * 256;
  const key = s.kvHeads * s.headDim * 4;
  return 256 + s.headDim * 4 + 3 * residual + squares + key + s.kvHeads * Math.ceil(per / 2) * capacity * 8;
}

/** The weights of a layer in the layouts of the kernels. */
interface Prepared {
  readonly qkv: readonly Value[];
  readonly o: readonly Value[];
  readonly gateUp: readonly Value[];
  readonly down: readonly Value[];
}

/** A decoder whose weights are in place. */
export interface ReadyDecoder {
  readonly decoder: Decoder;
  readonly sums: Sums;
  readonly layers: readonly Prepared[];
  readonly head: readonly Value[];
  /** Of each layer norm, mlpNorm, qNorm and kNorm, then the last norm. */
  readonly norms: Value;
}

/** Brings the weights of a decoder into the layouts of the kernels; the reason where that cannot be. `leaf` gives values of leaves. */
export function readyDecoder(l: Lowering, d: Decoder, leaf: (node: Node) => Value | undefined): ReadyDecoder | string {
  const misfit = decoderMisfit(l.backend, d.sizes);
  if (misfit !== undefined) return misfit;
  const { hidden, intermediate, heads, headDim, groupSize } = d.sizes;
  const stored = (nodes: readonly Node[], layout: Layout): readonly Value[] | undefined => {
    const sources = nodes.map(leaf);
    return sources.every((s) => s !== undefined) ? prepare(l, sources, layout) : undefined;
  };
  const layers: Prepared[] = [];
  for (const layer of d.layers) {
    for (const update of [layer.keys, layer.values]) {
      const base = leaf(update.inputs[0]);
      if (!base || !l.mayDonate(update.inputs[0], base)) return "the cache cannot be written in place";
    }
    const qkv = stored([layer.q, layer.k, layer.v].flatMap(affine), qkvAffine(d.sizes));
    const o = stored(all(layer.o), transposed(hidden, heads * headDim, groupSize));
    const gateUp = stored([layer.gate, layer.up].flatMap(affine), gateUpAffine(d.sizes));
    const down = stored(all(layer.down), transposed(hidden, intermediate, groupSize));
    if (!qkv || !o || !gateUp || !down) return NO_ROOM;
    layers.push({ qkv, o, gateUp, down });
  }
  const head = stored(affine(d.head), headAffine(d.vocabulary, hidden, groupSize));
  const normNodes = [...d.layers.flatMap((layer) => [layer.norm, layer.mlpNorm, layer.qNorm, layer.kNorm]), d.norm];
  const norms = stored(normNodes, normWeights(normNodes));
  return head && norms ? { decoder: d, sums: sumsOf(l.backend)!, layers, head, norms: norms[0] } : NO_ROOM;
}

const NO_ROOM = "its weights are not stored as arrays of their own, or there is no memory for another layout of them";

function affine(m: Matrix): readonly Node[] {
  return [m.scales, m.biases];
}

function all(m: Matrix): readonly Node[] {
  return [m.codes, m.scales, m.biases];
}

/** Emits the dispatches of a decoder. `value` gives the value of a node outside of it, `done` takes those of its results. */
export function emitDecoder(
  l: Lowering,
  { decoder: d, sums, layers: prepared, head, norms }: ReadyDecoder,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const { sizes, capacity, layers } = d;
  const { hidden, intermediate, heads, kvHeads, headDim, groupSize } = sizes;
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const state = l.temporary([stateBytes(sizes, capacity, sums) / 4], uint32);
  const position = plain(d.position);
  const freqs = d.freqs && plain(d.freqs);
  const unroll = Math.min(MOST_POSITIONS, Math.ceil(capacity / THREADS));
  const spec = {
    HIDDEN: hidden,
    INTERMEDIATE: intermediate,
    KV_HEADS: kvHeads,
    HEADS: heads / kvHeads,
    HEAD_DIM: headDim,
    GROUP: groupSize,
    DTYPE_W: d.head.scales.dtype.code,
    DTYPE_KV: layers[0].keys.dtype.code,
    COPIES,
    SUBGROUP: Math.min(LANES, l.backend.limits.subgroup),
    UNROLL: unroll,
    ROUNDS: unroll * THREADS >= capacity ? 1 : 65536,
  };
  const push = {
    capacity,
    vocabulary: d.vocabulary,
    layer: 0,
    eps: d.eps,
    head_eps: d.headEps,
    score_scale: d.scoreScale,
    rope_scale: d.ropeScale,
    log2_base: Math.log2(d.ropeBase),
  };
  const run = (
    phase: Parameters<typeof kernel>[0],
    buffers: readonly (Value | undefined)[],
    workgroups: number,
    layer = 0,
    more: Readonly<Record<string, number>> = {},
  ): void =>
    l.emit(kernel(phase, sums), buffers, {
      threads: THREADS,
      spec: { ...spec, ...more },
      push: { ...push, layer },
      workgroups,
    });

  if ("table" in d.x) {
    const { ids, table, dtype } = d.x;
    run("begin", [state, position, undefined, plain(ids), ...all(table).map(plain), freqs], BEGIN_WORKGROUPS, 0, {
      DTYPE_X: dtype.code,
    });
  } else {
    const none = [undefined, undefined, undefined, undefined];
    run("begin", [state, position, plain(d.x), ...none, freqs], BEGIN_WORKGROUPS, 0, { DTYPE_X: d.x.dtype.code });
  }
  const normAt = (offset: number): Value => ({ ...norms, offset: norms.offset + offset });
  const workgroups = kvHeads * headDim / 8;
  layers.forEach((layer, i) => {
    const { qkv, o, gateUp, down } = prepared[i];
    const [keys, values] = [layer.keys, layer.values].map((update) => {
      const base = value(update.inputs[0]);
      l.donated.push({ base: update.inputs[0], node: update });
      done(update, base);
      return base;
    });
    const [q, k, v, gate, up] = [layer.q, layer.k, layer.v, layer.gate, layer.up].map((m) => plain(m.codes));
    const at = i * 2 * (hidden + headDim);
    const [norm, mlpNorm, qNorm, kNorm] = [0, hidden, 2 * hidden, 2 * hidden + headDim].map((o) => normAt(at + o));
    run("qkv", [state, norm, q, k, v, qkv[0], qNorm, kNorm, keys, values], workgroups, i);
    run("attend", [state, o[0], o[1], keys, values], workgroups, i);
    run("mlp", [state, mlpNorm, gate, up, gateUp[0], down[0], down[1]], workgroups, i);
  });
  const count = Math.min(HEAD_WORKGROUPS, Math.ceil(d.vocabulary / 32));
  const logits = d.keepsLogits ? l.temporary(d.logits.shape, d.logits.dtype) : undefined;
  const best = l.temporary([count, 2], uint32);
  run(
    "head",
    [state, normAt(layers.length * 2 * (hidden + headDim)), plain(d.head.codes), head[0], logits, best],
    count,
    layers.length,
    {
      DTYPE_OUT: d.logits.dtype.code,
    },
  );
  if (logits) done(d.logits, logits);
  if (d.token) emitEnd(l, best, d.token, d.end, value, done);
}

/** Dtypes that weights beside the codes may have: the two halves of a packed word. */
export function isHalf(dtype: Dtype): boolean {
  return dtype === float16 || dtype === bfloat16;
}

/** Dtypes of activations and of a cache. */
export function isFloat(dtype: Dtype): boolean {
  return dtype === float32 || isHalf(dtype);
}
