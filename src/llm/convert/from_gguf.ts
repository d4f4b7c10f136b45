/**
 * Writes the model of a GGUF file as a directory in mlx-lm's layout, one tensor after another.
 *
 * @module
 */

import { yieldToEventLoop } from "../../../ffi/turn.ts";
import { storedBytes } from "../../array/files/stored.ts";
import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import { shownPath } from "../../graph/error.ts";
import { MAX_SIZE } from "../../graph/node.ts";
import { type CodeMode, QUANTIZATION_MODES } from "../../graph/quantization.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import { openWeights } from "../checkpoint/weights.ts";
import type { Quantization } from "../config/model.ts";
import { formatOfStored } from "../config/stored_format.ts";
import { LlmError } from "../error.ts";
import type { WeightModule } from "../layers/modules.ts";
import { describeModel } from "../models/mod.ts";
import type { Converted } from "./files.ts";
import type { Output } from "./jobs.ts";
import { writeModelFolder } from "./model_folder.ts";
import type { ConvertOptions } from "./options.ts";
import type { ShardFiles } from "./shard_files.ts";

/** A matrix with codes: the name of its module and how it is quantized. */
type Formats = ReadonlyMap<string, Quantization<CodeMode>>;

/** Writes a folder. Throws an {@link LlmError} that says what is wrong with the file or an option; nothing is written then. */
export async function convertGguf(
  checkpoint: Checkpoint,
  out: string,
  options: ConvertOptions,
  opening: Promise<void>,
): Promise<Converted> {
  const { dequantize = false, dtype, quantize } = options;
  const path = shownPath(checkpoint.path);
  if (quantize) {
    throw new LlmError(
      "option",
      `${path} is a GGUF file: convert it to a folder with dequantize first, and quantize that`,
    );
  }
  if (dtype === mx.bfloat16) {
    throw new LlmError("option", `${path} is a GGUF file: its dtype may be float32 or float16, found bfloat16`);
  }
  const exact = dtype === mx.float32;
  const { fields, file } = checkpoint.readConfig();
  const architecture = describeModel(fields, file);
  await checkpoint.checkFiles(options.signal);
  const texts = checkpoint.readTokenizer(architecture.config.vocabSize);
  if (!("tokenizer" in texts)) {
    throw new LlmError("tokenizer", `${path} has a tokenizer of sentencepiece, which is loaded but not converted`);
  }
  const { tokenizer, config } = texts;
  {
    using weights = openWeights(checkpoint.path, checkpoint.tensors(exact), architecture, mx.float32, checkpoint.terms);
    using _ = architecture.build(weights);
    weights.finish();
  }

  const stored = checkpoint.tensors(exact);
  try {
    const modules = architecture.modules({ head: stored.has("lm_head.weight"), draftHead: false });
    const all = formatsOf(modules, stored);
    // Codes of a mode that mlx-lm does not have are written as values.
    const formats = new Map([...all].filter(([, { mode }]) => !dequantize && (mode ?? "affine") in QUANTIZATION_MODES));
    const valued = new Map([...all].filter(([path]) => !formats.has(path)));
    checkSizes(path, modules.filter((module) => !formats.has(module.path)));
    const made = dense(stored, valued, exact ? mx.float32 : mx.float16);
    const named = new Map(Array.from(made, ([name, tensor]) => [`${architecture.prefix}${name}`, tensor] as const));
    const outputs = Array.from(named, ([name, { shape, dtype }]): Output => ({ name, shape, dtype }));
    await opening;
    const { maxShardBytes, signal } = options;
    const model = {
      outputs,
      modules,
      config: configOf(fields.values, formats, architecture.prefix),
      tokenizer: {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": json({ ...JSON.parse(config ?? "{}"), tokenizer_class: "PreTrainedTokenizerFast" }),
      },
      tableBytes: architecture.tableBytes,
      maxShardBytes,
      signal,
    };
    return await writeModelFolder(out, model, (files, bytes) => writeTensors(named, files, bytes, options));
  } finally {
    mx.dispose([...stored.values()]);
  }
}

/** Refuses matrices whose values are too many for one array. */
function checkSizes(file: string, modules: readonly WeightModule[]): void {
  const large = modules.find(({ shape }) => sizeOf(shape) > MAX_SIZE);
  if (large === undefined) return;
  throw new LlmError(
    "option",
    `${file}: "${large.path}.weight" has ${sizeOf(large.shape)} values, at most 2^31 - 1 are written as one array. ` +
      "Convert a file that has codes for it, such as Q8_0, without dequantize",
  );
}

/** The formats of matrices with codes. */
function formatsOf(modules: readonly WeightModule[], stored: ReadonlyMap<string, Tensor>): Formats {
  return new Map(modules.flatMap(({ path, shape }) => {
    const [codes, scales] = ["weight", "scales"].map((part) => stored.get(`${path}.${part}`));
    const format = codes && scales && formatOfStored(shape.at(-1)!, codes, scales);
    return format ? [[path, format] as const] : [];
  }));
}

/** The same tensors with values in the place of codes, which are disposed. */
function dense(stored: ReadonlyMap<string, Tensor>, formats: Formats, dtype: Dtype): ReadonlyMap<string, Tensor> {
  const made = new Map(stored);
  for (const [path, { groupSize, bits, mode = "affine" }] of formats) {
    const [codes, scales, biases] = ["weight", "scales", "biases"].map((part) => stored.get(`${path}.${part}`));
    const values = mx.dequantize(codes!, scales!, biases ?? null, groupSize, bits, { mode, dtype });
    for (const part of ["scales", "biases"]) made.delete(`${path}.${part}`);
    made.set(`${path}.weight`, values);
    mx.dispose([codes, scales, biases]); // their memory goes when the values were computed
  }
  return made;
}

/** config.json: the fields, and the formats that differ from that of most matrices, by mlx-lm's paths. */
function configOf(values: Readonly<Record<string, unknown>>, formats: Formats, prefix: string): Uint8Array {
  const { quantization: _, ...rest } = values;
  const blocks = Array.from(
    formats,
    ([path, { groupSize, bits, mode = "affine" }]) =>
      [`${prefix}${path}`, { group_size: groupSize, bits, mode }] as const,
  );
  const [first] = blocks;
  const differ = blocks.filter(([, { bits, mode }]) => bits !== first[1].bits || mode !== first[1].mode);
  const quantization = first && { ...first[1], ...Object.fromEntries(differ) };
  const fields = { ...rest, ...(quantization && { quantization, quantization_config: quantization }) };
  return json(Object.fromEntries(Object.entries(fields).sort(([a], [b]) => a < b ? -1 : 1)));
}

function json(value: unknown): Uint8Array {
  return new TextEncoder().encode(`${JSON.stringify(value, undefined, 4)}\n`);
}

/** Computes and writes the tensors one by one, which bounds the memory by the largest one. */
async function writeTensors(
  tensors: ReadonlyMap<string, Tensor>,
  files: ShardFiles,
  total: number,
  { device, onProgress, signal }: ConvertOptions,
): Promise<void> {
  let done = 0;
  onProgress?.(done, total);
  for (const [name, tensor] of tensors) {
    signal?.throwIfAborted();
    files.write(name, mx.withDevice(device, () => storedBytes(tensor)), 0);
    done += tensor.nbytes;
    tensor[Symbol.dispose]();
    onProgress?.(done, total);
    await yieldToEventLoop();
  }
}
