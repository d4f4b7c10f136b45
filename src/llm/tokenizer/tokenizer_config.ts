/**
 * Reads tokenizer_config.json: tokens with a meaning, chat templates, and added tokens that tokenizer.json does not name.
 *
 * @module
 */

import { quoted } from "../../graph/error.ts";
import { type AddedToken, isToken } from "./added_tokens.ts";
import { JsonBytes } from "./json_bytes.ts";
import { readObject, type TokenizerFile } from "./tokenizer_file.ts";

/** Chat templates by name. */
export type NamedTemplates = Readonly<Record<string, string>>;

/** A token of tokenizer_config.json without an id. */
type NamedToken = Required<Omit<AddedToken, "id">>;

/** The fields of a tokenizer_config.json that are used. */
export interface TokenizerConfig {
  /** Whether the token that begins a text, and the one that ends it, are put around it; `undefined` if the file does not say. */
  readonly adds: { readonly bos: boolean | undefined; readonly eos: boolean | undefined };
  /** Texts of tokens with a meaning by their field, such as "eos_token". */
  readonly named: Readonly<Record<string, string>>;
  /** Chat templates: one text is "default". */
  readonly templates: NamedTemplates;
  /** Tokens that "added_tokens_decoder" describes, in the order of its ids. */
  readonly described: readonly NamedToken[];
  /** Tokens of other fields, which are special, in the order in which transformers adds them. */
  readonly special: readonly NamedToken[];
}

/** Tokens with a meaning, in the order in which transformers adds them. */
const MEANINGS = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/** Lists of tokens, or objects of them by name; the second is the older name of the first and counts if that is absent. */
const LISTS = ["extra_special_tokens", "additional_special_tokens"];
const OTHERS = ["chat_template", "added_tokens_decoder", ...LISTS];

/** Reads the text of a tokenizer_config.json. */
export function readTokenizerConfig(text: string, file: string): TokenizerConfig {
  const json = new JsonBytes(new TextEncoder().encode(text), file);
  const values: Record<string, unknown> = {};
  readObject(json, (key) => {
    if (OTHERS.includes(key) || key.endsWith("_token")) values[key] = json.value();
    else json.skip();
  });
  const fields = Object.keys(values).filter((key) => key.endsWith("_token") && !MEANINGS.includes(key));
  const list = values[LISTS[0]] ?? values[LISTS[1]] ?? [];
  const special = [...[...MEANINGS, ...fields].map((key) => values[key]), ...Object.values(list)].map(tokenOf);
  const decoder = Object.entries(values.added_tokens_decoder ?? {}).sort(([a], [b]) => Number(a) - Number(b));
  const named = Object.entries(values).flatMap(([key, value]) => {
    const content = key.endsWith("_token") ? tokenOf(value)?.content : undefined;
    return content === undefined ? [] : [[key, content]];
  });
  const flag = (key: string): boolean | undefined => typeof values[key] === "boolean" ? values[key] : undefined;
  return {
    adds: { bos: flag("add_bos_token"), eos: flag("add_eos_token") },
    named: Object.fromEntries(named),
    templates: templatesOf(values.chat_template),
    described: decoder.map(([id, entry]) =>
      (typeof entry === "object" ? describedToken(entry) : undefined) ??
        json.fail(`"added_tokens_decoder" has ${quoted(entry)} at ${id}, expected a token`)
    ),
    special: special.filter((token) => token !== undefined),
  };
}

/** A token of a field, which holds a text or an object with one; undefined for anything else. */
function tokenOf(value: unknown): NamedToken | undefined {
  const token = typeof value === "string" ? describedToken({ content: value }) : describedToken(value);
  return token && { ...token, special: true, normalized: (value as Partial<NamedToken>).normalized ?? false };
}

/** A token that an object describes; undefined if it has no text. */
function describedToken(value: unknown): NamedToken | undefined {
  const { content, special = false, ...flags } = (value ?? {}) as Partial<NamedToken>;
  if (!isToken({ content: content!, id: 0 })) return undefined;
  const { lstrip = false, rstrip = false, single_word = false, normalized = !special } = flags;
  return { content: content!, special, lstrip, rstrip, single_word, normalized };
}

/** "chat_template": a text, or a list of named ones. */
function templatesOf(template: unknown): NamedTemplates {
  if (typeof template === "string") return { default: template };
  if (!Array.isArray(template)) return {};
  const rows = template as readonly ({ readonly name?: unknown; readonly template?: unknown } | null)[];
  return Object.fromEntries(
    rows.flatMap((row) =>
      typeof row?.name === "string" && typeof row.template === "string" ? [[row.name, row.template]] : []
    ),
  );
}

const FLAGS = ["special", "lstrip", "rstrip", "single_word", "normalized"] as const;

/**
 * The tokens of tokenizer.json with those that only the config names, as transformers adds them. A token of the vocabulary keeps its
 * id; others get the next free ids, not those in the config. A known token takes the flags of "added_tokens_decoder", but stays
 * special. Tokens beyond the rows of the embedding are left out: the model cannot read them.
 */
export function addConfigTokens(file: TokenizerFile, config: TokenizerConfig, embeddings: number): TokenizerFile {
  const added = new Map(file.added.map((token) => [token.content, token]));
  let next = Math.max(file.vocabSize, file.vocabulary.size);
  const add = (token: NamedToken): void => {
    const known = added.get(token.content);
    const id = known?.id ?? file.vocabulary.idOf(token.content) ?? next++;
    if (id < embeddings) added.set(token.content, { ...token, id, special: token.special || known?.special === true });
  };
  const isSame = (token: NamedToken): boolean => {
    const known = added.get(token.content);
    return known !== undefined && FLAGS.every((flag) => (known[flag] ?? false) === token[flag]);
  };
  for (const token of config.described) if (!isSame(token)) add(token);
  for (const token of config.special) if (!added.has(token.content)) add(token);
  const all = [...added.values()];
  return { ...file, added: all, vocabSize: all.reduce((size, { id }) => Math.max(size, id + 1), file.vocabSize) };
}
