/**
 * Writes GGUF files of Qwen3 with random Q4_0 weights, for native llama.cpp to be measured beside vkmx. The weights are
 * noise of the right size: speed does not depend on their values.
 *
 * @module
 */

import { ALPHABET } from "../../src/llm/tokenizer/vocabulary.ts";
import { float16Bits } from "../../src/graph/dtype.ts";
import type { ModelShape } from "./synthetic.ts";

const TYPES = { u32: 4, i32: 5, f32: 6, string: 8, array: 9 } as const;
const F32 = 0;
const Q4_0 = 2;
/** Weights and bytes of a Q4_0 block. */
const BLOCK = { weights: 32, bytes: 18 } as const;
const ALIGNMENT = 32;

/** Bytes in the order of writing. */
class Bytes {
  readonly parts: Uint8Array<ArrayBuffer>[] = [];
  length = 0;

  add(part: Uint8Array<ArrayBuffer>): this {
    this.parts.push(part);
    this.length += part.length;
    return this;
  }

  u32(...values: readonly number[]): this {
    return this.add(new Uint8Array(Uint32Array.from(values).buffer));
  }

  u64(...values: readonly number[]): this {
    return this.add(new Uint8Array(BigUint64Array.from(values, BigInt).buffer));
  }

  string(text: string): this {
    const bytes = new TextEncoder().encode(text);
    return this.u64(bytes.length).add(bytes);
  }
}

/** Names and sizes of the tensors, fastest dimension first. */
function tensorsOf(s: ModelShape): [string, number[]][] {
  const [q, kv] = [s.heads * s.headDim, s.kvHeads * s.headDim];
  const layers = Array.from({ length: s.layers }, (_, i): [string, number[]][] => [
    [`blk.${i}.attn_norm.weight`, [s.hidden]],
    [`blk.${i}.attn_q.weight`, [s.hidden, q]],
    [`blk.${i}.attn_k.weight`, [s.hidden, kv]],
    [`blk.${i}.attn_v.weight`, [s.hidden, kv]],
    [`blk.${i}.attn_output.weight`, [q, s.hidden]],
    [`blk.${i}.attn_q_norm.weight`, [s.headDim]],
    [`blk.${i}.attn_k_norm.weight`, [s.headDim]],
    [`blk.${i}.ffn_norm.weight`, [s.hidden]],
    [`blk.${i}.ffn_gate.weight`, [s.hidden, s.intermediate]],
    [`blk.${i}.ffn_up.weight`, [s.hidden, s.intermediate]],
    [`blk.${i}.ffn_down.weight`, [s.intermediate, s.hidden]],
  ]);
  return [["token_embd.weight", [s.hidden, s.vocab]], ["output_norm.weight", [s.hidden]], ...layers.flat()];
}

function metadata(s: ModelShape): { readonly count: number; readonly bytes: Bytes } {
  const bytes = new Bytes();
  let count = 0;
  const key = (name: string, type: keyof typeof TYPES): Bytes => {
    count++;
    return bytes.string(name).u32(TYPES[type]);
  };
  const float = (v: number): number => new Uint32Array(Float32Array.of(v).buffer)[0];
  key("general.architecture", "string").string("qwen3");
  key("qwen3.block_count", "u32").u32(s.layers);
  key("qwen3.context_length", "u32").u32(40960);
  key("qwen3.embedding_length", "u32").u32(s.hidden);
  key("qwen3.feed_forward_length", "u32").u32(s.intermediate);
  key("qwen3.attention.head_count", "u32").u32(s.heads);
  key("qwen3.attention.head_count_kv", "u32").u32(s.kvHeads);
  key("qwen3.attention.key_length", "u32").u32(s.headDim);
  key("qwen3.attention.value_length", "u32").u32(s.headDim);
  key("qwen3.rope.freq_base", "f32").u32(float(1e6));
  key("qwen3.attention.layer_norm_rms_epsilon", "f32").u32(float(1e-6));
  key("general.file_type", "u32").u32(Q4_0);
  key("tokenizer.ggml.model", "string").string("gpt2");
  key("tokenizer.ggml.pre", "string").string("qwen2");
  key("tokenizer.ggml.tokens", "array").u32(TYPES.string).u64(s.vocab);
  for (let i = 0; i < s.vocab; i++) bytes.string(ALPHABET[i] ?? `t${i}`); // single bytes first, so that text can be a prompt
  key("tokenizer.ggml.token_type", "array").u32(TYPES.i32).u64(s.vocab);
  bytes.add(new Uint8Array(new Int32Array(s.vocab).fill(1).buffer));
  key("tokenizer.ggml.merges", "array").u32(TYPES.string).u64(1).string("t 1");
  key("tokenizer.ggml.eos_token_id", "u32").u32(s.vocab - 1);
  key("tokenizer.ggml.bos_token_id", "u32").u32(s.vocab - 2);
  return { count, bytes };
}

/** Random codes with one scale for all blocks, such that rows have about the length of a trained model's. */
function blocks(weights: number, depth: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(weights / BLOCK.weights * BLOCK.bytes);
  for (let at = 0; at < bytes.length; at += 65536) crypto.getRandomValues(bytes.subarray(at, at + 65536));
  const scale = float16Bits(0.065 / Math.sqrt(depth));
  for (let at = 0; at < bytes.length; at += BLOCK.bytes) bytes[at] = scale & 255, bytes[at + 1] = scale >> 8;
  return bytes;
}

/** Writes a model of a shape, tied embedding, to `path`. */
export async function writeGguf(path: string, s: ModelShape): Promise<void> {
  const tensors = tensorsOf(s).map(([name, dims]) => {
    const weights = dims.reduce((n, d) => n * d, 1);
    const quantized = dims.length > 1;
    return { name, dims, weights, quantized, bytes: quantized ? weights / BLOCK.weights * BLOCK.bytes : weights * 4 };
  });
  const aligned = (n: number): number => Math.ceil(n / ALIGNMENT) * ALIGNMENT;
  const meta = metadata(s);
  const head = new Bytes().add(new TextEncoder().encode("GGUF")).u32(3).u64(tensors.length, meta.count);
  for (const part of meta.bytes.parts) head.add(part);
  let offset = 0;
  for (const { name, dims, quantized, bytes } of tensors) {
    head.string(name).u32(dims.length).u64(...dims).u32(quantized ? Q4_0 : F32).u64(offset);
    offset += aligned(bytes);
  }
  using file = await Deno.open(path, { write: true, create: true, truncate: true });
  const write = async (bytes: Uint8Array): Promise<void> => {
    for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
  };
  const joined = new Uint8Array(aligned(head.length));
  let at = 0;
  for (const part of head.parts) joined.set(part, at), at += part.length;
  await write(joined);
  for (const { dims, weights, quantized, bytes } of tensors) {
    await write(quantized ? blocks(weights, dims[0]) : new Uint8Array(new Float32Array(weights).fill(1).buffer));
    await write(new Uint8Array(aligned(bytes) - bytes));
  }
}
