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
