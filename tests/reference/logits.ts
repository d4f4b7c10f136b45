/**
 * Compares logits with the reference implementation (mlx_logits.py; needs Python with mlx and mlx-lm).
 *
 *     deno run -A tests/reference/logits.ts DIR [DEVICE …]     32 tokens of a model directory; all devices unless named
 *     deno run -A tests/reference/logits.ts --golden           writes golden/models/model-shapes.f16, families.f32 and full-size.f16 anew
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { modelFolder } from "../../scripts/bench/compare.ts";
import { type ModelFormat, type ModelShape, writeModel } from "../../scripts/synthetic/synthetic.ts";
import {
  FAMILY_CASES,
  FAMILY_IDS,
  keptLogits as keptOfFamily,
  PROMPT as FAMILY_PROMPT,
} from "../support/models/families.ts";
import { IDS, keptLogits } from "../support/models/full_size.ts";
import { nmse } from "../support/oracles/oracle.ts";
import { sampledLogits, SHAPE_CASES, SHAPE_IDS } from "../support/models/model_shapes.ts";

/** (positions, vocabulary) by the reference, which reads `prompt` tokens at once and the others one by one. */
async function reference(dir: string, ids: readonly number[], prompt = ids.length): Promise<Float32Array> {
  const out = await Deno.makeTempFile({ suffix: ".f32" });
  try {
    const script = new URL("mlx_logits.py", import.meta.url).pathname;
    const { success } = await new Deno.Command("python3", { args: [script, dir, out, ids.join(), `${prompt}`] }).spawn()
      .status;
    if (!success) throw new Error("mlx_logits.py failed");
    return new Float32Array((await Deno.readFile(out)).buffer);
  } finally {
    await Deno.remove(out);
  }
}

/** The results of `read` for synthetic models, one after the other. */
async function ofModels(
  models: readonly { readonly shape: ModelShape; readonly format: ModelFormat }[],
  read: (dir: string) => Promise<Float32Array>,
): Promise<number[]> {
  const golden: number[] = [];
  for (const { shape, format } of models) {
    const folder = await Deno.makeTempDir();
    try {
      await writeModel(`${folder}/model`, shape, format);
      golden.push(...await read(`${folder}/model`));
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  }
  return golden;
}

async function writeGolden(): Promise<void> {
  const shapes = await ofModels(SHAPE_CASES, async (dir) => sampledLogits(await reference(dir, SHAPE_IDS)));
  await writeHalves("model-shapes.f16", shapes);
  const families = await ofModels(
    FAMILY_CASES,
    async (dir) => keptOfFamily(await reference(dir, FAMILY_IDS, FAMILY_PROMPT), 0),
  );
  await write("families.f32", Float32Array.from(families));
  const full = await reference(await modelFolder("qwen3-0.6b"), IDS);
  await writeHalves("full-size.f16", keptLogits(full, 0));
}

async function writeHalves(name: string, values: ArrayLike<number>): Promise<void> {
  await write(name, Float16Array.from(values));
}

async function write(name: string, values: Float16Array | Float32Array): Promise<void> {
  await Deno.writeFile(new URL(`../golden/models/${name}`, import.meta.url), new Uint8Array(values.buffer));
}

/** Prints how far all logits of one pass, and those of single steps after a cache, are from the reference. */
async function compare(dir: string, named: readonly string[]): Promise<void> {
  const { vocab_size: vocab } = JSON.parse(await Deno.readTextFile(`${dir}/config.json`));
  const ids = Array.from({ length: 32 }, (_, i) => (i * 7919 + 13) % Math.min(vocab, 150_000));
  const expected = await reference(dir, ids);
  const devices = named.length > 0 ? named : mx.devices().filter((d) => d.usable).map((d) => d.name);
  for (const device of devices) {
    mx.setDefaultDevice(device);
    const { model } = await mx.lm.load(dir, { device });
    const logits = (from: number, to: number, cache?: mx.lm.KvCache): Float32Array => {
      using out = mx.tidy(() => model.forward(mx.array([ids.slice(from, to)], mx.int32), cache));
      return out.toTypedArray() as Float32Array;
    };
    const whole = nmse(logits(0, 32), expected);
    using cache = model.makeCache();
    logits(0, 28, cache);
    const steps = [28, 29, 30, 31].map((t) =>
      nmse(logits(t, t + 1, cache), expected.subarray(t * vocab, (t + 1) * vocab))
    );
    console.log(`${device}: 32 tokens ${whole.toExponential(1)}, one by one ${Math.max(...steps).toExponential(1)}`);
    model[Symbol.dispose]();
  }
}

if (Deno.args[0] === "--golden") await writeGolden();
else await compare(Deno.args[0], Deno.args.slice(1));
mx.closeDevices();
