/**
 * Prompts and steps of several sequences through layers whose mixers run op by op, gated delta nets and gated attention. What follows a mixer
 * is fused, and gives what the same graph gives op by op.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { PUBLISHED, writePublished } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { profile } from "../../../src/schedule/plan/profile.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** A small Qwen3.5: a delta net, attention, and a delta net. */
const LAYERS = 3;
const CONFIG = {
  ...PUBLISHED["qwen3.5-4b"],
  hidden_size: 128,
  intermediate_size: 192,
  num_hidden_layers: LAYERS,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 64,
  full_attention_interval: 2,
  linear_num_key_heads: 1,
  linear_num_value_heads: 16,
  linear_key_head_dim: 64,
  linear_value_head_dim: 64,
  vocab_size: 4099,
};

/** Sequences, the tokens of each that passes read, one after the other, and the bits of codes. */
const CASES:
  readonly (readonly [sequences: number, tokens: readonly number[], dtype: "float32" | "bfloat16", bits: number])[] = [
    [1, [20, 9], "float32", 4],
    [1, [20], "bfloat16", 4],
    [8, [1, 1], "float32", 4],
    [1, [20], "float32", 6], // in a width that kernels read first
  ];

interface Found {
  readonly values: Readonly<Record<"logits" | "states", Float32Array>>;
  readonly calls: ReadonlyMap<string, number>;
}

/** The logits of the last pass and the states after it, and how often each kernel ran. */
async function read(
  model: mx.lm.LanguageModel,
  device: string,
  regions: "on" | "off",
  [sequences, passes]: (typeof CASES)[number],
): Promise<Found> {
  using _options = withOptions({ regions, matrices: hasMatrices(device) ? "auto" : "emulated" });
  using cache = model.makeCache(sequences);
  const values = { logits: new Float32Array(), states: new Float32Array() };
  const floats = (x: mx.Tensor): Float32Array => x.astype(mx.float32).toTypedArray() as Float32Array;
  const { kernels } = await profile(() => {
    passes.forEach((tokens, pass) =>
      mx.tidy(() => {
        const ids = Int32Array.from(
          { length: sequences * tokens },
          (_, i) => (i * 1237 + pass * 77) % CONFIG.vocab_size,
        );
        const logits = model.forward(mx.array(ids).reshape(sequences, tokens), cache);
        mx.eval(logits, ...cache.state);
        values.logits = Float32Array.from(floats(logits));
        values.states = Float32Array.from(cache.buffers.states!.flatMap((state) => [...floats(state)]));
      })
    );
    return Promise.resolve();
  }, { device, timed: false });
  const calls = new Map<string, number>();
  for (const { kernel, calls: n } of kernels) calls.set(kernel, (calls.get(kernel) ?? 0) + n);
  return { values, calls };
}

for (const device of DEVICES) {
  for (const c of CASES) {
    const [sequences, passes, dtype, bits] = c;
    const what = `${passes} tokens of ${sequences} sequences`;
    Deno.test(`${what} are fused after mixers, ${dtype} of ${bits} bits, on ${device}`, async () => {
      const folder = await Deno.makeTempDir();
      await writePublished(`${folder}/model`, CONFIG, { groupSize: 64, bits });
      mx.setDefaultDevice(device);
      const run = async (regions: "on" | "off", as: "float32" | "bfloat16"): Promise<Found> => {
        const { model } = await mx.lm.load(`${folder}/model`, { device, dtype: mx[as] });
        using _model = model;
        return await read(model, device, regions, c);
      };
      const expected = await run("off", "float32");
      const found = await run("on", dtype);
      assertEquals(expected.calls.get("add_norm"), undefined);
      const count = (name: string): number =>
        [...found.calls].reduce((sum, [kernel, n]) => kernel.startsWith(name) ? sum + n : sum, 0);
      // Before each layer, after each mixer, and before the head.
      assertEquals(count("add_norm"), (2 * LAYERS + 1) * passes.length, [...found.calls.keys()].join());
      assertEquals(count("coopmat_gated"), LAYERS * passes.length);
      // The products that read a norm are one; two more are those after mixers, and one the head.
      assertEquals(count("coopmat_matmul") + count("quantized"), (3 * LAYERS + 1) * passes.length);
      // Op by op rounds activations to bfloat16 after each op, so it is farther from float32.
      const rounded = dtype === "bfloat16" ? await run("off", dtype) : undefined;
      for (const what of ["logits", "states"] as const) {
        const error = nmse(found.values[what], expected.values[what]);
        const most = rounded ? nmse(rounded.values[what], expected.values[what]) : 1e-5;
        assert(error <= most, `${what}: NMSE ${error}, not up to ${most}`);
      }
      await Deno.remove(folder, { recursive: true });
    });
  }
}
