/**
 * Fused steps over pages of keys and values in 8 bits, beside the same steps op by op over the same pages. Numbers that the two round apart
 * may get neighbouring codes; all that was there stays as it is.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { KV_CODES } from "../../../src/graph/kv_codes.ts";
import { FUSED_LAYOUT, PAGE } from "../../../src/graph/kv_layout.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { shapeOf } from "../../support/models/decode_steps.ts";
import { type CodedRun, codedRun, type PagedBatch, pagedWrites } from "../../support/models/paged_steps.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

interface Case extends Omit<PagedBatch, "layout" | "steps" | "dtype"> {
  readonly what: string;
  readonly shape: ReturnType<typeof shapeOf>;
  readonly dtype?: mx.Dtype;
  readonly options: Partial<typeof options>;
  /** A kernel that must have run. */
  readonly kernel: RegExp;
  /** All layers in one dispatch, which needs a device that runs many workgroups at a time. */
  readonly persistent?: true;
}

const SMALL = { ...shapeOf(256, 192, 4, 2, 64), layers: 2 };
const WIDE = { ...shapeOf(1024, 1024, 8, 4, 64), layers: 2 };
const EDGES = [62, 63, 64, 65, 127, 128, 0, 1, 126, 190, 31, 32, 33, 129, 7, 100, 64];

const CASES: readonly Case[] = [
  {
    what: "one, in split_k kernels",
    shape: SMALL,
    columns: 3,
    positions: [126],
    options: { gemv: "off", launchMode: "barriers" },
    kernel: /^decode_qkv/,
  },
  {
    what: "one in float32 without norms of heads, in split_k kernels",
    shape: { ...shapeOf(256, 192, 4, 2, 64), family: "llama" },
    dtype: mx.float32,
    columns: 2,
    positions: [62],
    options: { gemv: "off", launchMode: "barriers" },
    kernel: /^decode_qkv/,
  },
  {
    what: "one with biases, in phases of the kernel of all layers",
    shape: { ...SMALL, family: "qwen2" },
    columns: 3,
    positions: [63],
    options: { gemv: "off", launchMode: "per_phase" },
    kernel: /^decode_layers$/,
  },
  {
    what: "one, in gemv kernels",
    shape: WIDE,
    columns: 3,
    positions: [127],
    options: { gemv: "on", launchMode: "barriers" },
    kernel: /^decode_gemv_phase/,
  },
  {
    what: "one after a long context, in gemv kernels",
    shape: { ...shapeOf(1024, 1024, 8, 4, 128), layers: 1 },
    columns: 11,
    positions: [639],
    options: { gemv: "on", launchMode: "barriers" },
    kernel: /^decode_gemv_phase/,
  },
  {
    what: "one, in the kernel of all layers",
    shape: SMALL,
    columns: 3,
    positions: [126],
    options: { gemv: "off", launchMode: "persistent" },
    kernel: /^decode_layers/,
    persistent: true,
  },
  {
    what: "one, in the gemv kernel of all layers",
    shape: { ...WIDE, layers: 3 },
    columns: 9,
    positions: [511],
    options: { gemv: "on", launchMode: "persistent" },
    kernel: /^decode_gemv_layers/,
    persistent: true,
  },
  {
    what: "eight in the kernel of all layers",
    shape: { ...shapeOf(1024, 1024, 8, 4, 128), layers: 3 },
    columns: 9,
    positions: [0, 63, 64, 65, 127, 300, 511, 560],
    options: { batched: "on", launchMode: "persistent" },
    kernel: /^batch_layers/,
    persistent: true,
  },
  {
    what: "two that share a page, in a grid of the kernels of one",
    shape: SMALL,
    columns: 3,
    positions: [64, 130],
    shared: 1,
    options: { batched: "off", gemv: "off", launchMode: "barriers" },
    kernel: /^decode_qkv/,
  },
  {
    what: "seven that share a page",
    shape: SMALL,
    columns: 4,
    positions: [64, 65, 127, 128, 190, 100, 129],
    shared: 1,
    options: { batched: "on", launchMode: "barriers" },
    kernel: /^batch_layers/,
  },
  {
    what: "sixteen with biases, positions of several rounds",
    shape: { ...shapeOf(128, 128, 4, 2, 64), family: "qwen2" },
    dtype: mx.bfloat16,
    columns: 9,
    positions: [...EDGES.slice(0, 12), 511, 512, 300, 573],
    options: { batched: "on", launchMode: "barriers" },
    kernel: /^batch_layers/,
  },
  {
    what: "tokens of one, across pages",
    shape: SMALL,
    columns: 3,
    positions: [58],
    tokens: 12,
    row: 7,
    options: { batched: "on", launchMode: "barriers" },
    kernel: /^batch_layers/,
  },
  {
    what: "seventeen as rows of products",
    shape: SMALL,
    columns: 4,
    positions: EDGES,
    options: { batched: "off", matrices: "emulated" },
    kernel: /^coopmat_qkv/,
  },
  {
    what: "a prompt's tokens in a page that has begun",
    shape: SMALL,
    dtype: mx.bfloat16,
    columns: 3,
    positions: [50],
    tokens: 40,
    row: 39,
    options: { batched: "off", matrices: "emulated" },
    kernel: /^coopmat_qkv/,
  },
];

/** Sequences of which the first one alone has room in its pages. */
const WITHOUT_ROOM: readonly Pick<Case, "what" | "positions" | "options" | "kernel">[] = [
  {
    what: "one, in split_k kernels",
    positions: [191],
    options: { gemv: "off", launchMode: "barriers" },
    kernel: /^decode_qkv/,
  },
  {
    what: "one, in gemv kernels",
    positions: [191],
    options: { gemv: "on", launchMode: "barriers" },
    kernel: /^decode_gemv/,
  },
  {
    what: "three",
    positions: [190, 192, -5],
    options: { batched: "on", launchMode: "barriers" },
    kernel: /^batch_layers/,
  },
  {
    what: "seventeen as rows of products",
    positions: [190, ...Array.from({ length: 16 }, (_, i) => i % 2 === 0 ? 192 + i : -4 - i)],
    options: { batched: "off", matrices: "emulated" },
    kernel: /^coopmat_qkv/,
  },
];

/**
 * NMSE of logits and of new keys and values, by the dtype of activations, to which these are rounded before they get codes. If all codes
 * were neighbours of the right ones, it would be 1e-3.
 */
const LIMITS = new Map<mx.Dtype, readonly [logits: number, rows: number]>([
  [mx.float32, [1e-6, 1e-5]],
  [mx.float16, [1e-4, 2e-4]],
  [mx.bfloat16, [5e-4, 6e-4]],
]);

/** Runs a case over a model that it makes. */
async function withModel(
  device: string,
  c: Pick<Case, "shape" | "dtype" | "options">,
  run: (model: mx.lm.LanguageModel, fused: Partial<typeof options>) => Promise<void>,
): Promise<void> {
  mx.setDefaultDevice(device);
  const matrices = hasMatrices(device) && c.options.matrices ? { matrices: "auto" as const } : {};
  const dir = await Deno.makeTempDir();
  try {
    await writeModel(`${dir}/model`, c.shape, { groupSize: 64 });
    const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: c.dtype ?? mx.float16 });
    await run(model, { regions: "on", ...c.options, ...matrices });
    model[Symbol.dispose]();
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

for (const device of DEVICES) {
  for (const c of CASES) {
    const { concurrent } = mx.withDevice(device, getBackend).limits;
    Deno.test({
      name: `sequences in pages of 8 bits, fused and op by op: ${c.what} on ${device}`,
      ignore: c.persistent && !concurrent,
      fn: () =>
        withModel(device, c, async (model, fusedOptions) => {
          const batch = { ...c, dtype: KV_CODES, layout: FUSED_LAYOUT, steps: 2 };
          let fused: CodedRun | undefined;
          const kernels = await kernelsOf(device, async () => {
            using _options = withOptions(fusedOptions);
            fused = await codedRun(model, batch);
          });
          assert([...kernels].some((kernel) => c.kernel.test(kernel)), [...kernels].join(" "));
          assert(!kernels.has("append_codes") && !kernels.has("gather_codes"), [...kernels].join(" "));
          using _options = withOptions({ regions: "off" });
          const expected = await codedRun(model, batch);
          const [logitsLimit, rowsLimit] = LIMITS.get(c.dtype ?? mx.float16)!;
          fused!.logits.forEach((logits, step) => {
            const error = nmse(logits, expected.logits[step]);
            assert(error <= logitsLimit, `logits of step ${step}: NMSE ${error}`);
          });
          fused!.after.forEach((after, i) => {
            const was = expected.before[i];
            const isNew = Array.from(expected.after[i], (x, at) => x !== was[at] || after[at] !== was[at]);
            const news = (pool: Float32Array): Float32Array => pool.filter((_, at) => isNew[at]);
            const error = nmse(news(after), news(expected.after[i]));
            assert(error <= rowsLimit, `new rows of pool ${i}: NMSE ${error}`);
          });
        }),
    });
  }

  for (const c of WITHOUT_ROOM) {
    Deno.test(`positions outside of a table are written nowhere in 8 bits: ${c.what} on ${device}`, async () => {
      const shape = { ...shapeOf(1024, 1024, 8, 4, 64), layers: 1 };
      await withModel(device, { ...c, shape }, async (model, fusedOptions) => {
        using _options = withOptions(fusedOptions);
        const batch = { positions: c.positions, columns: 3, layout: FUSED_LAYOUT, dtype: KV_CODES, steps: 3 };
        const kernels = await kernelsOf(device, async () => {
          const written = await pagedWrites(model, batch);
          const room = PAGE * batch.columns - c.positions[0];
          assertEquals(written, Array.from({ length: room }, (_, i) => [0, c.positions[0] + i]));
        });
        assert([...kernels].some((kernel) => c.kernel.test(kernel)), [...kernels].join(" "));
        assert(!kernels.has("append_codes"), [...kernels].join(" "));
      });
    });
  }
}
