/**
 * The protocol between the thread that generates and the worker that matches grammars. Rare things go in messages. The token of a
 * step and the mask after it go through shared memory, which takes microseconds.
 *
 * @module
 */

import type { CallFormatName } from "../answer/call_formats.ts";

/** The first message to a worker. */
export interface WorkerData {
  /** Int32Array; see {@link SIGNAL} and {@link POSTED}. */
  readonly signal: SharedArrayBuffer;
  readonly vocabulary: Vocabulary;
}

/** The tokens of a model as the matcher sees them. */
export interface Vocabulary {
  /**
   * The bytes of all tokens, one after the other. Those of control tokens are no UTF-8, so that only a grammar that names one takes it. Tokens
   * that end an answer or stand around thoughts have none.
   */
  readonly bytes: Uint8Array;
  /** Where the token of an id ends in them. */
  readonly ends: Uint32Array;
  /** Tokens that may come where a grammar may end. */
  readonly stop: readonly number[];
  /** Logits of a step: ids from `ends.length` on are no tokens. */
  readonly size: number;
}

/** Index in the shared signal: its value changes when there is a message or a token. */
export const SIGNAL = 0;
/** How many messages there were. */
export const POSTED = 1;

/** Calls that an answer has to begin with. */
export interface CallDemand {
  /** How the model's family writes calls. */
  readonly format: CallFormatName;
  /** Marks of the format that are control tokens of the model. */
  readonly tokens: readonly string[];
  /** The functions, of which each call is one of. */
  readonly functions: readonly { readonly name: string; readonly schema: string; readonly strict: boolean }[];
  /** Whether there may be several calls. */
  readonly parallel: boolean;
}

/** A grammar in one of the languages that can be compiled. */
export type GrammarSource =
  | { readonly kind: "json"; readonly text: string; readonly strict: boolean }
  | { readonly kind: "ebnf" | "regex"; readonly text: string }
  | { readonly kind: "calls"; readonly demand: CallDemand };

/** Requests to the worker. */
export type Request =
  | {
    readonly ask: "open";
    readonly source: GrammarSource;
    readonly matcher: number;
    readonly shared: SharedArrayBuffer;
  }
  | { readonly ask: "close"; readonly matcher: number }
  | { readonly ask: "begin" | "memory" };

/** Its answers: `value` is bytes of memory. */
export interface Reply {
  readonly error?: string;
  readonly value?: number;
}

/** A message: the request, and where the reply is to be written. */
export interface Message {
  readonly request: Request;
  readonly reply: SharedArrayBuffer;
}

/** Most bytes of a reply as JSON. */
const MAX_REPLY = 4096;

/** Room for a reply. Answers come in shared memory: a port that waits for them would be one more thing to close. */
export function replyBuffer(): SharedArrayBuffer {
  return new SharedArrayBuffer(8 + MAX_REPLY);
}

/** Writes a reply. */
export function writeReply(buffer: SharedArrayBuffer, { error, value }: Reply): void {
  const text = JSON.stringify({ error: error?.slice(0, MAX_REPLY / 16), value });
  const bytes = new TextEncoder().encode(text);
  const [done, length] = [new Int32Array(buffer, 0, 1), new Int32Array(buffer, 4, 1)];
  new Uint8Array(buffer, 8).set(bytes);
  length[0] = bytes.length;
  Atomics.store(done, 0, 1);
}

/** The reply, once it is there. */
export function readReply(buffer: SharedArrayBuffer): Reply | undefined {
  if (Atomics.load(new Int32Array(buffer), 0) === 0) return undefined;
  const [length] = new Int32Array(buffer, 4, 1);
  return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length).slice()));
}

/** The layout of a matcher's memory: int32 words, then those of the mask. */
export const ASKED = 0;
/** Equal to {@link ASKED} when the answer is there. */
export const ANSWERED = 1;
/** The token to accept. */
export const TOKEN = 2;
/** One of {@link STATUS}. */
export const ANSWER = 3;
/** How many tokens to take back before that. */
export const BACK = 4;
/** The first word of the mask: bit i % 32 of word i / 32 allows token i. */
export const MASK = 5;
/** The token that is none: nothing is accepted. */
export const NO_TOKEN = -1;
/** Tokens that may be taken back: more than a draft has. */
export const MAX_BACK = 16;

/** Answers to a token. */
export const STATUS = { goesOn: 0, ended: 1, refused: 2, failed: 3 } as const;
