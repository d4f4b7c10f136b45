/**
 * Reads tokenizer.json.
 *
 * Files are read as bytes. Vocabulary and merges go into typed arrays; added tokens and other fields are parsed one by one. All of
 * them have limits.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { type AddedToken, readAddedTokens } from "./added_tokens.ts";
import { Bpe, type TokenModel } from "./bpe.ts";
import { LlmError } from "../error.ts";
import { JsonBytes } from "./json_bytes.ts";
import { Merges } from "./merges.ts";
import { type Fail, failing, stepsOf } from "./pipeline.ts";
import { type Around, readPostProcessor } from "./post_processor.ts";
import { type PreTokenizer, readPreTokenizer } from "./pre_tokenizer.ts";
import { BYTE_LEVEL, readTokenDecoder, type TokenDecoder } from "./token_decoder.ts";
import { UnknownCharacters } from "./unknown_characters.ts";
import { checkIds, Vocabulary } from "./vocabulary.ts";

/** What a tokenizer's file says. */
export interface TokenizerFile {
  /** Tokens of the model. */
  readonly vocabulary: Vocabulary;
  /** Encodes words. */
  readonly model: TokenModel;
  /** Turns tokens into text. */
  readonly decoder: TokenDecoder;
  /** Cuts text into words. */
  readonly preTokenizer: PreTokenizer;
  /** Ids around a text. */
  readonly around: Around;
  /** Tokens that are found in text. */
  readonly added: readonly AddedToken[];
  /** One more than the highest id. */
  readonly vocabSize: number;
}

/** Reads a tokenizer.json for a model of `embeddings` rows. */
export function readTokenizerFile(bytes: Uint8Array, file: string, embeddings: number): TokenizerFile {
  const fail = failing(file);
  const { vocabulary, merges, model, rest, added = [] } = readFields(bytes, file, embeddings);
  if (model.type !== "BPE") fail(`model.type is ${quoted(model.type)}: only "BPE" is supported`);
  const byteLevel = isByteLevel(rest, fail);
  const decoder = byteLevel ? BYTE_LEVEL : readTokenDecoder(rest, file);
  for (const field of UNSUPPORTED) {
    if (model[field]) fail(`model.${field} is ${quoted(model[field])}, which is not supported`);
  }
  if (vocabulary === undefined) return fail(`"model.vocab" is missing`);
  if (merges === undefined) return fail(`"model.merges" is missing`);
  for (const { content, id } of added) {
    const own = vocabulary.idOf(content);
    if (own !== undefined && own !== id) {
      fail(`the added token ${quoted(content)} has the ids ${id} and, in the vocabulary, ${own}`);
    }
    if (own === undefined && vocabulary.spelling(id) !== undefined) {
      fail(`the id ${id} of the added token ${quoted(content)} is taken`);
    }
  }
  const largest = added.reduce((most, { id }) => Math.max(most, id), vocabulary.size - 1);
  checkIds(largest, embeddings, file);
  const preTokenizer = readPreTokenizer(rest, file, byteLevel);
  const around = readPostProcessor(rest, file);
  checkIds(Math.max(-1, ...around.before, ...around.behind), embeddings, file);
  const unknown = byteLevel ? undefined : readUnknown(model, vocabulary, fail);
  const bpe = new Bpe(vocabulary, { ranks: merges, wholeWords: model.ignore_merges === true, unknown }, file);
  return { vocabulary, model: bpe, decoder, preTokenizer, around, added, vocabSize: largest + 1 };
}

/** Whether tokens are of bytes, not of characters. */
function isByteLevel(json: Readonly<Record<string, unknown>>, fail: Fail): boolean {
  const steps = stepsOf(json, "decoder", "decoders", fail);
  return steps.length === 1 && steps[0].type === "ByteLevel";
}

/** What becomes of characters that are no tokens. */
function readUnknown(model: Readonly<Record<string, unknown>>, vocabulary: Vocabulary, fail: Fail): UnknownCharacters {
  const { unk_token: token, byte_fallback: byteFallback, fuse_unk: fuse } = model;
  const unknown = typeof token === "string" ? vocabulary.idOf(token) : undefined;
  if (typeof token === "string" && unknown === undefined) fail(`model.unk_token ${quoted(token)} is no token`);
  return new UnknownCharacters(vocabulary, { byteFallback: byteFallback === true, unknown, fuse: fuse === true });
}

/** The fields of a tokenizer.json, those that are large in their own forms. */
interface FileFields {
  vocabulary?: Vocabulary;
  merges?: Merges;
  added?: AddedToken[];
  readonly model: Record<string, unknown>;
  readonly rest: Record<string, unknown>;
}

/** Fields of a model that must be absent, null or false. */
const UNSUPPORTED = ["continuing_subword_prefix", "end_of_word_suffix", "dropout"];
/** Other fields of a model that count. */
const MODEL_FIELDS = ["type", "ignore_merges", "byte_fallback", "fuse_unk", "unk_token"];
/** Other fields of the file that count. */
const FIELDS = ["normalizer", "pre_tokenizer", "post_processor", "decoder"];

function readFields(bytes: Uint8Array, file: string, embeddings: number): FileFields {
  const json = new JsonBytes(bytes, file);
  const fields: FileFields = { model: {}, rest: {} };
  let mergesAt: number | undefined;
  const once = (is: unknown, key: string): void => {
    if (is !== undefined) json.fail(`${quoted(key)} occurs twice`);
  };
  const readModel = (key: string): void => {
    if (key === "vocab" && json.opens("{")) {
      once(fields.vocabulary, key);
      fields.vocabulary = Vocabulary.read(json, embeddings);
    } else if (key === "merges" && json.opens("[")) {
      once(mergesAt, key);
      mergesAt = json.at;
      if (fields.vocabulary) fields.merges = Merges.read(json, fields.vocabulary);
      else json.skip();
    } else if (MODEL_FIELDS.includes(key) || UNSUPPORTED.includes(key)) fields.model[key] = json.value();
    else json.skip();
  };
  readObject(json, (key) => {
    if (key === "model" && json.opens("{")) json.object(() => readModel(json.key()));
    else if (key === "added_tokens") {
      once(fields.added, key);
      fields.added = readAddedTokens(json);
    } else if (FIELDS.includes(key)) fields.rest[key] = json.value();
    else json.skip();
  });
  if (fields.vocabulary && mergesAt !== undefined) {
    fields.merges ??= Merges.read(json.readerAt(mergesAt), fields.vocabulary);
  }
  return fields;
}

/** Passes a file that is an object; `read` is called for every key and passes its value. */
export function readObject(json: JsonBytes, read: (key: string) => void): void {
  if (!json.opens("{")) {
    json.skip();
    throw new LlmError("tokenizer", `${json.file} does not hold a JSON object`);
  }
  json.object(() => read(json.key()));
  json.end();
}
