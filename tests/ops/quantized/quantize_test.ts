/**
 * quantize() and dequantize() give the bits that MLX gives on the CPU. The SHA-256 of codes, scales, biases and weights
 * is compared for rows at the edges of the format (reference/quantize.ts).
 */

import { assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import * as mx from "../../../mod.ts";
import { storedBytes } from "../../../src/array/files/stored.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { COLUMNS, edgeRows } from "../../support/oracles/quantize_rows.ts";

const GOLDEN: Readonly<Record<string, string>> = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/arrays/quantize.json", import.meta.url)),
);

for (const device of testDevices()) {
  Deno.test(`quantize() gives the bits of MLX on ${device}`, () => {
    mx.withDevice(device, () => {
      const rows = edgeRows();
      const found = Object.keys(GOLDEN).map((key) =>
        mx.tidy(() => {
          const [dtype, bits, groupSize] = key.split(" ");
          const w = mx.array(rows).reshape([-1, COLUMNS]).astype(mx[dtype as "float16"]);
          const parts = mx.quantize(w, Number(groupSize), Number(bits));
          const again = mx.dequantize(...parts, Number(groupSize), Number(bits));
          const hash = createHash("sha256");
          for (const part of [...parts, again]) hash.update(storedBytes(part));
          return [key, hash.digest("hex")];
        })
      );
      assertEquals(Object.fromEntries(found), GOLDEN);
    });
  });
}
