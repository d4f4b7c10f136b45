/**
 * Models as today's mlx-lm converts them load untouched: each config.json is one that it wrote, and logits are those that it computes
 * in float32 (golden/models/mlx_lm_conversions.py). The weights are quantized here as that config says.
 */

import { assert } from "@std/assert";
import { fileURLToPath } from "node:url";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { TINY_DIR } from "../../support/models/models.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const LIMIT = 1e-7;
const DEVICES = testDevices(); // opens the library here: a test that did would seem to leak it

interface ConversionRow {
  readonly bits?: number;
  readonly group_size?: number | null;
  readonly mode?: mx.QuantizationMode;
}

interface Conversion {
  readonly name: string;
  readonly config: { readonly quantization?: ConversionRow & Readonly<Record<string, ConversionRow>> };
  /** How matrices are stored, where the config does not say it of all. */
  readonly stored?: ConversionRow & Readonly<Record<string, ConversionRow>>;
  /** Every 32nd logit after the last token. */
  readonly logits: readonly number[];
}

const { ids, conversions }: { readonly ids: number[]; readonly conversions: readonly Conversion[] } = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/models/mlx_lm_conversions.json", import.meta.url)),
);

/** Writes the embedded model as a conversion of it. */
function writeConversion(dir: string, { config, stored: quantization = config.quantization }: Conversion): void {
  const tiny = (name: string): URL => new URL(name, TINY_DIR);
  Deno.mkdirSync(dir);
  for (const name of ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]) {
    Deno.copyFileSync(tiny(name), `${dir}/${name}`);
  }
  Deno.writeTextFileSync(`${dir}/config.json`, JSON.stringify(config));
  const stored = mx.loadSafetensors(fileURLToPath(tiny("model.safetensors")));
  const tensors: Record<string, mx.Tensor> = {};
  for (const [name, tensor] of Object.entries(stored)) {
    const path = name.replace(/\.(weight|scales|biases)$/, "");
    const { [`${path}.scales`]: scales, [`${path}.biases`]: biases } = stored;
    if (scales === undefined) tensors[name] = tensor;
    if (scales === undefined || !name.endsWith(".weight")) continue;
    const dense = mx.dequantize(tensor, scales, biases, 128, 4).astype(mx.bfloat16);
    if (quantization === undefined) {
      tensors[name] = dense;
      continue;
    }
    const { bits, group_size: groupSize, mode = "affine" } = quantization[path] ?? quantization;
    const parts = mx.quantize(dense, groupSize, bits, mode);
    parts.forEach((tensor, i) => tensors[`${path}.${["weight", "scales", "biases"][i]}`] = tensor);
  }
  mx.saveSafetensors(`${dir}/model.safetensors`, tensors);
}

for (const device of DEVICES) {
  for (const conversion of conversions) {
    Deno.test(`a conversion of mlx-lm to ${conversion.name} gives its logits on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      mx.setDefaultDevice("wasm");
      mx.tidy(() => writeConversion(`${folder}/model`, conversion));
      mx.setDefaultDevice(device);
      const { model } = await mx.lm.load(`${folder}/model`, { device });
      using logits = mx.tidy(() => model.forward(mx.array([ids], mx.int32)).index(0, -1));
      const found = (logits.toTypedArray() as Float32Array).filter((_, i) => i % 32 === 0);
      const error = nmse(found, conversion.logits);
      assert(error <= LIMIT, `NMSE ${error}`);
      model[Symbol.dispose]();
      await Deno.remove(folder, { recursive: true });
    });
  }
}
