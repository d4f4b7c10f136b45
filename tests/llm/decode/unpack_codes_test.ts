/**
 * Models of 2, 3, 5 and 6 bits in fused kernels, which read their codes in 4 or 8 bits. The codes are the same numbers. Steps, batches and
 * prompts agree with those op by op, which read the codes as they are.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ModelShape, writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { assertAgrees, type Batch, ofSequence, steps } from "../../support/models/decode_steps.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf, kernelTest, runKernel } from "../../support/devices/harness.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { nmse } from "../../support/oracles/oracle.ts";
import { steps as randomSteps } from "../../support/models/random_cache_steps.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Bits of codes and those that kernels read. */
const WIDTHS = [[2, 4], [3, 4], [5, 8], [6, 8]] as const;

/** Numbers as a stream of bits, lowest first. */
function packed(numbers: readonly number[], bits: number): Uint32Array {
  const stream = numbers.reduce((sum, n, i) => sum | BigInt(n) << BigInt(i * bits), 0n);
  return Uint32Array.from(
    { length: numbers.length * bits / 32 },
    (_, i) => Number(stream >> BigInt(32 * i) & 0xffffffffn),
  );
}

/** Bits of codes, those that kernels read, and what is added to each: symmetric codes are 2^(bits - 1) too large. */
const UNPACKED = [...WIDTHS.map(([bits, wide]) => [bits, wide, 0]), [3, 4, 4], [3, 8, 124], [6, 8, 96], [4, 8, 0]];

for (const [bits, wide, shift] of UNPACKED) {
  kernelTest(`unpack_codes() keeps numbers of ${bits} bits in ${wide}, ${shift} more`, (backend) => {
    for (const runs of [1, 3, 70]) {
      const numbers = Array.from({ length: 32 * runs }, (_, i) => (Math.imul(i + 1, 2_654_435_761) >>> 20) % 2 ** bits);
      const out = new Uint32Array(numbers.length * wide / 32);
      const count = numbers.length / 8;
      runKernel(backend, "unpack_codes", {
        spec: { BITS: bits, WIDE: wide, SHIFT: shift },
        push: { count },
        buffers: { codes: packed(numbers, bits), out },
        items: count,
      });
      assertEquals(out, packed(numbers.map((n) => n + shift), wide));
    }
  }, ["unpack_codes"]);
}

const { float16, float32 } = mx;
const SHAPE: ModelShape = {
  hidden: 512,
  intermediate: 512,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 128,
  tied: true,
  vocab: 4099,
};
const BATCH: Batch = { shape: SHAPE, groupSize: 64, dtype: float16, capacity: 64, positions: [31, 7, 12] };
/** The kernels of one sequence, and what asks for them. */
const ALONE = [["off", "decode_qkv"], ["on", "decode_gemv_phase"]] as const;

for (const device of DEVICES) {
  for (const [bits, wide] of WIDTHS) {
    Deno.test(`models of ${bits} bits take kernels of ${wide} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const dir = await Deno.makeTempDir();
      try {
        const before = mx.getActiveMemory();
        await writeModel(`${dir}/model`, { ...SHAPE, tied: bits !== 3 }, { groupSize: BATCH.groupSize, bits });
        const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: float32 });
        const under = async <T>(settings: Partial<typeof options>, run: () => Promise<T>): Promise<[T, string]> => {
          using _options = withOptions({ launchMode: "barriers", regions: "on", ...settings });
          let result: T | undefined;
          const kernels = await kernelsOf(device, async () => {
            result = await run();
          });
          return [result!, [...kernels].join(" ")];
        };
        const [expected] = await under({ regions: "off" }, () => randomSteps(model, SHAPE, 5, 3));
        for (const [gemv, kernel] of ALONE) {
          const [found, kernels] = await under({ gemv }, () => randomSteps(model, SHAPE, 5, 3));
          assertMatch(kernels, new RegExp(`${kernel}(?!.*quantized_matvec)`));
          for (const what of ["logits", "cache"] as const) {
            const error = nmse(found[what], expected[what]);
            // The random model of 5 bits answers to rounding most: kernels that read the same codes are 1.1e-6 apart there.
            assert(error <= (bits === 5 ? 2e-6 : 1e-6), `${kernel}, ${what}: NMSE ${error}`);
          }
        }
        if (wide === 4) {
          const all = BATCH.positions.keys().toArray();
          using _options = withOptions({ regions: "on" }); // caches lie as fused kernels have them, also for steps without
          const { model: half } = await mx.lm.load(`${dir}/model`, { device, dtype: float16 });
          const [found, kernels] = await under({ batched: "on" }, () => steps(half, BATCH, float16, all));
          assertMatch(kernels, /batch_layers(?!.*quantized_matvec)/);
          for (const i of all) {
            const alone = await steps(model, BATCH, float32, [i], { regions: "off" });
            assertAgrees(ofSequence(found, i, all.length), alone, BATCH, i, `sequence ${i}`);
          }
          half[Symbol.dispose]();
        }
        model[Symbol.dispose]();
        assertEquals(mx.getActiveMemory(), before); // the copies go with the codes
      } finally {
        await Deno.remove(dir, { recursive: true });
      }
    });

    Deno.test(`prompts of models of ${bits} bits take kernels of ${wide} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const dir = await Deno.makeTempDir();
      try {
        await writeModel(`${dir}/model`, BATCH.shape, { groupSize: BATCH.groupSize, bits });
        const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: float16 });
        const prompt = async (
          regions: "on" | "off",
        ): Promise<{ values: Float32Array; kernels: ReadonlySet<string> }> => {
          using _options = withOptions({ regions, ...(hasMatrices(device) ? {} : { matrices: "emulated" as const }) });
          let values = new Float32Array();
          const kernels = await kernelsOf(device, () => {
            const ids = mx.array([Array.from({ length: 40 }, (_, i) => 7 * i + 3)], mx.int32);
            using cache = model.makeCache();
            values = mx.tidy(() => Float32Array.from(model.forward(ids, cache).astype(float32).toTypedArray()));
            ids.dispose();
            return Promise.resolve();
          });
          return { values, kernels };
        };
        const [found, expected] = [await prompt("on"), await prompt("off")];
        assertMatch([...found.kernels].join(" "), /coopmat_gated/);
        const error = nmse(found.values, expected.values);
        assert(error <= 1e-5, `NMSE ${error}`);
        model[Symbol.dispose]();
      } finally {
        await Deno.remove(dir, { recursive: true });
      }
    });
  }
}
