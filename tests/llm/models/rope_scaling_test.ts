/**
 * Rotary positions with the scalings that configs ask for, against values of mlx-lm. Pairs of neighbours against pairs of halves, which are
 * the same model where rows of queries and keys have other places.
 */

import { assert, assertAlmostEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import type { RopeScaling } from "../../../src/llm/config/rope.ts";
import { initializeRope } from "../../../src/llm/layers/rope.ts";
import type { Weights } from "../../../src/llm/checkpoint/weights.ts";
import { writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { changeTensors } from "../../support/models/changed_checkpoints.ts";
import { nmse } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the library outside of the tests, which count resources

// deno-fmt-ignore
const CASES: readonly (readonly [RopeScaling, readonly number[]])[] = [
  [
    { type: "yarn", factor: 4, originalMaxPositionEmbeddings: 64, betaFast: 32, betaSlow: 1, mscale: 1, mscaleAllDim: 0 },
    [0.36638, -0.62086, 0.20456, 0.41775, 0.43576, -0.37581, 0.87661, 1.00021,
     0.58129, -2.20615, 1.22786, 1.54526, 1.96867, -0.44413, 2.11863, 2.14971],
  ],
  [ // mlx-lm's YarnRoPE with this factor in the place of its own, as transformers takes attention_factor
    { type: "yarn", factor: 4, originalMaxPositionEmbeddings: 64, betaFast: 32, betaSlow: 1, mscale: 1, mscaleAllDim: 0, attentionFactor: 0.75 },
    [0.24133, -0.40895, 0.13474, 0.27517, 0.28703, -0.24754, 0.57741, 0.65882,
     0.38289, -1.45316, 0.80877, 1.01784, 1.29673, -0.29254, 1.39551, 1.41598],
  ],
  [
    { type: "linear", factor: 4 },
    [-0.08694, -0.42391, 0.17966, 0.36689, -0.49238, 0.47597, 0.76989, 0.87843,
     -0.88445, -0.66741, 1.07836, 1.35713, -1.57091, 1.86033, 1.86068, 1.88798],
  ],
  [ // a wavelength that stays, one between, two that are stretched
    { type: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositionEmbeddings: 64 },
    [0.32177, -0.17931, 0.21506, 0.37095, 0.38271, 0.61164, 0.76076, 0.87673,
     0.51052, 0.21685, 1.1655, 1.36608, 1.72898, 1.96449, 1.80738, 1.88151],
  ],
  [
    { type: "llama3", factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositionEmbeddings: 4096 },
    [0.32177, 0.22514, -0.03813, 0.37095, 0.38271, -0.59629, 0.78965, 0.87673,
     0.51052, 0.10443, 0.51172, 1.36608, 1.72898, -1.97366, 2.08881, 1.88151],
  ],
];

for (const device of testDevices()) {
  Deno.test(`initializeRope() scales positions as mlx-lm does on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const [scaling, expected] of CASES) {
      const found = mx.tidy(() => {
        const rope = initializeRope({ adopt: (x: mx.Tensor) => x } as Weights, 8, 10000, scaling);
        return rope.forward(mx.divide(mx.arange(16).reshape(1, 1, 2, 8), 8), 37).toTypedArray();
      });
      expected.forEach((value, i) => assertAlmostEquals(Number(found[i]), value, 5e-5, `${scaling.type} ${i}`));
    }
  });
}

/** Rows of a matrix of queries or keys: of each head first those of even numbers, then the others. */
function halvesFirst(matrix: mx.Tensor, headDim: number): mx.Tensor {
  const [rows, columns] = matrix.shape;
  const heads = matrix.reshape([rows / headDim, headDim / 2, 2, columns]);
  return mx.contiguous(heads.transpose(0, 2, 1, 3).reshape([rows, columns]));
}

for (const device of testDevices().filter((name) => mx.deviceInfo(name).type !== "cpu")) { // software Vulkan takes 10 s
  Deno.test(`"rope_traditional" rotates neighbours on ${device}`, async () => {
    const folder = await Deno.makeTempDir();
    const headDim = 64;
    const config = {
      model_type: "llama",
      hidden_size: 128,
      intermediate_size: 192,
      num_hidden_layers: 2,
      num_attention_heads: 2,
      num_key_value_heads: 1,
      head_dim: headDim,
      rms_norm_eps: 1e-5,
      rope_theta: 10000,
      max_position_embeddings: 512,
      vocab_size: 4099,
      tie_word_embeddings: false,
    };
    const logits = async (traditional: boolean): Promise<Float32Array> => {
      const dir = `${folder}/${traditional}`;
      await writePublished(dir, { ...config, rope_traditional: traditional }, { bits: 16 });
      if (!traditional) {
        changeTensors(dir, (tensors) =>
          Object.fromEntries(
            Object.entries(tensors).map((
              [name, tensor],
            ) => [name, /[qk]_proj\.weight$/.test(name) ? halvesFirst(tensor, headDim) : tensor]),
          ));
      }
      const { model } = await mx.lm.load(dir, { device, dtype: mx.float32 });
      using _ = model;
      mx.setDefaultDevice(device);
      const out = mx.tidy(() => {
        using cache = model.makeCache();
        const first = model.forward(mx.array([[3, 14, 159, 26, 5]], mx.int32), cache);
        const next = model.forward(mx.array([[35]], mx.int32), cache);
        return mx.concatenate([first, next], 1).toTypedArray();
      });
      return out as Float32Array;
    };
    const found = await logits(true);
    const error = nmse(found, await logits(false));
    assert(error < 1e-9, `NMSE ${error}`);
    await Deno.remove(folder, { recursive: true });
  });
}
