/**
 * The embedded model with values such as NaN in its weights.
 */

import * as mx from "../../../mod.ts";
import type { Loaded } from "./engine_requests.ts";
import { TINY_DIR } from "./models.ts";

/** What is put where, or the weights as they are. */
export type Damage = readonly [name: string, row: number, value: number];

/** Loads the embedded model onto a device, or its layers onto several, with a damaged weight. Its head is apart from its embedding. */
export async function loadDamaged(where: string | readonly string[], ...damage: readonly Damage[]): Promise<Loaded> {
  const device = typeof where === "string" ? where : where[0];
  const dir = await Deno.makeTempDir();
  try {
    for (const name of ["tokenizer.json", "tokenizer_config.json"]) {
      await Deno.copyFile(new URL(name, TINY_DIR), `${dir}/${name}`);
    }
    const config = JSON.parse(await Deno.readTextFile(new URL("config.json", TINY_DIR)));
    await Deno.writeTextFile(`${dir}/config.json`, JSON.stringify({ ...config, tie_word_embeddings: false }));
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const weights: Record<string, mx.Tensor> = {
          ...mx.loadSafetensors(new URL("model.safetensors", TINY_DIR).pathname),
        };
        for (const part of ["weight", "scales", "biases"]) {
          weights[`lm_head.${part}`] = weights[`model.embed_tokens.${part}`];
        }
        for (const [name, row, value] of damage) {
          const copy = mx.add(weights[name], 0);
          copy.indexPut_(row, value);
          weights[name] = copy;
        }
        mx.save(`${dir}/model.safetensors`, weights);
      }));
    return await mx.lm.load(dir, typeof where === "string" ? { device } : { devices: where });
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}
