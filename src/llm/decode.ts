/**
 * The decode loop: a step is traced once per cache capacity and runs again and again on the device, for one sequence or for
 * several that advance together.
 *
 * All that changes from token to token lies on the device: the tokens, their positions, the states of the random numbers, the
 * recent tokens that the repetition penalty looks at, and the cache. The host submits steps and reads tokens from a log in memory
 * that it can see, so a step allocates, lowers and binds nothing. The first token is waited for by itself; on a fast device
 * later steps go out in batches, each submitted while the one before runs.
 *
 * Sequences have rows of the state; all rows advance at every step. A row whose sequence has ended computes on, and is dropped
 * when at least half of the rows have ended.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import { Loop, MAX_STEPS, peek, visible } from "../array/loop.ts";
import type { Tensor } from "../array/mod.ts";
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

/** A sequence to continue. */
export interface Sequence {
  /** Its prompt, which is in the cache but for its last token. */
  readonly prompt: readonly number[];
  /** Position of that token. */
  readonly offset: number;
  /** State of its random numbers, where any are drawn. */
  readonly key: Sampler["key"];
  /** Most tokens to generate. */
  readonly limit: number;
}

/** A token of a sequence. */
export interface DecodedToken {
  /** Number of the sequence. */
  readonly sequence: number;
  readonly token: number;
}

/** What changes from token to token; B rows. */
interface State {
  /** int32 (B, 1): the tokens to feed. */
  readonly token: Tensor;
  /** int32 (B,): their positions. */
  readonly position: Tensor;
  /** uint32 (B, 2): states of the random numbers, where there are any. */
  readonly key: Tensor | undefined;
  /** int32 (B, contextSize): the last tokens in a ring, the one to feed included, where a processor looks at them. */
  readonly recent: Tensor | undefined;
  /** int32 (B, LOG): chosen tokens by position modulo its size. */
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

/** A row of the state. */
interface Row {
  /** Number of its sequence. */
  readonly sequence: number;
  /** Position of its first token to feed. */
  readonly offset: number;
  readonly limit: number;
  ended: boolean;
}

/** Generates tokens from prompts that are in the cache but for their last tokens. */
export class Decoder implements Disposable {
  readonly #model: LanguageModel;
  readonly #cache: KvCache;
  readonly #options: DecodeOptions;
  #small: Pick<State, "token" | "position" | "key" | "recent" | "log">;
  #rows: Row[];
  #loop: Loop<State> | undefined;
  #capacity = 0;
  /** Loops of smaller caches, which steps may still run over. */
  readonly #outgrown: Loop<State>[] = [];

  /** `cache` has a row for each sequence and belongs to the caller. */
  constructor(model: LanguageModel, cache: KvCache, sequences: readonly Sequence[], options: DecodeOptions) {
    const { processors, contextSize } = options;
    this.#model = model;
    this.#cache = cache;
    this.#options = options;
    this.#rows = sequences.map(({ offset, limit }, sequence) => ({ sequence, offset, limit, ended: limit <= 0 }));
    const keys = sequences.map(({ key }) => key);
    this.#small = {
      token: own(mx.array(sequences.map(({ prompt }) => prompt.slice(-1)), mx.int32)),
      position: own(mx.array(sequences.map(({ offset }) => offset), mx.int32)),
      key: keys.every((key) => key !== undefined) ? own(mx.array(keys.map((key) => [...key]), mx.uint32)) : undefined,
      recent: processors.length > 0
        ? own(mx.array(sequences.map(({ prompt, offset }) => ring(prompt, offset, contextSize)), mx.int32))
        : undefined,
      log: own(emptyLog(sequences.length)),
    };
  }

  /**
   * Yields tokens until every sequence has ended, step by step and in the order of sequences within a step; may be called once. The
   * first ones come as soon as they are there. On a fast device later ones come in batches, and the next batch runs while one is
   * read. Afterwards the cache holds all tokens that were fed to get those that were yielded, of the longest sequence.
   */
  async *tokens(): AsyncGenerator<DecodedToken, void, void> {
    const flight: Batch[] = [];
    let submitted = 0;
    let finished = 0;
    let yielded = 0;
    let size = 1;
    let perStep = Infinity; // milliseconds
    try {
      while (this.#rows.some((row) => !row.ended)) {
        const most = Math.max(...this.#rows.map((row) => row.ended ? 0 : row.limit));
        const narrow = this.#hasIdleRows(submitted);
        if (narrow && flight.length === 0) this.#dropEnded(submitted);
        // One batch ahead, where that does not mean a long wait at the end.
        const depth = perStep <= BATCH_MS ? 2 : 1;
        // A row that stands at the end of the context is read, and dropped, before others go on.
        const goesOn = (): boolean => flight.length === 0 || (!narrow && this.#cache.offset < this.#cache.limit);
        while (flight.length < depth && submitted < most && goesOn()) {
          const batch = this.#submit(Math.min(size, most - submitted));
          submitted += batch.count;
          flight.push(batch);
        }
        const [batch] = flight;
        const started = performance.now();
        await batch.loop.done(batch.ticket);
        const waited = (performance.now() - started) / batch.count;
        flight.shift();
        const log = peek(this.#small.log);
        const from = finished;
        finished += batch.count;
        for (let step = from + 1; step <= finished; step++) {
          for (const [i, row] of this.#rows.entries()) {
            if (row.ended) continue;
            yielded = step;
            row.ended = step === row.limit;
            yield { sequence: row.sequence, token: log[i * LOG + (row.offset + step) % LOG] };
          }
        }
        // The first batch also waited for the prompt and for its own preparation; one that was done already tells nothing.
        if (from > 0 && (perStep === Infinity || waited > perStep / 2)) perStep = waited;
        size = Math.max(1, Math.min(2 * size, MAX_STEPS / 2, Math.floor(BATCH_MS / perStep)));
      }
    } finally {
      for (const batch of flight) await batch.loop.done(batch.ticket);
      this.#cache.trim(submitted - yielded);
    }
  }

  /** Ends a sequence: no more tokens of it are yielded. */
  end(sequence: number): void {
    for (const row of this.#rows) row.ended ||= row.sequence === sequence;
  }

  /** Submits up to `most` steps: as many as the cache has room for before it grows. */
  #submit(most: number): Batch {
    const cache = this.#cache;
    cache.reserve(1);
    if (this.#capacity !== cache.capacity) this.#trace();
    const loop = this.#loop!;
    const count = Math.min(most, Math.min(cache.capacity, cache.limit) - cache.offset);
    cache.advance(count);
    return { loop, ticket: loop.run(count), count };
  }

  /** Whether half of the rows have ended, or one that has stands where the context ends for it but not for others. */
  #hasIdleRows(submitted: number): boolean {
    const ended = this.#rows.filter((row) => row.ended);
    return 2 * ended.length >= this.#rows.length || ended.some((row) => row.offset + submitted >= this.#cache.limit);
  }

  /** Goes on with the rows that have not ended. Nothing may be on its way. */
  #dropEnded(submitted: number): void {
    const kept = this.#rows.flatMap((row, i) => row.ended ? [] : [i]);
    this.#rows = kept.map((i) => this.#rows[i]);
    this.#cache.keep(kept, Math.max(...this.#rows.map((row) => row.offset)) + submitted);
    const { token, position, key, recent } = this.#small;
    const rows = mx.array(kept, mx.int32);
    const take = (array: Tensor): Tensor => own(mx.take(array, rows, 0));
    const small = {
      token: take(token),
      position: take(position),
      key: key && take(key),
      recent: recent && take(recent),
      log: own(emptyLog(kept.length)),
    };
    mx.eval(...Object.values(small).filter((array) => array !== undefined), ...this.#cache.state);
    this.#free();
    rows[Symbol.dispose]();
    this.#small = small;
    this.#capacity = 0;
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
    const [rows] = token.shape;
    let logits = this.#model.forward(token, cache).reshape([rows, -1]);
    for (const process of processors) logits = process(recent!, logits);
    // As MLX does with its global state: the first half stays, the second is for this draw.
    const [stays, draw] = key
      ? mx.split(mx.random.split(key), 2, 1).map((half) => half.reshape([rows, 2]))
      : [undefined, position];
    const next = sampler(logits, draw).astype(mx.int32).reshape([rows, 1]);
    const after = mx.add(position, 1);
    const put = (array: Tensor, size: number): Tensor =>
      mx.sliceUpdate(array, next, mx.remainder(after, size).reshape([rows, 1]), [1], { donate: true });
    return {
      token: next.reshape([rows, 1]),
      position: after,
      key: stays,
      recent: recent && put(recent, contextSize),
      log: put(log, LOG),
      keys: cache.keys,
      values: cache.values,
    };
  }

  /** Frees the steps and their state; the cache stays. */
  [Symbol.dispose](): void {
    this.#free();
  }

  #free(): void {
    for (const loop of this.#outgrown.splice(0)) loop[Symbol.dispose]();
    this.#loop?.[Symbol.dispose]();
    this.#loop = undefined;
    mx.dispose(this.#small);
  }
}

/** Takes an array out of the scopes of tidy(). */
function own(array: Tensor): Tensor {
  untrack(array);
  return array;
}

function emptyLog(rows: number): Tensor {
  return visible(new Int32Array(rows * LOG), [rows, LOG]);
}

/** The last tokens by position modulo size; places that no token reached hold the last one, which a set does not notice. */
function ring(prompt: readonly number[], last: number, size: number): number[] {
  const slots = new Array<number>(size).fill(prompt[prompt.length - 1]);
  for (let back = Math.min(size, prompt.length) - 1; back >= 0; back--) {
    slots[(((last - back) % size) + size) % size] = prompt[prompt.length - 1 - back];
  }
  return slots;
}
