/**
 * Text to token ids and back, for tokenizers of the files tokenizer.json, tokenizer.model and tekken.json.
 *
 * The file is read as bytes: its vocabulary and merges go into typed arrays, the rest is parsed. Control tokens such as `<|im_end|>`
 * are found here. They come from a prompt's own text and from the markers of a chat template, and never from the contents of
 * messages.
 *
 * @module
 */

import { type AddedToken, AddedTokens, type TextRun } from "./added_tokens.ts";
import type { TokenModel } from "./bpe.ts";
import type { ChatMessage } from "../chat/messages.ts";
import {
  type ChatOptions,
  type ChatTemplate,
  loadChatTemplate,
  type TemplateSource,
  TOOL_TEMPLATE,
} from "../chat/template.ts";
import { StreamDecoder } from "./detokenizer.ts";
import { quoted } from "../../graph/error.ts";
import { listed, LlmError } from "../error.ts";
import type { TokenizerFormat } from "./formats.ts";
import type { Around } from "./post_processor.ts";
import type { PreTokenizer } from "./pre_tokenizer.ts";
import type { TokenDecoder } from "./token_decoder.ts";
import { addConfigTokens, type NamedTemplates, readTokenizerConfig, type TokenizerConfig } from "./tokenizer_config.ts";
import { readModelFile } from "./sentencepiece/model_file.ts";
import { readTekkenFile } from "./tekken_file.ts";
import { readTokenizerFile, type TokenizerFile } from "./tokenizer_file.ts";
import type { Vocabulary } from "./vocabulary.ts";

const READERS = {
  "tokenizer.json": readTokenizerFile,
  "tekken.json": readTekkenFile,
  "tokenizer.model": readModelFile,
} as const satisfies Record<TokenizerFormat, (bytes: Uint8Array, file: string, embeddings: number) => TokenizerFile>;

/** The files that make up a tokenizer, and what the model says about it. */
export interface TokenizerSource {
  /** Bytes of tokenizer.json or of the file that `format` names. */
  readonly tokenizer: Uint8Array;
  /** Which file `tokenizer` is; default "tokenizer.json". */
  readonly format?: TokenizerFormat;
  /** Text of tokenizer_config.json; may be absent. */
  readonly config?: string;
  /** Text of chat_template.jinja; with it and `toolTemplate`, the templates in tokenizer_config.json do not count. */
  readonly chatTemplate?: string;
  /** Text of additional_chat_templates/tool_use.jinja, the template of conversations with tools. */
  readonly toolTemplate?: string;
  /** Directory of the files, for messages. */
  readonly dir: string;
  /** Rows of the model's embedding; ids at or above it are an error. */
  readonly vocabSize: number;
  /** Tokens that end a generation, from generation_config.json or config.json. */
  readonly eosTokenIds: readonly number[];
}

/** A tokenizer whose file was read already, such as the pieces of a GGUF file. */
export interface ReadTokenizerSource extends Omit<TokenizerSource, "tokenizer" | "format"> {
  /** What the file says. */
  readonly file: TokenizerFile;
}

/** How {@link Tokenizer.encode} reads a text. */
export interface EncodeOptions {
  /** Whether control tokens in the text become their ids; default true. */
  readonly controlTokens?: boolean;
  /** Add the ids that the tokenizer puts around a text, such as the one that begins it; true unless set. */
  readonly addSpecialTokens?: boolean;
}

/** A tokenizer as the generation loop uses it. */
export class Tokenizer {
  /** Number of ids, added tokens included. */
  readonly vocabSize: number;
  /** Tokens that end a generation. */
  readonly eosTokenIds: ReadonlySet<number>;
  /** Text of the token that begins a text, if the tokenizer has one. */
  readonly bosToken: string | undefined;
  /** Sources of the chat templates, one after the other; "" if there is none. */
  readonly chatTemplate: string;
  readonly #vocabulary: Vocabulary;
  readonly #model: TokenModel;
  readonly #decoder: TokenDecoder;
  readonly #preTokenizer: PreTokenizer;
  readonly #around: Around;
  readonly #finder: AddedTokens;
  readonly #added: ReadonlyMap<string, AddedToken>;
  readonly #addedIds: ReadonlyMap<number, AddedToken>;
  readonly #template: ChatTemplate | undefined;
  readonly #eosTokenIds: Set<number>;

  private constructor(
    { vocabulary, model, decoder, preTokenizer, around, added, vocabSize }: TokenizerFile,
    eosTokenIds: Set<number>,
    bosToken: string | undefined,
    template: ChatTemplate | undefined,
    chatTemplate: string,
  ) {
    this.#vocabulary = vocabulary;
    this.#model = model;
    this.#decoder = decoder;
    this.#preTokenizer = preTokenizer;
    this.#around = around;
    this.#finder = new AddedTokens(added, preTokenizer.normalize);
    this.#added = new Map(added.map((token) => [token.content, token]));
    this.#addedIds = new Map(added.map((token) => [token.id, token]));
    this.#template = template;
    this.chatTemplate = chatTemplate;
    this.vocabSize = vocabSize;
    this.eosTokenIds = this.#eosTokenIds = eosTokenIds;
    this.bosToken = bosToken;
  }

  /**
   * Builds a tokenizer from its files. Throws an {@link LlmError} that names the file when one is malformed, of a kind not
   * supported, or made for another model.
   */
  static async load(source: TokenizerSource | ReadTokenizerSource): Promise<Tokenizer> {
    const configFile = `${source.dir}/tokenizer_config.json`;
    const config = readTokenizerConfig(source.config ?? "{}", configFile);
    const file = addConfigTokens(readFile(source, config), config, source.vocabSize);
    const outside = source.eosTokenIds.filter((id) => id >= source.vocabSize);
    if (outside.length > 0) {
      throw new LlmError(
        "tokenizer",
        `${source.dir}: eos_token_id ${listed(outside.map(String))} is outside the vocabulary of ${source.vocabSize}`,
      );
    }
    const eosTokenIds = new Set(source.eosTokenIds);
    const contentOf = (id: number | undefined): string => file.added.find((token) => token.id === id)?.content ?? "";
    const named = { bos_token: contentOf(file.bos), eos_token: contentOf(file.eos), ...config.named };
    const eos = file.added.find((token) => token.content === named.eos_token);
    if (eos !== undefined) eosTokenIds.add(eos.id);
    const templates = templatesOf(source, config.templates, configFile);
    const template = await loadChatTemplate(templates, {
      controlTokens: file.added.map((token) => token.content),
      variables: named,
    });
    return new Tokenizer(
      file,
      eosTokenIds,
      named.bos_token === "" ? undefined : named.bos_token,
      template,
      templates.map(({ text }) => text).join("\n"),
    );
  }

  /** Whether messages can be encoded. */
  get hasChatTemplate(): boolean {
    return this.#template !== undefined;
  }

  /** Ids of a text, with those around it that the tokenizer adds. Control tokens in it count as such. */
  encode(text: string, options: EncodeOptions = {}): number[] {
    if (typeof text !== "string") throw new LlmError("option", `encode() expected a text: found ${quoted(text)}`);
    const ids = this.#encodeRuns([{ text, control: options.controlTokens ?? true }]);
    return options.addSpecialTokens ?? true ? [...this.#around.before, ...ids, ...this.#around.after] : ids;
  }

  /**
   * Ids of a conversation in the model's chat template, which writes the tokens that begin a text and end it itself. Control
   * tokens inside message contents are plain text.
   *
   * @example
   * ```ts ignore
   * const ids = tokenizer.encodeChat([{ role: "user", content: "Hi" }], { enableThinking: false });
   * ```
   */
  encodeChat(messages: readonly ChatMessage[], options: ChatOptions = {}): number[] {
    return this.#encodeRuns(this.#render(messages, options));
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
    const { firstBytes, ...start } = this.#decoder;
    const bytes = firstBytes && ((id: number) => this.#bytesOf(id, firstBytes));
    return new StreamDecoder((id) => this.tokenBytes(id), { ...start, bytes });
  }

  /**
   * Bytes that a token stands for, within a text: the space that some tokenizers leave out at its beginning is there. `undefined` when
   * the vocabulary has no such id.
   */
  tokenBytes(id: number): Uint8Array | undefined {
    return this.#bytesOf(id, this.#decoder.bytes);
  }

  #bytesOf(id: number, bytesOf: TokenDecoder["bytes"]): Uint8Array | undefined {
    const added = this.#addedIds.get(id);
    if (added !== undefined && this.#decoder.plainAdded) return new TextEncoder().encode(added.content);
    const spelling = added?.content ?? this.#vocabulary.spelling(id);
    return spelling === undefined ? undefined : bytesOf(spelling);
  }

  /** The id of a token's text as the vocabulary spells it, such as "<|im_end|>". */
  idOf(token: string): number | undefined {
    return this.#added.get(token)?.id ?? this.#vocabulary.idOf(token);
  }

  /** Lets a token, as the vocabulary spells it, end answers too. Throws an {@link LlmError} if there is no such token. */
  addEosToken(token: string): void {
    const id = this.idOf(token);
    if (id === undefined) throw new LlmError("tokenizer", `The vocabulary has no token ${quoted(token)}`);
    this.#eosTokenIds.add(id);
  }

  /** Whether an id is a control token that is marked special. */
  isSpecial(id: number): boolean {
    return this.#addedIds.get(id)?.special ?? false;
  }

  #render(messages: readonly ChatMessage[], options: ChatOptions): TextRun[] {
    if (this.#template === undefined) {
      throw new LlmError("template", "The model has no chat template: pass the prompt as a string");
    }
    return this.#template(messages, options);
  }

  /** Control tokens become their ids; text between two of them is encoded as one, whichever runs it came from. */
  #encodeRuns(runs: readonly TextRun[]): number[] {
    const ids: number[] = [];
    this.#finder.find(wellFormed(runs)).forEach((piece, i) => {
      if (typeof piece === "number") ids.push(piece);
      else for (const word of this.#preTokenizer.split(piece, i === 0)) this.#model.encode(word, ids);
    });
    return ids;
  }
}

/** What the tokenizer's file says, with the tokens around a text that tokenizer_config.json asks for. */
function readFile(source: TokenizerSource | ReadTokenizerSource, config: TokenizerConfig): TokenizerFile {
  if ("file" in source) return source.file;
  const { tokenizer, format = "tokenizer.json", dir, vocabSize } = source;
  const file = READERS[format](tokenizer, `${dir}/${format}`, vocabSize);
  const before = file.bos !== undefined && (config.adds.bos ?? true) ? [file.bos] : file.around.before;
  const after = file.eos !== undefined && (config.adds.eos ?? false) ? [file.eos] : file.around.after;
  return { ...file, around: { before, after } };
}

/** The chat templates in use: those of files if there is one, else those of the config. */
function templatesOf(
  source: Omit<TokenizerSource, "tokenizer" | "format">,
  inConfig: NamedTemplates,
  configFile: string,
): TemplateSource[] {
  const { dir, chatTemplate, toolTemplate } = source;
  const files: TemplateSource[] = [];
  if (chatTemplate !== undefined) {
    files.push({ name: "default", text: chatTemplate, file: `${dir}/chat_template.jinja` });
  }
  if (toolTemplate !== undefined) files.push({ name: "tool_use", text: toolTemplate, file: `${dir}/${TOOL_TEMPLATE}` });
  return files.length > 0 ? files : Object.entries(inConfig).map(([name, text]) => ({ name, text, file: configFile }));
}

/** The same runs without lone surrogates, which no tokenizer knows. */
function wellFormed(runs: readonly TextRun[]): readonly TextRun[] {
  const text = runs.map((run) => run.text).join("");
  if (text.isWellFormed()) return runs;
  const well = text.toWellFormed();
  let at = 0;
  return runs.map(({ text, control }) => ({ text: well.slice(at, at += text.length), control }));
}
