/**
 * The decode loop: one token per step, with everything that changes from token to token on the device.
 *
 * A step embeds the last token, runs the model over the cache's buffers, chooses the next token and writes the new state in
 * place of the old. It is traced once per cache capacity; the host only submits it, several at a time on a fast device, and
 * reads the tokens from a log that it can see while later steps run.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { keyAfter } from "../array/keys.ts";
import { FastPathFailure, Loop, MAX_STEPS, peek, visible } from "../array/loop.ts";
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
  /** int32 (LOG,): chosen tokens by position modulo its size. */
  readonly log: Tensor;
  readonly keys: readonly Tensor[];
  readonly values: readonly Tensor[];
}

/** Tokens that the log keeps: more than are ever on their way. */
const LOG = 4 * MAX_STEPS;
/** Milliseconds that the steps of one submission should take at most, so that text flows and a stop wastes little. */
const BATCH_MS = 10;

/** Steps on their way to the device. */
interface Batch {
  readonly loop: Loop<State>;
  readonly ticket: number;
  readonly count: number;
}

/** Generates tokens from a prompt that is in the cache but for its last token. */
export class Decoder implements Disposable {
  readonly #model: LanguageModel;
  readonly #cache: KvCache;
  readonly #options: DecodeOptions;
  /** The tokens so far: the prompt and what was generated. */
  readonly #tokens: number[];
  #small: Pick<State, "token" | "position" | "key" | "recent" | "log">;
  #loop: Loop<State> | undefined;
  #capacity = 0;
  /** Loops of smaller caches, which steps may still run over. */
  readonly #outgrown: Loop<State>[] = [];

  constructor(model: LanguageModel, cache: KvCache, prompt: readonly number[], options: DecodeOptions) {
    this.#model = model;
    this.#cache = cache;
    this.#options = options;
    this.#tokens = [...prompt];
    this.#small = this.#start(0);
  }

  /** The state behind the tokens so far, of which `drawn` were chosen here. */
  #start(drawn: number): Pick<State, "token" | "position" | "key" | "recent" | "log"> {
    const { sampler, processors, contextSize } = this.#options;
    const own = (array: Tensor): Tensor => {
      untrack(array);
      return array;
    };
    const { offset } = this.#cache;
    const tokens = this.#tokens;
    return {
      token: own(mx.array([tokens.slice(-1)], mx.int32)),
      position: own(mx.array([offset], mx.int32)),
      key: sampler.key && own(mx.array([...keyAfter(sampler.key, drawn)], mx.uint32)),
      recent: processors.length > 0 ? own(mx.array(ring(tokens, offset, contextSize), mx.int32)) : undefined,
      log: own(visible(new Int32Array(LOG))),
    };
  }

  /**
   * Yields up to `count` tokens; may be called once. The first comes as soon as it is there. On a fast device later ones come
   * in batches, and the next batch runs while one is read. Afterwards the cache holds all tokens that were fed to get those
   * that were yielded. Steps that did not end well are done again in another way, see {@link FastPathFailure}.
   */
  async *tokens(count: number): AsyncGenerator<number, void, void> {
    const first = this.#cache.offset + 1;
    const flight: Batch[] = [];
    let submitted = 0;
    let finished = 0;
    let yielded = 0;
    let size = 1;
    let perToken = Infinity; // milliseconds
    try {
      while (finished < count) {
        // One batch ahead, where that does not mean a long wait at the end.
        const depth = perToken <= BATCH_MS ? 2 : 1;
        while (flight.length < depth && submitted < count) {
          const batch = this.#submit(Math.min(size, count - submitted));
          submitted += batch.count;
          flight.push(batch);
        }
        const [batch] = flight;
        const started = performance.now();
        if (!await endsWell(batch)) {
          for (const later of flight.splice(0)) await endsWell(later);
          this.#cache.trim(submitted - finished);
          submitted = finished;
          this.#restart(finished);
          continue;
        }
        const waited = (performance.now() - started) / batch.count;
        flight.shift();
        const log = peek(this.#small.log);
        const from = finished;
        finished += batch.count;
        for (let i = from; i < finished; i++) this.#tokens.push(log[(first + i) % LOG]);
        for (const token of this.#tokens.slice(-batch.count)) {
          yielded++;
          yield token;
        }
        // The first batch also waited for the prompt and for its own preparation; one that was done already tells nothing.
        if (from > 0 && (perToken === Infinity || waited > perToken / 2)) perToken = waited;
        size = Math.max(1, Math.min(2 * size, MAX_STEPS / 2, Math.floor(BATCH_MS / perToken)));
      }
    } finally {
      for (const batch of flight) await endsWell(batch);
      this.#cache.trim(submitted - yielded);
    }
  }

  /** Goes back to the state behind the last good token, of which `drawn` were chosen here. */
  #restart(drawn: number): void {
    this.#release();
    this.#small = this.#start(drawn);
    this.#capacity = 0;
  }

  /** Submits up to `most` steps: as many as the cache has room for before it grows. */
  #submit(most: number): Batch {
    const cache = this.#cache;
    cache.reserve(1);
    if (this.#capacity !== cache.capacity) this.#trace();
    const loop = this.#loop!;
    const count = Math.min(most, cache.capacity - cache.offset);
    cache.advance(count);
    return { loop, ticket: loop.run(count), count };
  }

  /** Frees the step and its state; the cache stays. */
  [Symbol.dispose](): void {
    this.#release();
  }

  #release(): void {
    for (const loop of this.#outgrown.splice(0)) loop[Symbol.dispose]();
    this.#loop?.[Symbol.dispose]();
    this.#loop = undefined;
    mx.dispose(this.#small);
  }

  #trace(): void {
    if (this.#loop) this.#outgrown.push(this.#loop);
    this.#capacity = this.#cache.capacity;
    const state: State = { ...this.#small, keys: this.#cache.keys, values: this.#cache.values };
    this.#loop = new Loop(state, (now) => this.#step(now));
  }

  #step({ token, position, key, recent, log, keys, values }: State): State {
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
      log: mx.sliceUpdate(log, next, mx.remainder(after, LOG), [0], { donate: true }),
      keys: cache.keys,
      values: cache.values,
    };
  }
}

/** Whether the steps of a batch ended well. */
async function endsWell({ loop, ticket }: Batch): Promise<boolean> {
  try {
    await loop.done(ticket);
    return true;
  } catch (error) {
    if (error instanceof FastPathFailure) return false;
    throw error;
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
