/**
 * One token of each of several sequences, or a chunk of tokens of one, through a whole decoder. The weights are read once for all of them,
 * see shaders/decode_batched/batch.glsl. Either all layers are one dispatch whose workgroups wait for each other, or each phase of a layer
 * is a dispatch. Both are the same kernel and give the same bits.
 *
 * Activations are float16 and sums float32, as in prompts, whose fragments of weights these kernels share. Every sum has an order
 * of its own, so a sequence gets the same bits whatever the others are and wherever it stands among them.
 *
 * @module
 */

import {
  beginPush,
  type Caches,
  decodePush,
  type DecoderPush,
  type Emission,
  hiddenValue,
  layerPush,
  normsOf,
  ropeFreqs,
  sizeConstants,
  specOf,
  SPIN_LIMIT,
  tableOfPages,
} from "./emission.ts";
import type { DecoderHead, DecoderHidden } from "./ends.ts";
import { commonFormat, hasSmallFloatProducts, isDenseDecoder } from "./formats.ts";
import { capacityOf } from "./kv_place.ts";
import type { LaunchMode } from "./launch_mode.ts";
import type { Backend } from "../../backend/backend.ts";
import type { KernelName } from "../../backend/kernels.ts";
import { DENSE } from "../../graph/quantization.ts";
import { type Dtype, uint32 } from "../../graph/dtype.ts";
import { isCoded } from "../../graph/kv_codes.ts";
import type { Node } from "../../graph/node.ts";
import {
  type DecoderSizes,
  type DecoderSpec,
  hasPlainNorms,
  headTokensOf,
  MAX_SEQUENCES,
  OTHER_EXPERTS,
  OTHER_NORMS,
  tokensOf,
} from "./spec.ts";
import { emitSamplingTail, type HeadResults, headResults } from "./emit_sampling_tail.ts";
import {
  emitBatchedHybrid,
  firstNorms,
  hybridRequirements,
  hybridSizes,
  type LeftValues,
  needsHybrid,
} from "./emit_batched_hybrid.ts";
import { batchState } from "./states.ts";
import type { ReadyDecoder } from "./prepared_weights.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { matrixMap } from "../ops/matmul/coopmat.ts";
import { tuningOf } from "../tuning/choose.ts";
import { options } from "../plan/options.ts";
import { firstReason } from "../plan/requirements.ts";

/** Threads of a workgroup that opens a token. */
const BEGIN_THREADS = 256;
/** Logits that each warp of the head makes at once. */
const HEAD_COLUMNS = 16;
/** Workgroups that open a token of a sequence. */
const BEGIN_WORKGROUPS = 16;
/** Features for a thread of the layers' kernels beyond which a residual is wide, as decode_batched/matmul.glsl has it. */
const NARROW_FEATURES = 4;
/** Most features of the residual, by the bits of a weight: registers hold their share of it beside weights. */
const MAX_HIDDEN: Readonly<Record<number, number>> = { 4: 5120, 8: 4096, [DENSE.bits]: 4096 };
/** Sequences that are rows of a matrix together. */
const BLOCK = 8;
/** Most rows, by the bits of a weight: registers hold both. */
const MAX_ROWS: Readonly<Record<number, number>> = { 4: MAX_SEQUENCES, 8: BLOCK, [DENSE.bits]: BLOCK };
/** Phases of a layer, in the order of their bits in decode_batched/layers.comp. */
const PHASE_COUNT = 5;
/** Depth of a step of the products. */
const STEP = 64;
const MAX_HEAD_DIM = 128;
/** The same where kernels know recurrent layers and gates, four units of which share the values of a head. */
const MAX_HYBRID_DIM = 256;
/** Query heads to a key head. */
const MAX_HEADS = 8;

/** The kernels that serve a device: on matrix units, or emulated ones that do the same sums slowly and are there for tests. */
interface BatchKernels {
  readonly layers: KernelName;
  /** Of layers some of which are recurrent, or whose heads have gates. */
  readonly hybrid: KernelName;
  readonly head: KernelName;
  readonly threads: number;
  /** Bytes of shared memory that fragments of matrices take. */
  readonly fragmentBytes: number;
}

const MATRICES: BatchKernels = {
  layers: "batch_layers",
  hybrid: "batch_hybrid",
  head: "batch_head",
  threads: 512,
  fragmentBytes: 0,
};
const EMULATED: BatchKernels = {
  layers: "batch_layers_emulated",
  hybrid: "batch_hybrid_emulated",
  head: "batch_head_emulated",
  threads: 256,
  fragmentBytes: 8192,
};

function kernelsOf(backend: Backend): BatchKernels {
  return matrixMap(backend).pairs ? MATRICES : EMULATED;
}

/** Whether all positions of a cache are those of one round of the warps of a workgroup, 16 of each. */
export function isOneRound(backend: Backend, capacity: number): boolean {
  return capacity <= kernelsOf(backend).threads / 2;
}

/**
 * Why a decoder of several sequences takes a grid of the kernels of one; undefined if the kernels of several serve it. `mode`
 * is how those would wait, "persistent" also where a test is still to tell.
 */
export function batchedUnsupportedReason(
  backend: Backend,
  d: DecoderSpec,
  mode: "persistent" | "barriers",
): string | undefined {
  const { sizes: s } = d;
  const { bits = 0 } = commonFormat(d) ?? {};
  const { layers, hybrid, head, threads } = kernelsOf(backend);
  const isHybrid = needsHybrid(d);
  const rows = tokensOf(d);
  const what = `${rows} ${d.chunk ? "tokens of a sequence" : "sequences"}`;
  const forced = options.batched === "on";
  return firstReason([
    [options.batched !== "off", "they are switched off"],
    [hasPlainNorms(d.features), `there are ${OTHER_NORMS}`],
    [!d.features.experts, `there are ${OTHER_EXPERTS}`],
    [rows <= MAX_SEQUENCES, `${what} are more than ${MAX_SEQUENCES}`],
    [
      forced || isHybrid || d.chunk !== undefined || rows >= minSequences(backend, d, mode),
      `${what} are faster that way`,
    ],
    ...hybridRequirements(d, kernelsOf(backend), backend.limits.sharedBytes),
    [
      forced || !isDenseDecoder(d) || activationsOf(d).bytes === 2,
      "dense weights keep the digits of float32 activations",
    ],
    [
      forced || d.chunk === undefined || capacityOf(d.cache) <= tuningOf(backend).decode.maxChunkCapacity,
      `${what} are faster that way after ${capacityOf(d.cache)} positions`,
    ],
    [rows <= BLOCK || !isWide(backend, s), `${what} of ${s.hidden} hidden features are more than ${BLOCK}`],
    [backend.has(isHybrid ? hybrid : layers) && backend.has(head), `${backend.name} has no kernels for several`],
    [!hasSmallFloatProducts(d), "there are no kernels for small floats"],
    [commonFormat(d) !== undefined, "the matrices have several formats"],
    [bits in MAX_ROWS, `weights have ${bits} bits, not 4, 8 or 16`],
    [rows <= MAX_ROWS[bits], `${what} of ${bits} bits are more than ${MAX_ROWS[bits]}`],
    [
      layers === MATRICES.layers || (forced && !matrixMap(backend).weights),
      `${backend.name} has no matrices that they know`,
    ],
    [backend.limits.maxThreads >= threads, `workgroups have at most ${backend.limits.maxThreads} threads`],
    [s.hidden % STEP === 0, `the hidden size ${s.hidden} is no multiple of ${STEP}`],
    [s.intermediate % STEP === 0, `the intermediate size ${s.intermediate} is no multiple of ${STEP}`],
    [s.heads * s.headDim % STEP === 0, `${s.heads} heads of ${s.headDim} features are no multiple of ${STEP}`],
    [
      s.headDim <= (isHybrid ? MAX_HYBRID_DIM : MAX_HEAD_DIM),
      `the head size ${s.headDim} is more than ${isHybrid ? MAX_HYBRID_DIM : MAX_HEAD_DIM}`,
    ],
    [s.heads / s.kvHeads <= MAX_HEADS, `${s.heads / s.kvHeads} heads to a key head are more than ${MAX_HEADS}`],
    [
      s.hidden <= MAX_HIDDEN[bits],
      `${s.hidden} hidden features of ${bits} bits are more than ${MAX_HIDDEN[bits]}`,
    ],
  ]);
}

/** The dtype of the activations: that of the cache, unless it has codes. */
function activationsOf({ layers: [{ keys }], x }: DecoderSpec): Dtype {
  return isCoded(keys.dtype) ? x.dtype : keys.dtype;
}

function minSequences(backend: Backend, d: DecoderSpec, mode: "persistent" | "barriers"): number {
  if (isDenseDecoder(d)) return 2; // there is no grid of kernels of one
  const { hidden } = d.sizes;
  return tuningOf(backend).decode.batchMinSequences.find(({ minHidden }) => hidden >= minHidden)![mode];
}

/** Whether a residual takes so many registers that a workgroup multiplies 8 rows at most. */
function isWide(backend: Backend, { hidden }: DecoderSizes): boolean {
  return hidden > NARROW_FEATURES * kernelsOf(backend).threads;
}

/** Where the state of so many rows has its parts, and its bytes. */
export function batchStateOf(
  { sizes, features, recurrent }: Pick<DecoderSpec, "sizes" | "features" | "recurrent">,
  rows: number,
): ReturnType<typeof batchState> {
  return batchState({ ...sizeConstants(sizes), SEQUENCES: rows, ...hybridSizes({ features, recurrent }) });
}

/** Emits the dispatches of a decoder of several rows; {@link emitBatch} puts them together. */
export class BatchEmitter {
  readonly #e: Emission;
  readonly #spec: Readonly<Record<string, number>>;
  readonly #push: DecoderPush;

  /** `state` has the bytes that {@link batchStateOf} says; there is a status unless the launch mode is "barriers". */
  constructor(emission: Emission) {
    const { l, ready: { decoder: d } } = emission;
    this.#e = emission;
    const { bits, groupSize } = commonFormat(d)!;
    this.#spec = {
      ...specOf(d, l.backend),
      SEQUENCES: tokensOf(d),
      BITS: bits,
      GROUP: groupSize,
      TOKENS: d.chunk?.count ?? 1,
    };
    this.#push = decodePush(d);
  }

  /** The residual of each row before the first layer, and all else that opens a token. */
  begin(x: DecoderSpec["x"], position: Value): void {
    const table = "table" in x
      ? [x.ids, x.table.codes, x.table.scales, x.table.biases].map((node) => node && this.#plain(node))
      : [undefined, undefined, undefined, undefined];
    const vector = "table" in x ? undefined : this.#plain(x);
    const { decoder } = this.#e.ready;
    const norm = firstNorms(this.#e.ready);
    const freqs = ropeFreqs(decoder, (node) => this.#plain(node));
    this.#e.l.emit("batch_begin", [this.#e.state, position, norm, vector, ...table, ...freqs], {
      threads: BEGIN_THREADS,
      spec: { ...this.#spec, ...hybridSizes(decoder), DTYPE_X: x.dtype.code },
      push: { ...this.#push, ...beginPush(decoder) },
      workgroups: [BEGIN_WORKGROUPS, tokensOf(decoder), 1],
    });
  }

  /** All layers over their caches. Gives the values of nodes that they leave to others. */
  layers(caches: Caches): LeftValues {
    const { decoder: d, layers, norms } = this.#e.ready;
    const { layers: kernel, hybrid, threads } = kernelsOf(this.#e.l.backend);
    const rounds = { ROUNDS: Number(isOneRound(this.#e.l.backend, capacityOf(d.cache))) };
    if (needsHybrid(d)) {
      const common = { kernel: hybrid, threads, spec: { ...this.#spec, ...rounds }, push: this.#push };
      return emitBatchedHybrid(this.#e, caches, common);
    }
    const table = layers.map(({ qkv, o, gateUp, down }, i) => {
      const { keys, values } = caches[i];
      // Dense matrices stand where others have scales and biases: k beside q, then v, up beside gate. Unused places get an address that no
      // kernel reads.
      const weights = [qkv[0], qkv[1], o[0], o[1], gateUp[0], gateUp[1], down[0], down[1], qkv[2]];
      return [normsOf(norms, d, i), keys, values, ...weights.map((value = norms) => value)];
    });
    const pages = tableOfPages(this.#e);
    const run = (layer: number, count: number, phases: number): void =>
      this.#e.l.emit(kernel, [this.#e.state, this.#e.status, pages], {
        threads,
        spec: { ...this.#spec, ...rounds, PHASES: phases },
        push: {
          ...this.#push,
          ...layerPush(d, layer),
          layers: count,
          phases,
          spin_limit: options.spinLimit ?? SPIN_LIMIT,
        },
        table: table.slice(layer, layer + count),
        workgroups: tuningOf(this.#e.l.backend).decode.batchWorkgroups,
      });
    if (this.#e.mode === "persistent") {
      run(0, table.length, (1 << PHASE_COUNT) - 1);
      return [];
    }
    for (let layer = 0; layer < table.length; layer++) {
      for (let phase = 0; phase < PHASE_COUNT; phase++) run(layer, 1, 1 << phase);
    }
    return [];
  }

  /** The residual after the last layer. */
  hidden(end: DecoderHidden): Value {
    const { decoder } = this.#e.ready;
    const out = hiddenValue(this.#e, end);
    this.#e.l.emit("batch_hidden", [this.#e.state, out], {
      threads: BEGIN_THREADS,
      spec: { ...this.#spec, DTYPE_OUT: out.dtype.code },
      push: this.#push,
      workgroups: [BEGIN_WORKGROUPS, tokensOf(decoder), 1],
    });
    return out;
  }

  /** The logits, if a node reads them, and the inputs of the step's end. */
  head(out: DecoderHead): HeadResults {
    const { decoder: d, head } = this.#e.ready;
    const taken = d.chunk?.selected && this.#plain(d.chunk.selected);
    const { head: kernel, threads } = kernelsOf(this.#e.l.backend);
    // None without a logit: draws rely on the largest one of each.
    const { batchHeadWorkgroups } = tuningOf(this.#e.l.backend).decode;
    const count = Math.min(batchHeadWorkgroups, Math.ceil(out.vocabulary / (HEAD_COLUMNS * threads / 32)));
    const results = headResults(this.#e.l, out, headTokensOf(d), count, this.#e.value);
    const { logits, best, scratch, recent, spec } = results;
    this.#e.l.emit(kernel, [this.#e.state, head[0], head[1], logits, best, scratch, recent, taken], {
      threads,
      spec: { ...this.#spec, ...spec, TAKES_ROW: Number(taken !== undefined) },
      push: this.#push,
      workgroups: count,
    });
    return results;
  }

  #plain(node: Node): Value {
    return this.#e.l.contiguous(this.#e.value(node), true);
  }
}

/** Emits the dispatches of the decoder of several rows. `value` and `done` are those of `emitDecoder`. */
export function emitBatch(
  l: Lowering,
  ready: ReadyDecoder,
  mode: LaunchMode,
  caches: Caches,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const { decoder: d } = ready;
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const state = l.temporary([batchStateOf(d, tokensOf(d)).bytes / 4], uint32);
  const status = mode === "barriers" ? undefined : l.keepStatus();
  const emitter = new BatchEmitter({ l, ready, mode, value, state, status });
  emitter.begin(d.x, plain(d.position));
  for (const [node, left] of emitter.layers(caches)) done(node, left);
  const { out } = d;
  if (!("head" in out)) return done(out.hidden, emitter.hidden(out));
  const results = emitter.head(out);
  if (results.logits) done(out.logits, results.logits);
  emitSamplingTail(l, results, headTokensOf(d), out, value, done);
}
