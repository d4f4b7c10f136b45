/**
 * The test before decoding in one dispatch: a model's own layers must give the same bits both ways, again and again.
 *
 * Recurrent states are made up too, and are the same before each submission. The generation keeps its own.
 *
 * It runs beside other work: pipelines are made on other threads, and its submissions take turns with those of the waiting generation.
 *
 * @module
 */

import type { LaunchMode } from "./launch_mode.ts";
import { setImmediate } from "node:timers/promises";
import { type Dtype, int32, uint32 } from "../../graph/dtype.ts";
import { CODED_FEATURES, isCoded } from "../../graph/kv_codes.ts";
import type { Node } from "../../graph/node.ts";
import { contiguousStrides, type Shape, sizeOf } from "../../graph/shape.ts";
import { encodeSlots, type PlanHandle, type SlotWords } from "../../backend/backend.ts";
import { BatchEmitter, batchStateOf } from "./emit_batched.ts";
import { type DecoderSpec, type LayerKernels, sequencesOf, tokensOf } from "./spec.ts";
import { DecoderEmitter, stateOf } from "./emit_decode.ts";
import { gemvStateOf } from "./emit_gemv.ts";
import { capacityOf, type KvPlace } from "./kv_place.ts";
import type { LayerWeights, ReadyDecoder } from "./prepared_weights.ts";
import { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";

/** Submissions of the test, and runs in each. */
const TESTS = 4;
const RUNS = 16;

/** The latest position of a sequence. A paged cache has pages up to here only. */
const MAX_POSITION = 300;

/** Gives values of leaves. */
export type Leaf = (node: Node) => Value | undefined;

/**
 * Whether the layers give the same bits in one dispatch as with barriers. `begins` is called when all is ready and the first
 * dispatch whose workgroups wait for each other is about to run. Rejects where the test cannot be made, as when weights went meanwhile.
 */
export async function sameBits(l: Lowering, ready: ReadyDecoder, leaf: Leaf, begins: () => void): Promise<boolean> {
  using barriers = new Layers(l, ready, "barriers", leaf);
  await setImmediate(); // tokens are waiting
  using persistent = new Layers(l, ready, "persistent", leaf);
  await Promise.all([barriers.prepare(), persistent.prepare()]);
  const expected = (await barriers.run(RUNS))!;
  begins();
  for (let i = 0; i < TESTS; i++) {
    const found = await persistent.run(RUNS);
    if (!found?.every((sum, i) => sum === expected[i])) return false;
  }
  return true;
}

/** Where the residual after the last layer lies in a state, and how to compare it. */
interface ResidualPlace {
  readonly stateBytes: number;
  readonly at: number;
  readonly bytes: number;
  sums(words: BigInt64Array): BigInt64Array;
}

const RESIDUAL_PLACES: Readonly<Record<LayerKernels, (d: DecoderSpec, mode: LaunchMode) => ResidualPlace>> = {
  batched(d) {
    const { bytes, x, xBytes, ROW_BLOCKS } = batchStateOf(d, tokensOf(d));
    return { stateBytes: bytes, at: x, bytes: ROW_BLOCKS * xBytes, sums: (words) => words };
  },
  gemv({ sizes }) {
    const { bytes, residual } = gemvStateOf(sizes);
    return { stateBytes: bytes, at: residual, bytes: 4 * sizes.hidden, sums: (words) => words };
  },
  split_k({ sizes, layers, cache }, mode) {
    const { bytes, before, beforeBytes, RESIDUAL_RING } = stateOf({ sizes, cache }, mode);
    return {
      stateBytes: bytes,
      at: before + layers.length % RESIDUAL_RING * beforeBytes,
      bytes: beforeBytes,
      sums: (words) => withoutCounts(addedUp(words, sizes.hidden), mode),
    };
  },
};

/**
 * The page table and the positions of a cache of which each sequence sees the first `seen` positions. Their pages belong to one sequence each, the
 * last ones first. Further entries of the table are 0, and no kernel reads them. A cache of its whole size would take a tenth of a second.
 */
export function madeUpPages(
  cache: KvPlace,
  sequences: number,
  seen: number,
): { readonly pages?: readonly number[]; readonly positions: number } {
  if (cache.kind === "contiguous") return { positions: sequences * cache.capacity };
  const columns = cache.table.shape[1];
  const each = Math.min(columns, Math.ceil(seen / cache.page));
  const pages = Array.from({ length: sequences * columns }, (_, i) => {
    const [sequence, column] = [Math.floor(i / columns), i % columns];
    return column < each ? sequences * each - 1 - sequence * each - column : 0;
  });
  return { pages, positions: sequences * each * cache.page };
}

/** The layers of a decoder by themselves in one mode, over a cache of numbers that are made up. */
class Layers implements Disposable {
  readonly #own: Lowering;
  readonly #words: Uint32Array;
  readonly #slots: SlotWords;
  /** Visible memory that the residual after the last layer is copied to, and the sums that lie there. */
  readonly #seen: { readonly buffer: number; readonly bytes: number };
  readonly #sums: (words: BigInt64Array) => BigInt64Array;
  #plan: PlanHandle | undefined;

  constructor(l: Lowering, ready: ReadyDecoder, mode: LaunchMode, leaf: Leaf) {
    const { decoder: d, kernels } = ready;
    const { sizes, features } = d;
    const capacity = capacityOf(d.cache);
    const { dtype } = d.layers[0].keys;
    const sequences = sequencesOf(d);
    const own = this.#own = new Lowering(l.backend, () => false, false);
    try {
      const filled = (bytes: number, fill: (at: number) => number): Value => {
        const pattern = Uint8Array.from({ length: Math.min(bytes, 256) }, (_, at) => fill(at));
        const content = new Uint8Array(bytes);
        for (let at = 0; at < bytes; at += pattern.length) content.set(pattern.subarray(0, bytes - at), at);
        return own.keep(bytes, false, content);
      };
      // Numbers of about 1 or 0.01 of either sign, as float16, bfloat16, float32 or codes, whose exponents are in the last byte of a word.
      const numbers = (count: number, dtype: Dtype): Value => {
        const bytes = isCoded(dtype) ? CODED_FEATURES : dtype.bytes;
        const last = (at: number): number => isCoded(dtype) ? 0x40 | at >> 2 & 31 : at & 16 ? 0x3c : 0xbc;
        const number = (at: number): number => at % bytes === bytes - 1 ? last(at) : at * 37 & 255;
        return { ...filled(count * dtype.bytes, number), dtype };
      };
      // Each sequence at a position of its own, with room for what it writes, each row with a token of its own.
      const indices = (count: number, of: (i: number) => number): Value => {
        const { buffer } = Int32Array.from({ length: count }, (_, i) => of(i));
        return own.keep(4 * count, false, new Uint8Array(buffer));
      };
      const latest = Math.min(capacity - (d.chunk?.count ?? 1), MAX_POSITION);
      const position = indices(sequences, (sequence) => Math.max(0, latest - 17 * sequence));
      const token = indices(tokensOf(d), (row) => row + 1);
      const { pages, positions } = madeUpPages(d.cache, sequences, latest + (d.chunk?.count ?? 1));
      const table = pages && indices(pages.length, (i) => pages[i]);
      const rows = positions * sizes.kvHeads * sizes.headDim;
      const cache = { keys: numbers(rows, dtype), values: numbers(rows, dtype) };
      const residual = RESIDUAL_PLACES[kernels](d, mode);
      const state = own.keep(residual.stateBytes);
      const status = mode === "barriers" ? undefined : own.keepStatus();
      const here = (value: Value | undefined): Value => {
        const source = value && l.slots[value.slot];
        if (source?.kind !== "storage") throw new Error("weights are not stored");
        return { ...value!, slot: own.storageSlot(source.storage) };
      };
      const shaped = (value: Value, shape: Shape, dtype: Dtype): Value => (
        { ...value, dtype, shape, strides: contiguousStrides(shape) }
      );
      const states = recurrentValues(d, (shape, dtype) => {
        const [seed, state] = [numbers(sizeOf(shape), dtype), own.keep(sizeOf(shape) * dtype.bytes)];
        const value = shaped(state, shape, dtype);
        own.copy(shaped(seed, shape, dtype), value, { preamble: true });
        return value;
      });
      const slot = d.recurrent?.layers[0].slot;
      if (slot) {
        states.set(slot.index, shaped(indices(1, () => 0), [1], int32));
        states.set(slot.position, shaped(position, [1], int32));
      }
      const value = (node: Node): Value => {
        if (table && d.cache.kind === "paged" && node === d.cache.table) return shaped(table, node.shape, int32);
        if (node === d.x) return shaped(numbers(sizeOf(node.shape), node.dtype), node.shape, node.dtype);
        const state = states.get(node);
        if (state) return state;
        return "ids" in d.x && node === d.x.ids ? token : here(leaf(node));
      };
      const mine = (values: readonly Value[]): readonly Value[] => values.map(here);
      const layerWeights = ({ qkv, o, gateUp, down, router }: LayerWeights): LayerWeights => ({
        qkv: mine(qkv),
        o: mine(o),
        gateUp: mine(gateUp),
        down: mine(down),
        ...(router && { router: mine(router) }),
      });
      const layers = ready.layers.map(layerWeights);
      const recurrent = ready.recurrent?.map(({ rates, ...rest }) => ({ ...layerWeights(rest), rates: mine(rates) }));
      // Large biases of keys cancel between rows of a cache that have them, which those made up here do not.
      const norms = features.qkvBias ? numbers(sizeOf(ready.norms.shape), ready.norms.dtype) : here(ready.norms);
      const stored = { ...ready, layers, norms, ...(recurrent && { recurrent }) };
      const Emitter = kernels === "batched" ? BatchEmitter : DecoderEmitter;
      const emitter = new Emitter({ l: own, ready: stored, mode, value, state, status });
      emitter.begin(d.x, position);
      emitter.layers(d.layers.map(() => cache));
      const see = (at: number, bytes: number): { buffer: number; bytes: number } => {
        const part = { shape: [bytes / 4], strides: [1], dtype: uint32 };
        own.copy({ ...state, ...part, offset: at / 4 }, { ...own.keep(bytes, true), ...part });
        return { buffer: own.kept[own.kept.length - 1].buffer, bytes };
      };
      this.#seen = see(residual.at, residual.bytes);
      this.#sums = residual.sums;
      this.#slots = encodeSlots(own.slots.map((source) => {
        if (source.kind !== "storage") throw new Error("weights are not aligned");
        return { buffer: source.storage.buffer, byteOffset: 0 };
      }));
      this.#words = own.builder.finish(own.slots.length, (slot) => slot);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  /** Makes the pipelines. */
  prepare(): Promise<void> {
    return this.#own.backend.prepare(this.#words);
  }

  /** The residual after the last layer after `times` runs in one submission; undefined if the status says that one failed. */
  async run(times: number): Promise<BigInt64Array | undefined> {
    const { backend, status } = this.#own;
    const plan = this.#plan ??= backend.compile(this.#words);
    await backend.waitAsync(backend.run(plan, this.#slots, times));
    if (status) {
      const word = new Uint8Array(4);
      backend.readMapped(status.buffer, 0, word);
      if (word.some((byte) => byte !== 0)) return undefined;
    }
    const words = new BigInt64Array(this.#seen.bytes / 8);
    backend.readMapped(this.#seen.buffer, 0, new Uint8Array(words.buffer));
    return this.#sums(words);
  }

  [Symbol.dispose](): void {
    if (this.#plan !== undefined) this.#own.backend.release(this.#plan);
    this.#plan = undefined;
    for (const storage of this.#own.kept.splice(0)) storage.release();
  }
}

/**
 * Values for the states of recurrent layers, which `make` makes: those of one slot. Steps replace them, so the runs of a submission go on from
 * each other, and what one of them leaves counts in the next.
 */
function recurrentValues(
  { recurrent }: DecoderSpec,
  make: (shape: Shape, dtype: Dtype) => Value,
): Map<Node, Value> {
  const parameters = recurrent?.layers.flatMap(({ past, matrix }) => [past.parameter, matrix.parameter]) ?? [];
  return new Map(parameters.map((node) => [node, make([1, ...node.shape.slice(1)], node.dtype)]));
}

/** The sums of one sequence over their copies; after 8 words lies a gap of 8. */
function addedUp(words: BigInt64Array, hidden: number): BigInt64Array {
  const sums = new BigInt64Array(hidden);
  words.forEach((word, i) => {
    if ((i & 8) === 0) sums[(i >> 4) * 8 % hidden + (i & 7)] += word;
  });
  return sums;
}

/** Accumulators that are waited for inside of a dispatch lie beside their counts. */
function withoutCounts(sums: BigInt64Array, mode: LaunchMode): BigInt64Array {
  return mode === "barriers" ? sums : sums.map((sum) => sum >> 8n);
}
