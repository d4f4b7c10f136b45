/**
 * Matchers of grammars, made by a worker for each tokenizer: {@link openMatcher}.
 *
 * @module
 */

import { setImmediate, setTimeout } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { quoted } from "../../graph/error.ts";
import { openingToken, THOUGHT_MARKS } from "../chat/thoughts.ts";
import { LlmError } from "../error.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import {
  ANSWER,
  ANSWERED,
  ASKED,
  BACK,
  type GrammarSource,
  MASK,
  NO_TOKEN,
  POSTED,
  readReply,
  type Reply,
  replyBuffer,
  type Request,
  SIGNAL,
  STATUS,
  TOKEN,
  type Vocabulary,
} from "./protocol.ts";
import { controlBytes, textBytes } from "./grammar/expression.ts";
import { TITLES } from "./response_format.ts";
import { WORKER_MODULE } from "./worker.ts";

/** Milliseconds that a grammar may take to compile, and that a mask may take after all that the worker does for others. */
const COMPILE_MS = 10_000;
const MASK_MS = 30_000;
/** Milliseconds that a worker may take to begin. */
const BEGIN_MS = 60_000;
/** Milliseconds between two looks for a reply. */
const LOOK_MS = 1;
/** Milliseconds for which the thread waits for a mask without turning to others: masks take about a tenth. */
const BLOCK_MS = 1;

// A worker from a text may import a module of any scheme, where one from a URL is a local file.
const WORKER = `
  const { workerData } = require("node:worker_threads");
  import(workerData.module).then(({ serve }) => serve(workerData));
`;

/** Matches the tokens of one generation with a grammar. */
export class Matcher implements Disposable {
  readonly #shared: Int32Array;
  readonly #signal: () => void;
  readonly #close: () => void;
  #ended = false;

  /** Over the memory that a worker writes answers to. */
  constructor(shared: Int32Array, signal: () => void, close: () => void) {
    this.#shared = shared;
    this.#signal = signal;
    this.#close = close;
  }

  /** Whether a stop token was accepted: there is no other mask. */
  get ended(): boolean {
    return this.#ended;
  }

  /**
   * Takes the last `back` tokens back, and begins to make the mask after `token`; default the one after those that are left. {@link Matcher.mask}
   * must have been awaited.
   */
  accept(token: number = NO_TOKEN, back: number = 0): void {
    if (this.#ended && back === 0) return;
    this.#shared[TOKEN] = token;
    this.#shared[BACK] = back;
    Atomics.add(this.#shared, ASKED, 1);
    this.#signal();
  }

  /**
   * The mask after the accepted tokens: bit i % 32 of word i / 32 is set where token i may follow. Throws an {@link LlmError} if the
   * token was not one of those.
   */
  async mask(): Promise<Int32Array> {
    const shared = this.#shared;
    const asked = shared[ASKED];
    const begun = performance.now();
    for (let answered; (answered = Atomics.load(shared, ANSWERED)) !== asked;) {
      const waited = performance.now() - begun;
      if (waited < BLOCK_MS) Atomics.wait(shared, ANSWERED, answered, BLOCK_MS);
      else await setImmediate();
      if (waited > MASK_MS) throw new LlmError("option", "The grammar of responseFormat takes too long to match");
    }
    if (shared[ANSWER] === STATUS.refused) {
      throw new LlmError(
        "option",
        `Token ${shared[TOKEN]} was chosen, which responseFormat forbids: a sampler must leave out logits of -Infinity`,
      );
    }
    if (shared[ANSWER] === STATUS.failed) {
      throw new LlmError("option", "The grammar of responseFormat is too complex to match");
    }
    this.#ended = shared[ANSWER] === STATUS.ended;
    return shared.subarray(MASK);
  }

  /** Gives the matcher back. */
  [Symbol.dispose](): void {
    this.#close();
  }
}

/** A worker and what it was asked. */
class GrammarWorker {
  readonly #worker: Worker;
  readonly #signal = new Int32Array(new SharedArrayBuffer(8));
  /** Why it ended by itself. */
  #failure: string | undefined;
  #begun = false;
  readonly #words: number;
  #last = 0;
  #users = 0;
  #retired = false;

  constructor(vocabulary: Vocabulary) {
    this.#words = Math.ceil(vocabulary.size / 32);
    const workerData = { module: WORKER_MODULE, signal: this.#signal.buffer, vocabulary };
    this.#worker = new Worker(WORKER, { eval: true, workerData });
    this.#worker.on("error", (error: Error) => this.#failure = error.message);
    this.#worker.unref();
  }

  /** Whether it takes no more grammars. */
  get retired(): boolean {
    return this.#retired;
  }

  #wake(): void {
    Atomics.add(this.#signal, SIGNAL, 1);
    Atomics.notify(this.#signal, SIGNAL);
  }

  /** Resolves when the worker serves. Throws if it cannot start. */
  async begin(): Promise<void> {
    if (this.#begun) return;
    const reply = await this.#ask({ ask: "begin" }, BEGIN_MS);
    this.#begun = reply !== undefined && reply.error === undefined;
    if (this.#begun) return;
    this.end();
    const why = reply ? quoted(reply.error) : `nothing came for ${BEGIN_MS / 1000} s`;
    throw new LlmError("option", `responseFormat needs a worker, which does not start: ${why}`);
  }

  async open(source: GrammarSource): Promise<Matcher> {
    const matcher = ++this.#last;
    const shared = new SharedArrayBuffer(4 * (MASK + this.#words));
    this.#users++;
    const reply = await this.#ask({ ask: "open", source, matcher, shared }, COMPILE_MS);
    if (!reply || reply.error !== undefined) {
      this.#users--;
      if (!reply || this.#failure !== undefined) this.end();
      const why = reply?.error ?? `it takes more than ${COMPILE_MS / 1000} s to compile`;
      throw new LlmError("option", `responseFormat: the ${TITLES[source.kind]} cannot be used: ${quoted(why)}`);
    }
    const words = new Int32Array(shared);
    let closed = false;
    const close = (): void => {
      if (closed) return;
      closed = true;
      this.#users--;
      this.#post({ ask: "close", matcher });
      if (this.#retired) this.retire();
    };
    if (words.subarray(MASK).every((word) => word === 0)) {
      close();
      throw new LlmError("option", `responseFormat: no answer can be what the ${TITLES[source.kind]} says`);
    }
    return new Matcher(words, () => this.#wake(), close);
  }

  /** Bytes of the masks that the worker keeps. */
  async memory(): Promise<number> {
    return (await this.#ask({ ask: "memory" }, COMPILE_MS))?.value ?? 0;
  }

  #post(request: Request): SharedArrayBuffer {
    const reply = replyBuffer();
    this.#worker.postMessage({ request, reply });
    Atomics.add(this.#signal, POSTED, 1);
    this.#wake();
    return reply;
  }

  /** The reply to a request, `undefined` if it takes more than some milliseconds. */
  async #ask(request: Request, limit: number): Promise<Reply | undefined> {
    const buffer = this.#post(request);
    const late = performance.now() + limit;
    while (performance.now() < late) {
      const reply = readReply(buffer) ?? (this.#failure === undefined ? undefined : { error: this.#failure });
      if (reply) return reply;
      await setTimeout(LOOK_MS);
    }
    return undefined;
  }

  /** Lets the generations in progress end, and then the worker. */
  retire(): void {
    this.#retired = true;
    if (this.#users === 0) this.end();
  }

  end(): void {
    this.#retired = true;
    void this.#worker.terminate();
  }
}

/** The workers of tokenizers; their keys are how many logits a step has, and the tokens that end an answer. */
const workers = new WeakMap<Tokenizer, { readonly key: string; readonly worker: GrammarWorker }>();
/** Ends the worker of a tokenizer that is gone. */
const gone = new FinalizationRegistry<GrammarWorker>((worker) => worker.retire());

/**
 * A matcher of a grammar over the tokens of a tokenizer, for a model with `size` logits. Throws an {@link LlmError} if the grammar
 * cannot be compiled.
 */
export async function openMatcher(tokenizer: Tokenizer, size: number, source: GrammarSource): Promise<Matcher> {
  const worker = workerOf(tokenizer, size);
  await worker.begin();
  return await worker.open(source);
}

/** Bytes of the masks that the worker of a tokenizer keeps. */
export function matcherMemory(tokenizer: Tokenizer): Promise<number> {
  return workers.get(tokenizer)?.worker.memory() ?? Promise.resolve(0);
}

function workerOf(tokenizer: Tokenizer, size: number): GrammarWorker {
  const found = workers.get(tokenizer);
  const key = [size, ...tokenizer.eosTokenIds].join(" ");
  if (found?.key === key && !found.worker.retired) return found.worker;
  found?.worker.retire();
  const worker = new GrammarWorker(vocabularyOf(tokenizer, size));
  workers.set(tokenizer, { key, worker });
  gone.register(tokenizer, worker);
  return worker;
}

/** The tokens of a tokenizer as grammars see them, for a model with `size` logits. */
export function vocabularyOf(tokenizer: Tokenizer, size: number): Vocabulary {
  const stop = [...tokenizer.eosTokenIds];
  // Thoughts are no text for a grammar.
  const thoughts = THOUGHT_MARKS.flatMap((marks) => [openingToken(marks), marks.close]);
  const control = new Set([...stop, ...thoughts.map((mark) => tokenizer.idOf(mark))]);
  const ends = new Uint32Array(Math.min(tokenizer.vocabSize, size));
  const parts: Uint8Array[] = [];
  let end = 0;
  for (let id = 0; id < ends.length; id++) {
    const text = control.has(id) ? undefined : tokenizer.tokenBytes(id);
    const bytes = text && (tokenizer.isSpecial(id) ? controlBytes(text) : textBytes(text));
    if (bytes) parts.push(bytes);
    ends[id] = end += bytes?.length ?? 0;
  }
  const bytes = new Uint8Array(end);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return { bytes, ends, stop, size };
}
