/**
 * Reads tekken.json, the tokenizer of Mistral's models: tokens of bytes in the order in which they are merged, and a pattern.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import type { AddedToken } from "./added_tokens.ts";
import { Bpe } from "./bpe.ts";
import { JsonBytes } from "./json_bytes.ts";
import { ScoreRanks } from "./merges.ts";
import { readPreTokenizer } from "./pre_tokenizer.ts";
import { BYTE_LEVEL } from "./token_decoder.ts";
import { readObject, type TokenizerFile } from "./tokenizer_file.ts";
import { ALPHABET, MAX_IDS, Vocabulary } from "./vocabulary.ts";

/** Control tokens of files that do not name them. */
const USUAL_CONTROLS: readonly string[] = [
  "<unk>",
  "<s>",
  "</s>",
  "[INST]",
  "[/INST]",
  "[AVAILABLE_TOOLS]",
  "[/AVAILABLE_TOOLS]",
  "[TOOL_RESULTS]",
  "[/TOOL_RESULTS]",
  "[TOOL_CALLS]",
  "[IMG]",
  "<pad>",
  "[IMG_BREAK]",
  "[IMG_END]",
  "[PREFIX]",
  "[MIDDLE]",
  "[SUFFIX]",
  "[SYSTEM_PROMPT]",
  "[/SYSTEM_PROMPT]",
  "[TOOL_CONTENT]",
];

/** The fields that count. */
interface TekkenFields {
  pattern?: unknown;
  size?: unknown;
  controls?: unknown;
  /** Tokens as {@link ALPHABET} spells them, by rank. */
  readonly tokens: string[];
  names?: readonly unknown[];
}

/** Whether a byte occurs in the UTF-8 of characters that Unicode names; vocabularies may lack tokens for the others. */
function isOfCharacters(byte: number): boolean {
  return byte !== 0xc0 && byte !== 0xc1 && byte <= 0xf0;
}

/** Reads the bytes of the tekken.json `file`, for a model of `embeddings` rows. Throws an `LlmError` that says what is wrong. */
export function readTekkenFile(bytes: Uint8Array, file: string, embeddings: number): TokenizerFile {
  const json = new JsonBytes(bytes, file);
  const { pattern, size, controls, tokens, names } = readFields(json);
  if (typeof pattern !== "string") return json.fail(`config.pattern is ${quoted(pattern)}, expected a text`);
  const count = countOf(json, "config.default_num_special_tokens", controls);
  const all = countOf(json, "config.default_vocab_size", size);
  if (all < count) json.fail(`config.default_vocab_size is ${all}, less than its ${count} control tokens`);
  const control = controlsOf(json, names, count);
  // Files hold more tokens than their models use.
  const spelled = [...control.map(() => ""), ...tokens.slice(0, all - count)];
  const vocabulary = Vocabulary.of(spelled, file, embeddings);
  const missing = ALPHABET.findIndex((char, byte) => isOfCharacters(byte) && vocabulary.idOf(char) === undefined);
  if (missing >= 0) json.fail(`the vocabulary has no token for the byte ${missing}`);
  const ranks = new ScoreRanks(Float64Array.from(spelled, (token, id) => token === "" ? NaN : -id));
  const idOf = (content: string): number | undefined => control.find((token) => token.content === content)?.id;
  return {
    vocabulary,
    model: new Bpe(vocabulary, { ranks, wholeWords: true, byteLevel: true, unknown: undefined }),
    decoder: BYTE_LEVEL,
    preTokenizer: readPreTokenizer({
      pre_tokenizer: {
        type: "Sequence",
        pretokenizers: [
          { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated" },
          { type: "ByteLevel", add_prefix_space: false, use_regex: false },
        ],
      },
    }, file),
    around: { before: [], after: [] },
    added: control,
    vocabSize: vocabulary.size,
    bos: idOf("<s>"),
    eos: idOf("</s>"),
  };
}

function readFields(json: JsonBytes): TekkenFields {
  const fields: TekkenFields = { tokens: [] };
  readObject(json, (key) => {
    if (key === "config") {
      const config = json.value() as Readonly<Record<string, unknown>> | null;
      fields.pattern = config?.pattern;
      fields.size = config?.default_vocab_size;
      fields.controls = config?.default_num_special_tokens;
    } else if (key === "vocab") {
      json.array(() => {
        if (fields.tokens.length === MAX_IDS) json.fail(`there are more than ${MAX_IDS} tokens`);
        fields.tokens.push(readToken(json, fields.tokens.length));
      });
    } else if (key === "special_tokens") {
      const names = json.value();
      if (Array.isArray(names)) fields.names = names;
    } else json.skip();
  });
  return fields;
}

/** Passes a token, whose rank is its place. */
function readToken(json: JsonBytes, place: number): string {
  const token = json.value() as { readonly rank?: unknown; readonly token_bytes?: unknown } | null;
  if (token?.rank !== place) json.fail(`vocab[${place}] has the rank ${quoted(token?.rank)}`);
  try {
    const bytes = Uint8Array.fromBase64(token!.token_bytes as string);
    if (bytes.length > 0) return Array.from(bytes, (byte) => ALPHABET[byte]).join("");
  } catch {
    // told below
  }
  return json.fail(`vocab[${place}].token_bytes is ${quoted(token!.token_bytes)}, expected bytes in base64`);
}

/** The tokens with the first `count` ids. */
function controlsOf(json: JsonBytes, names: readonly unknown[] | undefined, count: number): AddedToken[] {
  const known = names?.map((name, id) => {
    const { rank = id, token_str: text } = (name ?? {}) as { readonly rank?: unknown; readonly token_str?: unknown };
    return rank === id && typeof text === "string" && text !== ""
      ? text
      : json.fail(`special_tokens[${id}] is ${quoted(name)}, expected a token with this rank`);
  }) ?? USUAL_CONTROLS;
  if (known.length > count) json.fail(`there are ${known.length} special tokens, at most ${count} by its config`);
  if (new Set(known).size < known.length) json.fail("a special token occurs twice");
  return Array.from({ length: count }, (_, id) => ({
    id,
    content: known[id] ?? `<SPECIAL_${id}>`,
    special: true,
    normalized: false,
  }));
}

function countOf(json: JsonBytes, field: string, value: unknown): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= MAX_IDS) return value;
  return json.fail(`${field} is ${quoted(value)}, expected a number of at most ${MAX_IDS}`);
}
