/**
 * Support for lesser devices. Every Vulkan device is opened with masks that hide features and limits, and gives the same
 * answers by other kernels.
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import * as mx from "../../mod.ts";
import { KERNELS } from "../../src/backend/kernels.ts";
import { closeDevices, deviceInfo, devices, getBackend } from "../../src/backend/devices.ts";
import { kernelsOf } from "../support/devices/harness.ts";
import { vulkanDeviceInfo } from "../../ffi/vulkan.ts";
import { tuneIntegrated } from "../../src/schedule/tuning/integrated.ts";
import { testDevices } from "../support/devices/devices.ts";
import { GOLDEN, goldenLogits, TINY_DIR } from "../support/models/models.ts";
import { withOptions } from "../../scripts/support/options.ts";
import { ROOT, run } from "../../scripts/tools.ts";
import { nmse } from "../support/oracles/oracle.ts";
import { arange, assertFails, copy, INDICES, openWith, plan } from "../support/devices/vulkan_device.ts";

/** The hidden features, and the kind of accumulators that decoding then takes; undefined: op by op. */
const MASKS: readonly { readonly mask: string; readonly accumulators: "u64" | "i32" | undefined }[] = [
  { mask: "coopmat", accumulators: "u64" },
  { mask: "float16", accumulators: "u64" },
  { mask: "int64Atomics", accumulators: "i32" },
  { mask: "subgroup=4", accumulators: "u64" },
  { mask: "shuffle", accumulators: undefined },
  { mask: "maxThreads=128", accumulators: undefined },
  {
    mask: "coopmat-float16-int64Atomics-shuffle-maxThreads=128-sharedBytes=16384-maxGrid=65535",
    accumulators: undefined,
  },
];
/** The same with the record of integrated GPUs, and whether the row-parallel GEMV kernels then serve. */
const INTEGRATED: readonly { readonly mask: string; readonly gemv: boolean }[] = [
  { mask: "coopmat-float16-sharedBytes=32768", gemv: true },
  { mask: "coopmat-subgroup=4", gemv: true },
  { mask: "coopmat-maxThreads=256-sharedBytes=16384", gemv: false },
];
/** Tokens of the golden continuation that are compared. */
const SOME = 12;

const VULKAN = testDevices().filter((name) => name !== "wasm");

/** Runs the embedded model on a masked device, compares with the reference, and gives the kernels that ran. */
async function checkModel(device: string): Promise<Set<string>> {
  const { missing = [] } = deviceInfo(device);
  const gone = new Set(missing.flatMap(({ kernels }) => kernels));
  const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
  const kernels = await kernelsOf(device, async () => {
    const { ids } = GOLDEN[0];
    const logits = mx.tidy(() => model.forward(mx.array([[...ids]], mx.int32)).astype(mx.float32));
    const error = nmse(logits.toTypedArray() as Float32Array, goldenLogits(0));
    logits[Symbol.dispose]();
    assert(error < 1e-5, `logits: NMSE ${error}`);
    const found: number[] = [];
    for await (const r of mx.lm.streamGenerate(model, tokenizer, GOLDEN[0].prompt, { maxTokens: SOME })) {
      found.push(r.token);
    }
    assertEquals(found, GOLDEN[0].greedy.slice(0, SOME));
  });
  model[Symbol.dispose]();
  for (const kernel of kernels) assert(!gone.has(kernel), `${kernel} ran and is missing`);
  return kernels;
}

for (const base of VULKAN) {
  for (const { mask, accumulators } of MASKS) {
    const device = `${base}-${mask}`;

    Deno.test(`the embedded model gives the reference tokens and logits on ${device}`, async () => {
      using _options = withOptions({ regions: "on", launchMode: "barriers" });
      try {
        const kernels = await checkModel(device);
        const taken = ["u64", "i32"].filter((kind) => kernels.has(`decode_qkv_${kind}`));
        assertEquals(taken, accumulators ? [accumulators] : []);
      } finally {
        closeDevices();
      }
    });
  }

  for (const { mask, gemv } of INTEGRATED) {
    const device = `${base}-${mask}`;

    Deno.test(`the embedded model gives them with the record of integrated GPUs on ${device}`, async () => {
      using _options = withOptions({ regions: "on", launchMode: "barriers", tuning: tuneIntegrated(0) });
      try {
        const kernels = await checkModel(device);
        const matrices = [...kernels].filter((kernel) => /^(coopmat|batch)/.test(kernel));
        assertEquals([kernels.has("decode_gemv_phase"), matrices], [gemv, []], [...kernels].join(" "));
      } finally {
        closeDevices();
      }
    });
  }

  Deno.test({
    name: `the embedded model gives them with that record and subgroups of 16 on ${base}`,
    ignore: !deviceInfo(base).description.startsWith("llvmpipe"), // others have the subgroups that they have
    fn: async () => {
      const process = `${ROOT}tests/support/processes/integrated_process.ts`;
      const device = `${base}-coopmat-float16-sharedBytes=32768`;
      const env = { LP_NATIVE_VECTOR_WIDTH: "512" };
      const { ok, stdout, stderr } = await run([Deno.execPath(), "run", "-A", process, device, String(SOME)], { env });
      assert(ok, stderr);
      const { subgroup, tokens, kernels } = JSON.parse(stdout.trim().split("\n").at(-1)!);
      assertEquals([subgroup, tokens], [16, GOLDEN[0].greedy.slice(0, SOME)]);
      assert(kernels.includes("decode_gemv_phase"), kernels.join(" "));
    },
  });

  Deno.test(`grids beyond 65,535 workgroups are folded on ${base}`, () => {
    const device = `${base}-maxGrid=65535`;
    try {
      mx.withDevice(device, () => {
        const { limits } = getBackend();
        assertEquals(limits.maxGrid, 65535);
        const n = 65535 * limits.threads + 3 * limits.threads + 7;
        const x = mx.tidy(() => mx.multiply(mx.remainder(mx.arange(n).astype(mx.int32), 1009), 3));
        const values = x.toTypedArray() as Int32Array;
        assertEquals(values.length, n);
        assert(values.every((v, i) => v === i % 1009 * 3));
        x[Symbol.dispose]();
      });
    } finally {
      closeDevices();
    }
  });
}

for (const index of INDICES) {
  Deno.test(`a masked vulkan:${index} refuses what its limits forbid`, () => {
    const device = openWith({}, index, "", "maxGrid=1000,maxThreads=128");
    try {
      const buffer = { ...arange(0, 64_000, 0, 1) };
      device.planFree(device.planNew(plan(1, buffer)));
      assertFails("plan", () => device.planNew(plan(1, arange(0, 64_001, 0, 1))), "1001 workgroups along x", "1000");
      const wide = { ...copy(0, 1, 1), spec: [129, 4, 0] };
      assertFails("plan", () => device.planNew(plan(2, wide)), "129 threads");
    } finally {
      device.close();
    }
  });

  Deno.test(`vkrt_device_info() of vulkan:${index} tells what a mask leaves, and why kernels are missing`, () => {
    const whole = vulkanDeviceInfo(index);
    for (const feature of whole.features) {
      const { features, missingKernels } = vulkanDeviceInfo(index, feature);
      assert(!features.includes(feature) && features.every((name) => whole.features.includes(name)), feature);
      for (const kernel of Object.keys(whole.missingKernels)) assert(kernel in missingKernels, kernel);
    }
    const masked = vulkanDeviceInfo(index, "int64Atomics,maxThreads=128,sharedBytes=16384,maxGrid=777");
    assertEquals([masked.maxThreads, masked.sharedBytes, masked.maxGrid[0]], [128, 16384, 777]);
    assertStringIncludes(masked.missingKernels.decode_qkv_u64, "64-bit atomics");
    assertStringIncludes(vulkanDeviceInfo(index, "shuffle").missingKernels.decode_qkv_i32, "shuffles");
    for (const [kernel, reason] of Object.entries(whole.missingKernels)) {
      assert(kernel in KERNELS && reason.length > 10, `${kernel}: ${reason}`);
    }
    for (
      const mask of [
        "teleport",
        "maxThreads=0",
        "maxThreads=",
        "maxGrid=4294967296",
        "subgroup=3",
        "subgroup=4096",
        "=1",
        "coopmat=",
      ]
    ) {
      assertFails("argument", () => vulkanDeviceInfo(index, mask), mask, "int64Atomics", "maxThreads=");
    }
  });

  Deno.test(`getBackend() takes vulkan:${index} behind masks as devices of their own`, () => {
    const [plain, masked] = [`vulkan:${index}`, `vulkan:${index}-int64Atomics-maxThreads=128`].map((name) =>
      getBackend(name)
    );
    try {
      assert(plain !== masked && getBackend(masked.name) === masked);
      assertEquals(masked.limits.maxThreads, 128);
      assert(!masked.has("decode_qkv_u64"));
      assert(devices().every(({ name }) => name !== masked.name));
      assertFails("device", () => getBackend(`vulkan:${index}-nothing`), "nothing");
    } finally {
      closeDevices();
    }
  });
}
