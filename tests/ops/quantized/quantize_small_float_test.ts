/**
 * quantize() in the modes of small floats gives the bits that MLX gives on the CPU, except for groups whose exponent
 * MLX wraps around. dequantize() gives the bits that MLX makes of them. The SHA-256 of codes, scales and weights is
 * compared (reference/quantize.ts). The rows are at the edges of the formats, or have every number of a format.
 */

import { assert, assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import * as mx from "../../../mod.ts";
import { storedBytes } from "../../../src/array/files/stored.ts";
import { QUANTIZATION_MODES } from "../../../src/graph/quantization.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { COLUMNS, everyNumber, farRows, smallFloatRows } from "../../support/oracles/quantize_rows.ts";

const GOLDEN: Readonly<Record<string, string>> = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/arrays/quantize_small_float.json", import.meta.url)),
);

/** Keys that only a CPU serves: they need numbers that GPUs may take for 0. */
const ON_CPU = ["far", "every"];

/** float32 bytes, NaN as one of them. */
function numbers(x: mx.Tensor): Uint8Array {
  const values = x.astype(mx.float32).toTypedArray() as Float32Array;
  return new Uint8Array(Float32Array.from(values, (v) => Number.isNaN(v) ? NaN : v).buffer);
}

/** The case of a golden sum's key. */
function found(key: string): readonly Uint8Array[] {
  const [name, type, word, scale] = key.split(" ");
  const mode = word as mx.SmallFloatMode;
  const dtype = mx[type as "float16"];
  if (name === "near" || name === "every") {
    const { bits, groupSize } = QUANTIZATION_MODES[mode].defaults;
    const [first, last] = name === "near" ? [8, 248] : [0, 256];
    const bytes = everyNumber(bits, groupSize, Array.from({ length: last - first }, (_, i) => first + i));
    const codes = mx.array(new Uint32Array(bytes.codes.buffer)).reshape([last - first, -1]);
    const scales = mx.array(bytes.scales).reshape([last - first, -1]);
    return [numbers(mx.dequantize(codes, scales, null, null, null, mode, null, dtype))];
  }
  const w = mx.array(name === "far" ? farRows() : smallFloatRows()).reshape([-1, COLUMNS]).astype(dtype);
  const globalScale = scale === undefined ? null : Number(scale);
  const [codes, scales] = mx.quantize(w, null, null, mode, { globalScale });
  const again = mx.dequantize(codes, scales, null, null, null, { mode, dtype, globalScale });
  return [storedBytes(codes), storedBytes(scales), numbers(again)];
}

Deno.test("groups too small for any scale of mxfp4 and mxfp8 become 0 or nearly what they were", () => {
  mx.withDevice("wasm", () => {
    for (const mode of ["mxfp4", "mxfp8"] as const) {
      for (const value of [1e-40, -1e-40]) {
        const [codes, scales] = mx.quantize(mx.full([1, 32], value), null, null, mode);
        assertEquals(scales.tolist(), [[0]]); // 2^-127, the least one
        const [[again]] = mx.dequantize(codes, scales, null, null, null, { mode, dtype: mx.float32 })
          .tolist() as number[][];
        const step = 2 ** -127 * (mode === "mxfp4" ? 0.5 : 2 ** -9);
        assert(Math.abs(again - value) <= Math.max(step / 2, Math.abs(value) / 16), `${value} in ${mode}: ${again}`);
      }
    }
  });
});

for (const device of testDevices()) {
  Deno.test(`quantize() of small floats gives the bits of MLX on ${device}`, () => {
    mx.withDevice(device, () => {
      const keys = Object.keys(GOLDEN).filter((key) =>
        device === "wasm" || !ON_CPU.some((name) => key.startsWith(name))
      );
      const sums = keys.map((key) =>
        mx.tidy(() => {
          const hash = createHash("sha256");
          for (const part of found(key)) hash.update(part);
          return [key, hash.digest("hex")];
        })
      );
      assertEquals(Object.fromEntries(sums), Object.fromEntries(keys.map((key) => [key, GOLDEN[key]])));
    });
  });
}

/** Codes of 8 bits that are no numbers. */
const NO_NUMBERS: readonly number[] = [127, 255];

for (const device of testDevices()) {
  for (const [mode, bits] of [["mxfp4", 4], ["mxfp8", 8]] as const) {
    Deno.test(`a product of few rows has the number of every code of ${mode} on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(() => {
        // Each row of the matrix is a group of 32 codes, with powers of two from small to large.
        const codes = Array.from({ length: 2 ** bits }, (_, code) => NO_NUMBERS.includes(code) ? 0 : code);
        const groups = Math.max(1, codes.length / 32);
        const scales = [64, 100, 126, 127, 128, 140, 190];
        const bytes = scales.flatMap(() => Array.from({ length: 32 * groups }, (_, i) => codes[i % codes.length]));
        const packed = bits === 8 ? bytes : bytes.flatMap((low, i) => i % 2 === 0 ? [low | bytes[i + 1] << 4] : []);
        const n = scales.length * groups;
        const w = mx.array(packed, mx.uint8).view(mx.uint32).reshape(n, -1);
        const s = mx.array(scales.flatMap((scale) => Array<number>(groups).fill(scale)), mx.uint8).reshape(n, 1);
        const expected = mx.dequantize(w, s, null, 32, bits, { mode, dtype: mx.float32 }).T.toTypedArray();
        const rows = [0, 1, 2, 3].map((part) => {
          const x = mx.eye(32).index(mx.Slice(8 * part, 8 * (part + 1)));
          return mx.quantizedMatmul(x, w, s, null, true, 32, bits, mode);
        });
        assertEquals(
          Array.from(mx.concatenate(rows).toTypedArray() as Float32Array),
          Array.from(expected as Float32Array),
        );
      });
    });
  }
}
