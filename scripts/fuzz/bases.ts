/**
 * The files that are mutated: a model directory so small that thousands of its kind are read in a second. A vocabulary of the 256 bytes,
 * a few merges and control tokens; one layer of 32 features.
 *
 * @module
 */

import { ALPHABET } from "../../src/llm/tokenizer/vocabulary.ts";
import { join, word } from "./bytes.ts";
import { bytesOf, type Json, treeOf } from "./json.ts";

const MERGED = ["he", "in", "Ġt", "Ġa", "er", "hel", "ĠĠ", "ĠĠĠĠ", "hell", "hello"];
const MERGES = ["h e", "i n", "Ġ t", "Ġ a", "e r", "he l", "Ġ Ġ", "ĠĠ ĠĠ", "hel l", "hell o"];

/** Control tokens, by id. */
export const CONTROL: Readonly<Record<number, string>> = Object.fromEntries(
  ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<mask>"].map((content, i) =>
    [256 + MERGED.length + i, content] as const
  ),
);

/** Rows of the embedding. */
export const VOCAB = 288;
const [HIDDEN, HEAD_DIM, HEADS, KV_HEADS, GROUP] = [32, 16, 2, 1, 32];
const EOS = 258 + MERGED.length;

/** tokenizer.json. */
export const TOKENIZER: unknown = {
  version: "1.0",
  truncation: null,
  padding: null,
  added_tokens: Object.entries(CONTROL).map(([id, content]) => ({
    id: Number(id),
    content,
    single_word: false,
    lstrip: content === "<mask>",
    rstrip: false,
    normalized: false,
    special: content.startsWith("<|"),
  })),
  normalizer: { type: "Sequence", normalizers: [{ type: "NFC" }] },
  pre_tokenizer: {
    type: "Sequence",
    pretokenizers: [
      {
        type: "Split",
        pattern: {
          Regex:
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        },
        behavior: "Isolated",
        invert: false,
      },
      { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
    ],
  },
  post_processor: { type: "ByteLevel", add_prefix_space: true, trim_offsets: false, use_regex: true },
  decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
  model: {
    type: "BPE",
    dropout: null,
    unk_token: null,
    continuing_subword_prefix: null,
    end_of_word_suffix: null,
    fuse_unk: false,
    byte_fallback: false,
    ignore_merges: false,
    vocab: Object.fromEntries([...ALPHABET, ...MERGED].map((token, id) => [token, id])),
    merges: MERGES.map((merge) => merge.split(" ")),
  },
};

/** tokenizer_config.json. */
export const TOKENIZER_CONFIG: unknown = {
  add_bos_token: false,
  add_prefix_space: false,
  added_tokens_decoder: Object.fromEntries(
    Object.entries(CONTROL).map(([id, content]) => [id, { content, lstrip: false, normalized: false, special: true }]),
  ),
  bos_token: null,
  eos_token: { content: "<|im_end|>", lstrip: false },
  chat_template: "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}",
  clean_up_tokenization_spaces: false,
  model_max_length: 131072,
  tokenizer_class: "Qwen2Tokenizer",
};

/** config.json. */
export const CONFIG: unknown = {
  architectures: ["Qwen3ForCausalLM"],
  attention_bias: false,
  bos_token_id: EOS - 2,
  eos_token_id: EOS,
  head_dim: HEAD_DIM,
  hidden_act: "silu",
  hidden_size: HIDDEN,
  intermediate_size: HIDDEN,
  max_position_embeddings: 4096,
  model_type: "qwen3",
  num_attention_heads: HEADS,
  num_hidden_layers: 1,
  num_key_value_heads: KV_HEADS,
  quantization: { group_size: GROUP, bits: 4, "model.layers.0.mlp.up_proj": { group_size: GROUP, bits: 8 } },
  rms_norm_eps: 1e-6,
  rope_scaling: { rope_type: "yarn", factor: 2.0, original_max_position_embeddings: 2048, beta_fast: 32, beta_slow: 1 },
  rope_theta: 1000000,
  tie_word_embeddings: true,
  use_sliding_window: false,
  vocab_size: VOCAB,
};

/** generation_config.json. */
export const GENERATION_CONFIG: unknown = {
  bos_token_id: EOS - 2,
  do_sample: true,
  eos_token_id: [EOS, EOS - 2],
  temperature: 0.6,
  top_k: 20,
  top_p: 0.95,
  min_p: 0,
};

/** A tensor of a safetensors file. */
interface ProgramRow {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
}

const BYTES: Readonly<Record<string, number>> = {
  BOOL: 1,
  U8: 1,
  F8_E4M3: 1,
  I16: 2,
  BF16: 2,
  F16: 2,
  F32: 4,
  U32: 4,
  I32: 4,
};

/** A safetensors file: its header as a tree, and its data. */
export interface Safetensors {
  readonly header: Json;
  readonly data: Uint8Array;
}

function safetensors(rows: readonly ProgramRow[], metadata: Record<string, string> = { format: "mlx" }): Safetensors {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let end = 0;
  for (const { name, dtype, shape } of rows) {
    const begin = end;
    end += shape.reduce((n, d) => n * d, BYTES[dtype]);
    header[name] = { dtype, shape, data_offsets: [begin, end] };
  }
  // Small numbers in every dtype, and valid truth values.
  return { header: treeOf(header), data: Uint8Array.from({ length: end }, (_, i) => i % 2) };
}

/** The bytes of a file. The first length is that of the header by default. */
export function fileOf({ header, data }: Safetensors, length?: bigint): Uint8Array {
  const json = bytesOf(header);
  const padded = join([json, new Uint8Array((8 - json.length % 8) % 8).fill(0x20)]);
  return join([word(length ?? BigInt(padded.length)), padded, data]);
}

/** A file of arrays of every kind. */
export const ARRAYS: Safetensors = safetensors([
  { name: "a", dtype: "F32", shape: [2, 3] },
  { name: "empty", dtype: "F32", shape: [0, 4] },
  { name: "half", dtype: "F16", shape: [8] },
  { name: "brain", dtype: "BF16", shape: [2, 2, 2] },
  { name: "ints", dtype: "I32", shape: [4] },
  { name: "scalar", dtype: "U32", shape: [] },
  { name: "short", dtype: "I16", shape: [2] },
  { name: "bytes", dtype: "U8", shape: [4] },
  { name: "float8", dtype: "F8_E4M3", shape: [4] },
  { name: "truth", dtype: "BOOL", shape: [8] },
]);

/** A file of functions: a program of several ops with constants, and one that serves other sizes. */
export const FUNCTIONS: Safetensors = (() => {
  const f32 = (shape: readonly number[]): object => ({ dtype: "float32", shape });
  const step = (op: string, inputs: readonly number[], shape: readonly number[], attrs: object = {}): object => {
    return { op, inputs, ...f32(shape), attrs };
  };
  const header = {
    metadata: "m",
    constants: [f32([3, 2]), { dtype: "int32", shape: [2] }],
    programs: [
      {
        shapeless: false,
        inputs: [f32([4, 3])],
        keywords: [{ name: "y", ...f32([2]) }],
        constants: [0, 1],
        steps: [
          step("matmul", [0, 2], [4, 2]),
          step("full", [], [], { value: "-Infinity" }),
          step("elementwise", [4, 5], [4, 2], { fn: "maximum" }),
          step("slice", [6], [2, 2], { starts: [3, 0], steps: [-2, 1] }),
          step("gather", [7, 3], [2, 2], { axis: 0 }),
          step("rmsNorm", [8, 1], [2, 2], { eps: 1e-5 }),
          step("scan", [9], [2, 2], { fn: "sum", reverse: true, exclusive: false }),
        ],
        outputs: [10, 0],
      },
      {
        shapeless: true,
        inputs: [f32([4])],
        keywords: [],
        constants: [],
        steps: [step("reshape", [0], [2, 2], { asked: [-1, 2] }), step("reduce", [1], [2], { fn: "max", axes: [1] })],
        outputs: [2],
      },
    ],
  };
  return { header: treeOf(header), data: new Uint8Array(32) };
})();

/** The bytes of a file of functions. The length of its header is right by default. */
export function functionsOf({ header, data }: Safetensors, length?: bigint): Uint8Array {
  return join([new TextEncoder().encode("VKMXFN"), Uint8Array.of(1, 0), fileOf({ header, data }, length)]);
}

/** The weights that {@link CONFIG} describes. */
export const WEIGHTS: Safetensors = safetensors(
  (() => {
    const rows: ProgramRow[] = [];
    const matrix = (path: string, outputs: number, inputs: number, bits = 4): void => {
      rows.push({ name: `${path}.weight`, dtype: "U32", shape: [outputs, inputs * bits / 32] });
      for (const part of ["scales", "biases"]) {
        rows.push({ name: `${path}.${part}`, dtype: "BF16", shape: [outputs, inputs / GROUP] });
      }
    };
    const norm = (path: string, size: number): void =>
      void rows.push({ name: `${path}.weight`, dtype: "BF16", shape: [size] });
    const layer = "model.layers.0";
    matrix("model.embed_tokens", VOCAB, HIDDEN);
    norm(`${layer}.input_layernorm`, HIDDEN);
    matrix(`${layer}.self_attn.q_proj`, HEADS * HEAD_DIM, HIDDEN);
    matrix(`${layer}.self_attn.k_proj`, KV_HEADS * HEAD_DIM, HIDDEN);
    matrix(`${layer}.self_attn.v_proj`, KV_HEADS * HEAD_DIM, HIDDEN);
    matrix(`${layer}.self_attn.o_proj`, HIDDEN, HEADS * HEAD_DIM);
    norm(`${layer}.self_attn.q_norm`, HEAD_DIM);
    norm(`${layer}.self_attn.k_norm`, HEAD_DIM);
    norm(`${layer}.post_attention_layernorm`, HIDDEN);
    matrix(`${layer}.mlp.gate_proj`, HIDDEN, HIDDEN);
    matrix(`${layer}.mlp.up_proj`, HIDDEN, HIDDEN, 8);
    matrix(`${layer}.mlp.down_proj`, HIDDEN, HIDDEN);
    norm("model.norm", HIDDEN);
    return rows;
  })(),
);

/** Tokens of {@link PROMPT_CACHE}. */
const CACHED = 3;

/** A prompt cache of the model that {@link CONFIG} describes. */
export const PROMPT_CACHE: Safetensors = (() => {
  const rows = ["0.0", "0.1"].map((name) => ({ name, dtype: "F32", shape: [1, KV_HEADS, CACHED, HEAD_DIM] }));
  const words = [{ name: "0.2", dtype: "I32", shape: [] }, { name: "1.tokens", dtype: "I32", shape: [CACHED] }];
  const metadata = { "0.vkmx": '{"version":1}', "0.note": "x", "1.0": "KVCache", "2.0": "" };
  const file = safetensors([...words, ...rows], { ...metadata, "2.1.0": "0.2", "2.1.1": "scalar" });
  file.data.set(new Uint8Array(Int32Array.of(CACHED, 1, 2, 3).buffer));
  return file;
})();

/** model.safetensors.index.json. */
export const INDEX: unknown = {
  metadata: { total_size: WEIGHTS.data.length },
  weight_map: Object.fromEntries(
    "members" in WEIGHTS.header
      ? WEIGHTS.header.members.slice(1).map((
        [name],
      ) => [JSON.parse(new TextDecoder().decode(name)), "model.safetensors"])
      : [],
  ),
};

/** The files of a model directory by name. */
export function modelDirectory(): Record<string, Uint8Array> {
  return {
    "config.json": bytesOf(treeOf(CONFIG)),
    "generation_config.json": bytesOf(treeOf(GENERATION_CONFIG)),
    "model.safetensors": fileOf(WEIGHTS),
    "model.safetensors.index.json": bytesOf(treeOf(INDEX)),
    "tokenizer.json": bytesOf(treeOf(TOKENIZER)),
    "tokenizer_config.json": bytesOf(treeOf(TOKENIZER_CONFIG)),
  };
}
