/**
 * The tokenizer of a GGUF file. Byte-level BPE gets the form of tokenizer.json, pieces with scores that of sentencepiece's models.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import { readPieces } from "../../tokenizer/sentencepiece/pieces.ts";
import type { TokenizerFile } from "../../tokenizer/tokenizer_file.ts";
import type { TokenizerTexts } from "../checkpoint.ts";
import type { Metadata } from "./metadata.ts";
import { PRE_TOKENIZERS, type PreTokenizerRow } from "./pre_tokenizers.ts";

const PREFIX = "tokenizer.ggml.";
/** The model of BPE over whole texts, whose spaces are a character of the vocabulary. */
const SPACED = "gemma4";
const SPACE = "\u2581";

/** Kinds of tokens in "tokenizer.ggml.token_type": those that the vocabulary has, those found in text before, and gaps. */
const UNKNOWN = 2;
const CONTROL = 3;
const USER_DEFINED = 4;
const UNUSED = 5;

/** Whether a kind of tokens is found in texts before they are cut into words. */
function isAdded(kind: number): boolean {
  return kind === CONTROL || kind === USER_DEFINED;
}

/** Keys of tokens that end a generation. */
const ENDS = ["eos_token_id", "eot_token_id", "eom_token_id"] as const;

/** Tokens that end an answer, by their texts: files often name only one of them. */
const END_TEXTS: ReadonlySet<string> = new Set([
  "<|eot_id|>",
  "<|eom_id|>",
  "<|im_end|>",
  "<|end|>",
  "<|return|>",
  "<|call|>",
  "<|endoftext|>",
  "<|end_of_text|>",
  "<end_of_turn>",
  "<turn|>",
  "<|tool_response>",
]);
/** Where a vocabulary has the first of these, the second ends a part of an answer only. */
const [RETURN, END] = ["<|return|>", "<|end|>"];

/** Tokens with a meaning, by the fields of tokenizer_config.json. */
const NAMED = [
  ["bos_token", "bos_token_id"],
  ["eos_token", "eos_token_id"],
  ["unk_token", "unknown_token_id"],
  ["pad_token", "padding_token_id"],
] as const;

/** The tokens of a file, and the kind of each. */
function tokensOf(metadata: Metadata): { readonly tokens: readonly string[]; readonly kinds: readonly number[] } {
  const tokens = metadata.strings(`${PREFIX}tokens`) ??
    metadata.fail(`the metadata lack "${PREFIX}tokens"`, "tokenizer");
  const kinds = metadata.numbers(`${PREFIX}token_type`) ?? [];
  if (kinds.length > 0 && kinds.length !== tokens.length) {
    metadata.fail(`there are ${tokens.length} tokens and kinds of ${kinds.length}`, "tokenizer");
  }
  return { tokens, kinds };
}

/** The token of an id in the metadata; undefined if there is none. */
function idOf(metadata: Metadata, key: string, count: number): number | undefined {
  const id = metadata.number(`${PREFIX}${key}`);
  if (id === undefined || (Number.isInteger(id) && id >= 0 && id < count)) return id;
  return metadata.fail(`"${PREFIX}${key}" is ${id}, and there are ${count} tokens`, "tokenizer");
}

/** Ids that end a generation. */
export function endIds(metadata: Metadata): number[] {
  const { tokens, kinds } = tokensOf(metadata);
  const named = ENDS.flatMap((key) => idOf(metadata, key, tokens.length) ?? []);
  const known = tokens.flatMap((text, id) => isAdded(kinds[id]) && END_TEXTS.has(text) ? [id] : []);
  const returns = known.some((id) => tokens[id] === RETURN);
  return [...new Set([...named, ...known.filter((id) => !returns || tokens[id] !== END)])];
}

/** The tokenizer of a model with so many embeddings. Throws an {@link LlmError} that names what is missing or not supported. */
export function readTokenizer(metadata: Metadata, embeddings: number): TokenizerTexts {
  const model = metadata.string(`${PREFIX}model`) ?? metadata.fail(`the metadata lack "${PREFIX}model"`, "tokenizer");
  const config = JSON.stringify(configOf(metadata));
  if (model === "gpt2" || model === SPACED) {
    const isSpaced = model === SPACED || metadata.string(`${PREFIX}pre`) === SPACED;
    const json = isSpaced ? spaced(metadata) : byteLevel(metadata);
    return { tokenizer: new TextEncoder().encode(JSON.stringify(json)), config };
  }
  if (model === "llama") return { file: pieces(metadata, embeddings), config };
  return metadata.fail(
    `"${PREFIX}model" is ${quoted(model)}: supported are "gpt2", "llama" and "${SPACED}"`,
    "tokenizer",
  );
}

/** The tokenizer of pieces with scores, as sentencepiece cuts texts. */
function pieces(metadata: Metadata, embeddings: number): TokenizerFile {
  const { tokens, kinds } = tokensOf(metadata);
  const bos = idOf(metadata, "bos_token_id", tokens.length);
  const eos = idOf(metadata, "eos_token_id", tokens.length);
  // Older files call gaps unknown too.
  const unknown = idOf(metadata, "unknown_token_id", tokens.length) ?? 0;
  const kept = kinds.map((kind, id) => kind === UNKNOWN && id !== unknown ? UNUSED : kind);
  const scores = metadata.numbers(`${PREFIX}scores`) ??
    metadata.fail(`the metadata lack "${PREFIX}scores"`, "tokenizer");
  const file = readPieces(
    {
      algorithm: "BPE",
      pieces: tokens.map((text, id) => kept[id] === UNUSED ? "" : text),
      scores,
      kinds: kept,
      byteFallback: true,
      addsSpace: metadata.flag(`${PREFIX}add_space_prefix`) ?? true,
      removesSpaces: metadata.flag(`${PREFIX}remove_extra_whitespaces`) ?? false,
      unknownText: " \u2047 ",
      findsUserDefined: true,
      ...(bos !== undefined && { bos }),
      ...(eos !== undefined && { eos }),
    },
    metadata.path,
    embeddings,
  );
  const adds = (flag: string, id: number | undefined, usual: boolean): number[] =>
    id !== undefined && (metadata.flag(`${PREFIX}${flag}`) ?? usual) ? [id] : [];
  const around = { before: adds("add_bos_token", bos, true), after: adds("add_eos_token", eos, false) };
  return { ...file, around };
}

/** tokenizer.json of byte-level BPE. */
function byteLevel(metadata: Metadata): Readonly<Record<string, unknown>> {
  const row = rowOf(metadata);
  return {
    added_tokens: addedTokens(metadata),
    normalizer: row.nfc ? { type: "NFC" } : null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [...row.steps ?? [], { type: "ByteLevel", add_prefix_space: false, use_regex: row.gpt2 ?? false }],
    },
    post_processor: around(metadata, row.bos ?? false),
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", ignore_merges: row.wholeWords ?? false, ...vocabularyOf(metadata) },
  };
}

/** tokenizer.json of BPE over whole texts, in which characters that are no tokens become those of their bytes. */
function spaced(metadata: Metadata): Readonly<Record<string, unknown>> {
  const { tokens } = tokensOf(metadata);
  const unknown = idOf(metadata, "unknown_token_id", tokens.length) ??
    metadata.fail(`the metadata lack "${PREFIX}unknown_token_id"`, "tokenizer");
  const { vocab, merges } = vocabularyOf(metadata);
  return {
    added_tokens: addedTokens(metadata),
    normalizer: { type: "Replace", pattern: { String: " " }, content: SPACE },
    pre_tokenizer: null,
    post_processor: around(metadata, true),
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: SPACE }, content: " " },
        { type: "ByteFallback" },
        { type: "Fuse" },
      ],
    },
    model: {
      type: "BPE",
      unk_token: tokens[unknown],
      byte_fallback: true,
      fuse_unk: true,
      vocab: { ...vocab, [tokens[unknown]]: unknown },
      merges,
    },
  };
}

function addedTokens(metadata: Metadata): Readonly<Record<string, unknown>>[] {
  const { tokens, kinds } = tokensOf(metadata);
  return tokens.flatMap((content, id) =>
    isAdded(kinds[id]) ? [{ id, content, special: kinds[id] === CONTROL, normalized: false }] : []
  );
}

/** The ids of tokens that words are made of, and which neighbours make one. */
function vocabularyOf(metadata: Metadata): { vocab: Record<string, number>; merges: readonly string[] } {
  const { tokens, kinds } = tokensOf(metadata);
  const merges = metadata.strings(`${PREFIX}merges`) ??
    metadata.fail(`the metadata lack "${PREFIX}merges"`, "tokenizer");
  const isPlain = (id: number): boolean => !isAdded(kinds[id]) && kinds[id] !== UNUSED;
  return { vocab: byText(metadata, tokens.flatMap((text, id) => isPlain(id) ? [[text, id] as const] : [])), merges };
}

/** Ids by token. Throws if a token occurs twice, which an object would hide. */
function byText(metadata: Metadata, vocab: readonly (readonly [string, number])[]): Record<string, number> {
  const ids = new Map<string, number>();
  for (const [text, id] of vocab) {
    if (ids.has(text)) metadata.fail(`the token ${quoted(text)} has the ids ${ids.get(text)} and ${id}`, "tokenizer");
    ids.set(text, id);
  }
  return Object.fromEntries(ids);
}

function rowOf(metadata: Metadata): PreTokenizerRow {
  const name = metadata.string(`${PREFIX}pre`) ?? "";
  if (Object.hasOwn(PRE_TOKENIZERS, name)) return PRE_TOKENIZERS[name];
  const known = Object.keys(PRE_TOKENIZERS).join(", ");
  return metadata.fail(`"${PREFIX}pre" is ${quoted(name)}: known are ${known}`, "tokenizer");
}

/** The post_processor: BOS and EOS around a text, as far as the file asks for them. `bos` is the default of the first. */
function around(metadata: Metadata, bos: boolean): unknown {
  const { tokens } = tokensOf(metadata);
  const add = (flag: string, key: string, fallback: boolean): { readonly text: string; readonly id: number }[] => {
    const id = idOf(metadata, key, tokens.length);
    if (id === undefined || !(metadata.flag(`${PREFIX}${flag}`) ?? fallback)) return [];
    return [{ text: tokens[id], id }];
  };
  const before = add("add_bos_token", "bos_token_id", bos);
  const after = add("add_eos_token", "eos_token_id", false);
  if (before.length + after.length === 0) return null;
  const special = ({ text }: { readonly text: string }): unknown => ({ SpecialToken: { id: text, type_id: 0 } });
  return {
    type: "TemplateProcessing",
    single: [...before.map(special), { Sequence: { id: "A", type_id: 0 } }, ...after.map(special)],
    special_tokens: Object.fromEntries([...before, ...after].map(({ text, id }) => [text, { id: text, ids: [id] }])),
  };
}

/** tokenizer_config.json. */
function configOf(metadata: Metadata): Readonly<Record<string, unknown>> {
  const { tokens } = tokensOf(metadata);
  const named = NAMED.flatMap(([field, key]) => {
    const id = idOf(metadata, key, tokens.length);
    return id === undefined ? [] : [[field, tokens[id]] as const];
  });
  const templates = ["default", ...metadata.strings("tokenizer.chat_templates") ?? []].flatMap((name) => {
    const template = metadata.string(
      name === "default" ? "tokenizer.chat_template" : `tokenizer.chat_template.${name}`,
    );
    return template === undefined ? [] : [{ name, template }];
  });
  return { ...Object.fromEntries(named), ...(templates.length > 0 && { chat_template: templates }) };
}
