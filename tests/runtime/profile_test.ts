/**
 * Profiles: what is counted must be what ran, on every device, and counting must not change it.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import * as mx from "../../mod.ts";
import { DeviceLoop } from "../../src/array/compile/loop.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { testDevices } from "../support/devices/devices.ts";
import { TINY_DIR } from "../support/models/models.ts";
import { withOptions } from "../../scripts/support/options.ts";

/** A test on every device, the default one meanwhile. */
function deviceTest(name: string, body: (device: string) => Promise<void>): void {
  for (const device of testDevices()) {
    mx.withDevice(device, getBackend); // opened outside the test, which counts resources
    Deno.test(`${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      await body(device);
    });
  }
}

const STEPS = 3;
const LAYERS: number = JSON.parse(Deno.readTextFileSync(new URL("config.json", TINY_DIR))).num_hidden_layers;

const stored = (shape: number[], dtype: mx.Dtype = mx.float32): mx.Tensor => {
  const x = mx.ones(shape, dtype);
  mx.eval(x);
  return x;
};

deviceTest("profile() counts dispatches and bytes by op, and times them when asked", async (device) => {
  using x = stored([64, 32]);
  using w = stored([32, 16]);
  const work = (): void => mx.tidy(() => mx.eval(mx.softmax(mx.matmul(x, w).add(1), -1)));
  for (const timed of [true, false]) {
    const { kernels, submissions, runs, barriers } = await mx.profile(work, { timed });
    assertEquals([submissions, runs], [1, 1]);
    assert(kernels.every((k) => k.device === device && k.region === undefined && (k.nanoseconds > 0) === timed));
    const [product] = kernels.filter(({ op }) => op === "matmul");
    assertEquals([product.calls, product.bytes], [1, 4 * (64 * 32 + 32 * 16 + 64 * 16)]);
    const [sum] = kernels.filter(({ op }) => op === "elementwise");
    assertEquals([sum.calls, sum.bytes], [1, 4 * 2 * 64 * 16]);
    // Each dispatch waits for the one before, the first for earlier work, and the host where it sees the memory.
    const dispatches = kernels.reduce((n, { calls }) => n + calls, 0);
    assert(device === "wasm" ? barriers === 0 : [0, 1].includes(barriers - dispatches), `${barriers} barriers`);
  }
});

deviceTest("profile() counts every step of a submission", async () => {
  using count = stored([1]);
  using loop = new DeviceLoop({ count }, (state) => ({ count: mx.add(state.count, 1) }));
  const found = await mx.profile(async () => {
    loop.run(3);
    loop.run(4);
    await loop.done();
  });
  assertEquals([found.submissions, found.runs], [2, 7]);
  const calls = found.kernels.reduce((n, k) => n + k.calls, 0);
  const once = await mx.profile(() => {
    loop.run();
    return loop.done();
  });
  assertEquals(calls, 7 * once.kernels.reduce((n, k) => n + k.calls, 0));
  assertEquals(count.tolist(), [9]);
});

deviceTest("profile() says what ran on the CPU", async (device) => {
  const { onHost, fallbacks } = await mx.profile(() => mx.tidy(() => mx.eval(mx.exp(mx.arange(9)))));
  const software = mx.devices().find(({ name }) => name === device)?.type === "cpu";
  assertEquals(onHost, device === "wasm" || software ? [device] : []);
  assertEquals(fallbacks, []);
});

/**
 * How a short prompt is read: layer by layer, or at once by the kernels of several rows. The latter are the default
 * with matrix units.
 */
const PROMPTS = { "layer by layer": "off", "by the kernels of several rows": "on" } as const;
/** Dispatches of a layer in the kernels of several rows, with barriers. */
const PHASES = 5;

for (const [how, batched] of Object.entries(PROMPTS)) {
  deviceTest(`profile() tells a region from what ran op by op, and why that was, a prompt ${how}`, async (device) => {
    using _options = withOptions({ regions: "on", launchMode: "barriers", batched });
    const { model } = await mx.lm.load(TINY_DIR, { device });
    const cache = model.makeCache();
    const { kernels, fallbacks } = await mx.profile(async () => {
      const settings = { cache, sampler: mx.lm.makeSampler(), processors: [], contextSize: 0, prefillStepSize: 8 };
      for await (const _ of mx.lm.generateStep([1, 2, 3, 4], model, { ...settings, maxTokens: STEPS })) { /* runs */ }
    });
    const calls = (which: (row: mx.KernelTime) => boolean): number =>
      kernels.filter(which).reduce((sum, row) => sum + row.calls, 0);
    const of = (region: string, kernel: string): number =>
      calls((row) => row.region === region && row.kernel.startsWith(kernel));
    const fused = of("decoder step", "");
    assertEquals(fused > 0, device !== "wasm");
    assertEquals(fallbacks.some((line) => line.startsWith("decoder step: op by op, because ")), device === "wasm");
    // The layers of a prompt are fused on devices with matrix units, but for the last one, which is fused for the last token everywhere.
    const together = device !== "wasm" && batched === "on";
    const layered = of("prompt layer", "") + calls((row) => !row.region && row.op === "quantizedMatmul");
    assertEquals(layered > 0, !together);
    if (device !== "wasm") {
      assertEquals(of("decoder step", "batch_layers"), together ? PHASES * LAYERS : 0);
      assertEquals(of("prompt end", "decode_qkv"), together ? 0 : 1);
      assertEquals(of("decoder step", "decode_qkv"), (STEPS - 1) * LAYERS); // the prompt gives the first token
      assertEquals(mx.sumKernels(kernels, ["region"]).find(({ region }) => region === "decoder step")!.calls, fused);
      assert(calls(({ op }) => op === "layout") > 0, "weights in another layout");
    }
    cache.dispose();
    model[Symbol.dispose]();
  });
}

deviceTest("describeProfile() prints regions, ops, kernels and the host", async (device) => {
  const text = mx.describeProfile(await mx.profile(() => mx.tidy(() => mx.eval(mx.exp(mx.arange(1000))))));
  for (const title of ["region ", "op ", "kernel "]) assertMatch(text, new RegExp(`^${title}`, "m"));
  assertStringIncludes(text, `${device}  op by op`);
  assertMatch(text, /^elementwise +1 +[\d.]+ +[\d.]+ % +[\d.]+ +[\d.]+$/m);
  assertMatch(text, /^host: [\d.]+ ms lowering, [\d.]+ ms compiling, [\d.]+ ms enqueuing 1 submissions of 1 runs/m);
  assertMatch(text, /^not on the fast way: nothing$/m);
});

Deno.test("profile() ends with an error in the work", async () => {
  const error = await mx.profile(() => Promise.reject(new Error("mine")), { device: "wasm" }).catch((e) => e);
  assertEquals(error.message, "mine");
  mx.setDefaultDevice("wasm");
  const { submissions } = await mx.profile(() => {}, { timed: false });
  assertEquals(submissions, 0);
});
