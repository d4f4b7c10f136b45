/**
 * Text to token ids and back, for byte-level BPE tokenizers in the format of tokenizer.json.
 *
 * The file is read as bytes: its vocabulary and merges go into typed arrays, the rest is parsed. Control tokens such as
 * `<|im_end|>` are found here: a prompt's own text and the markers of a chat template carry them, the contents of messages
 * never do, whatever a user types.
 *
 * @module
 */

import { Bpe, Merges } from "./bpe.ts";
import {
  type ChatMessage,
  type ChatOptions,
  type ChatTemplate,
  loadChatTemplate,
  type TemplatePart,
} from "./chat_template.ts";
import { Fields } from "./config.ts";
import { StreamDecoder } from "./detokenizer.ts";
import { listed, LlmError } from "./error.ts";
import { JsonBytes } from "./json_bytes.ts";
import { Vocabulary } from "./vocabulary.ts";
import { readSplitter, type Splitter } from "./words.ts";

/** The files that make up a tokenizer, and what the model says about it. */
export interface TokenizerSource {
  /** Bytes of tokenizer.json. */
  readonly tokenizer: Uint8Array;
  /** Text of tokenizer_config.json; may be absent. */
  readonly config?: string;
  /** Text of chat_template.jinja; takes the place of the template in tokenizer_config.json. */
  readonly chatTemplate?: string;
  /** Directory of the files, for messages. */
  readonly dir: string;
  /** Rows of the model's embedding; ids at or above it are an error. */
  readonly vocabSize: number;
  /** Tokens that end a generation, from generation_config.json or config.json. */
  readonly eosTokenIds: readonly number[];
}

interface AddedToken {
  readonly id: number;
  readonly content: string;
  readonly special?: boolean;
  readonly lstrip?: boolean;
  readonly rstrip?: boolean;
}

/** A tokenizer as the generation loop uses it. */
export class Tokenizer {
  /** Number of ids, added tokens included. */
  readonly vocabSize: number;
  /** Tokens that end a generation. */
  readonly eosTokenIds: ReadonlySet<number>;
  readonly #vocabulary: Vocabulary;
  readonly #bpe: Bpe;
  readonly #split: Splitter;
  readonly #added: ReadonlyMap<string, AddedToken>;
  readonly #addedIds: ReadonlyMap<number, AddedToken>;
  readonly #addedPattern: RegExp | undefined;
  readonly #template: ChatTemplate | undefined;

  private constructor(
    { vocabulary, bpe, split, added }: Parts,
    vocabSize: number,
    eosTokenIds: ReadonlySet<number>,
    template: ChatTemplate | undefined,
  ) {
    this.#vocabulary = vocabulary;
    this.#bpe = bpe;
    this.#split = split;
    this.#added = new Map(added.map((token) => [token.content, token]));
    this.#addedIds = new Map(added.map((token) => [token.id, token]));
    this.#addedPattern = addedPattern(added);
    this.#template = template;
    this.vocabSize = vocabSize;
    this.eosTokenIds = eosTokenIds;
  }

  /**
   * Builds a tokenizer from its files. Throws an {@link LlmError} that names the file when one is malformed, of a kind not
   * supported, or made for another model.
   */
  static async load(source: TokenizerSource): Promise<Tokenizer> {
    const file = `${source.dir}/tokenizer.json`;
    const parts = readParts(source.tokenizer, file, source.vocabSize);
    const { vocabulary, added } = parts;
    const config = Fields.parse(source.config ?? "{}", `${source.dir}/tokenizer_config.json`).values;
    const vocabSize = Math.max(vocabulary.size, ...added.map(({ id }) => id + 1));
    checkSize(vocabSize, source.vocabSize, file);
    const outside = source.eosTokenIds.filter((id) => id >= source.vocabSize);
    if (outside.length > 0) {
      throw new LlmError(
        "tokenizer",
        `${source.dir}: eos_token_id ${listed(outside.map(String))} is outside the vocabulary of ${source.vocabSize}`,
      );
    }
    const eosTokenIds = new Set(source.eosTokenIds);
    const eos = contentOf(config.eos_token);
    const eosToken = added.find((token) => token.content === eos);
    if (eosToken !== undefined) eosTokenIds.add(eosToken.id);
    const template = await loadChatTemplate(source.chatTemplate ?? templateOf(config), {
      file: source.chatTemplate === undefined
        ? `${source.dir}/tokenizer_config.json`
        : `${source.dir}/chat_template.jinja`,
      controlTokens: added.map((token) => token.content),
      variables: { bos_token: contentOf(config.bos_token) ?? "", eos_token: eos ?? "" },
    });
    return new Tokenizer(parts, vocabSize, eosTokenIds, template);
  }

  /** Whether messages can be encoded. */
  get hasChatTemplate(): boolean {
    return this.#template !== undefined;
  }

  /** Ids of a text. Control tokens in it count as such unless `controlTokens` is false. */
  encode(text: string, options: { readonly controlTokens?: boolean } = {}): number[] {
    return this.#encodeParts([{ text, control: options.controlTokens ?? true }]);
  }

  /**
   * Ids of a conversation in the model's chat template. Control tokens inside message contents are plain text.
   *
   * @example
   * ```ts ignore
   * const ids = tokenizer.encodeChat([{ role: "user", content: "Hi" }], { enableThinking: false });
   * ```
   */
  encodeChat(messages: readonly ChatMessage[], options: ChatOptions = {}): number[] {
    return this.#encodeParts(this.#render(messages, options));
  }

  /** The text that {@link Tokenizer.encodeChat} encodes. */
  applyChatTemplate(messages: readonly ChatMessage[], options: ChatOptions = {}): string {
    return this.#render(messages, options).map((part) => part.text).join("");
  }

  /** Text of ids; `skipSpecial` leaves out tokens marked special. */
  decode(ids: Iterable<number>, options: { readonly skipSpecial?: boolean } = {}): string {
    const decoder = this.decoder();
    let text = "";
    for (const id of ids) {
      if (!(options.skipSpecial && this.isSpecial(id))) text += decoder.push(id);
    }
    return text + decoder.finish();
  }

  /** A streaming decoder. */
  decoder(): StreamDecoder {
    return new StreamDecoder((id) => this.tokenBytes(id));
  }

  /** Bytes that a token stands for; `undefined` when the vocabulary has no such id. */
  tokenBytes(id: number): Uint8Array | undefined {
    const added = this.#addedIds.get(id);
    return added ? new TextEncoder().encode(added.content) : this.#vocabulary.bytes(id);
  }

  /** The id of a token's text as the vocabulary spells it, such as "<|im_end|>". */
  idOf(token: string): number | undefined {
    return this.#added.get(token)?.id ?? this.#vocabulary.idOf(token);
  }

  /** Whether an id is a control token that is marked special. */
  isSpecial(id: number): boolean {
    return this.#addedIds.get(id)?.special ?? false;
  }

  #render(messages: readonly ChatMessage[], options: ChatOptions): TemplatePart[] {
    if (this.#template === undefined) {
      throw new LlmError("template", "The model has no chat template: pass the prompt as a string");
    }
    return this.#template(messages, options);
  }

  /** Control tokens become their ids; text between two of them is encoded as one run, whichever parts it came from. */
  #encodeParts(parts: readonly TemplatePart[]): number[] {
    const ids: number[] = [];
    let run = "";
    const flush = () => {
      for (const word of this.#split(run.toWellFormed())) this.#bpe.encode(word, ids);
      run = "";
    };
    for (const { text, control } of parts) {
      if (!control || this.#addedPattern === undefined) {
        run += text;
        continue;
      }
      let at = 0;
      for (const match of text.matchAll(this.#addedPattern)) {
        run += text.slice(at, match.index);
        flush();
        const token = this.#added.get(match[0]) ?? this.#added.get(match[0].trim());
        if (token !== undefined) ids.push(token.id);
        at = match.index + match[0].length;
      }
      run += text.slice(at);
    }
    flush();
    return ids;
  }
}

/** Longest first, so that a token that begins with another one wins. */
function addedPattern(added: readonly AddedToken[]): RegExp | undefined {
  if (added.length === 0) return undefined;
  const alternatives = added
    .toSorted((a, b) => b.content.length - a.content.length)
    .map(({ content, lstrip, rstrip }) =>
      `${lstrip ? "\\s*" : ""}${content.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")}${rstrip ? "\\s*" : ""}`
    );
  return new RegExp(alternatives.join("|"), "gu");
}

/** What a tokenizer.json describes. */
interface Parts {
  readonly vocabulary: Vocabulary;
  readonly bpe: Bpe;
  readonly split: Splitter;
  readonly added: readonly AddedToken[];
}

/** Reads a tokenizer.json for a model of `vocabSize` embeddings. */
function readParts(bytes: Uint8Array, file: string, vocabSize: number): Parts {
  const fail = (what: string): never => {
    throw new LlmError("tokenizer", `${file}: ${what}`);
  };
  const { vocabulary, merges, rest: json } = readTables(bytes, file, vocabSize);
  const model = (json.model ?? {}) as Record<string, unknown>;
  if (model.type !== "BPE") fail(`model.type is ${JSON.stringify(model.type)}: only "BPE" is supported`);
  const decoder = (json.decoder ?? {}) as Record<string, unknown>;
  if (decoder.type !== "ByteLevel") fail(`decoder is ${JSON.stringify(decoder.type)}: only "ByteLevel" is supported`);
  const post = (json.post_processor ?? { type: "ByteLevel" }) as Record<string, unknown>;
  if (post.type !== "ByteLevel") fail(`post_processor is ${JSON.stringify(post.type)}: only "ByteLevel" is supported`);
  for (const field of ["continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout"]) {
    if (model[field]) fail(`model.${field} is ${JSON.stringify(model[field])}, which is not supported`);
  }
  if (vocabulary === undefined) return fail(`"model.vocab" is missing`);
  if (merges === undefined) return fail(`"model.merges" is missing`);
  const added = (json.added_tokens ?? []) as AddedToken[];
  const fits = ({ content, id }: AddedToken): boolean =>
    typeof content === "string" && content.length > 0 && Number.isInteger(id) && id >= 0;
  if (!Array.isArray(added) || !added.every((token) => token && fits(token))) {
    fail(`"added_tokens" is not a list of tokens`);
  }
  const bpe = new Bpe(vocabulary, merges, model.ignore_merges === true, file);
  return { vocabulary, bpe, split: readSplitter(json, file), added };
}

/** Throws where there are more ids than rows in the embedding. */
function checkSize(ids: number, embeddings: number, file: string): void {
  if (ids <= embeddings) return;
  throw new LlmError(
    "tokenizer",
    `${file} has ids up to ${ids - 1} but the model has only ${embeddings} embeddings: ` +
      `take the tokenizer files that belong to the model`,
  );
}

/** What is large in a tokenizer.json, where it is there, and everything else. */
interface Tables {
  readonly vocabulary?: Vocabulary;
  readonly merges?: Merges;
  readonly rest: Readonly<Record<string, unknown>>;
}

function readTables(bytes: Uint8Array, file: string, vocabSize: number): Tables {
  const json = new JsonBytes(bytes, file);
  const decode = (from: number, to?: number): string => new TextDecoder().decode(bytes.subarray(from, to));
  if (!json.opens("{")) return { rest: Fields.parse(decode(0), file).values };
  let vocabulary: Vocabulary | undefined;
  let merges: Merges | undefined;
  let mergesAt: number | undefined;
  let text = "";
  let end = 0;
  json.object(() => {
    if (json.key() !== "model" || !json.opens("{")) return json.skip();
    json.object(() => {
      const key = json.key();
      const start = json.at;
      if (key === "vocab" && json.opens("{")) {
        vocabulary = Vocabulary.read(json, vocabSize);
        checkSize(vocabulary.size, vocabSize, file);
      } else if (key === "merges" && json.opens("[")) {
        mergesAt = start;
        if (vocabulary) merges = new Merges(json, vocabulary);
        else json.skip();
      } else return json.skip();
      text += `${decode(end, start)}null`;
      end = json.at;
    });
  });
  if (vocabulary && mergesAt !== undefined) merges ??= new Merges(new JsonBytes(bytes, file, mergesAt), vocabulary);
  return { vocabulary, merges, rest: Fields.parse(text + decode(end), file).values };
}

/** Fields such as eos_token hold a string or an object with one. */
function contentOf(token: unknown): string | undefined {
  if (typeof token === "string") return token;
  const content = (token as { content?: unknown } | null | undefined)?.content;
  return typeof content === "string" ? content : undefined;
}

/** "chat_template": a string, or a list of named ones of which "default" counts. */
function templateOf(config: Readonly<Record<string, unknown>>): string | undefined {
  const { chat_template: template } = config;
  if (typeof template === "string") return template;
  if (!Array.isArray(template)) return undefined;
  const row = template.find((entry) => entry?.name === "default") as { template?: unknown } | undefined;
  return typeof row?.template === "string" ? row.template : undefined;
}
