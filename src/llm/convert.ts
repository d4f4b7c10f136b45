/**
 * Converts model directories as mlx-lm does: other dtypes, affine quantization, and back. Available as `mx.lm.convert`.
 *
 * The files are those of `mlx_lm.convert` to the byte, weights, index and config.json; the tokenizer's are copied as they are, where
 * mlx-lm lets transformers write them anew. Tensors go through one by one, a run of rows at a time.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { FileError } from "../../ffi/file.ts";
import { checkFree, OutputFolder } from "../../ffi/output_folder.ts";
import * as mx from "../array/mod.ts";
import type { Dtype } from "../array/mod.ts";
import { storedTensors } from "../array/io.ts";
import { quoted, shownPath } from "../graph/error.ts";
import { sizeOf } from "../graph/shape.ts";
import { checkSignal } from "./abort.ts";
import { checkOptions } from "./arguments.ts";
import { Fields } from "./config/fields.ts";
import { BITS, GROUP_SIZES, type Quantization } from "./config/model.ts";
import { type Description, newConfig, newIndex, newReadme, tokenizerFiles } from "./convert/files.ts";
import { bytesOf, type Job, jobsOf } from "./convert/jobs.ts";
import { chosen, ofRecipe, QUANT_RECIPES, type QuantPredicate, type QuantRecipe } from "./convert/recipes.ts";
import { MAX_SHARD_BYTES, ShardFiles, shardsOf } from "./convert/shard_files.ts";
import { runJobs } from "./convert/stream.ts";
import { isEmbedded, provideEmbedded } from "./embedded.ts";
import { LlmError } from "./error.ts";
import { describeFolder } from "./load.ts";
import { modelDirectory, type OnDownload } from "./hub.ts";
import { parseName } from "./hub/name.ts";
import type { Architecture } from "./models/mod.ts";
import { weightFiles } from "./shards.ts";
import { checkShards, modelFiles, openWeights, readModelFile } from "./weights.ts";

export type { QuantPredicate, QuantRecipe } from "./convert/recipes.ts";

/** Options of {@link convert}; those that Python has are called as there. */
export interface ConvertOptions {
  /** Quantizes the model, which must not be quantized yet. */
  readonly quantize?: boolean;
  /** Bits of a weight: 2, 3, 4, 5, 6 or 8; 4 unless given. */
  readonly qBits?: number;
  /** Neighbouring weights of a row that share a scale and a bias: 32, 64 or 128; 64 unless given. */
  readonly qGroupSize?: number;
  /** Only "affine". */
  readonly qMode?: "affine";
  /** A mixed recipe, which gives some matrices more bits, or a function that says it of each. */
  readonly quantPredicate?: QuantRecipe | QuantPredicate;
  /** Dtype of what is not quantized: float16, bfloat16 or float32; that which config.json names unless given. */
  readonly dtype?: Dtype;
  /** Makes quantized matrices dense again. */
  readonly dequantize?: boolean;
  /** Most bytes of the tensors of a file; 5 · 2³⁰ unless given. */
  readonly maxShardBytes?: number;
  /** Device that computes: "gpu", "cpu" or a name such as "vulkan:0"; the default device unless given. */
  readonly device?: string;
  /** Branch, tag or commit of a model of the hub. */
  readonly revision?: string;
  /** Called as bytes of the model are converted. */
  readonly onProgress?: (bytesDone: number, bytesTotal: number) => void;
  /** Called while a model of the hub is downloaded, which is before it is converted. */
  readonly onDownload?: OnDownload;
  /** Ends the conversion; nothing is left of it then. */
  readonly signal?: AbortSignal;
}

const CONVERT_OPTIONS = {
  dequantize: true,
  device: true,
  dtype: true,
  maxShardBytes: true,
  onDownload: true,
  onProgress: true,
  qBits: true,
  qGroupSize: true,
  qMode: true,
  quantPredicate: true,
  quantize: true,
  revision: true,
  signal: true,
} as const satisfies Record<keyof ConvertOptions, true>;

/** What {@link convert} wrote. */
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

/** The dtypes that a model may be converted to. */
const DTYPES: Readonly<Record<string, Dtype>> = { float16: mx.float16, bfloat16: mx.bfloat16, float32: mx.float32 };
/** What mlx-lm takes where nothing is said. */
const DEFAULTS = { qBits: 4, qGroupSize: 64 } as const;

/**
 * Writes a model in another form: with `quantize` its matrices in 2 to 8 bits, with `dequantize` dense again, with `dtype` in other
 * floats. `model` is a folder or a name of the Hugging Face Hub, `out` a folder that does not exist yet. It appears whole when all is
 * written, and the weights, their index and config.json are those of Python's `mlx_lm.convert`, byte for byte.
 *
 * Throws an {@link LlmError} that says what is wrong with the model, an option or the output; nothing is written then.
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * const { bitsPerWeight } = await mx.lm.convert("Qwen/Qwen3-0.6B", "qwen3-4bit", { quantize: true, qBits: 4 });
 * const { model, tokenizer } = await mx.lm.load("qwen3-4bit");
 * ```
 */
export async function convert(
  model: string | URL,
  out: string | URL,
  options: ConvertOptions = {},
): Promise<Converted> {
  checkConvertOptions(options);
  using embedded = isEmbedded(model) ? await provideEmbedded(options.signal) : undefined;
  const [given, target] = [embedded?.path ?? model, out].map((path) =>
    path instanceof URL && path.protocol === "file:" ? fileURLToPath(path) : path
  );
  if (typeof given !== "string") throw new LlmError("option", `convert() expected a model directory: found ${given}`);
  if (typeof target !== "string" || target === "") {
    throw new LlmError("option", `convert() expected an output folder: found ${quoted(target)}`);
  }
  return await writing(target, async () => {
    checkFree(target); // before anything is downloaded
    const path = await modelDirectory(given, {
      revision: options.revision,
      onProgress: options.onDownload,
      onSmallFiles: (folder) => checkSource(folder, describeFolder(folder, undefined), options),
      signal: options.signal,
    });
    const opening = mx.openAhead(options.device);
    try {
      const repo = path === given ? undefined : parseName(given)?.repo;
      return await convertFolder(path, repo, target, options, opening);
    } finally {
      await opening;
    }
  });
}

/** Turns the errors of the output's files into those of this module. */
async function writing<T>(out: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (cause) {
    if (cause instanceof FileError) throw new LlmError("output", `${shownPath(out)} ${cause.message}`, { cause });
    if (cause instanceof mx.ArrayError && cause.code === "file") {
      throw new LlmError("weights", cause.message, { cause }); // the source changed
    }
    throw cause;
  }
}

function checkConvertOptions(options: ConvertOptions): void {
  checkOptions("convert", options, CONVERT_OPTIONS);
  checkSignal(options.signal);
  const { quantize, dequantize, qBits, qGroupSize, qMode, quantPredicate, dtype, maxShardBytes } = options;
  const refuse = (what: string): never => {
    throw new LlmError("option", `convert() ${what}`);
  };
  if (quantize && dequantize) refuse("takes quantize or dequantize, not both");
  const wide = { qBits, qGroupSize, qMode, quantPredicate };
  const idle = Object.entries(wide).find(([, value]) => value !== undefined);
  if (!quantize && idle !== undefined) refuse(`got ${idle[0]} without quantize: true`);
  if (qBits !== undefined && !BITS.includes(qBits)) refuse(`expected qBits ${BITS.join(", ")}: found ${qBits}`);
  if (qGroupSize !== undefined && !GROUP_SIZES.includes(qGroupSize)) {
    refuse(`expected qGroupSize ${GROUP_SIZES.join(", ")}: found ${qGroupSize}`);
  }
  if (qMode !== undefined && qMode !== "affine") refuse(`expected qMode "affine": found ${quoted(qMode)}`);
  if (typeof quantPredicate === "string" && !QUANT_RECIPES.includes(quantPredicate)) {
    refuse(`expected quantPredicate ${QUANT_RECIPES.join(", ")} or a function: found ${quoted(quantPredicate)}`);
  }
  if (dtype !== undefined && !Object.values(DTYPES).includes(dtype)) {
    refuse(`expected dtype ${Object.keys(DTYPES).join(", ")}: found ${dtype?.name ?? dtype}`);
  }
  if (maxShardBytes !== undefined && !(maxShardBytes > 0)) {
    refuse(`expected maxShardBytes above 0: found ${maxShardBytes}`);
  }
}

/** Refuses to quantize what is quantized. */
function checkSource(path: string, { config }: Architecture, { quantize }: ConvertOptions): void {
  if (!quantize || config.quantization === undefined) return;
  const { bits, groupSize } = config.quantization.base;
  throw new LlmError(
    "option",
    `${
      shownPath(path)
    } is quantized already, to ${bits} bits in groups of ${groupSize}: quantize the model that it was made ` +
      "from, or make it dense first, with dequantize (vkmx convert --dequantize)",
  );
}

async function convertFolder(
  path: string,
  repo: string | undefined,
  out: string,
  options: ConvertOptions,
  opening: Promise<void>,
): Promise<Converted> {
  const names = modelFiles(path);
  const files = weightFiles(path, names);
  const architecture = describeFolder(path, undefined);
  checkSource(path, architecture, options);
  checkShards(path, files, names);
  const stored = new Map(files.flatMap((file) => storedOf(join(path, file))).map((tensor) => [tensor.name, tensor]));
  checkWeights(path, files, architecture);

  const description = describe(path, architecture, options);
  const { modules, tableBytes } = architecture;
  const { dtype, rows } = description;
  const overrides = architecture.config.quantization?.overrides;
  const storedAs = (module: string): Quantization | undefined => {
    if (overrides?.has(module)) return overrides.get(module);
    return stored.has(`${module}.scales`) ? architecture.config.quantization?.base : undefined;
  };
  const quantizedAs = (module: string): Quantization | undefined => {
    const row = rows.get(module)?.row;
    return row && { bits: row.bits, groupSize: row.groupSize ?? DEFAULTS.qGroupSize };
  };
  const wish = {
    dtype,
    quantize: quantizedAs,
    dequantize: (module: string) => options.dequantize ? storedAs(module) : undefined,
  };
  const jobs: Job[] = modules.flatMap((module) => jobsOf(module, stored, wish));
  const outputs = jobs.flatMap((job) => job.outputs);
  const shards = shardsOf(outputs, options.maxShardBytes ?? MAX_SHARD_BYTES);
  const bytes = outputs.reduce((sum, output) => sum + bytesOf(output), 0);
  const parameters = modules.reduce((sum, { shape, bias }) => sum + sizeOf(shape) + (bias ? shape[0] : 0), 0);

  const texts: Record<string, Uint8Array> = {
    "config.json": newConfig(description),
    "model.safetensors.index.json": newIndex(shards, bytes, parameters),
    ...tokenizerFiles(path, names),
    "README.md": newReadme(repo),
  };
  const whole = bytes + [...shards.map(({ header }) => header), ...Object.values(texts)].reduce(
    (sum, { length }) => sum + length,
    0,
  );
  await opening;
  using folder = OutputFolder.make(out, whole);
  {
    using shardFiles = new ShardFiles(folder, shards);
    await runJobs(jobs, shardFiles, options);
    shardFiles.sync();
  }
  for (const [name, text] of Object.entries(texts)) folder.write(name, text);
  options.signal?.throwIfAborted();
  folder.finish();
  return {
    path: out,
    files: [...shards.map(({ name }) => name), ...Object.keys(texts)].sort(),
    bytes,
    parameters,
    bitsPerWeight: (bytes + tableBytes) * 8 / parameters,
  };
}

/** The tensors of a file. */
function storedOf(file: string): ReturnType<typeof storedTensors> {
  try {
    return storedTensors(file);
  } catch (cause) {
    if (cause instanceof mx.ArrayError) throw new LlmError("weights", cause.message, { cause });
    throw cause;
  }
}

/** Throws unless the tensors are those of the model, as loading it does. */
function checkWeights(path: string, files: readonly string[], { config, build }: Architecture): void {
  using weights = openWeights(path, files, config, mx.float32);
  using _ = build(weights);
  weights.finish();
}

/** What config.json is made of, and what it asks for. */
function describe(path: string, { modules }: Architecture, options: ConvertOptions): Description {
  const text = readModelFile(path, "config.json")!;
  const { quantize, dequantize, qGroupSize, qBits = DEFAULTS.qBits, quantPredicate } = options;
  const named = Fields.parse(text, join(path, "config.json")).values.torch_dtype;
  const base = { groupSize: qGroupSize ?? DEFAULTS.qGroupSize, bits: qBits };
  const layers = new Set(modules.map(({ path }) => /\.layers\.(\d+)\./.exec(path)?.[1])).size - 1;
  const rows = chosen(quantize ? modules : [], base, ({ path, shape }) => {
    if (quantPredicate === undefined) return true;
    if (typeof quantPredicate === "string") return ofRecipe(quantPredicate, path, layers, qGroupSize);
    const said = quantPredicate(path, shape);
    if (typeof said === "boolean" || (BITS.includes(said?.bits) && GROUP_SIZES.includes(said.groupSize))) return said;
    throw new LlmError(
      "option",
      `quantPredicate(${quoted(path)}) gave ${quoted(said)}, expected true, false or { groupSize, bits }`,
    );
  });
  for (const [module, { row: { groupSize } }] of rows) {
    const cols = modules.find(({ path }) => path === module)!.shape[1];
    if (cols % (groupSize ?? base.groupSize) === 0) continue;
    throw new LlmError(
      "option",
      `quantPredicate gave ${quoted(module)} groups of ${groupSize}, which do not divide its ${cols} columns`,
    );
  }
  return {
    file: join(path, "config.json"),
    text,
    generation: readModelFile(path, "generation_config.json"),
    dtype: options.dtype ?? (typeof named === "string" && Object.hasOwn(DTYPES, named) ? DTYPES[named] : undefined),
    base: quantize ? base : undefined,
    rows,
    dense: dequantize === true,
  };
}
