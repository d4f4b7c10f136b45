/**
 * The decode loop: one token per step, with everything that changes from token to token on the device.
 *
 * A step embeds the last token, runs the model over the cache's buffers, chooses the next token and writes the new state in
 * place of the old. It is traced once per cache capacity; the host only submits it and reads the token.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { Loop } from "../array/loop.ts";
import { untrack } from "../array/scope.ts";
import { type KvCache, StepCache } from "./kv_cache.ts";
import type { LanguageModel } from "./models/mod.ts";
import type { LogitsProcessor, Sampler } from "./sampler.ts";

/** How tokens are chosen. */
export interface DecodeOptions {
  readonly sampler: Sampler;
  readonly processors: readonly LogitsProcessor[];
  /** Number of recent tokens that processors see. */
  readonly contextSize: number;
}

/** What changes from token to token. */
interface State {
  /** int32 (1, 1): the token to feed. */
  readonly token: Tensor;
  /** int32 (1,): its position. */
  readonly position: Tensor;
  /** uint32 (2,): state of the random numbers, where there are any. */
  readonly key: Tensor | undefined;
  /** int32 (contextSize,): the last tokens in a ring, the one to feed included, where a processor looks at them. */
  readonly recent: Tensor | undefined;
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
}

/** Generates tokens from a prompt that is in the cache but for its last token. */
export class Decoder implements Disposable {
  readonly #model: LanguageModel;
  readonly #cache: KvCache;
  readonly #options: DecodeOptions;
  readonly #small: Pick<State, "token" | "position" | "key" | "recent">;
  #loop: Loop<State> | undefined;
  #capacity = 0;

  constructor(model: LanguageModel, cache: KvCache, prompt: readonly number[], options: DecodeOptions) {
    const { sampler, processors, contextSize } = options;
    this.#model = model;
    this.#cache = cache;
    this.#options = options;
    const own = (array: Tensor): Tensor => {
      untrack(array);
      return array;
    };
    this.#small = {
      token: own(mx.array([prompt.slice(-1)], mx.int32)),
      position: own(mx.array([cache.offset], mx.int32)),
      key: sampler.key && own(mx.array([...sampler.key], mx.uint32)),
      recent: processors.length > 0 ? own(mx.array(ring(prompt, cache.offset, contextSize), mx.int32)) : undefined,
    };
  }

  /** Runs one step and returns its token. The cache then holds the token that was fed. */
  async next(): Promise<number> {
    this.#cache.reserve(1);
    if (this.#capacity !== this.#cache.capacity) this.#trace();
    this.#loop!.run();
    this.#cache.advance(1);
    await this.#loop!.done();
    return Number(this.#small.token.item());
  }

  /** Frees the step and its state; the cache stays. */
  [Symbol.dispose](): void {
    this.#loop?.[Symbol.dispose]();
    mx.dispose(this.#small);
  }

  #trace(): void {
    this.#loop?.[Symbol.dispose]();
    this.#capacity = this.#cache.capacity;
    const state: State = { ...this.#small, keys: this.#cache.keys, values: this.#cache.values };
    this.#loop = new Loop(state, (now) => this.#step(now));
  }

  #step({ token, position, key, recent, keys, values }: State): State {
    const { sampler, processors, contextSize } = this.#options;
    const cache = new StepCache(keys, values, position);
    let logits = this.#model.forward(token, cache).reshape([1, -1]);
    for (const process of processors) logits = process(recent!, logits);
    // As MLX does with its global state: the first half stays, the second is for this draw.
    const [stays, draw] = key ? mx.split(mx.random.split(key), 2).map((k) => k.reshape([2])) : [undefined, position];
    const next = sampler(logits, draw).astype(mx.int32);
    const after = mx.add(position, 1);
    return {
      token: next.reshape([1, 1]),
      position: after,
      key: stays,
      recent: recent && mx.sliceUpdate(recent, next, mx.remainder(after, contextSize), [0], { donate: true }),
      keys: cache.keys,
      values: cache.values,
    };
  }
}

/** The last tokens by position modulo size; places that no token reached hold the last one, which a set does not notice. */
function ring(prompt: readonly number[], last: number, size: number): number[] {
  const slots = new Array<number>(size).fill(prompt[prompt.length - 1]);
  for (let back = Math.min(size, prompt.length) - 1; back >= 0; back--) {
    slots[(((last - back) % size) + size) % size] = prompt[prompt.length - 1 - back];
  }
  return slots;
}
