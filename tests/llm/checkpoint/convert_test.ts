/**
 * Conversion writes the bytes that mlx_lm.convert writes, and leaves no files if it is stopped.
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "node:path";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import {
  type Asked,
  CONVERSIONS,
  type GoldenConversion,
  inFolder,
  listed,
  sumsOf,
  withModel,
} from "../../support/models/conversions.ts";
import { anyDevice, testDevices } from "../../support/devices/devices.ts";
import { HubBench, NAME } from "../../support/models/hub_models.ts";
import { GOLDEN, TINY_DIR } from "../../support/models/models.ts";

const SUMS: Readonly<Record<string, GoldenConversion>> = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/models/conversions.json", import.meta.url)),
);
const DEVICES = testDevices(); // opens the library here: a test that did would seem to leak it

function optionsOf({ dtype, ...asked }: Asked): mx.lm.ConvertOptions {
  return { ...asked, ...(dtype && { dtype: mx[dtype] }) };
}

for (const device of DEVICES) {
  Deno.test(`convert() writes the bytes that mlx-lm writes on ${device}`, async (t) => {
    await inFolder(async (folder) => {
      const sources = new Map<string, string>();
      for (const { name, shape, format, first, asked } of CONVERSIONS) {
        await t.step(name, async () => {
          const key = JSON.stringify([shape, format]);
          const written = sources.get(key) ?? join(folder, `source${sources.size}`);
          if (!sources.has(key)) await writeModel(written, shape, format);
          sources.set(key, written);
          const source = first ? join(folder, "first") : written;
          if (first) await mx.lm.convert(written, source, { ...optionsOf(first), device });
          const out = join(folder, "out");
          const { bitsPerWeight, files } = await mx.lm.convert(source, out, { ...optionsOf(asked), device });
          const { files: sums, bits } = SUMS[name];
          assertEquals(sumsOf(out), sums);
          if (bits !== undefined) assertEquals(bitsPerWeight.toFixed(3), bits);
          assertEquals(Array.from(Deno.readDirSync(out), (entry) => entry.name).sort(), [...files]);
          for (const done of first ? [source, out] : [out]) await Deno.remove(done, { recursive: true });
        });
      }
    });
  });
}

const [DEVICE] = DEVICES;
Deno.test("convert() leaves nothing behind when it is stopped", () =>
  withModel(async (folder, model) => {
    for (const after of [0, 3]) {
      const controller = new AbortController();
      let calls = 0;
      const stopped = mx.lm.convert(model, join(folder, "above", "out"), {
        quantize: true,
        qGroupSize: 32,
        device: DEVICE,
        signal: controller.signal,
        onProgress: () => {
          assertEquals(listed(join(folder, "above")).length, 1); // the files written so far
          if (calls++ === after) controller.abort();
        },
      });
      const error = await assertRejects(() => stopped, DOMException);
      assertEquals([error.name, calls, listed(folder)], ["AbortError", after + 1, ["model"]]);
    }
  }));

Deno.test("convert() takes an empty folder, and tells how far it is", () =>
  withModel(async (folder, model) => {
    const out = join(folder, "out");
    Deno.mkdirSync(out);
    const told: (readonly [number, number])[] = [];
    const { bytes } = await mx.lm.convert(model, out, {
      device: DEVICE,
      onProgress: (done, total) => told.push([done, total]),
    });
    assertEquals([told[0], told.at(-1)], [[0, bytes], [bytes, bytes]]);
    assert(told.every(([done], i) => i === 0 || done > told[i - 1][0]));
    assertEquals(listed(folder), ["model", "out"]);
  }));

Deno.test("convert() asks a function how to quantize each matrix", () =>
  withModel(async (folder, model) => {
    const out = join(folder, "out");
    const asked: string[] = [];
    await mx.lm.convert(new URL(`file://${model}`), new URL(`file://${out}`), {
      quantize: true,
      device: DEVICE,
      quantPredicate: (path, shape) => {
        asked.push(`${path} ${shape}`);
        if (path.endsWith("q_proj")) return { bits: 8, groupSize: 32 };
        return !path.endsWith("down_proj");
      },
    });
    assertEquals(asked.slice(0, 2), ["model.embed_tokens 4096,64", "model.layers.0.self_attn.q_proj 64,64"]);
    const { quantization } = JSON.parse(Deno.readTextFileSync(join(out, "config.json")));
    const own = { "model.layers.0.self_attn.q_proj": { group_size: 32, bits: 8, mode: "affine" } };
    assertEquals(quantization, { group_size: 64, bits: 4, mode: "affine", ...own });
    const shapes = mx.loadSafetensors(join(out, "model.safetensors"));
    assertEquals(shapes["model.layers.0.self_attn.q_proj.weight"].shape, [64, 16]);
    assertEquals(shapes["model.layers.0.mlp.down_proj.weight"].shape, [64, 64]);
    mx.dispose(shapes);
  }));

Deno.test("convert() gives tensors without a prefix the names of the model", () =>
  withModel(async (folder, model) => {
    const path = join(model, "model.safetensors");
    await mx.lm.convert(model, join(folder, "usual"), { quantize: true, device: DEVICE });
    mx.withDevice(DEVICE, () => {
      const tensors = Object.entries(mx.loadSafetensors(path));
      mx.saveSafetensors(
        path,
        Object.fromEntries(tensors.map(([name, tensor]) => [name.replace("model.", ""), tensor])),
      );
      mx.dispose(tensors);
    });
    await mx.lm.convert(model, join(folder, "bare"), { quantize: true, device: DEVICE });
    assertEquals(sumsOf(join(folder, "bare")), sumsOf(join(folder, "usual")));
  }));

Deno.test("Converted models load and answer", () =>
  inFolder(async (folder) => {
    const [dense, again] = [join(folder, "dense"), join(folder, "again")];
    const device = anyDevice();
    await mx.lm.convert(TINY_DIR, dense, { dequantize: true, dtype: mx.float32, device });
    await mx.lm.convert(dense, again, { quantize: true, qBits: 8, dtype: mx.bfloat16, device });
    for (const path of [dense, again]) {
      const { model, tokenizer } = await mx.lm.load(path, { device });
      using _ = model;
      const text = await mx.lm.generate(model, tokenizer, GOLDEN[0].prompt, { temp: 0, maxTokens: 300 });
      assertEquals(text, GOLDEN[0].text.replace("<|endoftext|>", ""));
      await model.traces.idle();
    }
  }));

Deno.test("convert() names the model of the hub that it read", async () => {
  await using hub = new HubBench();
  await withModel(async (folder, model) => {
    const files = Object.fromEntries(
      listed(model).map((
        name,
      ) => [name, { bytes: Deno.readFileSync(join(model, name)), lfs: name.endsWith("tensors") }]),
    );
    hub.server.models.set(NAME, { ...hub.model, files });
    const out = join(folder, "out");
    await mx.lm.convert(NAME, out, { device: DEVICE });
    assertEquals(Deno.readTextFileSync(join(out, "README.md")).split("\n").at(-3), `base_model: ${NAME}`);
  });
});
