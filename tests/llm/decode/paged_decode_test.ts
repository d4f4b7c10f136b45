/**
 * Fused steps over keys and values in pages. They give the same bits as over caches in which positions follow each other, whatever pages a
 * sequence has. Prefill GEMMs have another kernel of attention over pages, which rounds otherwise. Nothing is written
 * to pages of others.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeModel } from "../../../scripts/synthetic/synthetic.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { FUSED_LAYOUT, PAGE } from "../../../src/graph/kv_layout.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import type { options } from "../../../src/schedule/plan/options.ts";
import { type Architecture, modelOf } from "../../support/models/architectures.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { shapeOf } from "../../support/models/decode_steps.ts";
import { comparePaged, type PagedBatch, pagedWrites } from "../../support/models/paged_steps.ts";

const DEVICES = testDevices().filter((name) => name !== "wasm");
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

interface Case extends Omit<PagedBatch, "layout" | "steps" | "dtype"> {
  readonly what: string;
  readonly shape: ReturnType<typeof shapeOf>;
  readonly groupSize?: number;
  readonly dtype?: mx.Dtype;
  /** Layers other than those of Qwen3. */
  readonly architecture?: Architecture;
  readonly options: Partial<typeof options>;
  /** A kernel that must have run. */
  readonly kernel: RegExp;
  /** The largest distance (NMSE) where attention has a kernel of its own: a few roundings of the dtype. */
  readonly apart?: number;
  /** All layers in one dispatch, which needs a device that runs many workgroups at a time. */
  readonly persistent?: true;
}

const SMALL = { ...shapeOf(256, 192, 4, 2, 64), layers: 2 };
const EDGES = [62, 63, 64, 65, 127, 128, 0, 1, 126, 190, 31, 32, 33, 129, 7, 100, 64];

const ROPE = { ropeTheta: 10000, ropeScaling: { type: "default" } } as const;
/** Layers of which the first one sees few positions. */
const WINDOWED: Architecture = {
  qkNorm: true,
  qkvBias: false,
  activation: "silu",
  layerAttention: [40, undefined].map((window) => ({ window, rope: ROPE })),
};

const CASES: readonly Case[] = [
  {
    what: "one with a window, in split_k kernels",
    architecture: WINDOWED,
    shape: SMALL,
    columns: 3,
    positions: [126],
    options: { gemv: "off", launchMode: "barriers" },
    kernel: /^decode_qkv/,
  },
  {
    what: "one with a window, in gemv kernels",
    architecture: WINDOWED,
    shape: { ...shapeOf(256, 256, 4, 2, 64), layers: 2 },
    columns: 3,
    positions: [126],
    options: { gemv: "on", launchMode: "barriers" },
    kernel: /^decode_gemv_phase/,
  },
  {
    what: "seven with a window",
    architecture: WINDOWED,
    shape: SMALL,
    columns: 4,
    positions: [64, 5, 127, 128, 190, 100, 129],
    options: { batched: "on", launchMode: "barriers" },
    kernel: /^batch_layers/,
  },
  {
    what: "seventeen with a window as rows of products",
    architecture: WINDOWED,
    shape: SMALL,
    columns: 4,
    positions: EDGES,
    options: { batched: "off", matrices: "emulated" },
    kernel: /^coopmat_qkv/,
    apart: 4 * 2 ** -22,
  },
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
    positions: [63],
    options: { gemv: "off", launchMode: "barriers" },
    kernel: /^decode_qkv/,
  },
  {
    what: "one, in phases of the kernel of all layers",
    shape: SMALL,
    columns: 3,
    positions: [63],
    options: { gemv: "off", launchMode: "per_phase" },
    kernel: /^decode_layers$/,
  },
  {
    what: "one, in gemv kernels",
    shape: { ...shapeOf(1024, 1024, 8, 4, 64), layers: 2 },
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
    shape: { ...shapeOf(1024, 1024, 8, 4, 64), layers: 3 },
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
    what: "sixteen, positions of several rounds",
    shape: shapeOf(128, 128, 4, 2, 64),
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
    what: "tokens of several, across pages",
    shape: SMALL,
    columns: 3,
    positions: [58, 0, 125],
    tokens: 4,
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
    apart: 4 * 2 ** -22,
  },
  {
    what: "sixty-four that share two pages, as rows of products",
    shape: shapeOf(256, 128, 4, 2, 64),
    dtype: mx.bfloat16,
    columns: 3,
    positions: Array.from({ length: 64 }, (_, i) => 128 + i % 60),
    shared: 2,
    options: { batched: "off", matrices: "emulated" },
    kernel: /^coopmat_qkv/,
    apart: 4 * 2 ** -16,
  },
  {
    what: "a prompt's tokens in a page that has begun",
    shape: SMALL,
    columns: 3,
    positions: [50],
    tokens: 40,
    apart: 4 * 2 ** -22, // the last layer has one row of a prompt
    row: 39,
    options: { batched: "off", matrices: "emulated" },
    kernel: /^coopmat_qkv/,
  },
  {
    what: "a prompt's tokens after many others",
    shape: shapeOf(256, 128, 4, 2, 64),
    columns: 18,
    positions: [1000],
    apart: 4 * 2 ** -22,
    tokens: 33,
    row: 32,
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
    what: "one, in phases of the kernel of all layers",
    positions: [191],
    options: { gemv: "off", launchMode: "per_phase" },
    kernel: /^decode_layers$/,
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

for (const device of DEVICES) {
  for (const c of CASES) {
    const { concurrent } = mx.withDevice(device, getBackend).limits;
    const name = `sequences in pages are those in a row: ${c.what} on ${device}`;
    Deno.test({
      name,
      ignore: c.persistent && !concurrent,
      fn: async () => {
        mx.setDefaultDevice(device);
        const matrices = hasMatrices(device) && c.options.matrices ? { matrices: "auto" as const } : {};
        using _options = withOptions({ regions: "on", ...c.options, ...matrices });
        const dir = await Deno.makeTempDir();
        try {
          const { dtype = mx.float16, groupSize = 64 } = c;
          const written = async (): Promise<LanguageModel> => {
            await writeModel(`${dir}/model`, c.shape, { groupSize });
            return (await mx.lm.load(`${dir}/model`, { device, dtype })).model;
          };
          const model = await (c.architecture ? modelOf(c.architecture, c.shape, { groupSize }, dtype) : written());
          let logits: readonly Float32Array[] = [];
          const kernels = await kernelsOf(device, async () => {
            logits = await comparePaged(model, { ...c, dtype, layout: FUSED_LAYOUT, steps: 2 }, c.apart);
          });
          assert([...kernels].some((kernel) => c.kernel.test(kernel)), [...kernels].join(" "));
          assert(![...kernels].some((kernel) => kernel === "append_pages"), [...kernels].join(" "));
          assert(logits[1].every((x) => Number.isFinite(x)));
          assert(logits[1].some((x, at) => x !== logits[0][at]));
          model[Symbol.dispose]();
        } finally {
          await Deno.remove(dir, { recursive: true });
        }
      },
    });
  }

  for (const c of WITHOUT_ROOM) {
    Deno.test(`positions outside of a table are written nowhere: ${c.what} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const matrices = hasMatrices(device) && c.options.matrices ? { matrices: "auto" as const } : {};
      using _options = withOptions({ regions: "on", ...c.options, ...matrices });
      const dir = await Deno.makeTempDir();
      try {
        await writeModel(`${dir}/model`, { ...shapeOf(1024, 1024, 8, 4, 64), layers: 1 }, { groupSize: 64 });
        const { model } = await mx.lm.load(`${dir}/model`, { device, dtype: mx.float16 });
        const batch = { positions: c.positions, columns: 3, layout: FUSED_LAYOUT, dtype: mx.float16, steps: 3 };
        const kernels = await kernelsOf(device, async () => {
          const written = await pagedWrites(model, batch);
          const room = PAGE * batch.columns - c.positions[0];
          assertEquals(written, Array.from({ length: room }, (_, i) => [0, c.positions[0] + i]));
        });
        assert([...kernels].some((kernel) => c.kernel.test(kernel)), [...kernels].join(" "));
        assert(!kernels.has("append_pages"), [...kernels].join(" "));
        model[Symbol.dispose]();
      } finally {
        await Deno.remove(dir, { recursive: true });
      }
    });
  }
}
