/**
 * Reading a prompt and decoding: steps with everything that changes from one to the next on the device.
 *
 * A step embeds tokens, runs the model over the cache's buffers, chooses the next token and writes the new state in place of the
 * old. The prompt is a step of many tokens, or several where it is long; then one token a step. Steps are traced once per
 * capacity of the cache, those of a prompt also once per number of rows, see {@link promptRows}; the model keeps the traces for
 * later prompts. The host only submits steps, several at a time on a fast device, and reads the tokens from a log that it can
 * see while later steps run.
 *
 * Decoders of several sequences that have read their prompts can be joined: then each sequence is a row of the state, at a position
 * of its own, and all rows advance at every step. A row whose sequence has ended computes on, and goes when half of them have.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { keyAfter } from "../array/keys.ts";
import { FastPathFailure, Loop, MAX_STEPS, peek, poke, Trace, visible } from "../array/loop.ts";
import { untrack } from "../array/scope.ts";
import { KvCache, StepCache } from "./kv_cache.ts";
import type { LanguageModel } from "./models/mod.ts";
import type { LogitsProcessor, Sampler } from "./sampler.ts";

/** How tokens are chosen. */
export interface DecodeOptions {
  readonly sampler: Sampler;
  readonly processors: readonly LogitsProcessor[];
  /** Number of recent tokens that processors see. */
  readonly contextSize: number;
}

/** A generated token. */
export interface DecodedToken {
  /** Number of its sequence. */
  readonly sequence: number;
  readonly token: number;
}

/** What changes from token to token; B sequences. */
interface State {
  /** int32 (B, 1): the tokens to feed; anything before the end of the prompt was read. */
  readonly token: Tensor;
  /** int32 (B,): their positions; before the end of the prompt that of the next token to read. */
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

/** What reading tokens of a prompt needs besides. */
interface Chunk {
  /** int32 (rows,): the tokens, then padding. */
  readonly ids: Tensor;
  /** int32 (1,): index of the last token. */
  readonly last: Tensor;
}

/** The state but for the cache. */
type Small = Pick<State, "token" | "position" | "key" | "recent" | "log">;

/** A part of the state that a step of the prompt before its end changes. */
type Filled = Pick<State, "position" | "keys" | "values">;

/** Tokens of a prompt that are fed one by one: so few rows take as long as many. */
const MOST_FED = 3;
/** Tokens that the log keeps: more than are ever on their way. */
const LOG = 4 * MAX_STEPS;
/** Milliseconds that the steps of one submission should take at most, so that text flows and a stop wastes little. */
const BATCH_MS = 10;
/** Milliseconds of making the pipelines of a prompt after which those of the steps behind it are worth making beside. */
const COLD_MS = 10;
/** Steps over a cache after which its growth is prepared, and after which a faster step is looked for: one thing at a time. */
const PREPARE_AFTER = 16;
const IMPROVE_AFTER = 32;

/**
 * What the rows of a traced prompt are a multiple of, by tokens, beyond the least tile of the device: the first one whose `upTo` is not
 * passed. Kernels work in such tiles.
 */
const TILES: readonly { readonly upTo: number; readonly rows: number }[] = [
  { upTo: 16, rows: 1 },
  { upTo: 256, rows: 32 },
  { upTo: 1024, rows: 64 },
  { upTo: Infinity, rows: 128 },
];

/** Rows of the step that reads `count` tokens on a device whose least tile has `tile` rows: few numbers serve all prompts. */
export function promptRows(count: number, tile: number): number {
  if (tile === 1) return count;
  const rows = Math.max(tile, TILES.find(({ upTo }) => count <= upTo)!.rows);
  return Math.ceil(count / rows) * rows;
}

/** Steps on their way to the device. */
interface Batch {
  readonly count: number;
  done(): Promise<void>;
}

/** A row of the state. */
interface Row {
  /** Number of its sequence. */
  readonly sequence: number;
  /** Position of the last token of its prompt. */
  readonly last: number;
  /** Most tokens to generate. */
  readonly limit: number;
  /** State of its random numbers before the first token, where there are any. */
  readonly key: Sampler["key"];
  /** The end of the prompt, as much of it as processors see, and what was generated. */
  readonly tokens: number[];
  ended: boolean;
}

/** Reads a prompt and generates the tokens behind it; of several sequences when joined. */
export class Decoder implements Disposable {
  readonly #model: LanguageModel;
  readonly #cache: KvCache;
  readonly #options: DecodeOptions;
  /** Names the graphs of steps, where they can be named. */
  readonly #graph: string | undefined;
  #small: Small;
  #rows: Row[];
  /** Tokens of the prompt that were not read yet. */
  #prompt: readonly number[];
  /** The step that read the end of the prompt and chose the first token. */
  #opening: Promise<Batch> | undefined;
  #loop: Loop<State> | undefined;
  /** Capacity of the cache that the loop is for. */
  #capacity = 0;
  /** Steps that the loop took. */
  #steps = 0;
  /** Whether the loop was asked for a faster step. */
  #improved = false;
  /** Capacity whose growth was prepared. */
  #prepared = 0;
  /** The step that is to come, and when its pipelines were made. */
  #next: Trace<State> | undefined;
  #ahead: Promise<void> | undefined;
  /** Loops of the prompt and of smaller caches, whose steps may still run. */
  readonly #ended: Disposable[] = [];
  /** The last step of which a token was taken. */
  #taken = 0;

  /** For a prompt that follows what `cache` holds, and at most `limit` tokens behind it. The cache stays the caller's. */
  constructor(
    model: LanguageModel,
    cache: KvCache,
    prompt: readonly number[],
    limit: number,
    options: DecodeOptions,
    small?: Small,
  ) {
    const { sampler, processors, contextSize } = options;
    this.#model = model;
    this.#cache = cache;
    this.#options = options;
    this.#prompt = prompt;
    const graphs = [sampler.graph, ...processors.map(({ graph }) => graph)];
    this.#graph = graphs.includes(undefined) ? undefined : [...graphs, contextSize].join(" ");
    const last = cache.offset + prompt.length - 1;
    const seen = Math.max(1, contextSize);
    const tokens = [...cache.tokens.slice(-seen), ...prompt.slice(-seen)].slice(-seen);
    this.#rows = [{ sequence: 0, last, limit, key: sampler.key, tokens, ended: limit <= 0 }];
    this.#small = small ?? this.#unread();
  }

  /** The state in front of the rest of the prompt. */
  #unread(): Small {
    const [{ key }] = this.#rows;
    const recent = this.#recent();
    return {
      token: own(visible(Int32Array.of(0), [1, 1])),
      position: own(visible(Int32Array.of(this.#cache.offset))),
      key: key && own(mx.array([[...key]], mx.uint32)),
      recent: recent && own(mx.array([recent], mx.int32)),
      log: logOf([[]]),
    };
  }

  /** The ring of recent tokens that choosing the first one looks at. */
  #recent(): number[] | undefined {
    const [{ tokens, last }] = this.#rows;
    const { processors, contextSize } = this.#options;
    return processors.length > 0 ? ring(tokens, last, contextSize) : undefined;
  }

  /**
   * One decoder of several sequences, numbered in the order of `decoders`. Those have been opened and have the same options but
   * for the random key; they are given up and their caches emptied. The new one owns its cache.
   */
  static join(decoders: readonly Decoder[]): Decoder {
    const [first] = decoders;
    const all = decoders.map((decoder) => decoder.#small);
    const stack = (arrays: readonly (Tensor | undefined)[]): Tensor | undefined =>
      arrays.every((array) => array !== undefined) ? own(mx.concatenate([...arrays], 0)) : undefined;
    const small: Small = {
      token: stack(all.map((s) => s.token))!,
      position: stack(all.map((s) => s.position))!,
      key: stack(all.map((s) => s.key)),
      recent: stack(all.map((s) => s.recent)),
      log: logOf(all.map((s) => [...peek(s.log)])),
    };
    mx.eval(...tensorsIn(small));
    const cache = KvCache.stack(decoders.map((decoder) => decoder.#cache));
    const joined = new Decoder(first.#model, cache, [], 0, first.#options, small);
    joined.#rows = decoders.map((decoder, sequence) => ({ ...decoder.#rows[0], sequence }));
    joined.#opening = Promise.resolve({ count: 1, done: () => Promise.resolve() });
    joined.#ended.push(cache);
    for (const decoder of decoders) decoder[Symbol.dispose]();
    return joined;
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
    const step = (now: Filled & Chunk): Filled & Chunk => {
      const cache = new StepCache(now.keys, now.values, now.position);
      this.#model.forward(now.ids.reshape([1, -1]), cache, now.last);
      const { keys, values } = cache;
      return { ...now, position: mx.add(mx.add(now.position, now.last), 1), keys, values };
    };
    using loop = new Loop(state, this.#traced("read", state, step));
    const ticket = loop.run();
    this.#cache.advance(count);
    await loop.done(ticket, true);
    mx.dispose(chunk);
  }

  /**
   * Reads the rest of the prompt and yields lists of tokens until every sequence has ended, step by step and in the order of
   * sequences within a step; may be called once. Each list is to be read to its end before the next one is asked for. The first one
   * comes as soon as it is there; on a fast device the tokens of later ones were computed in one submission, and the next
   * one runs while they are read. Afterwards the cache holds all tokens that were fed to get those that were taken, of the longest
   * sequence. Steps that did not end well are done again in another way, see {@link FastPathFailure}.
   */
  async *tokens(): AsyncGenerator<Iterable<DecodedToken>, void, void> {
    const cache = this.#cache;
    const flight: Batch[] = [];
    let submitted = 0;
    let finished = 0;
    let size = 1;
    let perStep = Infinity; // milliseconds
    try {
      while (this.#rows.some((row) => !row.ended)) {
        const most = Math.max(...this.#rows.map((row) => row.ended ? 0 : row.limit));
        const narrow = submitted > 0 && this.#hasIdleRows(submitted);
        if (narrow && flight.length === 0) this.#dropEnded(submitted);
        if (cache.offset === cache.capacity || this.#capacity !== cache.capacity) await this.#ahead;
        // One batch ahead, where that does not mean a long wait at the end.
        const depth = perStep <= BATCH_MS ? 2 : 1;
        // A row that stands at the end of the context is read, and dropped, before others go on.
        const goesOn = (): boolean => flight.length === 0 || (!narrow && cache.offset < cache.limit);
        while (flight.length < depth && submitted < most && goesOn()) {
          const batch = submitted === 0 ? await this.#open() : this.#submit(Math.min(size, most - submitted));
          submitted += batch.count;
          flight.push(batch);
        }
        if (this.#steps >= PREPARE_AFTER) this.#prepareGrowth(most - submitted);
        if (this.#steps >= IMPROVE_AFTER) this.#improve();
        const [batch] = flight;
        const started = performance.now();
        if (!await endsWell(batch)) {
          for (const later of flight.splice(0)) await endsWell(later);
          cache.trim(submitted - finished);
          submitted = finished;
          this.#restart(finished);
          continue;
        }
        const waited = (performance.now() - started) / batch.count;
        flight.shift();
        const first = finished === 0;
        yield this.#take(finished + 1, finished += batch.count);
        // The first batch is the prompt; one that was done already tells nothing.
        if (!first && (perStep === Infinity || waited > perStep / 2)) perStep = waited;
        size = Math.max(1, Math.min(2 * size, MAX_STEPS / 2, Math.floor(BATCH_MS / perStep)));
      }
    } finally {
      for (const batch of flight) await endsWell(batch);
      cache.trim(submitted - this.#taken);
    }
  }

  /** The tokens of finished steps, one by one: a sequence may end between two of them. */
  *#take(from: number, to: number): Generator<DecodedToken, void, void> {
    const rows = this.#rows;
    const logged = rows.map(({ last }, i) => fromLog(this.#small.log, i, last + from, to - from + 1));
    for (let step = from; step <= to; step++) {
      for (let i = 0; i < rows.length; i++) {
        const row = rows[i];
        if (row.ended) continue;
        const token = logged[i][step - from];
        this.#taken = step;
        row.tokens.push(token);
        row.ended = step === row.limit;
        yield { sequence: row.sequence, token };
      }
    }
  }

  /** Goes back to the state behind the last good step, the one with number `steps`. */
  #restart(steps: number): void {
    const { sampler, processors, contextSize } = this.#options;
    const rows = this.#rows;
    this.#forget();
    this.#small = {
      token: own(mx.array(rows.map(({ tokens }) => tokens.slice(-1)), mx.int32)),
      position: own(mx.array(rows.map(({ last }) => last + steps), mx.int32)),
      key: sampler.key && own(mx.array(rows.map(({ key }) => [...keyAfter(key!, steps)]), mx.uint32)),
      recent: processors.length > 0
        ? own(mx.array(rows.map(({ tokens, last }) => ring(tokens, last + steps, contextSize)), mx.int32))
        : undefined,
      log: logOf(rows.map(() => [])),
    };
  }

  /** Lets the state go, and the traces that hold what failed. */
  #forget(): void {
    this.#release();
    this.#model.traces[Symbol.dispose]();
    this.#capacity = 0;
  }

  /** Ends a sequence: no more tokens of it are yielded. */
  end(sequence: number): void {
    for (const row of this.#rows) row.ended ||= row.sequence === sequence;
  }

  /** Reads the rest of the prompt, which chooses the first token; {@link Decoder.tokens} does it where it was not done. */
  async open(): Promise<void> {
    await (await this.#open()).done();
  }

  #open(): Promise<Batch> {
    const feeds = this.#prompt.length <= MOST_FED && this.#cache.fused;
    return this.#opening ??= feeds ? this.#feedRest() : this.#readRest();
  }

  /**
   * Submits a rest of few tokens as steps of decoding, one by one: what a step chooses gives way to the next token. Where they do not
   * end well, the rest is read as a whole.
   */
  async #feedRest(): Promise<Batch> {
    const ids = this.#prompt;
    const [{ key }] = this.#rows;
    const recent = this.#recent();
    this.#prompt = [];
    this.#cache.reserve(ids.length);
    const traced = this.#traced("step", this.#state(), (now) => this.#step(now));
    if (traced instanceof Trace && !traced.ready) await this.#model.traces.prepare(traced);
    this.#stepLoop(); // from now on the state is on the model's device
    let batch: Batch | undefined;
    for (const id of ids) {
      poke(this.#small.token, Int32Array.of(id));
      if (key) poke(this.#small.key!, Uint32Array.from(key));
      if (recent) poke(this.#small.recent!, Int32Array.from(recent));
      batch = this.#submit(1);
    }
    const done = async (): Promise<void> => {
      if (await endsWell(batch!)) return;
      this.#cache.trim(ids.length);
      this.#forget();
      this.#prompt = ids;
      this.#small = this.#unread();
      await (await this.#readRest()).done();
    };
    return { count: 1, done };
  }

  /** Submits the rest of the prompt. */
  async #readRest(): Promise<Batch> {
    const count = this.#prompt.length;
    const chunk = this.#chunk(count);
    const state: State & Chunk = { ...this.#state(), ...chunk };
    const step = (now: State & Chunk): State & Chunk => {
      const cache = new StepCache(now.keys, now.values, now.position);
      const logits = this.#model.forward(now.ids.reshape([1, -1]), cache, now.last).reshape([1, -1]);
      return { ...now, ...this.#choose(now, logits, mx.add(mx.add(now.position, now.last), 1), cache) };
    };
    const traced = this.#traced("prompt", state, step);
    if (traced instanceof Trace && !traced.ready) await this.#prepareOpening(traced);
    const loop = new Loop(state, traced);
    this.#cache.advance(count);
    this.#ended.push(loop, { [Symbol.dispose]: () => mx.dispose(chunk) });
    const ticket = loop.run();
    return { count: 1, done: () => loop.done(ticket, true) };
  }

  /** Takes tokens from the prompt, padded where that costs nothing, and makes room for them. */
  #chunk(count: number): Chunk {
    const ids = this.#prompt.slice(0, count);
    this.#prompt = this.#prompt.slice(count);
    const rows = promptRows(count, this.#model.traces.tile);
    this.#cache.reserve(count, rows);
    const padded = new Int32Array(rows).fill(ids[count - 1]);
    padded.set(ids);
    return { ids: own(visible(padded)), last: own(visible(Int32Array.of(count - 1))) };
  }

  /** Submits at most `most` steps: as many as the cache has room for before it grows. */
  #submit(most: number): Batch {
    const cache = this.#cache;
    const loop = this.#stepLoop();
    const count = Math.min(most, Math.min(cache.capacity, cache.limit) - cache.offset);
    cache.advance(count);
    this.#steps += count;
    const ticket = loop.run(count);
    return { count, done: () => loop.done(ticket) };
  }

  /** The loop over the cache with room for one more token. */
  #stepLoop(): Loop<State> {
    const cache = this.#cache;
    cache.reserve(1);
    if (this.#loop && this.#capacity === cache.capacity) return this.#loop;
    if (this.#loop) this.#ended.push(this.#loop);
    this.#capacity = cache.capacity;
    this.#steps = 0;
    this.#improved = false;
    const state = this.#state();
    return this.#loop = new Loop(state, this.#traced("step", state, (now) => this.#step(now)));
  }

  /** Has the pipelines of the prompt made; where that takes time, then beside them those of the steps behind it. */
  async #prepareOpening(trace: Trace<State & Chunk>): Promise<void> {
    const ready = this.#model.traces.prepare(trace);
    let timer;
    const late = new Promise<true>((resolve) => timer = setTimeout(resolve, COLD_MS, true));
    if (await Promise.race([ready, late]) && this.#rows[0].limit > 1) this.#prepare(this.#state());
    clearTimeout(timer);
    await ready;
  }

  /** Has the pipelines of a step over such a state made beside other work, where the step can be kept. */
  #prepare(state: State): void {
    const traced = this.#traced("step", state, (now) => this.#step(now));
    if (!(traced instanceof Trace)) return;
    this.#next = traced;
    const ready = this.#model.traces.prepare(traced);
    this.#ahead = ready.catch(() => {}); // what fails fails again, and is reported, when the step is needed
  }

  /** Lets the loop find a faster step while it goes on, and then one for the grown cache. */
  #improve(): void {
    if (this.#improved) return;
    this.#improved = true;
    this.#model.traces.improve(this.#loop!);
    if (this.#next) this.#model.traces.improve(this.#next);
  }

  /** Has the step behind the next growth of the cache compiled while others run, where `left` more steps reach it. */
  #prepareGrowth(left: number): void {
    const cache = this.#cache;
    if (this.#prepared === cache.capacity || cache.capacity - cache.offset >= left) return;
    this.#prepared = cache.capacity;
    const grown = cache.outgrown();
    if (!grown) return;
    this.#prepare({ ...this.#small, ...grown });
    mx.dispose(grown);
  }

  /** Whether half of the rows have ended, or one that has stands where the context ends for it but not for others. */
  #hasIdleRows(submitted: number): boolean {
    const ended = this.#rows.filter((row) => row.ended);
    return 2 * ended.length >= this.#rows.length || ended.some((row) => row.last + submitted >= this.#cache.limit);
  }

  /** Goes on with the rows that have not ended. Nothing may be on its way. */
  #dropEnded(submitted: number): void {
    const kept = this.#rows.flatMap((row, i) => row.ended ? [] : [i]);
    this.#rows = kept.map((i) => this.#rows[i]);
    this.#cache.keep(kept, Math.max(...this.#rows.map((row) => row.last)) + submitted);
    const { token, position, key, recent } = this.#small;
    const rows = mx.array(kept, mx.int32);
    const take = (array: Tensor): Tensor => own(mx.take(array, rows, 0));
    const small: Small = {
      token: take(token),
      position: take(position),
      key: key && take(key),
      recent: recent && take(recent),
      log: logOf(kept.map(() => [])),
    };
    mx.eval(...tensorsIn(small), ...this.#cache.state);
    rows[Symbol.dispose]();
    this.#release();
    this.#small = small;
    this.#capacity = 0;
  }

  /** Frees the steps and their state; the cache stays. */
  [Symbol.dispose](): void {
    for (const ended of this.#ended.splice(0)) ended[Symbol.dispose]();
    this.#release();
  }

  #release(): void {
    this.#loop?.[Symbol.dispose]();
    this.#loop = undefined;
    mx.dispose(this.#small);
  }

  #state(): State {
    return { ...this.#small, keys: this.#cache.keys, values: this.#cache.values };
  }

  /** A step, or its trace where that is kept. Prompts of any length, on devices where each row costs, are not worth keeping. */
  #traced<S>(kind: "read" | "prompt" | "step", state: S, step: (state: S) => S): Trace<S> | ((state: S) => S) {
    const { traces } = this.#model;
    const keeps = this.#graph !== undefined && (kind === "step" || traces.tiled);
    return keeps ? traces.trace(`${kind} ${this.#graph}`, state, step) : step;
  }

  #step(state: State): State {
    const cache = new StepCache(state.keys, state.values, state.position);
    const logits = this.#model.forward(state.token, cache).reshape([state.token.shape[0], -1]);
    return this.#choose(state, logits, mx.add(state.position, 1), cache);
  }

  /** The state with the tokens that the logits (B, V) choose, which are to be fed at positions `after`. */
  #choose({ position, key, recent, log }: State, logits: Tensor, after: Tensor, { keys, values }: StepCache): State {
    const { sampler, processors, contextSize } = this.#options;
    const [rows] = logits.shape;
    for (const process of processors) logits = process(recent!, logits);
    // As MLX does with its global state: the first half stays, the second is for this draw.
    const [stays, draw] = key
      ? mx.split(mx.random.split(key), 2, 1).map((half) => half.reshape([rows, 2]))
      : [undefined, position];
    const next = sampler(logits, draw).astype(mx.int32);
    const put = (ring: Tensor, size: number): Tensor => {
      const at = mx.remainder(after, size).reshape([rows, 1]);
      return mx.sliceUpdate(ring, next.reshape([rows, 1]), at, [1], { donate: true });
    };
    return {
      token: next.reshape([rows, 1]),
      position: after,
      key: stays,
      recent: recent && put(recent, contextSize),
      log: put(log, LOG),
      keys,
      values,
    };
  }
}

/** Whether the steps of a batch ended well. */
async function endsWell(batch: Batch): Promise<boolean> {
  try {
    await batch.done();
    return true;
  } catch (error) {
    if (error instanceof FastPathFailure) return false;
    throw error;
  }
}

/** Takes an array out of the scopes of tidy(). */
function own(array: Tensor): Tensor {
  untrack(array);
  return array;
}

function tensorsIn(small: Small): Tensor[] {
  return Object.values(small).filter((array) => array !== undefined);
}

/** A log that begins with the given tokens of each row. */
function logOf(rows: readonly (readonly number[])[]): Tensor {
  const values = new Int32Array(rows.length * LOG);
  rows.forEach((row, i) => values.set(row, i * LOG));
  return own(visible(values, [rows.length, LOG]));
}

/** The tokens of a row of a log at `count` positions from `position` on. */
function fromLog(log: Tensor, row: number, position: number, count: number): Int32Array {
  const at = position % LOG;
  const until = Math.min(count, LOG - at);
  const tokens = new Int32Array(count);
  tokens.set(peek(log, row * LOG + at, until));
  if (until < count) tokens.set(peek(log, row * LOG, count - until), until);
  return tokens;
}

/** The last tokens by position modulo size; places that no token reached hold the last one, which a set does not notice. */
function ring(prompt: readonly number[], last: number, size: number): number[] {
  const slots = new Array<number>(size).fill(prompt[prompt.length - 1]);
  for (let back = Math.min(size, prompt.length) - 1; back >= 0; back--) {
    slots[(((last - back) % size) + size) % size] = prompt[prompt.length - 1 - back];
  }
  return slots;
}
