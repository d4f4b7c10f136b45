/**
 * Text to token ids and back, for byte-level BPE tokenizers in the format of tokenizer.json.
 *
 * Splitting and merging is done by `@huggingface/tokenizers`, which is loaded on first use. Control tokens such as
 * `<|im_end|>` are found here and not there: a prompt's own text and the markers of a chat template carry them, the
 * contents of messages never do, whatever a user types.
 *
 * @module
 */

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

/** Texts of the files that make up a tokenizer, and what the model says about it. */
export interface TokenizerSource {
  /** tokenizer.json. */
  readonly tokenizer: string;
  /** tokenizer_config.json; may be absent. */
  readonly config?: string;
  /** chat_template.jinja; takes the place of the template in tokenizer_config.json. */
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

interface BpeEncoder {
  encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: number[] };
}

/** A tokenizer as the generation loop uses it. */
export class Tokenizer {
  /** Number of ids, added tokens included. */
  readonly vocabSize: number;
  /** Tokens that end a generation. */
  readonly eosTokenIds: ReadonlySet<number>;
  readonly #encoder: BpeEncoder;
  readonly #tokens: readonly (string | undefined)[];
  readonly #added: ReadonlyMap<string, AddedToken>;
  readonly #addedIds: ReadonlyMap<number, AddedToken>;
  readonly #addedPattern: RegExp | undefined;
  readonly #template: ChatTemplate | undefined;

  private constructor(
    encoder: BpeEncoder,
    tokens: readonly (string | undefined)[],
    added: readonly AddedToken[],
    eosTokenIds: ReadonlySet<number>,
    template: ChatTemplate | undefined,
  ) {
    this.#encoder = encoder;
    this.#tokens = tokens;
    this.#added = new Map(added.map((token) => [token.content, token]));
    this.#addedIds = new Map(added.map((token) => [token.id, token]));
    this.#addedPattern = addedPattern(added);
    this.#template = template;
    this.vocabSize = tokens.length;
    this.eosTokenIds = eosTokenIds;
  }

  /**
   * Builds a tokenizer from the texts of its files. Throws an {@link LlmError} that names the file when one is malformed,
   * of a kind not supported, or made for another model.
   */
  static async load(source: TokenizerSource): Promise<Tokenizer> {
    const file = `${source.dir}/tokenizer.json`;
    const json = Fields.parse(source.tokenizer, file).values;
    const config = Fields.parse(source.config ?? "{}", `${source.dir}/tokenizer_config.json`).values;
    const { tokens, added } = readVocabulary(json, file);
    if (tokens.length > source.vocabSize) {
      throw new LlmError(
        "tokenizer",
        `${file} has ids up to ${tokens.length - 1} but the model has only ${source.vocabSize} embeddings: ` +
          `take the tokenizer files that belong to the model`,
      );
    }
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
    return new Tokenizer(await makeEncoder(json, file), tokens, added, eosTokenIds, template);
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
    const token = this.#tokens[id];
    if (token === undefined) return undefined;
    return this.#addedIds.has(id) ? new TextEncoder().encode(token) : byteLevelBytes(token);
  }

  /** The id of a token's text as the vocabulary spells it, such as "<|im_end|>". */
  idOf(token: string): number | undefined {
    const id = this.#added.get(token)?.id ?? this.#tokens.indexOf(token);
    return id < 0 ? undefined : id;
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
      if (run !== "") { for (const id of this.#encodeRun(run)) ids.push(id); }
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

  #encodeRun(text: string): number[] {
    return this.#encoder.encode(text.toWellFormed(), { add_special_tokens: false }).ids;
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

function readVocabulary(
  json: Readonly<Record<string, unknown>>,
  file: string,
): { tokens: (string | undefined)[]; added: AddedToken[] } {
  const fail = (what: string): never => {
    throw new LlmError("tokenizer", `${file}: ${what}`);
  };
  const model = (json.model ?? {}) as Record<string, unknown>;
  if (model.type !== "BPE") fail(`model.type is ${JSON.stringify(model.type)}: only "BPE" is supported`);
  const decoder = (json.decoder ?? {}) as Record<string, unknown>;
  if (decoder.type !== "ByteLevel") fail(`decoder is ${JSON.stringify(decoder.type)}: only "ByteLevel" is supported`);
  const post = (json.post_processor ?? { type: "ByteLevel" }) as Record<string, unknown>;
  if (post.type !== "ByteLevel") fail(`post_processor is ${JSON.stringify(post.type)}: only "ByteLevel" is supported`);
  if (typeof model.vocab !== "object" || model.vocab === null) fail(`"model.vocab" is missing`);
  if (!Array.isArray(model.merges)) fail(`"model.merges" is missing`);
  const added = (json.added_tokens ?? []) as AddedToken[];
  if (!Array.isArray(added) || !added.every((t) => typeof t?.content === "string" && t.content.length > 0)) {
    fail(`"added_tokens" is not a list of tokens`);
  }
  const tokens: (string | undefined)[] = [];
  const entries = [
    ...Object.entries(model.vocab as Record<string, number>),
    ...added.map((t) => [t.content, t.id] as const),
  ];
  for (const [token, id] of entries) {
    if (!Number.isInteger(id) || id < 0 || id > 10_000_000) fail(`token ${JSON.stringify(token)} has id ${id}`);
    tokens[id] = token;
  }
  return { tokens, added };
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

async function makeEncoder(json: Readonly<Record<string, unknown>>, file: string): Promise<BpeEncoder> {
  const library = await import("@huggingface/tokenizers").catch((cause) => {
    throw new LlmError("tokenizer", `The package npm:@huggingface/tokenizers could not be loaded: ${cause.message}`, {
      cause,
    });
  });
  try {
    return new library.Tokenizer({ ...json, added_tokens: [] }, {});
  } catch (cause) {
    throw new LlmError("tokenizer", `${file} is not a tokenizer that can be read: ${(cause as Error).message}`, {
      cause,
    });
  }
}

/** GPT-2's alphabet: every byte has a printable character; 33–126, 161–172 and 174–255 stand for themselves. */
const BYTE_OF_CHAR: ReadonlyMap<string, number> = (() => {
  const map = new Map<string, number>();
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    map.set(String.fromCharCode(printable ? byte : next++), byte);
  }
  return map;
})();

/** Characters outside the alphabet stand for their UTF-8 bytes. */
function byteLevelBytes(token: string): Uint8Array {
  return Uint8Array.from(
    Array.from(token).flatMap((char) => BYTE_OF_CHAR.get(char) ?? [...new TextEncoder().encode(char)]),
  );
}
