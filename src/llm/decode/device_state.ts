/**
 * The state of a session on the device: the cache and all else that changes from token to token. Nothing else writes it, so the tokens that
 * the cache counts are those of the position.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { keyAfter } from "../../array/random/keys.ts";
import { hostVisible, writeState } from "../../array/compile/loop.ts";
import type { Buffers, KvCache } from "../kv/cache.ts";
import type { LanguageModel } from "../models/mod.ts";
import type { DecodedSequence } from "./sequence.ts";
import type { HeadState } from "./head.ts";
import { ring, ringWeights } from "./rings.ts";
import { type DecodeOptions, type DecodeScalars, detach, logprobsLog, type State, tokenLog } from "./state.ts";

/** The part of the cache that a session reads. */
export type HeldCache = Pick<KvCache, "buffers" | "capacity" | "fused" | "hasState" | "limit" | "offset" | "outgrown">;

/** The state of a session, and the one place that changes it. */
export class DeviceState implements Disposable {
  readonly #cache: KvCache;
  readonly #options: DecodeOptions;
  readonly #sequence: DecodedSequence;
  /** The cache of the head, if that drafts. It has as many positions as the model's, and `start` is the position of its first token. */
  readonly #head:
    | { readonly cache: KvCache; readonly start: number; readonly hidden: Pick<Tensor, "shape" | "dtype"> }
    | undefined;
  /** The cache, to be read; with the keys and values of the head. */
  readonly cache: HeldCache;
  #scalars: DecodeScalars;

  /** Before what the prompt has after the cache, which stays its owner's. */
  constructor(model: LanguageModel, cache: KvCache, options: DecodeOptions, sequence: DecodedSequence) {
    this.#cache = cache;
    this.#options = options;
    this.#sequence = sequence;
    if (options.speculation?.byHead) {
      this.#head = { cache: model.makeDraftCache(), start: cache.offset, hidden: hiddenOf(model) };
    }
    this.cache = this.#head ? new HeadedCache(cache, this.#head.cache) : cache;
    this.#scalars = this.#unread();
  }

  /** The state but for the cache. */
  get scalars(): DecodeScalars {
    return this.#scalars;
  }

  /** The whole state. */
  get all(): State {
    return { ...this.#scalars, ...this.cache.buffers };
  }

  /** Makes room in the cache, see {@link KvCache.reserve}. */
  reserve(count: number, rows?: number): void {
    this.#cache.reserve(count, rows);
    this.#head?.cache.reserve(0, this.#cache.capacity);
  }

  /** Counts tokens that a step which is submitted now feeds. */
  advance(count: number): void {
    this.#cache.advance(count);
  }

  /** Keeps the recurrent state as it is now, see {@link KvCache.checkpoint}. */
  checkpoint(): void {
    this.#cache.checkpoint();
  }

  /**
   * Counts the last tokens no more: their step was left out, did not end well, or is not wanted. Where layers have a recurrent state, the
   * tokens since its last copy go too.
   */
  takeBack(count: number): void {
    const { offset } = this.#cache;
    this.#cache.trim(offset - this.#cache.reachable(offset - count));
  }

  /** Puts a token of the prompt in the place of the one that was chosen, as if none had been. */
  replaceToken(id: number): void {
    const { key } = this.#sequence;
    const { token, key: state, recent, weights } = this.#scalars;
    writeState(token, Int32Array.of(id));
    if (key) writeState(state!, Uint32Array.from(key));
    if (recent) writeState(recent, Int32Array.from(this.#recent!));
    if (weights) writeState(weights, Float32Array.from(this.#weights!));
  }

  /** Goes back to the state before the last `count` tokens of the prompt. The one there was must have been let go. */
  rewind(count: number): void {
    this.takeBack(count);
    this.#scalars = this.#unread();
  }

  /**
   * Goes back to the state after step number `steps`, made again from the tokens that were taken. The one there was must have been let go. The
   * position is that of the cache: {@link DeviceState.takeBack} may have gone further back.
   */
  restartAfter(steps: number): void {
    const { sampler, processors, contextSize, logprobs } = this.#options;
    const { tokens, last, key } = this.#sequence;
    const at = last + steps;
    const rings = (make: typeof ring, dtype: mx.Dtype): Tensor =>
      detach(mx.array([make(tokens, at, contextSize)], dtype));
    this.#scalars = {
      token: detach(mx.array([tokens.slice(-1)], mx.int32)),
      position: detach(mx.array([this.#cache.offset], mx.int32)),
      key: sampler.key && detach(mx.array([[...keyAfter(key!, steps)]], mx.uint32)),
      recent: processors.length > 0 ? rings(ring, mx.int32) : undefined,
      weights: processors.some(({ counts }) => counts) ? rings(ringWeights, mx.float32) : undefined,
      log: tokenLog(1),
      logprobs: logprobsLog(logprobs, 1),
      head: this.#headState,
    };
  }

  /** What the head begins with: nothing. */
  get #headState(): HeadState | undefined {
    if (!this.#head) return undefined;
    const { start, hidden: { shape, dtype } } = this.#head;
    return { start: detach(mx.array([start], mx.int32)), hidden: detach(mx.zeros(shape, dtype)) };
  }

  /** Lets the state go; the caches stay. */
  [Symbol.dispose](): void {
    mx.dispose(this.#scalars);
  }

  /** Frees the cache of the head. */
  end(): void {
    this.#head?.cache.dispose();
  }

  /** The state before the rest of the prompt. */
  #unread(): DecodeScalars {
    const { key } = this.#sequence;
    const recent = this.#recent;
    const weights = this.#weights;
    return {
      token: detach(hostVisible(Int32Array.of(0), [1, 1])),
      position: detach(hostVisible(Int32Array.of(this.#cache.offset))),
      key: key && detach(mx.array([[...key]], mx.uint32)),
      recent: recent && detach(mx.array([recent], mx.int32)),
      weights: weights && detach(mx.array([weights], mx.float32)),
      log: tokenLog(1),
      logprobs: logprobsLog(this.#options.logprobs, 1),
      head: this.#headState,
    };
  }

  /** The ring of recent tokens that choosing the first one looks at. */
  get #recent(): number[] | undefined {
    const { tokens, last } = this.#sequence;
    const { processors, contextSize } = this.#options;
    return processors.length > 0 ? ring(tokens, last, contextSize) : undefined;
  }

  /** Which places of that ring have tokens, where a processor counts them. */
  get #weights(): number[] | undefined {
    const { tokens, last } = this.#sequence;
    const { processors, contextSize } = this.#options;
    return processors.some(({ counts }) => counts) ? ringWeights(tokens, last, contextSize) : undefined;
  }
}

/** What a hidden state of one token is. */
function hiddenOf(model: LanguageModel): Pick<Tensor, "shape" | "dtype"> {
  return mx.tidy(() => {
    const { shape, dtype } = model.hidden(mx.zeros([1, 1], mx.int32));
    return { shape, dtype };
  });
}

/** A cache with the keys and values of a head beside its own. */
class HeadedCache implements HeldCache {
  readonly #cache: KvCache;
  readonly #head: KvCache;
  /** Short prompts are no steps of decoding, which would give the head what they chose. */
  readonly fused = false;

  constructor(cache: KvCache, head: KvCache) {
    this.#cache = cache;
    this.#head = head;
  }

  get buffers(): Buffers {
    return withHead(this.#cache.buffers, this.#head.buffers);
  }

  get capacity(): number {
    return this.#cache.capacity;
  }

  get hasState(): boolean {
    return this.#cache.hasState;
  }

  get limit(): number {
    return this.#cache.limit;
  }

  get offset(): number {
    return this.#cache.offset;
  }

  outgrown(times?: number, positions?: number): Buffers | undefined {
    const [own, head] = [this.#cache, this.#head].map((cache) => cache.outgrown(times, positions));
    if (own && head) return withHead(own, head);
    mx.dispose(own ?? [], head ?? []);
    return undefined;
  }
}

function withHead(own: Buffers, { keys, values }: Buffers): Buffers {
  return { ...own, draftKeys: keys, draftValues: values };
}
