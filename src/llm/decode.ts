/**
 * Reading a prompt and decoding: steps with everything that changes from one to the next on the device.
 *
 * A step embeds tokens, runs the model over the cache's buffers, chooses the next token and writes the new state in place of the
 * old. The prompt is a step of many tokens, or several where it is long; then one token a step. Steps are traced once per
 * capacity of the cache, those of a prompt also once per number of rows, see {@link promptRows}; the model keeps the traces for
 * later prompts. The host only submits steps, several at a time on a fast device, and reads the tokens from a log that it can
 * see while later steps run.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { type Loop, MAX_STEPS, peek, visible } from "../array/loop.ts";
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
  /** int32 (1, 1): the token to feed; anything before the end of the prompt was read. */
  readonly token: Tensor;
  /** int32 (1,): its position; before the end of the prompt that of the next token to read. */
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

/** What reading tokens of a prompt needs besides. */
interface Chunk {
  /** int32 (rows,): the tokens, then padding. */
  readonly ids: Tensor;
  /** int32 (1,): index of the last token. */
  readonly last: Tensor;
}

/** A part of the state that a step of the prompt before its end changes. */
type Filled = Pick<State, "position" | "keys" | "values">;

/** Tokens that the log keeps: more than are ever on their way. */
const LOG = 4 * MAX_STEPS;
/** Milliseconds that the steps of one submission should take at most, so that text flows and a stop wastes little. */
const BATCH_MS = 10;

/** What the rows of a traced prompt are a multiple of, by tokens: the first one whose `upTo` is not passed. Kernels work in such tiles. */
const TILES: readonly { readonly upTo: number; readonly rows: number }[] = [
  { upTo: 16, rows: 8 },
  { upTo: 256, rows: 32 },
  { upTo: 1024, rows: 64 },
  { upTo: Infinity, rows: 128 },
];

/** Rows of the step that reads `count` tokens on a device that computes in tiles: few numbers serve all prompts. */
export function promptRows(count: number): number {
  const { rows } = TILES.find(({ upTo }) => count <= upTo)!;
  return Math.ceil(count / rows) * rows;
}

/** Steps on their way to the device. */
interface Batch {
  readonly loop: Loop<State>;
  readonly ticket: number;
  readonly count: number;
}

/** Reads a prompt and generates the tokens behind it. */
export class Decoder implements Disposable {
  readonly #model: LanguageModel;
  readonly #cache: KvCache;
  readonly #options: DecodeOptions;
  /** Names the graphs of steps, where they can be named. */
  readonly #graph: string | undefined;
  readonly #small: Pick<State, "token" | "position" | "key" | "recent" | "log">;
  /** Tokens of the prompt that were not read yet. */
  #prompt: readonly number[];
  #loop: Loop<State> | undefined;
  #capacity = 0;
  /** Loops of the prompt and of smaller caches, whose steps may still run. */
  readonly #ended: Disposable[] = [];

  constructor(model: LanguageModel, cache: KvCache, prompt: readonly number[], options: DecodeOptions) {
    const { sampler, processors, contextSize } = options;
    this.#model = model;
    this.#cache = cache;
    this.#options = options;
    this.#prompt = prompt;
    const graphs = [sampler.graph, ...processors.map(({ graph }) => graph)];
    this.#graph = graphs.includes(undefined) ? undefined : [...graphs, contextSize].join(" ");
    const last = cache.offset + prompt.length - 1;
    this.#small = {
      token: own(mx.array([[0]], mx.int32)),
      position: own(mx.array([cache.offset], mx.int32)),
      key: sampler.key && own(mx.array([...sampler.key], mx.uint32)),
      recent: processors.length > 0 ? own(mx.array(ring(prompt, last, contextSize), mx.int32)) : undefined,
      log: own(visible(new Int32Array(LOG))),
    };
  }

  /** Tokens of the prompt that were not read yet. */
  get unread(): number {
    return this.#prompt.length;
  }

  /** Reads the next `count` tokens of the prompt, which must leave some: only the cache is computed. Resolves when that is done. */
  async read(count: number): Promise<void> {
    const chunk = this.#chunk(count);
    const { position } = this.#small;
    const state: Filled & Chunk = { ...chunk, position, keys: this.#cache.keys, values: this.#cache.values };
    using loop = this.#trace("read", state, (now) => {
      const cache = new StepCache(now.keys, now.values, now.position);
      this.#model.forward(now.ids.reshape([1, -1]), cache, now.last);
      const { keys, values } = cache;
      return { ...now, position: mx.add(mx.add(now.position, now.last), 1), keys, values };
    });
    const ticket = loop.run();
    this.#cache.advance(count);
    await loop.done(ticket);
    mx.dispose(chunk);
  }

  /**
   * Reads the rest of the prompt and yields up to `count` tokens; may be called once. The first comes as soon as it is there. On
   * a fast device later ones come in batches, and the next batch runs while one is read. Afterwards the cache holds all tokens
   * that were fed to get those that were yielded.
   */
  async *tokens(count: number): AsyncGenerator<number, void, void> {
    const first = this.#cache.offset + this.#prompt.length;
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
          const batch = submitted === 0 ? this.#readRest() : this.#submit(Math.min(size, count - submitted));
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
        for (let i = from; i < finished; i++) {
          yielded++;
          yield log[(first + i) % LOG];
        }
        // The first batch is the prompt; one that was done already tells nothing.
        if (from > 0 && (perToken === Infinity || waited > perToken / 2)) perToken = waited;
        size = Math.max(1, Math.min(2 * size, MAX_STEPS / 2, Math.floor(BATCH_MS / perToken)));
      }
    } finally {
      for (const batch of flight) await batch.loop.done(batch.ticket);
      this.#cache.trim(submitted - yielded);
    }
  }

  /** Submits the rest of the prompt, which gives the first token. */
  #readRest(): Batch {
    const count = this.#prompt.length;
    const chunk = this.#chunk(count);
    const state: State & Chunk = { ...this.#state(), ...chunk };
    const loop = this.#trace("prompt", state, (now) => {
      const cache = new StepCache(now.keys, now.values, now.position);
      const logits = this.#model.forward(now.ids.reshape([1, -1]), cache, now.last).reshape([1, -1]);
      return { ...now, ...this.#choose(now, logits, mx.add(mx.add(now.position, now.last), 1), cache) };
    });
    this.#cache.advance(count);
    this.#ended.push(loop, { [Symbol.dispose]: () => mx.dispose(chunk) });
    return { loop, ticket: loop.run(), count: 1 };
  }

  /** Takes tokens from the prompt, padded where that costs nothing, and makes room for them. */
  #chunk(count: number): Chunk {
    const ids = this.#prompt.slice(0, count);
    this.#prompt = this.#prompt.slice(count);
    const rows = this.#model.traces.tiled ? promptRows(count) : count;
    this.#cache.reserve(count, rows);
    const padded = Int32Array.from({ length: rows }, (_, i) => ids[Math.min(i, count - 1)]);
    return { ids: own(mx.array(padded)), last: own(mx.array([count - 1], mx.int32)) };
  }

  /** Submits at most `most` steps: as many as the cache has room for before it grows. */
  #submit(most: number): Batch {
    const cache = this.#cache;
    cache.reserve(1);
    if (this.#capacity !== cache.capacity) {
      if (this.#loop) this.#ended.push(this.#loop);
      this.#capacity = cache.capacity;
      this.#loop = this.#trace("step", this.#state(), (now) => this.#step(now));
    }
    const loop = this.#loop!;
    const count = Math.min(most, cache.capacity - cache.offset);
    cache.advance(count);
    return { loop, ticket: loop.run(count), count };
  }

  /** Frees the steps and their state; the cache stays. */
  [Symbol.dispose](): void {
    for (const ended of this.#ended) ended[Symbol.dispose]();
    this.#loop?.[Symbol.dispose]();
    mx.dispose(this.#small);
  }

  #state(): State {
    return { ...this.#small, keys: this.#cache.keys, values: this.#cache.values };
  }

  /** A loop over `state`, traced before where it may be. Prompts of any length, on devices where each row costs, are not worth keeping. */
  #trace<S>(kind: "read" | "prompt" | "step", state: S, step: (state: S) => S): Loop<S> {
    const { traces } = this.#model;
    const keeps = this.#graph !== undefined && (kind === "step" || traces.tiled);
    return traces.loop(keeps ? `${kind} ${this.#graph}` : undefined, state, step);
  }

  #step(state: State): State {
    const cache = new StepCache(state.keys, state.values, state.position);
    const logits = this.#model.forward(state.token, cache).reshape([1, -1]);
    return this.#choose(state, logits, mx.add(state.position, 1), cache);
  }

  /** The state with the token that the logits (1, V) choose, which is to be fed at position `after`. */
  #choose({ position, key, recent, log }: State, logits: Tensor, after: Tensor, { keys, values }: StepCache): State {
    const { sampler, processors, contextSize } = this.#options;
    for (const process of processors) logits = process(recent!, logits);
    // As MLX does with its global state: the first half stays, the second is for this draw.
    const [stays, draw] = key ? mx.split(mx.random.split(key), 2).map((k) => k.reshape([2])) : [undefined, position];
    const next = sampler(logits, draw).astype(mx.int32);
    return {
      token: next.reshape([1, 1]),
      position: after,
      key: stays,
      recent: recent && mx.sliceUpdate(recent, next, mx.remainder(after, contextSize), [0], { donate: true }),
      log: mx.sliceUpdate(log, next, mx.remainder(after, LOG), [0], { donate: true }),
      keys,
      values,
    };
  }
}

/** Takes an array out of the scopes of tidy(). */
function own(array: Tensor): Tensor {
  untrack(array);
  return array;
}

/** The last tokens by position modulo size; places that no token reached hold the last one, which a set does not notice. */
function ring(prompt: readonly number[], last: number, size: number): number[] {
  const slots = new Array<number>(size).fill(prompt[prompt.length - 1]);
  for (let back = Math.min(size, prompt.length) - 1; back >= 0; back--) {
    slots[(((last - back) % size) + size) % size] = prompt[prompt.length - 1 - back];
  }
  return slots;
}
