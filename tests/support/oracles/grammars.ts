/**
 * Grammars of `responseFormat` without a worker: whether one takes a text, and texts that random walks through its masks give.
 *
 * @module
 */

import { Masks } from "../../../src/llm/structured/automaton/masks.ts";
import { type State, States } from "../../../src/llm/structured/automaton/states.ts";
import { type TokenTree, tokenTree } from "../../../src/llm/structured/automaton/token_tree.ts";
import type { GrammarSource, Vocabulary } from "../../../src/llm/structured/protocol.ts";
import { rulesOf } from "../../../src/llm/structured/rules.ts";

const ENCODER = new TextEncoder();

/** The states of a grammar. Throws what is wrong with it. */
export function statesOf(source: GrammarSource): States {
  return new States(rulesOf(source));
}

/** The state after some bytes. */
function after(states: States, bytes: Iterable<number>): State {
  let state = states.start();
  for (const byte of bytes) state = states.step(state, states.classes[byte]);
  return state;
}

/** Whether a text is one of a grammar. */
export function takes(states: States, text: string): boolean {
  return after(states, ENCODER.encode(text)).ends;
}

/** Tokens of a small model: every byte, words that JSON is made of, and one that ends an answer. */
const WORDS = [
  ...[
    '", "',
    '": ',
    '{"',
    '"}',
    '"]',
    "}]",
    "{}",
    "[]",
    '"',
    "}",
    "]",
    '"foo"',
    '", "bar": ',
    '\\"',
    "\\n",
    "\\u00",
    "\\ud83d",
  ],
  ...[
    "foo",
    "bar",
    "ab",
    "aaaa",
    "    ",
    "true",
    "null",
    "12",
    "-1",
    "1.",
    "000",
    "999",
    "é",
    "😀",
    "-02-2",
    "2020-",
    "http://",
  ],
];
const TOKENS: readonly Uint8Array[] = [
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...WORDS.map((word) => ENCODER.encode(word)),
];
const STOP = TOKENS.length;
/** Tokens that lead to an end. */
const CLOSING = ['"', "}", "]", '"}', '"]', "}]", "null", "1"].map((text) =>
  TOKENS.findIndex((token) => new TextDecoder().decode(token) === text)
);
const VOCABULARY: Vocabulary = {
  bytes: Uint8Array.from(TOKENS.flatMap((token) => [...token])),
  ends: Uint32Array.from(
    { length: STOP },
    (_, i) => TOKENS.slice(0, i + 1).reduce((sum, { length }) => sum + length, 0),
  ),
  stop: [STOP],
  size: STOP + 1,
};
const TREE: TokenTree = tokenTree(VOCABULARY);

/** Masks over the small model's tokens. */
export function masksOf(states: States): Masks {
  return new Masks(states, TREE, VOCABULARY);
}

/** The tokens of a mask. */
export function tokensOf(mask: Int32Array): number[] {
  return Array.from({ length: VOCABULARY.size }, (_, id) => id).filter((id) => mask[id >> 5] >>> (id & 31) & 1);
}

/** Most tokens of a walk, and how many are free before it makes for an end. */
const MAX_TOKENS = 150;
const FREE_TOKENS = 25;

/**
 * A text by random tokens of masks; undefined where it does not end. Throws where a mask has no token, and where a mask and the grammar
 * do not agree on a token. `random` gives numbers from 0 to 1.
 */
export function walk(states: States, masks: Masks, random: () => number): string | undefined {
  const bytes: number[] = [];
  let state = states.start();
  for (let count = 0; count < MAX_TOKENS; count++) {
    const allowed = tokensOf(masks.mask(state));
    const text = (): string => JSON.stringify(new TextDecoder().decode(Uint8Array.from(bytes)));
    if (allowed.length === 0) throw new Error(`no token may follow ${text()}`);
    const closing = allowed.filter((id) => CLOSING.includes(id));
    const ends = allowed.includes(STOP);
    const late = count > FREE_TOKENS;
    const near = (late || random() < 0.2) && (closing.length > 0 || ends);
    const pool = !near ? allowed : ends ? [STOP] : closing;
    const token = pool[Math.floor(random() * pool.length)];
    if (token === STOP) return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes));
    const next = masks.accept(state, token);
    if (!next) throw new Error(`a token was allowed after ${text()} that is none: ${TOKENS[token]}`);
    state = next;
    bytes.push(...TOKENS[token]);
  }
  return undefined;
}

/** Numbers from 0 to 1, the same ones for a seed. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}
