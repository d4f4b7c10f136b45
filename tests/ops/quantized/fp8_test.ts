/**
 * toFp8() gives the codes of MLX for every number of float16, and fromFp8() reads every code as MLX does (reference/fp8.py).
 */

import { assertEquals, assertThrows } from "@std/assert";
import { createHash } from "node:crypto";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";

const GOLDEN: { readonly codes: string; readonly values: readonly (number | null)[] } = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/arrays/fp8.json", import.meta.url)),
);

/** Every number of float16 in the order of its bits, infinities with them. */
function halves(): Float32Array {
  const numbers = Array.from({ length: 65536 }, (_, bits) => {
    const [sign, exponent, mantissa] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    if (exponent === 31) return mantissa ? NaN : sign * Infinity;
    return sign * (exponent === 0 ? mantissa * 2 ** -24 : (1024 + mantissa) * 2 ** (exponent - 25));
  });
  return Float32Array.from(numbers.filter((n) => !Number.isNaN(n)));
}

for (const device of testDevices()) {
  Deno.test(`toFp8() gives the codes of MLX on ${device}`, () => {
    mx.withDevice(device, () => {
      for (const dtype of [mx.float32, mx.float16]) {
        const codes = mx.toFp8(mx.array(halves()).astype(dtype)).toTypedArray();
        assertEquals(createHash("sha256").update(codes).digest("hex"), GOLDEN.codes, dtype.name);
      }
      assertEquals(mx.toFp8(mx.array([[NaN], [-2.3]])).tolist(), [[126], [193]]);
      assertEquals(mx.toFp8(mx.zeros([0, 3])).shape, [0, 3]);
    });
  });

  Deno.test(`fromFp8() reads codes as MLX does on ${device}`, () => {
    mx.withDevice(device, () => {
      const codes = mx.array(Uint8Array.from({ length: 256 }, (_, i) => i));
      const expected = GOLDEN.values.map((v) => v ?? NaN);
      for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
        const found = mx.fromFp8(codes, dtype);
        assertEquals(found.dtype.name, dtype.name);
        assertEquals(found.astype(mx.float32).tolist(), expected);
      }
      assertEquals(mx.fromFp8(codes).dtype.name, "bfloat16");
    });
  });
}

Deno.test("toFp8() and fromFp8() refuse other dtypes", () => {
  assertThrows(() => mx.toFp8(mx.array([1], mx.int32)), mx.DtypeError, "float arrays only: found int32");
  assertThrows(() => mx.fromFp8(mx.array([1])), mx.DtypeError, "uint8 codes only: found float32");
  assertThrows(() => mx.fromFp8(mx.array([1], mx.uint8), mx.int32), mx.DtypeError, "found dtype int32");
});
