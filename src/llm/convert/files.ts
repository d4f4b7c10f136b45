/**
 * The files of a new model beside its weights.
 *
 * @module
 */

import { dirname, join } from "node:path";
import { FileError, readFile } from "../../../ffi/file.ts";
import { shownPath } from "../../graph/error.ts";
import type { Dtype } from "../../graph/dtype.ts";
import type { Quantization } from "../config/model.ts";
import { LlmError } from "../error.ts";
import {
  byCodePoints,
  type PythonJson,
  PythonNumber,
  type PythonObject,
  readPythonObject,
  writePythonJson,
} from "./python_json.ts";
import type { QuantizationRow } from "./recipes.ts";
import type { Shard } from "./shard_files.ts";

/** The result of a conversion. */
export interface Converted {
  /** The folder. */
  readonly path: string;
  /** The names of its files, in order. */
  readonly files: readonly string[];
  /** Bytes of all tensors. */
  readonly bytes: number;
  /** Weights of the model, as many as it would have dense. */
  readonly parameters: number;
  /** Bits that a weight takes on average, scales and biases included. */
  readonly bitsPerWeight: number;
}

/** The new config.json, and its sources. */
export interface Description {
  /** The old config.json, for messages. */
  readonly file: string;
  /** Its text. */
  readonly text: string;
  /** The text of generation_config.json. */
  readonly generation: string | undefined;
  /** Dtype of tensors that are not quantized; the stored one if undefined. */
  readonly dtype: Dtype | undefined;
  /** How matrices are quantized, if they are. */
  readonly base: Quantization | undefined;
  /** The matrices that are; `own` where they are named. */
  readonly rows: ReadonlyMap<string, { readonly row: QuantizationRow; readonly own: boolean }>;
  /** Whether the model is made dense. */
  readonly dense: boolean;
  /** Fields that are set in "text_config". */
  readonly textFields: Readonly<Record<string, unknown>>;
  /** Fields of objects that get another name, in "text_config" if there is one. */
  readonly movedFields: readonly (readonly [object: string, from: string, to: string])[];
}

/** The new config.json: the old one, sorted, with the ids that end a generation from generation_config.json. */
export function newConfig(
  { file, text, generation, base, rows, dense, textFields, movedFields }: Description,
): Uint8Array {
  const config = readPythonObject(text, shownPath(file));
  const ends = generation === undefined
    ? undefined
    : readPythonObject(generation, shownPath(join(dirname(file), "generation_config.json"))).get("eos_token_id");
  const textConfig = config.get("text_config");
  if (textConfig instanceof Map) {
    for (const [name, value] of Object.entries(textFields)) textConfig.set(name, value as PythonJson);
  }
  for (const [object, from, to] of movedFields) {
    const block = (textConfig instanceof Map ? textConfig : config).get(object);
    if (!(block instanceof Map) || block.has(to) || !block.has(from)) continue;
    block.set(to, block.get(from)!);
    block.delete(from);
  }
  if (isTrue(ends)) config.set("eos_token_id", ends!);
  if (dense) { for (const name of ["quantization", "quantization_config"]) config.delete(name); }
  if (base !== undefined) {
    const block = quantizationBlock(base);
    for (const [path, { row, own }] of rows) if (own) block.set(path, quantizationBlock(row));
    config.set("quantization", block);
  }
  for (const name of ["_name_or_path", "vision_config"]) config.delete(name);
  if (config.has("quantization")) config.set("quantization_config", config.get("quantization")!);
  const sorted = new Map([...config].sort(([a], [b]) => byCodePoints(a, b)));
  return encode(writePythonJson(sorted));
}

function quantizationBlock({ groupSize, bits, mode = "affine", withoutMode }: QuantizationRow): PythonObject {
  const block = new Map<string, PythonJson>([["group_size", groupSize], ["bits", bits]]);
  return withoutMode ? block : block.set("mode", mode);
}

/** Whether a value is true in Python. */
function isTrue(value: PythonJson | undefined): boolean {
  if (value instanceof PythonNumber) return Number(value.text) !== 0;
  if (value instanceof Map) return value.size > 0;
  if (Array.isArray(value)) return value.length > 0;
  return Boolean(value);
}

/** model.safetensors.index.json: what lies in which file. */
export function newIndex(shards: readonly Shard[], bytes: number, parameters: number): Uint8Array {
  const map = shards.flatMap(({ name, offsets }) => Array.from(offsets.keys(), (key) => [key, name] as const));
  const index: PythonObject = new Map<string, PythonJson>([
    ["metadata", new Map([["total_size", bytes], ["total_parameters", parameters]])],
    ["weight_map", new Map(map.sort(([a], [b]) => byCodePoints(a, b)))],
  ]);
  return encode(writePythonJson(index));
}

/** README.md: what the hub reads of a model. mlx-lm adds it to the card of a model of the hub, which has to be downloaded for that. */
export function newReadme(repo: string | undefined): Uint8Array {
  const base = repo === undefined ? "" : `base_model: ${repo}\n`;
  return encode(`---\nlanguage: en\nlibrary_name: mlx\npipeline_tag: text-generation\ntags:\n- mlx\n${base}---\n`);
}

/** The files that go along as they are: those of the tokenizer, and what the makers suggest for sampling. */
const COPIED = [
  "added_tokens.json",
  "additional_chat_templates/tool_use.jinja",
  "chat_template.jinja",
  "chat_template.json",
  "generation_config.json",
  "merges.txt",
  "special_tokens_map.json",
  "tekken.json",
  "tokenizer.json",
  "tokenizer.model",
  "tokenizer_config.json",
  "vocab.json",
];
const MAX_COPIED = 2 ** 27;

/** Those of a model, by name. */
export function tokenizerFiles(dir: string): Record<string, Uint8Array> {
  return Object.fromEntries(COPIED.flatMap((name) => {
    const path = join(dir, name);
    try {
      return [[name, readFile(path, MAX_COPIED)]];
    } catch (cause) {
      if (!(cause instanceof FileError)) throw cause;
      if (cause.code === "missing") return [];
      throw new LlmError("tokenizer", `${shownPath(path)} ${cause.message}`);
    }
  }));
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
