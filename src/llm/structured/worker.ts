/**
 * The worker that compiles grammars and makes masks.
 *
 * It is a thread of its own for two reasons. A grammar that takes forever or all memory ends only the worker. And it makes the mask
 * of a step while the host submits the next one. It serves one tokenizer. Between two tokens it polls for the next one for a moment
 * and then sleeps.
 *
 * @module
 */

import { setImmediate } from "node:timers/promises";
import { parentPort } from "node:worker_threads";
import { Masks } from "./automaton/masks.ts";
import { type State, States } from "./automaton/states.ts";
import { type TokenTree, tokenTree } from "./automaton/token_tree.ts";
import {
  ANSWER,
  ANSWERED,
  ASKED,
  BACK,
  type GrammarSource,
  MASK,
  MAX_BACK,
  type Message,
  NO_TOKEN,
  POSTED,
  type Reply,
  type Request,
  SIGNAL,
  STATUS,
  TOKEN,
  type Vocabulary,
  type WorkerData,
  writeReply,
} from "./protocol.ts";
import { rulesOf } from "./rules.ts";

/** Where this module lies: a worker imports it. */
export const WORKER_MODULE: string = import.meta.url;

/** Compiled grammars that are kept. */
const MAX_GRAMMARS = 32;
/** Milliseconds of looking for the next token before sleeping, and of sleeping before looking again. */
const LOOK_MS = 0.3;
const SLEEP_MS = 1000;

/** A compiled grammar. */
interface Compiled {
  readonly masks: Masks;
  readonly start: State;
  /** Texts that are matched. */
  users: number;
}

/** A text that is matched. */
interface Open {
  readonly compiled: Compiled;
  readonly shared: Int32Array;
  state: State;
  /** The states before the last tokens, the oldest first. */
  readonly past: State[];
}

/** Serves until the thread ends. */
export async function serve({ signal, vocabulary }: WorkerData): Promise<void> {
  const messages: Message[] = [];
  parentPort!.on("message", (message: Message) => messages.push(message));
  const server = new Server(vocabulary);
  const control = new Int32Array(signal);
  for (let answered = 0;;) {
    const seen = Atomics.load(control, SIGNAL);
    while (answered < Atomics.load(control, POSTED)) {
      const message = messages.shift();
      if (message) answered++;
      else await setImmediate(); // it is on its way
      if (message) writeReply(message.reply, server.reply(message.request));
    }
    server.step();
    const until = performance.now() + LOOK_MS;
    while (Atomics.load(control, SIGNAL) === seen && performance.now() < until);
    Atomics.wait(control, SIGNAL, seen, SLEEP_MS);
  }
}

/** The error of a grammar. */
function complaint(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return /call stack/.test(message) ? "it is nested too deeply" : message;
}

class Server {
  readonly #vocabulary: Vocabulary;
  readonly #tree: TokenTree;
  /** By their sources; the most recently used one comes last. */
  readonly #compiled = new Map<string, Compiled>();
  readonly #open = new Map<number, Open>();

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    this.#tree = tokenTree(vocabulary);
  }

  reply(request: Request): Reply {
    try {
      if (request.ask === "open") this.#openMatcher(request.source, request.matcher, request.shared);
      else if (request.ask === "close") this.#close(request.matcher);
      return request.ask === "memory" ? { value: this.#kept() } : {};
    } catch (error) {
      return { error: complaint(error) };
    }
  }

  #openMatcher(source: GrammarSource, id: number, buffer: SharedArrayBuffer): void {
    const key = JSON.stringify(source);
    const compiled = this.#compiled.get(key) ?? this.#compile(source);
    const shared = new Int32Array(buffer);
    shared.set(compiled.masks.mask(compiled.start), MASK);
    this.#compiled.delete(key);
    this.#compiled.set(key, compiled);
    this.#open.set(id, { compiled, shared, state: compiled.start, past: [] });
    compiled.users++;
    this.#forget();
  }

  #compile(source: GrammarSource): Compiled {
    const states = new States(rulesOf(source));
    return { masks: new Masks(states, this.#tree, this.#vocabulary), start: states.start(), users: 0 };
  }

  /** Forgets grammars that were not used for long. */
  #forget(): void {
    for (const [key, { users }] of this.#compiled) {
      if (this.#compiled.size <= MAX_GRAMMARS) return;
      if (users === 0) this.#compiled.delete(key);
    }
  }

  #close(id: number): void {
    const open = this.#open.get(id);
    if (!open) return;
    this.#open.delete(id);
    open.compiled.users--;
  }

  /** Bytes of the masks that are kept. */
  #kept(): number {
    return [...this.#compiled.values()].reduce((sum, { masks }) => sum + masks.bytes, 0);
  }

  /** Answers those that have a new token. */
  step(): void {
    for (const open of this.#open.values()) {
      const { shared } = open;
      const asked = Atomics.load(shared, ASKED);
      if (asked === shared[ANSWERED]) continue;
      try {
        this.#goBack(open, shared[BACK]);
        shared[ANSWER] = this.#accept(open, shared[TOKEN]);
      } catch {
        shared[ANSWER] = STATUS.failed;
      }
      Atomics.store(shared, ANSWERED, asked);
      Atomics.notify(shared, ANSWERED);
    }
  }

  /** Takes the last tokens back, at most {@link MAX_BACK}. */
  #goBack(open: Open, count: number): void {
    if (count > 0) [open.state] = open.past.splice(-count);
  }

  #accept(open: Open, token: number): number {
    const { masks } = open.compiled;
    const ends = this.#vocabulary.stop.includes(token);
    if (ends && !open.state.ends) return STATUS.refused;
    const state = ends || token === NO_TOKEN ? open.state : masks.accept(open.state, token);
    if (!state) return STATUS.refused;
    if (token !== NO_TOKEN) open.past.push(open.state);
    if (open.past.length > MAX_BACK) open.past.shift();
    open.state = state;
    if (ends) return STATUS.ended;
    open.shared.set(masks.mask(state), MASK);
    return STATUS.goesOn;
  }
}
