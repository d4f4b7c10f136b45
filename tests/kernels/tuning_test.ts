/**
 * Records of tuning. They say which device takes which, and that lesser devices get what they can run. An H200 chooses the kernels that
 * golden/kernel_choices.json.gz lists: those of the constants before there were records, but for what was measured anew. kernelChoices()
 * writes it.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { withOptions } from "../../scripts/support/options.ts";
import { ROOT, run } from "../../scripts/tools.ts";
import type { BackendLimits } from "../../src/backend/backend.ts";
import { getBackend } from "../../src/backend/devices.ts";
import type { KernelName } from "../../src/backend/kernels.ts";
import { tiling } from "../../src/schedule/ops/matmul/matmul_tiles.ts";
import { tuningOf } from "../../src/schedule/tuning/choose.ts";
import { tuneDiscrete } from "../../src/schedule/tuning/discrete.ts";
import { H200 } from "../../src/schedule/tuning/h200.ts";
import { tuneIntegrated } from "../../src/schedule/tuning/integrated.ts";
import { testDevices } from "../support/devices/devices.ts";
import { kernelChoices } from "../support/devices/kernel_choices.ts";
import { unrunBackend } from "../support/devices/unrun_device.ts";

const NEEDS_MATRICES = /^(coopmat|batch)/;
const hasNoMatrices = (kernel: KernelName): boolean => NEEDS_MATRICES.test(kernel);

async function golden(): Promise<unknown> {
  const file = await Deno.open(`${ROOT}tests/golden/kernel_choices.json.gz`);
  return await new Response(file.readable.pipeThrough(new DecompressionStream("gzip"))).json();
}

Deno.test("an H200 chooses the kernels that are on file", async () => {
  const backend = unrunBackend();
  assertEquals(tuningOf(backend), H200);
  assertEquals(kernelChoices(backend), await golden());
});

Deno.test("a GPU of NVIDIA whose driver does not tell its multiprocessors chooses the same", async () => {
  const backend = unrunBackend({ computeUnits: 0 });
  assertEquals(tuningOf(backend).name, "discrete GPU of unknown compute units");
  assertEquals(kernelChoices(backend), await golden());
});

/** Devices as their drivers describe them, and their records. Shared memory in KiB. */
const DEVICES: readonly (readonly [string, Partial<BackendLimits>, boolean, string])[] = [
  ["RTX 4060 Laptop", { computeUnits: 24 }, true, "discrete GPU of 24 compute units"],
  ["an H200 without cooperative matrices", {}, false, "discrete GPU of 132 compute units"],
  ["GTX 1080", { computeUnits: 20 }, false, "discrete GPU of 20 compute units"],
  [
    "RX 7900 XTX",
    { vendorId: 0x1002, computeUnits: 96, sharedBytes: 65536 },
    false,
    "discrete GPU of 96 compute units",
  ],
  [
    "Arc A770",
    { vendorId: 0x8086, computeUnits: 0, sharedBytes: 65536 },
    false,
    "discrete GPU of unknown compute units",
  ],
  [
    "a card with 32 KiB",
    { vendorId: 1, computeUnits: 10, sharedBytes: 32768 },
    false,
    "integrated GPU of 10 compute units",
  ],
  [
    "Radeon 780M",
    { type: "integrated", vendorId: 0x1002, computeUnits: 12, sharedBytes: 65536 },
    true,
    "integrated GPU of 12 compute units",
  ],
  [
    "UHD Graphics",
    { type: "integrated", vendorId: 0x8086, computeUnits: 0, sharedBytes: 65536, subgroup: 8 },
    false,
    "integrated GPU of unknown compute units",
  ],
  ["lavapipe", { type: "cpu", vendorId: 0x10005, computeUnits: 0, subgroup: 8 }, false, "software Vulkan"],
  ["the CPU", { type: "wasm", vendorId: 0, computeUnits: 0, subgroup: 1, sharedBytes: 0 }, false, "WebAssembly"],
];

Deno.test("a device takes the record of its vendor, compute units, matrix units and shared memory", () => {
  for (const [name, limits, matrices, expected] of DEVICES) {
    assertEquals(tuningOf(unrunBackend(limits, matrices ? undefined : hasNoMatrices)).name, expected, name);
  }
});

Deno.test("a smaller discrete GPU is filled by fewer workgroups, in proportion to its compute units", () => {
  const tuning = tuneDiscrete(33); // a quarter of an H200
  const { tiles, attention, pagedAttention, reductions, decode, computeUnits, quantizedProducts } = tuning;
  assertEquals([computeUnits, tiles.targetWorkgroups, attention.targetWorkgroups], [33, 96, 33]);
  assertEquals([reductions.targetWorkgroups, decode.headWorkgroups], [512, { short: 132, long: 66 }]);
  assertEquals([quantizedProducts.partsBytesPerUs, pagedAttention.onMatrices.minKeyHeads], [875_000, 32]);
  // (64, 4096) x (4096, 1024) has 16 tiles of 64 x 64. On this device 6 workgroups share each, and 16, the most, on an H200.
  const splits = [33, 132].map((units) =>
    tiling(unrunBackend({ computeUnits: units }), 1, 64, 1024, 4096, true).splits
  );
  assertEquals(splits, [6, 16]);
});

/** Names of kernels with their threads, in the text of choices. */
const DISPATCH = /\b([a-z]\w+) [\dx]+ (\d+)\//g;

for (const subgroup of [8, 16, 64]) {
  Deno.test(`an integrated GPU with subgroups of ${subgroup} chooses kernels that it has, with threads that it has`, () => {
    const limits = { type: "integrated", vendorId: 0x8086, computeUnits: 0, sharedBytes: 32768, subgroup } as const;
    const backend = unrunBackend({ ...limits, maxThreads: 256, threads: 256 }, hasNoMatrices);
    const text = JSON.stringify(kernelChoices(backend));
    const dispatches = [...text.matchAll(DISPATCH)];
    assert(dispatches.length > 1000, `${dispatches.length} dispatches`);
    for (const [, kernel, threads] of dispatches) {
      assert(!NEEDS_MATRICES.test(kernel), kernel);
      assert(Number(threads) <= 256, `${kernel} has ${threads} threads`);
    }
    const wide = { ...limits, maxThreads: 512, sharedBytes: 65536 };
    const rows = kernelChoices(unrunBackend(wide, hasNoMatrices))["qwen3-0.6b"] as Record<string, unknown>;
    const { decoders } = rows as { readonly decoders: Readonly<Record<string, { readonly rows: readonly number[] }>> };
    assertEquals(
      decoders["4 bits"].rows,
      [1, 1],
      "row-parallel GEMV at any size, where its threads and shared memory fit",
    );
  });
}

Deno.test("VKMX_EXPLAIN=1 names the record of a device once", async () => {
  const code =
    'import * as mx from "./mod.ts"; for (let i = 0; i < 2; i++) mx.eval(mx.matmul(mx.ones([9, 9]), mx.ones([9, 9])));';
  const folder = await Deno.makeTempDir();
  try {
    const file = `${folder}/program.ts`;
    await Deno.writeTextFile(file, code.replace("./mod.ts", new URL("../../mod.ts", import.meta.url).href));
    const env = { VKMX_EXPLAIN: "1", VKMX_DEVICE: "wasm" };
    const { ok, stderr } = await run([Deno.execPath(), "run", "-A", "--no-check", "--no-lock", file], { env });
    assert(ok, stderr);
    assertEquals(stderr.split("\n").filter((line) => line.includes("kernels are chosen for: WebAssembly")).length, 1);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

const VULKAN = testDevices().filter((name) => name !== "wasm");
for (const name of VULKAN) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

for (const device of VULKAN) {
  Deno.test(`products and reductions agree under every record on ${device}`, () => {
    mx.setDefaultDevice(device);
    const [m, n, k] = [24, 96, 512];
    const values = (count: number): Float32Array =>
      Float32Array.from({ length: count }, (_, i) => (i * 7919 % 61 - 30) / 64);
    const [a, b] = [values(m * k), values(k * n)];
    const expected = Float32Array.from({ length: m * n }, (_, at) => {
      let sum = 0;
      for (let i = 0; i < k; i++) sum += a[Math.floor(at / n) * k + i] * b[i * n + at % n];
      return sum; // exact: multiples of 2^-12 below 2^12
    });
    for (const tuning of [H200, tuneDiscrete(8), tuneIntegrated(0)]) {
      using _options = withOptions({ tuning });
      const [product, sums] = mx.tidy(() => {
        const found = mx.matmul(mx.reshape(mx.array(a), [m, k]), mx.reshape(mx.array(b), [k, n]));
        return [found, mx.sum(mx.reshape(mx.array(a), [m, k]), 0)];
      });
      assertEquals(product.toTypedArray(), expected, tuning.name);
      const columns = Float32Array.from({ length: k }, (_, i) => a.reduce((s, v, at) => at % k === i ? s + v : s, 0));
      assertEquals(sums.toTypedArray(), columns, tuning.name);
      for (const array of [product, sums]) array[Symbol.dispose]();
    }
  });
}
