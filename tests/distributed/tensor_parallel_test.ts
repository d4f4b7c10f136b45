/** Models of which each process has a part: logits, tokens and memory beside those of whole models. */

import { type ModelFormat, type ModelShape, writeModel } from "../../scripts/synthetic/synthetic.ts";
import { testDevices } from "../support/devices/devices.ts";
import { runChecks } from "../support/distributed/mpirun.ts";
import { needing } from "../support/needs.ts";

const CHECKS = new URL("../support/distributed/tensor_parallel_checks.ts", import.meta.url);

const SHAPE = { hidden: 256, intermediate: 512, layers: 2, heads: 8, kvHeads: 4, headDim: 32, tied: true, vocab: 4096 };

/** Models by their names. The first one has heads that four processes do not divide. */
const MODELS: Readonly<Record<string, readonly [ModelShape, ModelFormat]>> = {
  narrow: [{ ...SHAPE, layers: 1, kvHeads: 2 }, { groupSize: 64 }],
  qwen3: [{ ...SHAPE, family: "qwen3" }, { groupSize: 64, seed: 1 }],
  llama: [
    { ...SHAPE, family: "llama", tied: false, config: { attention_bias: true, mlp_bias: true } },
    { bits: 16, seed: 2 },
  ],
  qwen2: [{ ...SHAPE, family: "qwen2" }, { groupSize: 32, bits: 8, seed: 3 }],
};

/** The models that a number of processes try, after the narrow one. */
const TRIED: Readonly<Record<number, readonly string[]>> = { 2: ["qwen3", "llama", "qwen2"], 4: ["llama"] };

for (const device of testDevices()) {
  for (const ranks of device === "wasm" ? [2, 4] : [2]) {
    Deno.test(await needing(`models in parts of ${ranks} processes on ${device}`, "mpirun"), async () => {
      const folder = await Deno.makeTempDir();
      try {
        const names = ["narrow", ...TRIED[ranks]];
        for (const name of names) await writeModel(`${folder}/${name}`, ...MODELS[name]);
        const args = names.map((name) => `${folder}/${name}`);
        await runChecks(ranks, CHECKS, device, 5 * TRIED[ranks].length, args);
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    });
  }
}
