/**
 * One token of a sequence, or of several, through a whole decoder: three dispatches a layer, as shaders/decode.glsl says.
 *
 * `regions.ts` finds a {@link Decoder} in a graph; here are the sizes it may have, the layouts of its weights and the
 * dispatches that run it.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import type { KernelName } from "../backend/kernels.ts";
import { bfloat16, type Dtype, float16, float32, uint32 } from "../graph/dtype.ts";
import type { Node } from "../graph/node.ts";
import { sizeOf } from "../graph/shape.ts";
import { emitEnd, endsInHead, type HeadResults, headResults, replaced, type StepEnd } from "./decoder_end.ts";
import type { Lowering, Value } from "./lowering.ts";
import type { DrawBuffers } from "./sampling.ts";
import { options } from "./options.ts";
import { gateUpAffine, headAffine, normWeights, qkvAffine, transposed } from "./decoder_layouts.ts";
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
  /** int32 (sequences,): rows of the cache before this token. */
  readonly position: Node;
  readonly capacity: number;
  readonly freqs: Node | undefined;
  readonly eps: number;
  readonly headEps: number;
  readonly scoreScale: number;
  readonly ropeScale: number;
  readonly ropeBase: number;
}

/** The row of a token in a table, rounded to a dtype. */
export interface TokenRow {
  readonly ids: Node;
  readonly table: Matrix;
  readonly dtype: Dtype;
}

/** A decoder of one token of each sequence, found in a graph. */
export interface Decoder extends DecoderStep {
  /** The token's embedding, or the parts to look it up with. */
  readonly x: Node | TokenRow;
  readonly layers: readonly DecoderLayer[];
  readonly norm: Node;
  readonly head: Matrix;
  readonly vocabulary: number;
  /** The result (sequences, …, vocabulary). */
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
const MOST_POSITIONS = 8;
/** Positions of a thread that are worth no rounds. */
const WITHOUT_ROUNDS = 6;
/** Workgroups of the head: four for each of the multiprocessors of a large GPU. */
const HEAD_WORKGROUPS = 528;
/** Sequences that are decoded together at most: products that take many rows at once serve more of them. */
const MOST_SEQUENCES = 16;
/** Workgroups that open a token. */
const BEGIN_WORKGROUPS = 16;

/** Kinds of sums, the best first; a device takes the first one whose kernels it has. */
const SUMS = ["u64", "i32", "f32"] as const;
export type Sums = typeof SUMS[number];

type Phase = "begin" | "qkv" | "attend" | "mlp" | "head" | "greedy";

function kernel(phase: Phase, sums: Sums): KernelName {
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

// ---- dispatches -----------------------------------------------------------------------------------------------------------

/**
 * The state of one token, in the order of decode.glsl: how many bytes it has, and where the residual before each layer lies,
 * which takes turns with `turns` places of `residual` bytes.
 */
export function stateOf(s: DecoderSizes, capacity: number, sums: Sums, form: DecoderForm): {
  readonly bytes: number;
  readonly before: number;
  readonly residual: number;
  readonly turns: number;
} {
  const per = s.heads / s.kvHeads;
  const residual = s.hidden * COPIES * (sums === "f32" ? 4 : 8);
  const squares = Math.ceil(s.kvHeads * (per + 1) * 8 / 256) * 256;
  const fresh = s.kvHeads * s.headDim * 8;
  const scores = s.kvHeads * Math.ceil(per / 2) * capacity * 8;
  const [turns, others] = form === "barriers" ? [2, 1] : [4, 4];
  const before = 256 + s.headDim * 8;
  const bytes = before + (turns + others) * residual + others * (squares + fresh + scores);
  return { bytes, before, residual, turns };
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

/** Sequences that a decoder advances by a token. */
export function sequencesOf({ position }: Pick<Decoder, "position">): number {
  return sizeOf(position.shape);
}

/** Brings the weights of a decoder into the layouts of the kernels; the reason where that cannot be. `leaf` gives values of leaves. */
export function readyDecoder(l: Lowering, d: Decoder, leaf: (node: Node) => Value | undefined): ReadyDecoder | string {
  const misfit = decoderMisfit(l.backend, d.sizes);
  if (misfit !== undefined) return misfit;
  if (sequencesOf(d) > MOST_SEQUENCES) return `${sequencesOf(d)} sequences are more than ${MOST_SEQUENCES}`;
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

/** How decoders wait for sums: between dispatches by barriers, or inside of one, which is tried where `fast.ts` says so. */
export type DecoderForm = "barriers" | "whole" | "steps";

/** Layers of the largest decoder that runs in one dispatch: rows of the table in decode_layers.comp. */
export const MOST_LAYERS = 64;
/** Workgroups of the largest one: a sum counts its additions in 8 bits. */
export const MOST_WORKGROUPS = 255;
/** Looks at an incomplete sum before a dispatch is given up: some milliseconds. */
const PATIENCE = 16384;
/** Bits of the phases in decode_layers.comp. */
const PHASES = { qkv: 1, attend: 2, mlp: 4 } as const;

/** How a thread walks the rows of caches: so many at once, in one round or in as many as it takes. */
export function walkOf(capacity: number): { readonly unroll: number; readonly rounds: number } {
  const positions = Math.ceil(capacity / THREADS);
  if (positions <= WITHOUT_ROUNDS) return { unroll: positions, rounds: 1 };
  return { unroll: Math.ceil(positions / Math.max(2, Math.ceil(positions / MOST_POSITIONS))), rounds: 65536 };
}

/** Workgroups of qkv, attend and mlp. */
export function workgroupsOf({ kvHeads, headDim }: DecoderSizes): number {
  return kvHeads * headDim / 8;
}

/** Emits the dispatches of one decoder; {@link emitDecoder} puts them together. */
export class DecoderEmitter {
  readonly #l: Lowering;
  readonly #ready: ReadyDecoder;
  readonly #form: DecoderForm;
  readonly #sequences: number;
  readonly #state: Value;
  readonly #status: Value | undefined;
  readonly #value: (node: Node) => Value;
  readonly #spec: Readonly<Record<string, number>>;
  readonly #push: Readonly<Record<string, number>>;

  /**
   * `value` gives values of nodes outside of the decoder, `capacity` counts the rows of the caches. `state` has the bytes that
   * {@link stateOf} says; it is kept, and there is a status, unless the form is "barriers".
   */
  constructor(
    l: Lowering,
    ready: ReadyDecoder,
    form: DecoderForm,
    capacity: number,
    value: (node: Node) => Value,
    state: Value,
    status: Value | undefined,
  ) {
    const { decoder: d } = ready;
    const { hidden, intermediate, heads, kvHeads, headDim, groupSize } = d.sizes;
    const { unroll, rounds } = walkOf(capacity);
    this.#l = l;
    this.#ready = ready;
    this.#form = form;
    this.#value = value;
    this.#sequences = sequencesOf(d);
    this.#state = state;
    this.#status = status;
    this.#spec = {
      HIDDEN: hidden,
      INTERMEDIATE: intermediate,
      KV_HEADS: kvHeads,
      HEADS: heads / kvHeads,
      HEAD_DIM: headDim,
      GROUP: groupSize,
      DTYPE_W: d.head.scales.dtype.code,
      DTYPE_KV: d.layers[0].keys.dtype.code,
      COPIES,
      SUBGROUP: Math.min(LANES, l.backend.limits.subgroup),
      UNROLL: unroll,
      ROUNDS: rounds,
    };
    this.#push = {
      capacity,
      vocabulary: d.vocabulary,
      layer: 0,
      eps: d.eps,
      head_eps: d.headEps,
      score_scale: d.scoreScale,
      rope_scale: d.ropeScale,
      log2_base: Math.log2(d.ropeBase),
    };
  }

  /**
   * The residual before the first layer: a vector, or the embedding of a token; and all else that opens it, unless `opens` is
   * false. What goes in front of the first of several tokens only is `opening`.
   */
  begin(
    x: Decoder["x"],
    position: Value,
    freqs: Value | undefined,
    opens: boolean = true,
    opening: boolean = false,
  ): void {
    const table = "table" in x ? [this.#plain(x.ids), ...this.#table(x.table)] : NONE;
    const vector = "table" in x ? undefined : this.#plain(x);
    const buffers = [this.#state, position, vector, ...table, freqs];
    this.#run("begin", buffers, BEGIN_WORKGROUPS, { DTYPE_X: x.dtype.code, OPENS: Number(opens) }, undefined, opening);
  }

  /** All layers over their caches. */
  layers(caches: readonly { readonly keys: Value; readonly values: Value }[]): void {
    const { decoder: d, layers: prepared } = this.#ready;
    const { hidden, headDim } = d.sizes;
    const workgroups = workgroupsOf(d.sizes);
    const rows = d.layers.map((layer, i) => {
      const at = i * 2 * (hidden + headDim);
      const [norm, mlpNorm, qNorm, kNorm] = [0, hidden, 2 * hidden, 2 * hidden + headDim].map((o) =>
        this.#norm(at + o)
      );
      const [q, k, v, gate, up] = [layer.q, layer.k, layer.v, layer.gate, layer.up].map((m) => this.#plain(m.codes));
      const { qkv, o, gateUp, down } = prepared[i];
      const { keys, values } = caches[i];
      return {
        qkv: [norm, q, k, v, qkv[0], qNorm, kNorm],
        cache: [keys, values],
        o: [o[0], o[1]],
        mlp: [mlpNorm, gate, up, gateUp[0], down[0], down[1]],
      };
    });
    if (this.#form === "barriers") {
      rows.forEach(({ qkv, cache, o, mlp }, layer) => {
        this.#run("qkv", [this.#state, ...qkv, ...cache], workgroups, {}, { layer });
        this.#run("attend", [this.#state, ...o, ...cache], workgroups, {}, { layer });
        this.#run("mlp", [this.#state, ...mlp], workgroups, {}, { layer });
      });
      return;
    }
    const table = rows.map(({ qkv, cache, o, mlp }) => [...qkv, ...cache, ...o, ...mlp]);
    const run = (layer: number, layers: number, phases: number): void =>
      this.#l.emit("decode_layers", [this.#state, this.#status], {
        threads: THREADS,
        spec: this.#spec,
        push: { ...this.#push, layer, layers, phases, patience: options.patience ?? PATIENCE },
        table: table.slice(layer, layer + layers),
        workgroups,
      });
    if (this.#form === "whole") return run(0, rows.length, PHASES.qkv | PHASES.attend | PHASES.mlp);
    rows.forEach((_, layer) => Object.values(PHASES).forEach((phase) => run(layer, 1, phase)));
  }

  /** The logits, where anybody reads them, and what the end of the step needs. With `advances` it opens the next token. */
  head(advances: boolean): HeadResults {
    const { decoder: d } = this.#ready;
    const count = this.#headWorkgroups();
    const results = headResults(
      this.#l,
      d.logits,
      d.keepsLogits,
      this.#sequences,
      d.vocabulary,
      count,
      d.end,
      this.#value,
    );
    const { logits, best, scratch, recent, spec } = results;
    this.#run("head", [...this.#headInputs(), logits, best, scratch, recent], count, {
      ...spec,
      ADVANCES: Number(advances),
    });
    return results;
  }

  /** The head, the choice of the largest logit as the token, the state of the loop and the embedding of the next token. */
  greedy(x: TokenRow, { next, position, rings = [] }: DrawBuffers): void {
    const { logits } = this.#ready.decoder;
    const count = this.#headWorkgroups();
    const best = this.#l.temporary([this.#sequences, count, 2], uint32);
    const buffers = [...this.#headInputs(), best, next, position, rings[0], rings[1], ...this.#table(x.table)];
    const [LOG_SIZE, RECENT_SIZE] = [0, 1].map((i) => rings[i]?.shape.at(-1) ?? 1);
    this.#run("greedy", buffers, count, { DTYPE_OUT: logits.dtype.code, DTYPE_X: x.dtype.code, LOG_SIZE, RECENT_SIZE });
  }

  #headWorkgroups(): number {
    return Math.min(HEAD_WORKGROUPS, Math.ceil(this.#ready.decoder.vocabulary / 32));
  }

  #headInputs(): readonly Value[] {
    const { decoder: { layers, sizes, head: { codes } }, head } = this.#ready;
    return [this.#state, this.#norm(layers.length * 2 * (sizes.hidden + sizes.headDim)), this.#plain(codes), head[0]];
  }

  #table(table: Matrix): readonly Value[] {
    return all(table).map((node) => this.#plain(node));
  }

  #plain(node: Node): Value {
    return this.#l.contiguous(this.#value(node), true);
  }

  #norm(offset: number): Value {
    const { norms } = this.#ready;
    return { ...norms, offset: norms.offset + offset };
  }

  #run(
    phase: Phase,
    buffers: readonly (Value | undefined)[],
    workgroups: number,
    spec: Readonly<Record<string, number>>,
    push: Readonly<Record<string, number>> = { layer: this.#ready.decoder.layers.length },
    opening: boolean = false,
  ): void {
    const ends = phase === "begin" || phase === "head" || phase === "greedy";
    const name = ends && this.#form !== "barriers" ? `decode_${phase}_poll` as const : kernel(phase, this.#ready.sums);
    this.#l.emit(name, buffers, {
      threads: THREADS,
      spec: { ...this.#spec, ...spec },
      push: { ...this.#push, ...push },
      workgroups: phase === "head" || phase === "greedy"
        ? [this.#sequences, workgroups, 1]
        : [workgroups, this.#sequences, 1],
      opening,
    });
  }
}

const NONE = [undefined, undefined, undefined, undefined];

/** Emits the dispatches of a decoder. `value` gives the value of a node outside of it, `done` takes those of its results. */
export function emitDecoder(
  l: Lowering,
  ready: ReadyDecoder,
  form: DecoderForm,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const { decoder: d } = ready;
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const { bytes } = stateOf(d.sizes, d.capacity, ready.sums, form);
  const looped = loopedToken(d, value);
  const state = form === "barriers" && !looped
    ? l.temporary([sequencesOf(d), bytes / 4], uint32)
    : l.keep(sequencesOf(d) * bytes);
  const status = form === "barriers" ? undefined : l.keepStatus();
  const emitter = new DecoderEmitter(l, ready, form, d.capacity, value, state, status);
  const [position, freqs] = [plain(d.position), d.freqs && plain(d.freqs)];
  emitter.begin(d.x, position, freqs, true, looped !== undefined);
  emitter.layers(d.layers.map((layer) => {
    const [keys, values] = [layer.keys, layer.values].map((update) => {
      const base = value(update.inputs[0]);
      l.donated.push({ base: update.inputs[0], node: update });
      done(update, base);
      return base;
    });
    return { keys, values };
  }));
  if (looped && d.end && endsInHead(d.end) && !d.keepsLogits) {
    emitter.greedy(looped, replaced(d.end, value, done));
    return;
  }
  const results = emitter.head(looped !== undefined);
  if (results.logits) done(d.logits, results.logits);
  emitEnd(l, results, sequencesOf(d), d.vocabulary, d.token, d.end, value, done);
  if (looped) emitter.begin(looped, position, freqs, false);
}

/** The token that a decoder reads, where it is the one that the step before chose, at the position behind it. */
function loopedToken({ x, position, end }: Decoder, value: (node: Node) => Value): TokenRow | undefined {
  if (!end || !("table" in x)) return undefined;
  const same = (a: Node, b: Node): boolean => value(a).slot === value(b).slot && value(a).offset === value(b).offset;
  return same(x.ids, end.next.parameter) && same(position, end.position.parameter) ? x : undefined;
}

/** Dtypes that weights beside the codes may have: the two halves of a packed word. */
export function isHalf(dtype: Dtype): boolean {
  return dtype === float16 || dtype === bfloat16;
}

/** Dtypes of activations and of a cache. */
export function isFloat(dtype: Dtype): boolean {
  return dtype === float32 || isHalf(dtype);
}
