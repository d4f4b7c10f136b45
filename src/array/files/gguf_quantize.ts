/**
 * Quantizes rows of weights to blocks of GGUF, as ggml's reference does, bit for bit. Numbers of the host: every device gives the same
 * blocks.
 *
 * @module
 */

import { float16Bits } from "../../graph/dtype.ts";
import { K_BLOCK, quantizeQ4K, quantizeQ6K } from "./gguf_k_quantize.ts";

const GROUP = 32;
const single = Math.fround;

/** A type that weights are quantized to. */
interface Quantizer {
  /** Weights of a block, and its bytes. */
  readonly block: number;
  readonly bytes: number;
  /** Writes a block of values. */
  readonly write: (values: Float32Array, out: Uint8Array) => void;
}

/** The value of a block with the largest magnitude, the first of several. */
function largest(values: Float32Array): number {
  let found = 0;
  for (const value of values) if (Math.abs(value) > Math.abs(found)) found = value;
  return found;
}

/** Writes a scale and gives its inverse: 0 if there is none. */
function writeScale(d: number, out: Uint8Array): number {
  const bits = float16Bits(d);
  out[0] = bits & 255;
  out[1] = bits >> 8;
  return d === 0 ? 0 : single(1 / d);
}

const QUANTIZERS = {
  Q4_0: {
    block: GROUP,
    bytes: 18,
    write: (values, out) => {
      const inverse = writeScale(single(largest(values) / -8), out);
      const code = (value: number): number => Math.min(15, Math.trunc(single(single(value * inverse) + 8.5)));
      for (let i = 0; i < GROUP / 2; i++) out[2 + i] = code(values[i]) | code(values[i + GROUP / 2]) << 4;
    },
  },
  Q8_0: {
    block: GROUP,
    bytes: 34,
    write: (values, out) => {
      const inverse = writeScale(single(Math.abs(largest(values)) / 127), out);
      for (let i = 0; i < GROUP; i++) {
        const value = single(values[i] * inverse);
        out[2 + i] = Math.sign(value) * Math.floor(Math.abs(value) + 0.5);
      }
    },
  },
  Q4_K: { block: K_BLOCK, bytes: 144, write: quantizeQ4K },
  Q6_K: { block: K_BLOCK, bytes: 210, write: quantizeQ6K },
} as const satisfies Readonly<Record<string, Quantizer>>;

/** The types. */
export type QuantizedGgufType = keyof typeof QUANTIZERS;

/** The blocks of values, whose number is a multiple of that of a block. */
export function quantizeBlocks(type: QuantizedGgufType, values: Float32Array): Uint8Array {
  const { block, bytes, write } = QUANTIZERS[type];
  const count = values.length / block;
  const out = new Uint8Array(count * bytes);
  for (let i = 0; i < count; i++) {
    write(values.subarray(i * block, (i + 1) * block), out.subarray(i * bytes, (i + 1) * bytes));
  }
  return out;
}
