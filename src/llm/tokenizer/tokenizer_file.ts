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
import { Bpe, Merges } from "./bpe.ts";
import { LlmError } from "../error.ts";
import { JsonBytes } from "./json_bytes.ts";
import { type Around, readPostProcessor } from "./post_processor.ts";
import { type PreTokenizer, readPreTokenizer } from "./pre_tokenizer.ts";
import { checkIds, Vocabulary } from "./vocabulary.ts";

/** The content of a tokenizer.json. */
export interface TokenizerFile {
  /** Tokens of the model. */
  readonly vocabulary: Vocabulary;
  /** Encodes words. */
  readonly bpe: Bpe;
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
  const fail = (what: string): never => {
    throw new LlmError("tokenizer", `${file}: ${what}`);
  };
  const { vocabulary, merges, model, rest, added = [] } = readFields(bytes, file, embeddings);
  if (model.type !== "BPE") fail(`model.type is ${quoted(model.type)}: only "BPE" is supported`);
  const decoder = (rest.decoder ?? {}) as Record<string, unknown>;
  if (decoder.type !== "ByteLevel") fail(`decoder is ${quoted(decoder.type)}: only "ByteLevel" is supported`);
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
    if (own === undefined && vocabulary.bytes(id)) fail(`the id ${id} of the added token ${quoted(content)} is taken`);
  }
  const largest = added.reduce((most, { id }) => Math.max(most, id), vocabulary.size - 1);
  checkIds(largest, embeddings, file);
  const preTokenizer = readPreTokenizer(rest, file);
  const around = readPostProcessor(rest, file);
  checkIds(Math.max(-1, ...around.before, ...around.behind), embeddings, file);
  const bpe = new Bpe(vocabulary, merges, model.ignore_merges === true, file);
  return { vocabulary, bpe, preTokenizer, around, added, vocabSize: largest + 1 };
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
const UNSUPPORTED = ["continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout"];
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
      if (fields.vocabulary) fields.merges = new Merges(json, fields.vocabulary);
      else json.skip();
    } else if (key === "type" || key === "ignore_merges" || UNSUPPORTED.includes(key)) fields.model[key] = json.value();
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
    fields.merges ??= new Merges(json.readerAt(mergesAt), fields.vocabulary);
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
