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
import { Unigram } from "./sentencepiece/unigram.ts";
import { readTokenDecoder, type TokenDecoder } from "./token_decoder.ts";
import { UnknownCharacters } from "./unknown_characters.ts";
import { ALPHABET, checkIds, MAX_IDS, Vocabulary } from "./vocabulary.ts";

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
  /** The token that begins a text, of a file that does not say whether it is added: tokenizer_config.json does. */
  readonly bos?: number;
  /** And the token that ends it. */
  readonly eos?: number;
}

/** Reads a tokenizer.json for a model of `embeddings` rows. */
export function readTokenizerFile(bytes: Uint8Array, file: string, embeddings: number): TokenizerFile {
  const fail = failing(file);
  const fields = readFields(bytes, file, embeddings);
  const { vocabulary, model, rest, added = [] } = fields;
  if (model.type !== "BPE" && model.type !== "Unigram") {
    fail(`model.type is ${quoted(model.type)}: "BPE" and "Unigram" are supported`);
  }
  const byteLevel = isByteLevel(rest, fail);
  const decoder = readTokenDecoder(rest, file);
  for (const field of UNSUPPORTED) {
    if (model[field]) fail(`model.${field} is ${quoted(model[field])}, which is not supported`);
  }
  if (vocabulary === undefined) return fail(`"model.vocab" is missing`);
  const encoder = model.type === "BPE"
    ? readBpe(fields, vocabulary, byteLevel, fail)
    : readUnigram(fields, vocabulary, byteLevel, fail);
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
  checkIds(Math.max(-1, ...around.before, ...around.after), embeddings, file);
  return { vocabulary, model: encoder, decoder, preTokenizer, around, added, vocabSize: largest + 1 };
}

function readBpe({ merges, model }: FileFields, vocabulary: Vocabulary, byteLevel: boolean, fail: Fail): TokenModel {
  if (merges === undefined) return fail(`"model.merges" is missing`);
  const unknown = byteLevel && hasAllBytes(vocabulary) ? undefined : readUnknown(model, vocabulary, fail);
  return new Bpe(vocabulary, { ranks: merges, wholeWords: model.ignore_merges === true, byteLevel, unknown });
}

/** Whether every byte is a token. Vocabularies of few texts may lack some: those of characters that the texts do not have. */
function hasAllBytes(vocabulary: Vocabulary): boolean {
  return ALPHABET.every((char) => vocabulary.idOf(char) !== undefined);
}

function readUnigram(
  { scored, model }: FileFields,
  vocabulary: Vocabulary,
  byteLevel: boolean,
  fail: Fail,
): TokenModel {
  if (scored === undefined) return fail(`"model.vocab" is no list of tokens and scores, which a Unigram model has`);
  if (byteLevel) return fail(`the decoder "ByteLevel" is not supported with a Unigram model`);
  const { unk_id: id, byte_fallback: byteFallback } = model;
  const unknown = typeof id === "number" ? id : undefined;
  if (unknown !== undefined && scored.tokens[unknown] === undefined) fail(`model.unk_id ${unknown} is no token`);
  const options = { byteFallback: byteFallback === true, unknown, fuse: true };
  return new Unigram({ ...scored, unknown: new UnknownCharacters(vocabulary, options) }, fail);
}

/** Whether tokens are of bytes, not of characters: the decoder says so, or the pre-tokenizer where there is none. */
function isByteLevel(json: Readonly<Record<string, unknown>>, fail: Fail): boolean {
  const steps = stepsOf(json, "decoder", "decoders", fail);
  if (steps.length > 0) return steps.length === 1 && steps[0].type === "ByteLevel";
  return stepsOf(json, "pre_tokenizer", "pretokenizers", fail).at(-1)?.type === "ByteLevel";
}

/** What becomes of characters that are no tokens. */
function readUnknown(model: Readonly<Record<string, unknown>>, vocabulary: Vocabulary, fail: Fail): UnknownCharacters {
  const { unk_token: token, byte_fallback: byteFallback, fuse_unk: fuse } = model;
  const unknown = typeof token === "string" ? vocabulary.idOf(token) : undefined;
  if (typeof token === "string" && unknown === undefined) fail(`model.unk_token ${quoted(token)} is no token`);
  return new UnknownCharacters(vocabulary, { byteFallback: byteFallback === true, unknown, fuse: fuse === true });
}

/** Tokens by id and the logarithms of their probabilities. */
interface ScoredTokens {
  readonly tokens: readonly string[];
  readonly scores: readonly number[];
}

/** The fields of a tokenizer.json, those that are large in their own forms. */
interface FileFields {
  vocabulary?: Vocabulary;
  merges?: Merges;
  /** The vocabulary of a Unigram model. */
  scored?: ScoredTokens;
  added?: AddedToken[];
  readonly model: Record<string, unknown>;
  readonly rest: Record<string, unknown>;
}

/** Fields of a model that must be absent, null or false. */
const UNSUPPORTED = ["continuing_subword_prefix", "end_of_word_suffix", "dropout"];
/** Other fields of a model that count. */
const MODEL_FIELDS = ["type", "ignore_merges", "byte_fallback", "fuse_unk", "unk_token", "unk_id"];
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
    } else if (key === "vocab" && json.opens("[")) {
      once(fields.vocabulary, key);
      fields.scored = readScored(json);
      fields.vocabulary = Vocabulary.of(fields.scored.tokens, json.file, embeddings);
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

/** Passes a list of tokens with their scores. */
function readScored(json: JsonBytes): ScoredTokens {
  const tokens: string[] = [];
  const scores: number[] = [];
  json.array(() => {
    const [token, score, ...more] = [json.value()].flat();
    if (typeof token !== "string" || !token.isWellFormed() || typeof score !== "number" || more.length > 0) {
      json.fail(`model.vocab[${tokens.length}] is no token with a score`);
    }
    if (tokens.length === MAX_IDS) json.fail(`there are more than ${MAX_IDS} tokens`);
    tokens.push(token as string);
    scores.push(score as number);
  });
  return { tokens, scores };
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
