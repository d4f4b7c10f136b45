/**
 * The dispatches of a decoder: the start and the end of a token, and its layers. A layer is three dispatches, or all layers are one, see
 * shaders/decode/decode.glsl. Gemv layers are those of `emit_gemv.ts`.
 *
 * @module
 */

import type { KernelName } from "../../backend/kernels.ts";
import type { Matrix } from "../plan/pattern.ts";
import {
  beginPush,
  type Caches,
  decodePush,
  type DecoderPush,
  type Emission,
  hiddenValue,
  layerPush,
  normsOf,
  prefetchThreads,
  ropeFreqs,
  runsOfFormats,
  sizeConstants,
  specOf,
  SPIN_LIMIT,
  tableOfPages,
  walkOf,
  workgroupsOf,
} from "./emission.ts";
import { capacityOf, reachOf } from "./kv_place.ts";
import type { LaunchMode } from "./launch_mode.ts";
import { uint32 } from "../../graph/dtype.ts";
import type { Node } from "../../graph/node.ts";
import { type DecoderHead, type DecoderHidden, headOf, type TokenRow } from "./ends.ts";
import { emitBatch } from "./emit_batched.ts";
import { emitGemvLayers, gemvStateOf } from "./emit_gemv.ts";
import { isDenseDecoder, layerFormatWord } from "./formats.ts";
import { type DecoderSpec, kernel, type Phase, sequencesOf, THREADS } from "./spec.ts";
import {
  emitSamplingTail,
  emitTailLogprobs,
  endsInHead,
  type HeadResults,
  headResults,
  replaced,
} from "./emit_sampling_tail.ts";
import { decodeState } from "./states.ts";
import type { ReadyDecoder } from "./prepared_weights.ts";
import type { Lowering } from "../plan/context.ts";
import { rowsIn, type Value } from "../plan/value.ts";
import { options } from "../plan/options.ts";
import { tuningOf } from "../tuning/choose.ts";
import { checkedSpec, type Choice, type DrawBuffers, emitCounts, ringSize, samplingPush } from "../ops/sampling.ts";

/** Copies of the residual sums: half of the workgroups add to each. */
const COPIES = 2;
/** Features of short rows: a warp takes them at once. */
const SHORT_ROW = 1024;
/** Rows that a workgroup of the head makes at once, at least. */
const HEAD_ROWS = 32;
/** Workgroups that open a token. */
const BEGIN_WORKGROUPS = 16;
/** Layers of the largest decoder that runs in one dispatch: rows of the table in decode/layers.comp and decode_batched/layers.comp. */
export const MAX_LAYERS = 64;
/** Workgroups of the largest one: a sum counts its additions in 8 bits. */
export const MAX_WORKGROUPS = 255;
/** Bits of the phases in decode/layers.comp. */
const PHASES = { qkv: 1, attention: 2, mlp: 4 } as const;

/** Where the state of one token has its parts, and its bytes. */
export function stateOf(
  { sizes, cache }: Pick<DecoderSpec, "sizes" | "cache">,
  mode: LaunchMode,
): ReturnType<typeof decodeState> {
  const capacity = reachOf(cache);
  return decodeState({ ...sizeConstants(sizes), COPIES, POLLED: Number(mode !== "barriers"), capacity });
}

/** Emits the dispatches of one decoder; {@link emitDecoder} puts them together. */
export class DecoderEmitter {
  readonly #e: Emission;
  readonly #sequences: number;
  readonly #spec: Readonly<Record<string, number>>;
  /** Further constants of kernels that walk the cache: the others serve every capacity. */
  readonly #walk: Readonly<Record<string, number>>;
  readonly #push: DecoderPush;

  /** `state` has the bytes that {@link stateOf} says; it is kept, and there is a status, unless the launch mode is "barriers". */
  constructor(emission: Emission) {
    const { l, ready: { decoder: d } } = emission;
    const { unroll, rounds } = walkOf(capacityOf(d.cache));
    this.#e = emission;
    this.#sequences = sequencesOf(d);
    this.#spec = { ...specOf(d, l.backend), COPIES, UNROLL: 1, ROUNDS: 1 };
    this.#walk = { UNROLL: unroll, ROUNDS: rounds };
    this.#push = decodePush(d);
  }

  /**
   * The residual before the first layer: a vector, or the embedding of a token; and all else that opens it. `preamble` marks what comes
   * only before the first of several tokens.
   */
  begin(x: DecoderSpec["x"], position: Value, preamble: boolean = false): void {
    const table = "table" in x ? [this.#plain(x.ids), ...this.#table(x.table)] : NONE;
    const vector = "table" in x ? undefined : this.#plain(x);
    const { decoder } = this.#e.ready;
    const freqs = ropeFreqs(decoder, (node) => this.#plain(node));
    const buffers = [this.#e.state, position, vector, ...table, ...freqs];
    const push = { layer: decoder.layers.length, ...beginPush(decoder) };
    this.#run("begin", buffers, BEGIN_WORKGROUPS, { DTYPE_X: x.dtype.code }, push, preamble);
  }

  /** All layers over their caches. */
  layers(caches: Caches): void {
    if (this.#e.ready.kernels === "gemv") return emitGemvLayers(this.#e, caches);
    const { decoder: d, layers: prepared, norms } = this.#e.ready;
    const pages = tableOfPages(this.#e);
    const workgroups = workgroupsOf(d.sizes);
    const rows = d.layers.map((layer, i) => {
      const [q, k, v, gate, up] = [layer.q, layer.k, layer.v, layer.gate, layer.up].map((m) =>
        this.#e.l.contiguous(rowsIn(this.#e.value(m.codes), m.rows), true)
      );
      const { qkv, o, gateUp, down } = prepared[i];
      const { keys, values } = caches[i];
      return {
        norms: normsOf(norms, d, i),
        qkv: [q, k, v, qkv[0]],
        cache: [keys, values],
        o: [o[0], o[1]],
        mlp: [gate, up, gateUp[0], down[0], down[1]],
      };
    });
    const formatsOf = (layer: number): { FORMATS: number } => ({ FORMATS: layerFormatWord(d.layers[layer].formats) });
    if (this.#e.mode === "barriers") {
      rows.forEach(({ norms, qkv, cache, o, mlp }, layer) => {
        const push = layerPush(d, layer);
        const walks = { ...this.#walk, ...formatsOf(layer) };
        this.#run("qkv", [this.#e.state, norms, ...qkv, ...cache, pages], workgroups, walks, push);
        this.#run("attention", [this.#e.state, ...o, ...cache, pages], workgroups, walks, push);
        this.#run("mlp", [this.#e.state, norms, ...mlp], workgroups, formatsOf(layer), push);
      });
      return;
    }
    const table = rows.map(({ norms, qkv, cache, o, mlp }) => [norms, ...qkv, ...cache, ...o, ...mlp]);
    const run = (layer: number, layers: number, phases: number, prefetch: number = 0): void =>
      this.#e.l.emit(
        prefetch > 0 ? "decode_layers_prefetch" : "decode_layers",
        [this.#e.state, this.#e.status, pages],
        {
          threads: THREADS + prefetch,
          spec: {
            ...this.#spec,
            ...this.#walk,
            ...formatsOf(layer),
            ...(prefetch > 0 ? { PREFETCH_THREADS: prefetch } : {}),
          },
          push: { ...this.#push, ...layerPush(d, layer), layers, phases, spin_limit: options.spinLimit ?? SPIN_LIMIT },
          table: table.slice(layer, layer + layers),
          workgroups,
        },
      );
    if (this.#e.mode === "persistent") {
      for (const { first, count } of runsOfFormats(d.layers)) {
        const prefetch = prefetchThreads(d.sizes, d.layers[first].formats, this.#walk.UNROLL, this.#e.l.backend);
        run(first, count, PHASES.qkv | PHASES.attention | PHASES.mlp, prefetch);
      }
      return;
    }
    rows.forEach((_, layer) => Object.values(PHASES).forEach((phase) => run(layer, 1, phase)));
  }

  /** The residual after the last layer. */
  hidden(end: DecoderHidden): Value {
    const { decoder: d, norms } = this.#e.ready;
    const out = hiddenValue(this.#e, end);
    const buffers = [this.#e.state, normsOf(norms, d, d.layers.length), out];
    this.#run("hidden", buffers, BEGIN_WORKGROUPS, { DTYPE_OUT: out.dtype.code });
    return out;
  }

  /** The logits, if a node reads them, and the inputs of the step's end. With `advances` it opens the next token. */
  head(out: DecoderHead, advances: boolean): HeadResults {
    const count = this.#headWorkgroups(out);
    const results = headResults(this.#e.l, out, this.#sequences, count, this.#e.value);
    const { logits, best, scratch, recent, spec } = results;
    this.#run("head", [...this.#headInputs(out), logits, best, scratch, recent], count, {
      ...spec,
      ADVANCES: Number(advances),
    });
    return results;
  }

  /** The head, the choice of the largest logit as the token, the state of the loop and the embedding of the next token. */
  greedy(x: TokenRow, out: DecoderHead, choice: Choice, { next, position, rings = [] }: DrawBuffers): void {
    const { accumulators, kernels } = this.#e.ready;
    const count = this.#headWorkgroups(out);
    const best = accumulators === "u64" || kernels === "gemv"
      ? undefined
      : this.#e.l.temporary([this.#sequences, count, 2], uint32);
    const buffers = [...this.#headInputs(out), best, next, position, rings[0], rings[1], ...this.#table(x.table)];
    this.#run("greedy", buffers, count, {
      DTYPE_OUT: out.logits.dtype.code,
      DTYPE_X: x.dtype.code,
      LOG_SIZE: ringSize(rings[0]),
      RECENT_SIZE: ringSize(rings[1]),
      ...checkedSpec(choice),
    });
  }

  /** The choice of the token from what the head left, the state of the loop and the embedding of the next token. */
  draw(
    x: TokenRow,
    { vocabulary }: DecoderHead,
    choice: Choice,
    head: HeadResults,
    { key, next, position, rings = [] }: DrawBuffers,
  ): void {
    const { layers } = this.#e.ready.decoder;
    const { spec, logits, workgroups } = emitCounts(
      this.#e.l,
      choice,
      this.#sequences,
      vocabulary,
      head,
    );
    const { best, scratch, settings } = head;
    const state = [key, next, position, rings[0], rings[1]];
    const buffers = [logits, best, scratch, settings, ...state, ...this.#table(x.table)];
    this.#run(
      "draw",
      [this.#e.state, ...buffers],
      workgroups[0],
      {
        ...spec,
        DTYPE_X: x.dtype.code,
        LOG_SIZE: ringSize(rings[0]),
        RECENT_SIZE: ringSize(rings[1]),
      },
      {
        ...samplingPush(this.#sequences, vocabulary, best.shape[1], settings),
        layer: layers.length,
      },
    );
  }

  #kernel(phase: Phase): KernelName {
    const { kernels, accumulators } = this.#e.ready;
    if (phase === "qkv" || phase === "attention" || phase === "mlp") return kernel(phase, accumulators);
    if (kernels === "gemv") return `decode_${phase}_gemv`;
    return this.#e.mode === "barriers" ? kernel(phase, accumulators) : `decode_${phase}_poll`;
  }

  #headWorkgroups({ vocabulary }: DecoderHead): number {
    const { decoder } = this.#e.ready;
    const { sizes } = decoder;
    const { short, long } = tuningOf(this.#e.l.backend).decode.headWorkgroups;
    const most = sizes.hidden > SHORT_ROW || isDenseDecoder(decoder) ? long : short;
    return Math.min(most, Math.ceil(vocabulary / HEAD_ROWS));
  }

  #headInputs(out: DecoderHead): readonly (Value | undefined)[] {
    const { decoder: d, head, norms } = this.#e.ready;
    return [this.#e.state, normsOf(norms, d, d.layers.length), this.#plain(out.head.codes), head[0]];
  }

  #table({ codes, scales, biases }: Matrix): readonly (Value | undefined)[] {
    return [codes, scales, biases].map((node) => node && this.#plain(node));
  }

  #plain(node: Node): Value {
    return this.#e.l.contiguous(this.#e.value(node), true);
  }

  #run(
    phase: Phase,
    buffers: readonly (Value | undefined)[],
    workgroups: number,
    spec: Readonly<Record<string, number>>,
    push: Readonly<Record<string, number | readonly number[]>> = { layer: this.#e.ready.decoder.layers.length },
    preamble: boolean = false,
  ): void {
    this.#e.l.emit(this.#kernel(phase), buffers, {
      threads: THREADS,
      spec: { ...this.#spec, ...spec },
      push: { ...this.#push, ...push },
      workgroups: phase === "head" || phase === "greedy"
        ? [this.#sequences, workgroups, 1]
        : [workgroups, this.#sequences, 1],
      preamble,
    });
  }
}

const NONE = [undefined, undefined, undefined, undefined];

/** Emits the dispatches of a decoder. `value` gives the value of a node outside of it, `done` takes those of its results. */
export function emitDecoder(
  l: Lowering,
  ready: ReadyDecoder,
  mode: LaunchMode,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const { decoder: d } = ready;
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const caches: Caches = d.layers.map((layer) => {
    const [keys, values] = [layer.keys, layer.values].map((update) => {
      const base = value(update.inputs[0]);
      l.donated.push({ base: update.inputs[0], node: update });
      done(update, base);
      return base;
    });
    return { keys, values };
  });
  for (const { past, matrix } of d.recurrent?.layers ?? []) {
    for (const { parameter, value: next } of [past, matrix]) done(next, value(parameter)); // replaced in place
  }
  if (ready.kernels === "batched") return emitBatch(l, ready, mode, caches, value, done);
  const { bytes } = ready.kernels === "gemv" ? gemvStateOf(d.sizes) : stateOf(d, mode);
  const looped = loopedToken(d, value);
  const state = mode === "barriers" && !looped
    ? l.temporary([sequencesOf(d), bytes / 4], uint32)
    : l.keep(sequencesOf(d) * bytes);
  const status = mode === "barriers" ? undefined : l.keepStatus();
  const emitter = new DecoderEmitter({ l, ready, mode, value, state, status });
  emitter.begin(d.x, plain(d.position), looped !== undefined);
  emitter.layers(caches);
  const { out } = d;
  if (!("head" in out)) return done(out.hidden, emitter.hidden(out));
  const { end } = out;
  if (looped && end && endsInHead(end) && !out.keepsLogits) {
    emitter.greedy(looped, out, end.choice, replaced(end, value, done));
    return;
  }
  const results = emitter.head(out, looped !== undefined);
  if (results.logits) done(out.logits, results.logits);
  if (looped && end) {
    const buffers = replaced(end, value, done);
    emitter.draw(looped, out, end.choice, results, buffers);
    emitTailLogprobs(l, results, sequencesOf(d), out.vocabulary, end, buffers, value, done);
  } else emitSamplingTail(l, results, sequencesOf(d), out, value, done);
}

/** The token that a decoder reads, if it is the one that the previous step chose, at the next position. */
function loopedToken(decoder: DecoderSpec, value: (node: Node) => Value): TokenRow | undefined {
  const { x, position } = decoder;
  const end = headOf(decoder)?.end;
  if (!end || !("table" in x)) return undefined;
  const same = (a: Node, b: Node): boolean => value(a).slot === value(b).slot && value(a).offset === value(b).offset;
  return same(x.ids, end.next.parameter) && same(position, end.position.parameter) ? x : undefined;
}
