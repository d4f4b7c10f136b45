/**
 * One token of each of several sequences through a whole decoder: five dispatches a layer that read weights once for eight
 * sequences, as shaders/batch.glsl says, or one for all layers. A sequence gets bit for bit what decoder_emit.ts gives it alone.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import type { KernelName } from "../backend/kernels.ts";
import type { Node } from "../graph/node.ts";
import { uint32 } from "../graph/dtype.ts";
import {
  type Caches,
  type Decoder,
  type DecoderForm,
  type DecoderSizes,
  type Matrix,
  normsOf,
  PATIENCE,
  pushOf,
  sequencesOf,
  specOf,
  workgroupsOf,
} from "./decoder.ts";
import { emitEnd, type HeadResults, headResults } from "./decoder_end.ts";
import type { ReadyDecoder } from "./decoder_ready.ts";
import type { Lowering, Value } from "./lowering.ts";
import { matrixMap } from "./matrices.ts";
import { options } from "./options.ts";

/** Threads that share products, and that walk the positions of a sequence. */
const THREADS = 512;
const WIDE = 256;
/** Hidden features that the normalising kernels take. */
const MOST_HIDDEN = 1024;
/** Sequences of a workgroup, and how many the last one of several must have to be worth its way. */
const ROWS = 8;
const WORTH_IT = 4;
/** Positions that a thread of attention has at most. */
const MOST_POSITIONS = 6;
/** Blocks of 8 features of the feed-forward part that a workgroup makes. */
const FEATURE_BLOCKS = 3;
/** Workgroups of the head, and rows that one makes at once. */
const HEAD_WORKGROUPS = 264;
const HEAD_ROWS = 16;
/** Workgroups that open a token of a sequence. */
const BEGIN_WORKGROUPS = 4;
/** Rows of a projection that a workgroup makes; sixteen warps share its units. */
const PROJECT_ROWS = 8;
/** Phases of a layer in the order of their bits in batch_layers.comp. */
const PHASES = ["qkv", "attend", "o", "gate_up", "down"] as const;
/** From one counter of finished workgroups to the next. */
const COUNTER_BYTES = 128;

/** Whether so many sequences are served faster than by a grid of the kernels of one: with matrices only, and full workgroups. */
function pays(backend: Backend, sequences: number): boolean {
  return sequences >= ROWS && (sequences - 1) % ROWS + 1 >= WORTH_IT && usesMatrices(backend);
}

/** Whether the kernels of several sequences serve a decoder: sums in 64 bits, and a cache that attention walks at once. */
export function isBatch(backend: Backend, decoder: Decoder): boolean {
  const { maxThreads } = backend.limits;
  const sequences = sequencesOf(decoder);
  return sequences > 1 && (options.regions === "on" || pays(backend, sequences)) &&
    (options.sums ?? "u64") === "u64" && backend.has("batch_attend") && maxThreads >= 2 * THREADS &&
    decoder.capacity <= WIDE * MOST_POSITIONS && decoder.sizes.hidden <= MOST_HIDDEN;
}

/** Whether the kernels with matrices serve a device; they read codes in the layouts of batch_layouts.ts. */
export function usesMatrices(backend: Backend): boolean {
  return backend.has("batch_qkv_matrices") && matrixMap(backend).pairs;
}

/** Whether all layers of several sequences can be one dispatch, which multiplies by matrices. */
export function hasBatchLayers(backend: Backend): boolean {
  return backend.has("batch_layers") && usesMatrices(backend);
}

/** How a thread walks the rows of caches: all its positions at once. */
export function batchWalkOf(capacity: number): { readonly unroll: number; readonly rounds: number } {
  return { unroll: Math.ceil(capacity / WIDE), rounds: 1 };
}

/** Where the sums of the residual of a sequence lie in its state, and the bytes of that, in the order of batch.glsl. */
export function batchState({ hidden, intermediate, heads, kvHeads, headDim }: DecoderSizes): {
  readonly bytes: number;
  readonly residual: number;
} {
  const slices = headDim / 8;
  const squares = kvHeads + heads;
  const units = kvHeads * slices;
  const places = (words: number): number => 128 * Math.ceil(Math.ceil(words / units) * 2 * Math.ceil(units / 32) / 8);
  const blocks = Math.max(places(heads * slices), places(intermediate / 8));
  const residual = 256 + headDim * 4 + hidden * 4;
  const bytes = residual + hidden * 8 + squares * (headDim * 4 + slices * 16) + kvHeads * headDim * 4 + blocks * 24;
  return { bytes: Math.ceil(bytes / 256) * 256, residual };
}

/** Bytes of the state of all sequences with counters behind it. */
export function batchBytes(sizes: DecoderSizes, sequences: number): number {
  return sequences * batchState(sizes).bytes + PHASES.length * sizes.kvHeads * COUNTER_BYTES;
}

/** Emits the dispatches of a decoder of several sequences; {@link emitBatch} puts them together. */
export class BatchEmitter {
  readonly #l: Lowering;
  readonly #ready: ReadyDecoder;
  readonly #form: DecoderForm;
  readonly #capacity: number;
  readonly #value: (node: Node) => Value;
  readonly #state: Value;
  readonly #status: Value | undefined;
  readonly #sequences: number;
  readonly #tiles: number;
  readonly #matrices: boolean;
  readonly #spec: Readonly<Record<string, number>>;

  /**
   * `value` gives values of nodes outside of the decoder, `capacity` counts the rows of the caches. `state` has the bytes that
   * {@link batchBytes} says; there is a status unless the form is "barriers".
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
    this.#l = l;
    this.#ready = ready;
    this.#form = form;
    this.#capacity = capacity;
    this.#value = value;
    this.#state = state;
    this.#status = status;
    this.#sequences = sequencesOf(d);
    this.#tiles = Math.ceil(this.#sequences / ROWS);
    this.#matrices = usesMatrices(l.backend);
    this.#spec = {
      ...specOf(d, l.backend),
      COPIES: 1,
      UNROLL: batchWalkOf(capacity).unroll,
      ROUNDS: batchWalkOf(capacity).rounds,
      SEQUENCES: this.#sequences,
    };
  }

  /** The residual of each sequence before the first layer, and all else that opens a token. */
  begin(x: Decoder["x"], position: Value, freqs: Value | undefined): void {
    const table = "table" in x
      ? [x.ids, x.table.codes, x.table.scales, x.table.biases].map((node) => this.#plain(node))
      : [undefined, undefined, undefined, undefined];
    const vector = "table" in x ? undefined : this.#plain(x);
    this.#run("batch_begin", [position, vector, ...table, freqs], BEGIN_WORKGROUPS, this.#sequences, {
      DTYPE_X: x.dtype.code,
    });
  }

  /** All layers over their caches. */
  layers(caches: Caches): void {
    if (this.#form === "barriers") this.#apart(caches);
    else this.#together(caches);
  }

  /** A dispatch for each phase, with barriers between them. */
  #apart(caches: Caches): void {
    const { decoder: d, layers, norms } = this.#ready;
    const { hidden, intermediate, heads, kvHeads, headDim } = d.sizes;
    const slices = headDim / 8;
    const project = (matrix: Node, affine: Value, words: number, run: number): void =>
      this.#run(this.#product("project"), [this.#plain(matrix), affine], hidden / PROJECT_ROWS, this.#tiles, {
        WORDS: words,
        RUN: run,
      });
    d.layers.forEach((layer, i) => {
      const { norm } = normsOf(norms, d.sizes, i);
      const { qkv, o, gateUp, down } = layers[i];
      const { keys, values } = caches[i];
      const [ofQkv, ofGateUp] = this.#codes(i);
      this.#run(this.#product("qkv"), [norm, qkv[0], ...ofQkv], workgroupsOf(d.sizes), this.#tiles);
      const threads = this.#capacity <= WIDE ? 2 * THREADS : THREADS;
      const parts = kvHeads * (slices % 2 === 0 ? 2 : 1);
      this.#run("batch_attend", [keys, values], parts, this.#sequences, {}, threads);
      project(layer.o.codes, o[0], heads * slices, slices);
      const features = Math.ceil(intermediate / 8 / FEATURE_BLOCKS);
      this.#run(this.#product("gate_up"), [norm, gateUp[0], ...ofGateUp], features, this.#tiles);
      project(layer.down.codes, down[0], intermediate / 8, 1);
    });
  }

  /** One dispatch for all layers, or in the form "steps" the same kernel for each phase. */
  #together(caches: Caches): void {
    const { decoder: d, layers, norms } = this.#ready;
    const table = d.layers.map(({ o, down }, i) => {
      const { norm } = normsOf(norms, d.sizes, i);
      const { keys, values } = caches[i];
      const prepared = layers[i];
      return [
        norm,
        keys,
        values,
        prepared.qkv[0],
        this.#plain(o.codes),
        prepared.o[0],
        prepared.gateUp[0],
        this.#plain(down.codes),
        prepared.down[0],
        ...this.#codes(i).flat(),
      ];
    });
    const run = (layer: number, count: number, phases: number): void =>
      this.#l.emit("batch_layers", [this.#state, this.#status], {
        threads: THREADS,
        spec: this.#spec,
        push: {
          ...pushOf(d, this.#capacity),
          layer,
          layers: count,
          phases,
          patience: options.patience ?? PATIENCE,
        },
        table: table.slice(layer, layer + count),
        workgroups: workgroupsOf(d.sizes),
      });
    if (this.#form === "whole") return run(0, table.length, (1 << PHASES.length) - 1);
    table.forEach((_, layer) => PHASES.forEach((_, phase) => run(layer, 1, 1 << phase)));
  }

  /** The logits, where anybody reads them, and what the end of the step needs. */
  head(): HeadResults {
    const { decoder: d, norms, head } = this.#ready;
    const count = Math.min(HEAD_WORKGROUPS, Math.ceil(d.vocabulary / HEAD_ROWS));
    const rows = this.#sequences;
    const results = headResults(this.#l, d.logits, d.keepsLogits, rows, d.vocabulary, count, d.end, this.#value);
    const { logits, best, scratch, recent, spec } = results;
    const { norm } = normsOf(norms, d.sizes, d.layers.length);
    const codes = this.#matrices ? head[1] : this.#plain(d.head.codes);
    const buffers = [norm, codes, head[0], logits, best, scratch, recent];
    this.#run(this.#product("head"), buffers, count, this.#tiles, spec);
    return results;
  }

  #product<P extends "qkv" | "project" | "gate_up" | "head">(
    phase: P,
  ): `batch_${P}` | `batch_${P}_matrices` {
    return this.#matrices ? `batch_${phase}_matrices` : `batch_${phase}`;
  }

  /** Codes of a layer that the products of qkv and gate_up read. */
  #codes(layer: number): readonly [readonly Value[], readonly Value[]] {
    const { qkv, gateUp } = this.#ready.layers[layer];
    if (this.#matrices) return [[qkv[1]], [gateUp[1]]];
    const { q, k, v, gate, up } = this.#ready.decoder.layers[layer];
    const codes = (matrices: readonly Matrix[]): readonly Value[] => matrices.map((m) => this.#plain(m.codes));
    return [codes([q, k, v]), codes([gate, up])];
  }

  #plain(node: Node): Value {
    return this.#l.contiguous(this.#value(node), true);
  }

  #run(
    kernel: KernelName,
    buffers: readonly (Value | undefined)[],
    workgroups: number,
    rows: number,
    own: Readonly<Record<string, number>> = {},
    threads = THREADS,
  ): void {
    this.#l.emit(kernel, [this.#state, ...buffers], {
      threads,
      spec: { ...this.#spec, ...own },
      push: pushOf(this.#ready.decoder, this.#capacity),
      workgroups: [workgroups, rows, 1],
    });
  }
}

/** Emits the dispatches of the decoder of several sequences. `value` and `done` are those of `emitDecoder`. */
export function emitBatch(
  l: Lowering,
  ready: ReadyDecoder,
  form: DecoderForm,
  caches: Caches,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const { decoder: d } = ready;
  const sequences = sequencesOf(d);
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const state = l.temporary([batchBytes(d.sizes, sequences) / 4], uint32);
  const status = form === "barriers" ? undefined : l.keepStatus();
  const emitter = new BatchEmitter(l, ready, form, d.capacity, value, state, status);
  emitter.begin(d.x, plain(d.position), d.freqs && plain(d.freqs));
  emitter.layers(caches);
  const results = emitter.head();
  if (results.logits) done(d.logits, results.logits);
  emitEnd(l, results, sequences, d.vocabulary, d.token, d.end, value, done);
}
