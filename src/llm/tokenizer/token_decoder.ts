/**
 * The "decoder" of a tokenizer.json: how tokens become text.
 *
 * Every decoder here is a function of one token, and a rule for the beginning of a text. So text can be given out token by token.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { readMetaspace } from "./metaspace.ts";
import { type Fail, failing, type Step, stepsOf } from "./pipeline.ts";
import { byteOf } from "./unknown_characters.ts";
import { ALPHABET } from "./vocabulary.ts";

/** Turns tokens into bytes of text. */
export interface TokenDecoder {
  /** Bytes of a token as the vocabulary spells it. */
  bytes(spelling: string): Uint8Array;
  /** Bytes of the first token of a text, if they may be others. */
  readonly firstBytes?: (spelling: string) => Uint8Array;
  /** Whether these count for every token until one has any; default for the first token only. */
  readonly untilText?: boolean;
  /** Most spaces that are left out at the beginning of a text. */
  readonly leadingSpaces: number;
  /** Whether added tokens are their own text, whatever they are spelled with. */
  readonly plainAdded: boolean;
}

/** A function of the text of a token. */
type Change = (token: string) => string;

const ENCODER = new TextEncoder();
const BYTE_OF_CHAR: ReadonlyMap<string, number> = new Map(ALPHABET.map((char, byte) => [char, byte]));

/** Tokens of byte-level vocabularies. Characters outside the alphabet stand for their UTF-8. */
export const BYTE_LEVEL: TokenDecoder = {
  bytes: (spelling) => {
    const bytes: number[] = [];
    for (const char of spelling) {
      const byte = BYTE_OF_CHAR.get(char);
      if (byte === undefined) bytes.push(...ENCODER.encode(char));
      else bytes.push(byte);
    }
    return Uint8Array.from(bytes);
  },
  leadingSpaces: 0,
  plainAdded: true,
};

/** Tokens of files without a decoder: with a space before each but the first one. */
const SPACED: TokenDecoder = {
  bytes: (spelling) => ENCODER.encode(` ${spelling}`),
  firstBytes: (spelling) => ENCODER.encode(spelling),
  leadingSpaces: 0,
  plainAdded: false,
};

/**
 * Reads the field of the tokenizer.json `file`. Throws an `LlmError` that names what is not supported.
 */
export function readTokenDecoder(json: Readonly<Record<string, unknown>>, file: string): TokenDecoder {
  const fail = failing(file);
  const steps = stepsOf(json, "decoder", "decoders", fail);
  if (steps.length === 0) return SPACED;
  if (steps.length === 1 && steps[0].type === "ByteLevel") return BYTE_LEVEL;
  const changes: Change[] = [];
  let bytes = false;
  let fused = false;
  let leadingSpaces = 0;
  let firstDrops: string | undefined; // Metaspace drops this character anywhere in the first token
  for (const step of steps) {
    const { type } = step;
    if (type === "Replace" && !fused) changes.push(readReplace(step, fail));
    else if (type === "ByteFallback" && !fused) bytes = true;
    else if (type === "Fuse") fused = true;
    else if (type === "Strip" && fused && step.content === " " && step.stop === 0) leadingSpaces = countOf(step, fail);
    else if (type === "Metaspace" && !fused) {
      const { replacement, scheme } = readMetaspace(step, fail);
      if (scheme !== "never") firstDrops = replacement;
      changes.push((token) => token.replaceAll(replacement, " "));
    } else {
      return fail(
        `decoder ${
          quoted(step)
        } is not supported here: "ByteLevel", or "Replace", "ByteFallback", "Metaspace", "Fuse" and a "Strip" ` +
          "of leading spaces after it, are",
      );
    }
  }
  const bytesOf = (changes: readonly Change[]) => (spelling: string): Uint8Array => {
    const text = changes.reduce((token, change) => change(token), spelling);
    const byte = bytes ? byteOf(text) : undefined;
    return byte === undefined ? ENCODER.encode(text) : Uint8Array.of(byte);
  };
  const drop = firstDrops;
  return {
    bytes: bytesOf(changes),
    ...(drop !== undefined && { firstBytes: bytesOf([(token) => token.replaceAll(drop, ""), ...changes]) }),
    leadingSpaces,
    plainAdded: false,
  };
}

/** Replaces a text in every token. */
function readReplace({ pattern, content }: Step, fail: Fail): Change {
  const text = (pattern as { readonly String?: unknown } | undefined)?.String;
  if (typeof text !== "string" || text === "" || typeof content !== "string") {
    return fail(`decoder "Replace" has the pattern ${quoted(pattern)}: a "String" is supported`);
  }
  return (token) => token.replaceAll(text, () => content);
}

function countOf({ start }: Step, fail: Fail): number {
  if (typeof start === "number" && Number.isInteger(start) && start >= 0) return start;
  return fail(`decoder "Strip" has the start ${quoted(start)}, expected a whole number`);
}
