/**
 * Quantizes rows of weights to blocks of GGUF, as ggml's reference does, bit for bit. Numbers of the host: every device gives the same
 * blocks.
 *
 * @module
 */

import { float16Bits } from "../../graph/dtype.ts";

const GROUP = 32;
const single = Math.fround;

/** Codes of a block at a byte of the output. */
type Codes = (values: Float32Array, inverse: number, out: Uint8Array, at: number) => void;

/** A type that weights are quantized to. */
interface Quantizer {
  /** Bytes of a block. */
  readonly bytes: number;
  /** The scale of a block. */
  readonly scale: (values: Float32Array) => number;
  readonly codes: Codes;
}

/** The value of a block with the largest magnitude, the first of several. */
function largest(values: Float32Array): number {
  let found = 0;
  for (const value of values) if (Math.abs(value) > Math.abs(found)) found = value;
  return found;
}

const QUANTIZERS: Readonly<Record<"Q4_0" | "Q8_0", Quantizer>> = {
  Q4_0: {
    bytes: 18,
    scale: (values) => single(largest(values) / -8),
    codes: (values, inverse, out, at) => {
      const code = (value: number): number => Math.min(15, Math.trunc(single(single(value * inverse) + 8.5)));
      for (let i = 0; i < GROUP / 2; i++) out[at + i] = code(values[i]) | code(values[i + GROUP / 2]) << 4;
    },
  },
  Q8_0: {
    bytes: 34,
    scale: (values) => single(Math.abs(largest(values)) / 127),
    codes: (values, inverse, out, at) => {
      for (let i = 0; i < GROUP; i++) {
        const value = single(values[i] * inverse);
        out[at + i] = Math.sign(value) * Math.floor(Math.abs(value) + 0.5);
      }
    },
  },
};

/** The types. */
export type QuantizedGgufType = keyof typeof QUANTIZERS;

/** The blocks of values, whose number is a multiple of 32. */
export function quantizeBlocks(type: QuantizedGgufType, values: Float32Array): Uint8Array {
  const { bytes, scale, codes } = QUANTIZERS[type];
  const count = values.length / GROUP;
  const out = new Uint8Array(count * bytes);
  for (let i = 0; i < count; i++) {
    const block = values.subarray(i * GROUP, (i + 1) * GROUP);
    const d = scale(block);
    const bits = float16Bits(d);
    out[i * bytes] = bits & 255;
    out[i * bytes + 1] = bits >> 8;
    codes(block, d === 0 ? 0 : single(1 / d), out, i * bytes + 2);
  }
  return out;
}
