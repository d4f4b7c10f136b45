/**
 * Conversion writes the bytes that mlx_lm.convert writes, refuses what cannot be converted in one line, and leaves nothing behind where it
 * fails or is stopped.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "node:path";
import * as mx from "../../mod.ts";
import { writeModel } from "../../scripts/synthetic.ts";
import { type Asked, CONVERSIONS, type GoldenConversion, sumsOf } from "../support/conversions.ts";
import { testDevices } from "../support/devices.ts";

const GOLDEN: Readonly<Record<string, GoldenConversion>> = JSON.parse(
  Deno.readTextFileSync(new URL("../golden/conversions.json", import.meta.url)),
);
const DEVICES = testDevices(); // opens the library here: a test that did would seem to leak it

function optionsOf({ dtype, ...asked }: Asked): mx.lm.ConvertOptions {
  return { ...asked, ...(dtype && { dtype: mx[dtype] }) };
}

/** Calls `use` with a folder that is gone afterwards. */
async function inFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await use(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

for (const device of DEVICES) {
  Deno.test(`convert() writes the bytes that mlx-lm writes on ${device}`, async (t) => {
    await inFolder(async (folder) => {
      const sources = new Map<string, string>();
      for (const { name, shape, format, asked } of CONVERSIONS) {
        await t.step(name, async () => {
          const key = JSON.stringify([shape, format]);
          const source = sources.get(key) ?? join(folder, `source${sources.size}`);
          if (!sources.has(key)) await writeModel(source, shape, format);
          sources.set(key, source);
          const out = join(folder, "out");
          const { bitsPerWeight, files } = await mx.lm.convert(source, out, { ...optionsOf(asked), device });
          const { files: sums, bits } = GOLDEN[name];
          assertEquals(sumsOf(out), sums);
          if (bits !== undefined) assertEquals(bitsPerWeight.toFixed(3), bits);
          assertEquals(Array.from(Deno.readDirSync(out), (entry) => entry.name).sort(), [...files]);
          await Deno.remove(out, { recursive: true });
        });
      }
    });
  });
}
