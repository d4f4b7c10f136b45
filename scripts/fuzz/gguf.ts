/**
 * A GGUF file of the small model, and files like it that break what the format promises: counts, lengths, types, shapes and offsets.
 *
 * @module
 */

import { ALPHABET } from "../../src/llm/tokenizer/vocabulary.ts";
import { CONTROL, VOCAB } from "./bases.ts";
import { join, mutateBytes, word } from "./bytes.ts";
import type { Random } from "./random.ts";

/** Codes of values: see gguf.ts of the library. */
const [UINT32, INT32, FLOAT32, BOOL, STRING, LIST] = [4, 5, 6, 7, 8, 9];
const UTF8 = new TextEncoder();
const ALIGNMENT = 32;

/** A value of the metadata: its type and its bytes. */
interface Pair {
  readonly key: string;
  readonly type: number;
  readonly value: Uint8Array;
}

/** A tensor: its sizes, the first one varies fastest, its type, and the bytes of a block of so many elements. */
interface Tensor {
  readonly name: string;
  readonly sizes: readonly number[];
  readonly type: number;
  readonly block: readonly [elements: number, bytes: number];
}

function u32(...values: readonly number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(values).buffer);
}

function text(value: string): Uint8Array {
  const bytes = UTF8.encode(value);
  return join([word(BigInt(bytes.length)), bytes]);
}

const texts = (values: readonly string[]): Uint8Array =>
  join([u32(STRING), word(BigInt(values.length)), ...values.map(text)]);

const TOKENS = Array.from({ length: VOCAB }, (_, id) => ALPHABET[id] ?? CONTROL[id] ?? `[PAD${id}]`);
const KINDS = TOKENS.map((_, id) => id < ALPHABET.length ? 1 : id in CONTROL ? 3 : 5);
const EOS = Number(Object.keys(CONTROL)[2]);

const PAIRS: readonly Pair[] = [
  ["general.architecture", STRING, text("qwen3")] as const,
  ...([
    ["block_count", 1],
    ["context_length", 4096],
    ["embedding_length", 32],
    ["feed_forward_length", 32],
    ["attention.head_count", 2],
    ["attention.head_count_kv", 1],
    ["attention.key_length", 16],
    ["attention.value_length", 16],
  ] as const).map(([key, value]) => [`qwen3.${key}`, UINT32, u32(value)] as const),
  ["qwen3.attention.layer_norm_rms_epsilon", FLOAT32, new Uint8Array(Float32Array.of(1e-6).buffer)] as const,
  ["qwen3.rope.freq_base", FLOAT32, new Uint8Array(Float32Array.of(1e6).buffer)] as const,
  ["qwen3.rope.scaling.type", STRING, text("none")] as const,
  ["tokenizer.ggml.model", STRING, text("gpt2")] as const,
  ["tokenizer.ggml.pre", STRING, text("qwen2")] as const,
  ["tokenizer.ggml.tokens", LIST, texts(TOKENS)] as const,
  [
    "tokenizer.ggml.token_type",
    LIST,
    join([u32(INT32), word(BigInt(VOCAB)), new Uint8Array(Int32Array.from(KINDS).buffer)]),
  ] as const,
  ["tokenizer.ggml.merges", LIST, texts([])] as const,
  ["tokenizer.ggml.eos_token_id", UINT32, u32(EOS)] as const,
  ["tokenizer.ggml.add_bos_token", BOOL, Uint8Array.of(0)] as const,
  ["tokenizer.chat_template", STRING, text("{% for m in messages %}{{ m.content }}{% endfor %}")] as const,
].map(([key, type, value]) => ({ key, type, value }));

const F32 = [0, [1, 4]] as const;
const tensor = (name: string, sizes: readonly number[], [type, block]: readonly [number, Tensor["block"]]): Tensor => ({
  name,
  sizes,
  type,
  block,
});

const TENSORS: readonly Tensor[] = [
  tensor("token_embd.weight", [32, VOCAB], [8, [32, 34]]),
  tensor("output_norm.weight", [32], F32),
  tensor("blk.0.attn_norm.weight", [32], F32),
  tensor("blk.0.attn_q.weight", [32, 32], [2, [32, 18]]),
  tensor("blk.0.attn_k.weight", [32, 16], [6, [32, 22]]),
  tensor("blk.0.attn_v.weight", [32, 16], [20, [32, 18]]),
  tensor("blk.0.attn_output.weight", [32, 32], [39, [32, 17]]),
  tensor("blk.0.attn_q_norm.weight", [16], F32),
  tensor("blk.0.attn_k_norm.weight", [16], F32),
  tensor("blk.0.ffn_norm.weight", [32], F32),
  tensor("blk.0.ffn_gate.weight", [32, 32], [3, [32, 20]]),
  tensor("blk.0.ffn_up.weight", [32, 32], [7, [32, 24]]),
  tensor("blk.0.ffn_down.weight", [32, 32], [1, [1, 2]]),
];

/** Bytes of a tensor's data. */
function bytesOf({ sizes, block: [elements, bytes] }: Tensor): number {
  return sizes.reduce((product, size) => product * size, 1) / elements * bytes;
}

/** Numbers that headers may have in place of others. */
const WORDS = [0n, 1n, 2n, 31n, 33n, 2n ** 20n, 2n ** 24n, 2n ** 32n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n];

/** A file with these parts; `wrong` may put other numbers in the place of counts, sizes and offsets. */
function fileOf(
  pairs: readonly Pair[],
  tensors: readonly Tensor[],
  wrong: (value: bigint) => bigint = (value) => value,
): Uint8Array {
  const number = (value: number): Uint8Array => word(wrong(BigInt(value)));
  const header = [UTF8.encode("GGUF"), u32(3), number(tensors.length), number(pairs.length)];
  for (const { key, type, value } of pairs) header.push(text(key), u32(type), value);
  let offset = 0;
  for (const one of tensors) {
    const { name, sizes, type } = one;
    header.push(text(name), u32(sizes.length), ...sizes.map(number), u32(type), number(offset));
    offset += Math.ceil(bytesOf(one) / ALIGNMENT) * ALIGNMENT;
  }
  const start = join(header);
  return join([start, new Uint8Array(-start.length & (ALIGNMENT - 1)), new Uint8Array(offset)]);
}

/** The file of the model. */
export const GGUF: Uint8Array = fileOf(PAIRS, TENSORS);

/** One of a list in the place of another, left out, or twice. */
function shuffled<T>(list: readonly T[], random: Random, change: (item: T) => T): T[] {
  const at = random.below(list.length);
  const others = [[], [list[at], list[at]], [change(list[at])], [change(list[at])], [list[random.below(list.length)]]];
  return list.toSpliced(at, 1, ...random.pick(others));
}

/** A file like that of the model. */
export function generateGguf(random: Random): Uint8Array {
  if (random.once(4)) return mutateBytes(GGUF, random);
  const pairs = random.once(2) ? PAIRS : shuffled(PAIRS, random, (pair) => ({
    ...pair,
    ...(random.once(3) ? { type: random.below(14) } : { value: mutateBytes(pair.value, random) }),
  }));
  const tensors = random.once(2) ? TENSORS : shuffled(TENSORS, random, (one) => ({
    ...one,
    ...(random.once(2)
      ? { type: random.below(42) }
      : { sizes: one.sizes.map((size) => random.once(2) ? random.below(4096) : size) }),
  }));
  const file = fileOf(pairs, tensors, (value) => random.once(60) ? random.pick(WORDS) : value);
  return random.once(8) ? mutateBytes(file, random) : file;
}
