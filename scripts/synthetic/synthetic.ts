/**
 * Model directories with random weights and the exact files, names, shapes and dtypes of a real model.
 *
 * Weights are scaled by their fan-in, norms lie near 1, biases near 0, and the embedding gives logits a spread of about
 * 3. So activations stay finite and the choice of a token is never a tie. Equal descriptions write equal files.
 *
 * @module
 */

import { bfloat16Bits, float16Bits } from "../../src/graph/dtype.ts";
import { Fields } from "../../src/llm/config/fields.ts";
import type { WeightModule } from "../../src/llm/layers/modules.ts";
import { describeModel } from "../../src/llm/models/mod.ts";
import type { PublishedConfig } from "./published.ts";
import { qwen3Tokenizer } from "./qwen3_tokenizer.ts";
import {
  biasesOf,
  config,
  DTYPES,
  familyOf,
  type FloatCode,
  hasQwenVocabulary,
  type ModelFormat,
  type ModelShape,
} from "./config.ts";

export { type ModelFormat, type ModelShape, SHAPES } from "./config.ts";
export { PUBLISHED } from "./published.ts";

/** The written model. */
export interface Written {
  readonly tensors: number;
  readonly bytes: number;
  /** Whether the tokenizer is the published one of Qwen3; otherwise it is that of the embedded model. */
  readonly ownTokenizer: boolean;
}

const TINY = new URL("../../examples/models/tiny-qwen3/", import.meta.url);
/** Ids that end a message and a text, by the tokenizers of Qwen3 and of the embedded model. */
const QWEN_ENDS: readonly number[] = [151645, 151643];
const TINY_ENDS: readonly number[] = [4091, 4089];
/** The vocabulary of Qwen3. */
const QWEN_VOCABULARY = 151936;

/** A tensor to write: its bytes come from `fill` in pieces. */
interface MatrixRow {
  readonly name: string;
  readonly dtype: "U32" | "U8" | FloatCode;
  readonly shape: readonly number[];
  readonly fill: (piece: Uint8Array) => void;
}

/** Writes a model directory, which must not exist. After an error no files are left. */
export function writeModel(out: string, shape: ModelShape, format: ModelFormat = {}): Promise<Written> {
  const rows = describe(shape, format);
  return writeFolder(out, rows, format, hasQwenVocabulary(shape), (ends) => config(shape, format, ends));
}

/** Writes a published model, or one with fields of another, in the same way. Routers get 8 bits, as the converter gives them. */
export function writePublished(out: string, fields: PublishedConfig, format: ModelFormat = {}): Promise<Written> {
  const { rows, quantization } = describePublished(fields, format);
  const isQwen = fields.vocab_size === QWEN_VOCABULARY;
  return writeFolder(out, rows, format, isQwen, ([eos, bos]) => ({
    ...fields,
    bos_token_id: bos,
    eos_token_id: eos,
    torch_dtype: DTYPES[format.dtype ?? "BF16"],
    ...(quantization && { quantization, quantization_config: quantization }),
  }));
}

/** Writes the files of a model; `configOf` gives config.json by the tokens that end a generation. */
async function writeFolder(
  out: string,
  rows: readonly MatrixRow[],
  { shardBytes = 5e9 }: ModelFormat,
  isQwen: boolean,
  configOf: (ends: readonly number[]) => Readonly<Record<string, unknown>>,
): Promise<Written> {
  if (await Deno.stat(out).then(() => true, () => false)) {
    throw new Error(`${out} exists: remove it or choose another name`);
  }
  const unfinished = `${out}.${Deno.pid}.tmp`;
  await Deno.mkdir(unfinished, { recursive: true });
  try {
    const bytes = await writeWeights(unfinished, rows, shardBytes);
    const ownTokenizer = await writeTokenizer(unfinished, isQwen);
    const ends = ownTokenizer ? QWEN_ENDS : TINY_ENDS;
    await writeJson(`${unfinished}/config.json`, configOf(ends));
    await writeGeneration(unfinished, ends);
    await Deno.rename(unfinished, out);
    return { tensors: rows.length, bytes, ownTokenizer };
  } catch (error) {
    await Deno.remove(unfinished, { recursive: true });
    throw error;
  }
}

/** The tensors of a model while they are listed. */
class TensorList {
  readonly rows: MatrixRow[] = [];
  readonly #dtype: FloatCode;
  readonly #next: () => number;

  constructor({ dtype = "BF16", seed = 0 }: ModelFormat) {
    this.#dtype = dtype;
    this.#next = random(seed);
  }

  /** Numbers that are uniform in a range. */
  floats(name: string, shape: readonly number[], low: number, high: number): void {
    const dtype = this.#dtype;
    this.rows.push({ name, dtype, shape, fill: fillFloats(this.#next, dtype, low, high) });
  }

  /** Matrices (…, outputs, inputs), whose weights spread by `gain` over the root of the inputs; dense ones have 16 bits. */
  matrix(path: string, shape: readonly number[], coding: Coding, gain = 1): void {
    const { bits, groupSize } = coding;
    const inputs = shape.at(-1)!;
    const std = gain / Math.sqrt(inputs);
    if (bits === 16) {
      const spread = std * Math.sqrt(3); // of a uniform distribution
      this.floats(`${path}.weight`, shape, -spread, spread);
      return;
    }
    const codes = { dtype: "U32", shape: shape.with(-1, inputs * bits / 32), fill: fillWords(this.#next) } as const;
    this.rows.push({ name: `${path}.weight`, ...codes });
    const groups = shape.with(-1, inputs / groupSize);
    if (coding === MXFP4) {
      const exponent = 127 + Math.round(Math.log2(std / E2M1_STD));
      this.rows.push({ name: `${path}.scales`, dtype: "U8", shape: groups, fill: (piece) => piece.fill(exponent) });
      return;
    }
    const levels = 2 ** bits;
    const scale = std / (levels / Math.sqrt(12));
    const middle = scale * (levels - 1) / 2; // weights have mean 0
    this.floats(`${path}.scales`, groups, 0.9 * scale, 1.1 * scale);
    this.floats(`${path}.biases`, groups, -1.01 * middle, -0.99 * middle);
  }
}

/** How the codes of a matrix are stored; 16 bits are no codes. */
interface Coding {
  readonly bits: number;
  readonly groupSize: number;
}

/** The modules that the converter gives more bits have these. */
const WIDE: Coding = { bits: 8, groupSize: 64 };
const DENSE: Coding = { bits: 16, groupSize: 1 };
const MXFP4: Coding = { bits: 4, groupSize: 32 };
/** The root of the mean square of the 16 numbers of mxfp4. */
const E2M1_STD = 2.94;

/** All tensors of a published model, in the order of mlx-lm, and the quantization block of config.json; none for a dense model. */
function describePublished(
  fields: PublishedConfig,
  format: ModelFormat,
): { readonly rows: readonly MatrixRow[]; readonly quantization: Readonly<Record<string, unknown>> | undefined } {
  const { bits = 4, groupSize = 128, draftHead = false, mxfp4Experts = false } = format;
  const architecture = describeModel(new Fields(fields, "the model"), "the model");
  const list = new TensorList(format);
  const other: Record<string, unknown> = {};
  const codingOf = ({ path, shape, isDense }: WeightModule): Coding => {
    if (mxfp4Experts && shape.length === 3 && shape[2] % MXFP4.groupSize === 0 && !isDense) {
      other[path] = { group_size: MXFP4.groupSize, bits: MXFP4.bits, mode: "mxfp4" };
      return MXFP4;
    }
    const isWide = architecture.widened(path);
    const own = isWide ? WIDE : { bits, groupSize };
    if (bits === 16 || isDense || shape.at(-1)! % own.groupSize !== 0) return DENSE;
    if (isWide) other[path] = { group_size: own.groupSize, bits: own.bits };
    return own;
  };
  for (const module of architecture.modules({ head: fields.tie_word_embeddings === false, draftHead })) {
    const { path, shape, bias, isArray } = module;
    if (isArray) list.floats(path, shape, -0.5, 0.5);
    else if (shape.length === 1) list.floats(`${path}.weight`, shape, 0.9, 1.1);
    else if (shape.at(-1) === 1) list.matrix(path, shape, DENSE, shape.at(-2)! ** -0.5); // a convolution, over the axis before
    else list.matrix(path, shape, codingOf(module), /(embed_tokens|lm_head)$/.test(path) ? 3 : 1);
    if (bias > 0) list.floats(`${path}.bias`, shape.slice(0, -1), -0.5, 0.5);
  }
  const isDense = bits === 16 && Object.keys(other).length === 0;
  const most = bits === 16
    ? { group_size: MXFP4.groupSize, bits: MXFP4.bits, mode: "mxfp4" }
    : { group_size: groupSize, bits };
  return { rows: list.rows, quantization: isDense ? undefined : { ...most, ...other } };
}

/** All tensors in the order of the model. */
function describe(shape: ModelShape, format: ModelFormat): readonly MatrixRow[] {
  const { overrides = {} } = format;
  const list = new TensorList(format);
  const floats = list.floats.bind(list);
  const matrix = (path: string, outputs: number, inputs: number, gain?: number): void => {
    const own = overrides[path];
    const { bits = 4, groupSize = 128 } = own === false ? DENSE : own ?? format;
    list.matrix(path, [outputs, inputs], { bits, groupSize }, gain);
  };
  const norm = (path: string, size: number): void => floats(`${path}.weight`, [size], 0.9, 1.1);

  const { hidden, intermediate, layers, heads, kvHeads, headDim, tied, vocab } = shape;
  const { qkNorm } = familyOf(shape);
  const biases = biasesOf(shape);
  matrix("model.embed_tokens", vocab, hidden, 3);
  for (let i = 0; i < layers; i++) {
    const layer = `model.layers.${i}`;
    const linear = (module: string, outputs: number, inputs: number) => {
      matrix(`${layer}.${module}`, outputs, inputs);
      if (biases.has(module)) floats(`${layer}.${module}.bias`, [outputs], -0.5, 0.5);
    };
    norm(`${layer}.input_layernorm`, hidden);
    linear("self_attn.q_proj", heads * headDim, hidden);
    linear("self_attn.k_proj", kvHeads * headDim, hidden);
    linear("self_attn.v_proj", kvHeads * headDim, hidden);
    linear("self_attn.o_proj", hidden, heads * headDim);
    if (qkNorm) {
      norm(`${layer}.self_attn.q_norm`, headDim);
      norm(`${layer}.self_attn.k_norm`, headDim);
    }
    norm(`${layer}.post_attention_layernorm`, hidden);
    linear("mlp.gate_proj", intermediate, hidden);
    linear("mlp.up_proj", intermediate, hidden);
    linear("mlp.down_proj", hidden, intermediate);
  }
  norm("model.norm", hidden);
  if (!tied) matrix("lm_head", vocab, hidden, 3);
  return list.rows;
}

/** xorshift32: quick, and good enough for weights. */
function random(seed: number): () => number {
  let x = (seed ^ 0x9e3779b9) >>> 0 || 1;
  return () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return x >>> 0;
  };
}

function fillWords(next: () => number): (piece: Uint8Array) => void {
  return (piece) => {
    const words = new Uint32Array(piece.buffer, piece.byteOffset, piece.byteLength / 4);
    for (let i = 0; i < words.length; i++) words[i] = next();
  };
}

/** Uniform in a range, from a table of 4096 values. */
function fillFloats(next: () => number, dtype: FloatCode, low: number, high: number): (piece: Uint8Array) => void {
  const values = Array.from({ length: 4096 }, (_, i) => low + (high - low) * (i + 0.5) / 4096);
  const filler = <T extends Uint16Array | Float32Array>(
    table: T,
    over: (buffer: ArrayBufferLike, at: number, length: number) => T,
  ) =>
  (piece: Uint8Array): void => {
    const out = over(piece.buffer, piece.byteOffset, piece.byteLength / table.BYTES_PER_ELEMENT);
    for (let i = 0; i < out.length; i++) out[i] = table[next() >>> 20];
  };
  if (dtype === "F32") return filler(Float32Array.from(values), (...where) => new Float32Array(...where));
  const bits = dtype === "BF16" ? bfloat16Bits : float16Bits;
  return filler(Uint16Array.from(values, bits), (...where) => new Uint16Array(...where));
}

const BYTES = { U32: 4, U8: 1, F32: 4, BF16: 2, F16: 2 } as const satisfies Record<MatrixRow["dtype"], number>;

function byteLength(row: MatrixRow): number {
  return row.shape.reduce((n, d) => n * d, BYTES[row.dtype]);
}

/** Safetensors in shards and their index, named as mlx-lm names them. Returns the bytes of all tensors. */
async function writeWeights(dir: string, rows: readonly MatrixRow[], shardBytes: number): Promise<number> {
  const shards: MatrixRow[][] = [[]];
  let size = 0;
  for (const row of rows) {
    if (size > 0 && size + byteLength(row) > shardBytes) {
      shards.push([]);
      size = 0;
    }
    shards.at(-1)!.push(row);
    size += byteLength(row);
  }
  const weightMap: Record<string, string> = {};
  const count = String(shards.length).padStart(5, "0");
  for (const [i, shard] of shards.entries()) {
    const file = shards.length === 1
      ? "model.safetensors"
      : `model-${String(i + 1).padStart(5, "0")}-of-${count}.safetensors`;
    await writeShard(`${dir}/${file}`, shard);
    for (const row of shard) weightMap[row.name] = file;
  }
  const total = rows.reduce((sum, row) => sum + byteLength(row), 0);
  await writeJson(`${dir}/model.safetensors.index.json`, { metadata: { total_size: total }, weight_map: weightMap });
  return total;
}

async function writeShard(path: string, rows: readonly MatrixRow[]): Promise<void> {
  let offset = 0;
  const header: Record<string, unknown> = { __metadata__: { format: "mlx" } };
  for (const row of rows) {
    const end = offset + byteLength(row);
    header[row.name] = { dtype: row.dtype, shape: row.shape, data_offsets: [offset, end] };
    offset = end;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(json.length), true);
  using file = await Deno.open(path, { write: true, createNew: true });
  await writeAll(file, length);
  await writeAll(file, json);
  const piece = new Uint8Array(8 * 2 ** 20);
  for (const row of rows) {
    for (let left = byteLength(row); left > 0; left -= piece.length) {
      const part = piece.subarray(0, Math.min(left, piece.length));
      row.fill(part);
      await writeAll(file, part);
    }
  }
}

async function writeAll(file: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  while (bytes.length > 0) bytes = bytes.subarray(await file.write(bytes));
}

async function writeJson(path: string, value: unknown): Promise<void> {
  await Deno.writeTextFile(path, JSON.stringify(value, null, 2));
}

/**
 * The tokenizer of Qwen3 if its package can be had and the vocabulary is its own, else that of the embedded model.
 * Returns whether it is the former.
 */
async function writeTokenizer(dir: string, isQwen: boolean): Promise<boolean> {
  const files = isQwen ? await qwen3Tokenizer().catch(() => undefined) : undefined;
  if (files !== undefined) {
    await writeJson(`${dir}/tokenizer.json`, files.tokenizer);
    await writeJson(`${dir}/tokenizer_config.json`, files.config);
  } else {
    for (const name of ["tokenizer.json", "tokenizer_config.json"]) {
      await Deno.copyFile(new URL(name, TINY), `${dir}/${name}`);
    }
  }
  return files !== undefined;
}

async function writeGeneration(dir: string, [eos, end]: readonly number[]): Promise<void> {
  await writeJson(`${dir}/generation_config.json`, {
    bos_token_id: end,
    do_sample: true,
    eos_token_id: [eos, end],
    pad_token_id: end,
    temperature: 0.6,
    top_k: 20,
    top_p: 0.95,
  });
}
