/**
 * Examples to train on: lines of JSON as mlx-lm takes them, made token ids with a model's tokenizer.
 *
 * A line has "messages" (a conversation), "prompt" and "completion", or "text".
 *
 * @module
 */

import { join } from "node:path";
import { FileError, readFile } from "../../../ffi/file.ts";
import { find } from "../../../ffi/store.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import type { ChatMessage } from "../chat/messages.ts";
import { LlmError } from "../error.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** A text to train on. */
export interface Example {
  /** Its token ids. */
  readonly tokens: readonly number[];
  /** How many of them, from the first on, are a prompt that the loss leaves out. */
  readonly offset: number;
}

/** Examples in a fixed order. */
export type Dataset = readonly Example[];

/** How lines become examples. */
export interface DatasetOptions {
  /** Whether the loss leaves the prompt out: everything before the completion, or before the last message. */
  readonly maskPrompt?: boolean;
}

/** The sets of a folder; a file that is not there is an empty one. */
export interface Datasets {
  /** train.jsonl */
  readonly train: Dataset;
  /** valid.jsonl */
  readonly valid: Dataset;
  /** test.jsonl */
  readonly test: Dataset;
}

const MAX_BYTES = 2 ** 30;

/** Fields of a line. */
type DatasetRow = Readonly<Record<string, unknown>>;

/** Makes an example of a line. */
type Reader = (row: DatasetRow, tokenizer: Tokenizer, mask: boolean) => Example;

/** Formats of lines, in the order in which they are tried. */
const FORMATS: readonly { readonly fields: readonly string[]; readonly read: Reader }[] = [
  {
    fields: ["prompt", "completion"],
    read: (row, tokenizer, mask) => {
      const [prompt, completion] = [text(row, "prompt"), text(row, "completion")];
      const messages: ChatMessage[] = [{ role: "user", content: prompt }, { role: "assistant", content: completion }];
      return chat(messages, row, tokenizer, mask, true);
    },
  },
  {
    fields: ["messages"],
    read: (row, tokenizer, mask) => {
      const { messages } = row;
      if (!Array.isArray(messages) || messages.length === 0) {
        throw new LlmError("option", `expected a list in "messages": found ${quoted(messages)}`);
      }
      return chat(messages, row, tokenizer, mask, messages.at(-1)?.role === "assistant");
    },
  },
  {
    fields: ["text"],
    read: (row, tokenizer, mask) => {
      if (mask) throw new LlmError("option", 'a prompt cannot be masked in "text": use "prompt" and "completion"');
      const tokens = tokenizer.encode(text(row, "text"));
      const [end] = tokenizer.eosTokenIds;
      if (end !== undefined && tokens.at(-1) !== end) tokens.push(end);
      return { tokens, offset: 0 };
    },
  },
];

function text(row: DatasetRow, field: string): string {
  const value = row[field];
  if (typeof value === "string") return value;
  throw new LlmError("option", `expected a text in ${quoted(field)}: found ${quoted(value)}`);
}

/** A conversation in the model's chat template. */
function chat(
  messages: readonly ChatMessage[],
  { tools }: DatasetRow,
  tokenizer: Tokenizer,
  mask: boolean,
  answered: boolean,
): Example {
  const options = Array.isArray(tools) ? { tools } : {};
  const tokens = tokenizer.encodeChat(messages, { ...options, addGenerationPrompt: false });
  const prompt = () => tokenizer.encodeChat(messages.slice(0, -1), { ...options, addGenerationPrompt: answered });
  return { tokens, offset: mask ? prompt().length : 0 };
}

/**
 * Examples of objects that have "messages", "prompt" and "completion", or "text", as the first one does. Throws an {@link LlmError} that
 * names the line of one that does not.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
 * const set = mx.lm.tuner.createDataset([{ prompt: "Hi", completion: "Hello" }], tokenizer, { maskPrompt: true });
 * set[0].tokens.length > set[0].offset; // true
 * ```
 */
export function createDataset(
  rows: readonly DatasetRow[],
  tokenizer: Tokenizer,
  { maskPrompt = false }: DatasetOptions = {},
  name: string = "createDataset()",
): Dataset {
  if (rows.length === 0) return [];
  const isObject = (row: unknown): row is DatasetRow => typeof row === "object" && row !== null && !Array.isArray(row);
  const format = FORMATS.find(({ fields }) => isObject(rows[0]) && fields.every((field) => field in rows[0]));
  if (format === undefined) {
    const known = FORMATS.map(({ fields }) => fields.map(quoted).join(" and ")).join(", or ");
    throw new LlmError("option", `${name}: line 1 has no ${known}`);
  }
  return rows.map((row, i) => {
    try {
      if (!isObject(row)) throw new LlmError("option", `expected an object: found ${quoted(row)}`);
      const example = format.read(row, tokenizer, maskPrompt);
      if (example.tokens.length < 2) throw new LlmError("option", "is too short: at least two tokens are needed");
      return example;
    } catch (cause) {
      if (!(cause instanceof LlmError)) throw cause;
      throw new LlmError(cause.code, `${name}: line ${i + 1}: ${cause.message}`);
    }
  });
}

/** The objects of a file of lines of JSON; undefined if there is no such file. */
function readLines(path: string): DatasetRow[] | undefined {
  let bytes: Uint8Array;
  try {
    bytes = readFile(path, MAX_BYTES);
  } catch (cause) {
    if (!(cause instanceof FileError)) throw cause;
    if (cause.code === "missing") return undefined;
    throw new LlmError("option", `${shownPath(path)} ${cause.message}`);
  }
  const lines = new TextDecoder().decode(bytes).split(/\r?\n/);
  return lines.flatMap((line, i) => {
    if (line.trim() === "") return [];
    try {
      return [JSON.parse(line) as DatasetRow];
    } catch {
      throw new LlmError("option", `${shownPath(path)}: line ${i + 1} is not JSON: ${quoted(line)}`);
    }
  });
}

/**
 * The sets of a folder with train.jsonl, valid.jsonl and test.jsonl, those that are there. Throws an {@link LlmError} that names the
 * file and the line where something is wrong, or the folder if there is none of them.
 */
export function loadDatasets(folder: string, tokenizer: Tokenizer, options: DatasetOptions = {}): Datasets {
  const names = ["train", "valid", "test"] as const;
  const found = names.map((name) => {
    const path = join(folder, `${name}.jsonl`);
    const rows = readLines(path);
    return rows && createDataset(rows, tokenizer, options, shownPath(path));
  });
  if (found.every((set) => set === undefined)) {
    const kind = find(folder)?.kind;
    const what = kind === undefined
      ? "does not exist"
      : kind === "folder"
      ? "has no train.jsonl, valid.jsonl or test.jsonl"
      : "is no folder: name the one with train.jsonl";
    throw new LlmError("option", `${shownPath(folder)} ${what}`);
  }
  const [train = [], valid = [], test = []] = found;
  return { train, valid, test };
}
