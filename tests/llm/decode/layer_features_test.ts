/**
 * Layers with what families add to plain ones: windows, none of the rotary positions, queries that grow, factors of what is added. Steps of
 * fused kernels of every kind are held to the same graph op by op, in which each of these makes a difference.
 */

import { assert } from "@std/assert";
import * as mx from "../../../mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { LayerAttention } from "../../../src/llm/config/decoder.ts";
import { type Architecture, modelOf } from "../../support/models/architectures.ts";
import { assertAgrees, type Batch, type Found, ofSequence, shapeOf, steps } from "../../support/models/decode_steps.ts";
import { launchModesOn, STEP_KINDS } from "../../support/models/step_kinds.ts";
import { isDrawn } from "../../support/draw_cases.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

const SHAPE = { ...shapeOf(256, 256, 4, 2, 64), layers: 3 };
const BATCH: Batch = { shape: SHAPE, groupSize: 64, dtype: mx.float32, capacity: 300, positions: [270, 31] };
/** Positions that a thread walks in rounds. */
const LONG: Partial<Batch> = { capacity: 2048, positions: [1900] };

const PLAIN: Architecture = { qkNorm: true, qkvBias: false, activation: "silu" };
const ROPE = { ropeTheta: 10000, ropeScaling: { type: "default" } } as const;
const WHOLE: LayerAttention = { window: undefined, rope: ROPE };
const alternate = (other: LayerAttention): readonly LayerAttention[] => [other, WHOLE, other];

/** Rotated features of a head of 64: the quads of pairs are no power of two. */
const ROTATED = 24;
const LONG_ROPE = {
  ropeTheta: 10000,
  ropeScaling: {
    type: "longrope",
    factors: Array.from({ length: ROTATED / 2 }, (_, pair) => 1 + pair / 8),
    mscale: 1.4,
  },
} as const;
const JOINED: Architecture = {
  ...PLAIN,
  qkNorm: false,
  joinedProjections: true,
  ropeDims: ROTATED,
  layerAttention: alternate({ window: undefined, rope: LONG_ROPE }),
};

/** As Gemma 3 has it. */
const POST: Architecture = {
  ...PLAIN,
  activation: "geluTanh",
  norms: "both",
  normOffset: 1,
  embeddingScale: 3,
  layerAttention: alternate({ window: 27, rope: { ...ROPE, ropeTheta: 500 } }),
};

interface Case {
  readonly architecture: Architecture;
  /** The same without some of its features, one after the other: their results are others. */
  readonly without: readonly Architecture[];
  readonly batch?: Partial<Batch>;
  /** The kinds of steps whose kernels know it; default all. */
  readonly kinds?: RegExp;
}

const ALL: Architecture = {
  ...PLAIN,
  layerAttention: alternate({ window: 27, rope: undefined }),
  queryGrowth: { beta: 0.7, context: 16 },
  residualScale: 0.25,
};
const CASES: Readonly<Record<string, Case>> = {
  "windows without positions, growing queries and a factor of what is added": {
    architecture: ALL,
    without: [
      { ...ALL, layerAttention: alternate({ window: 27, rope: ROPE }) },
      { ...ALL, layerAttention: alternate({ window: undefined, rope: undefined }) },
      { ...ALL, queryGrowth: undefined },
      { ...ALL, residualScale: undefined },
    ],
  },
  "joined projections, of whose heads a part is rotated, by wavelengths and a factor": {
    architecture: JOINED,
    without: [
      { ...JOINED, ropeDims: undefined, layerAttention: undefined },
      {
        ...JOINED,
        layerAttention: alternate({
          window: undefined,
          rope: { ...LONG_ROPE, ropeScaling: { ...LONG_ROPE.ropeScaling, mscale: 1 } },
        }),
      },
    ],
  },
  "norms after parts, offsets of norms and a factor of the embedding": {
    architecture: POST,
    without: [
      { ...POST, norms: "pre" },
      { ...POST, embeddingScale: 1 },
      { ...POST, activation: "silu" },
    ],
    kinds: /split_k/,
  },
  "offsets of norms": { architecture: { ...PLAIN, normOffset: 1 }, without: [], kinds: /split_k/ },
  "norms after parts, without norms of heads": {
    architecture: { ...POST, qkNorm: false, normOffset: undefined },
    without: [{ ...POST, qkNorm: false, norms: "pre", normOffset: undefined }],
    kinds: /split_k/,
  },
  "a factor of the embedding": {
    architecture: { ...PLAIN, embeddingScale: 12 },
    without: [PLAIN],
  },
  "norms of heads of which a part is rotated": {
    architecture: { ...PLAIN, ropeDims: ROTATED },
    without: [PLAIN],
  },
  "two windows over a long context, without norms of heads": {
    architecture: {
      ...PLAIN,
      qkNorm: false,
      layerAttention: alternate({ window: 1100, rope: ROPE }).with(1, { window: 300, rope: ROPE }),
    },
    without: [{ ...PLAIN, qkNorm: false, layerAttention: alternate({ window: 1100, rope: ROPE }) }],
    batch: LONG,
  },
};

for (const device of DEVICES.filter((name) => name !== "wasm")) {
  for (const [name, { architecture, without, batch: own, kinds = /./ }] of Object.entries(CASES)) {
    for (const [kind, { options, barriers, persistent, batch: other }] of STEP_KINDS.filter(([of]) => kinds.test(of))) {
      Deno.test(`steps ${kind} agree with op by op in layers with ${name} on ${device}`, async () => {
        using _regions = withOptions({ regions: "on" }); // caches are laid out as fused kernels have them
        mx.setDefaultDevice(device);
        const positions = own?.positions && other?.positions ? [...own.positions, 31, 5] : undefined;
        const batch = { ...BATCH, ...own, ...other, ...(positions && { positions }) };
        const sequences = kind === "of several sequences" ? [...batch.positions.keys()] : [0];
        const run = async (
          of: Architecture,
          body: (run: (regions: "on" | "off") => Promise<Found>) => Promise<void>,
        ) => {
          using model = await modelOf(of, SHAPE, { groupSize: BATCH.groupSize }, mx.float32);
          await body((regions) => steps(model, batch, mx.float32, sequences, { regions }));
        };
        await run(architecture, async (found) => {
          const expected = await found("off");
          for (const [i, less] of without.entries()) {
            await run(less, async (alike) => {
              const difference = nmse((await alike("off")).logits[0], expected.logits[0]);
              assert(difference > 1e-4, `feature ${i} makes no difference: ${difference}`);
            });
          }
          const modes = launchModesOn(device);
          // Phases of the kernel of all layers, where it is only there; those of gemv kernels exchange values within subgroups of 32.
          const phases = kind !== "with gemv kernels" && isDrawn(device, [name, kind, "phases"], 2);
          for (const launchMode of new Set([...modes, ...(phases ? ["per_phase"] as const : [])])) {
            using _options = withOptions({ ...options, launchMode });
            let fused = expected;
            const kernels = await kernelsOf(device, async () => void (fused = await found("on")));
            const kernel = launchMode === "barriers" ? barriers : persistent;
            assert([...kernels].some((name) => kernel.test(name)), `${launchMode}: ${[...kernels].join()}`);
            assert(!kernels.has("attention"), `${launchMode}: attention has a dispatch of its own`);
            sequences.forEach((sequence, at) => {
              const [one, alone] = [fused, expected].map((all) => ofSequence(all, at, sequences.length));
              assertAgrees(one, alone, batch, sequence, `${launchMode}, sequence ${sequence}`);
            });
          }
        });
      });
    }
  }
}

for (const device of DEVICES.filter((name) => name !== "wasm")) {
  Deno.test(`steps keep residuals of float16 in its range, as op by op, on ${device}`, async () => {
    using _regions = withOptions({ regions: "on" });
    mx.setDefaultDevice(device);
    const batch: Batch = { ...BATCH, dtype: mx.float16 };
    const run = async (clipsResidual: boolean, regions: "on" | "off"): Promise<Float32Array> => {
      const architecture = { ...POST, normOffset: undefined, postNormScale: 2e4, clipsResidual };
      using model = await modelOf(architecture, SHAPE, { groupSize: BATCH.groupSize }, mx.float16);
      return (await steps(model, batch, mx.float16, [0], { regions })).logits[0];
    };
    const expected = await run(true, "off");
    assert((await run(false, "off")).some(Number.isNaN), "no residual is beyond the range");
    const error = nmse(await run(true, "on"), expected);
    assert(error <= 1e-3, `NMSE ${error}`);
  });
}

const PROMPTS: Readonly<Record<string, Architecture>> = {
  "windows, growing queries and a factor of what is added": {
    ...ALL,
    layerAttention: alternate({ window: 27, rope: ROPE }),
  },
  "joined projections, of whose heads a part is rotated, by wavelengths and a factor": JOINED,
};

for (const device of DEVICES.filter((name) => name !== "wasm")) {
  for (const [name, architecture] of Object.entries(PROMPTS)) {
    Deno.test(`prompts agree with op by op in layers with ${name} on ${device}`, async () => {
      using _regions = withOptions({ regions: "on", matrices: hasMatrices(device) ? "auto" : "emulated" });
      mx.setDefaultDevice(device);
      using model = await modelOf(architecture, SHAPE, { groupSize: BATCH.groupSize }, mx.float32);
      const batch = { ...BATCH, tokens: 20, positions: [40] };
      const expected = await steps(model, batch, mx.float32, [0], { regions: "off" });
      let fused = expected;
      const kernels = await kernelsOf(device, async () => void (fused = await steps(model, batch, mx.float32, [0])));
      const needed = [/^coopmat_qkv/, /^coopmat_gated/, /^add_norm$/];
      for (const kernel of needed) {
        assert([...kernels].some((name) => kernel.test(name)), `no ${kernel}: ${[...kernels]}`);
      }
      assertAgrees(fused, expected, batch, 0, "prompt", [[mx.float32, 1e-5, 1e-5]]);
    });
  }
}
