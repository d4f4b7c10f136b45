/**
 * Products of rows that are sorted by expert on cooperative matrices, and emulated without them, against float64 loops. On a device without
 * cooperative matrices the tests of the former are ignored by name.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import type { Backend } from "../../../src/backend/backend.ts";
import type { KernelName } from "../../../src/backend/kernels.ts";
import { bfloat16, float16, float32 } from "../../../src/graph/dtype.ts";
import { MODE_CODES } from "../../../src/schedule/ops/matmul/dequantize.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { drawSome } from "../../support/draw_cases.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf, kernelTest, runKernel } from "../../support/devices/harness.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { assertClose, pack, unpack } from "../../support/oracles/kernel_values.ts";
import {
  type Case,
  DEFAULTS,
  expectedOf,
  expertsOf,
  matricesOf,
  random,
  tilesOf,
} from "../../support/oracles/sorted_experts.ts";

kernelTest("expert_tiles() cuts the rows of each expert into tiles", (backend) => {
  const many = Array.from({ length: 300 }, (_, e) => e % 7 === 0 ? 0 : e * 5 % 40);
  for (const counts of [[1], [0, 0, 5], [64, 0, 65, 63, 0], many]) {
    for (const [height, threads] of [[16, 64], [64, 256]]) {
      const indices = expertsOf(counts);
      const length = Math.floor(indices.length / height) + Math.min(counts.length, indices.length);
      const tiles = new Uint32Array(2 * length).fill(7);
      runKernel(backend, "expert_tiles", {
        spec: { THREADS: threads, HEIGHT: height },
        push: { rows: indices.length, experts: counts.length, tiles: length },
        buffers: { indices, tiles },
        grid: 1,
      });
      assertEquals([...tiles], tilesOf(counts, height, length), `${counts.length} experts, tiles of ${height}`);
    }
  }
}, ["expert_tiles"]);

function product(backend: Backend, kernel: KernelName, height: number, c: Case): void {
  const { counts, n, k, mode = "affine", scales: scalesDtype = float16, x: dtype = float16, out: outDtype = float32 } =
    c;
  const [bits, group] = [c.bits ?? DEFAULTS[mode]![0], c.group ?? DEFAULTS[mode]![1]];
  const what = `${kernel} ${JSON.stringify({ ...c, x: dtype.name, out: outDtype.name, scales: scalesDtype.name })}`;
  const rows = counts.reduce((a, b) => a + b);
  const { parts, numbers } = matricesOf(counts.length, { ...c, bits, group });
  // Rows in blocks of 16 differ by powers of two: each has its own scale then.
  const x = unpack(
    dtype,
    pack(dtype, random(rows * k).map((v, i) => dtype === float16 ? v : v * 2 ** (i / k / 16 & 7))),
  );
  const left = Uint32Array.from({ length: rows }, (_, i) => c.permuted ? (7 * i + 3) % rows : i);
  let half = new Uint16Array(pack(float16, x).buffer);
  const powers = new Float32Array(Math.ceil(rows / 16));
  if (dtype !== float16) {
    half = new Uint16Array(rows * k);
    runKernel(backend, "half_rows", {
      spec: { THREADS: 64, DTYPE_X: dtype.code, BLOCK: 16, TERMS: 1, DTYPE_OUT: float16.code },
      push: { rows, cols: k },
      buffers: { x: pack(dtype, x), out: half, powers },
      grid: powers.length,
    });
  }
  const length = Math.floor(rows / height) + Math.min(counts.length, rows);
  const out = pack(outDtype, new Array(rows * n).fill(7));
  const [codes, scales, biases] = parts;
  runKernel(backend, kernel, {
    spec: {
      THREADS: 128,
      BITS: bits,
      GROUP: group,
      DTYPE_SCALES: (mode === "affine" ? scalesDtype : mx.uint8).code,
      MODE: MODE_CODES[mode],
      SCALED: dtype === float16 ? 0 : 1,
      DTYPE_OUT: outDtype.code,
    },
    push: { n, k, x_rows: rows },
    buffers: {
      x: half,
      ...(dtype === float16 ? {} : { powers }),
      codes: codes!,
      scales: scales!,
      ...(biases && { biases }),
      out,
      left,
      tiles: Uint32Array.from(tilesOf(counts, height, length)),
    },
    grid: [length, Math.ceil(n / 128), 1],
  });
  assertClose(unpack(outDtype, out), expectedOf(c, x, left, numbers), outDtype === bfloat16 ? 1e-5 : 1e-6, what);
}

/** Cases for tiles of so many rows. */
function casesOf(height: number): readonly Case[] {
  return [
    { counts: [3, 0, 17, 1], n: 128, k: 64 },
    { counts: [height, height + 1, 0, 2 * height - 1], n: 132, k: 160, group: 32, permuted: true, out: float16 },
    { counts: [0, 5], n: 37, k: 96, group: 32, x: float32 },
    { counts: [40, 9], n: 20, k: 128, x: bfloat16, out: bfloat16, scales: bfloat16, permuted: true },
    ...[2, 3, 5, 6].map((bits) => ({ counts: [2, 3], n: 40, k: 192, bits })),
    { counts: [2, 3], n: 40, k: 256, bits: 8, group: 128 },
    { counts: [2, 3], n: 40, k: 192, scales: float32 },
    ...(["mxfp4", "mxfp8", "nvfp4"] as const).map((mode) => ({ counts: [4, 1], n: 33, k: 96, mode })),
  ];
}

for (const [kernel, height] of [["16", 16], ["32", 32], ["64", 64], ["emulated", 16]] as const) {
  const name = `coopmat_experts_${kernel}` as KernelName;
  const needs: KernelName[] = kernel === "emulated" ? [name] : ["coopmat_map", name];
  kernelTest(`${name}() multiplies the rows of each expert`, (backend) => {
    for (const c of drawSome(backend.name, name, casesOf(height), 4)) product(backend, name, height, c);
  }, [...needs, "half_rows"]);
}

/** By which kernels: those of scales of 16 bits read their own codes. */
const PATHS = [[float32, /^coopmat_experts_(\d+|emulated)$/], [float16, /^coopmat_experts_direct_/]] as const;

for (const device of testDevices().filter((name) => name !== "wasm")) {
  for (const [dtype, expected] of PATHS) {
    Deno.test(`sorted rows of experts go through matrices on ${device}, with scales of ${dtype.name}`, async () => {
      mx.setDefaultDevice(device);
      const [rows, experts, n, k] = [66, 5, 256, 256];
      const { parts, numbers } = matricesOf(experts, { counts: [], n, k, scales: dtype });
      const counts = [20, 0, 1, 40, 5];
      const x = unpack(float16, pack(float16, random(rows * k)));
      using _options = withOptions(hasMatrices(device) ? {} : { matrices: "emulated" });
      let found = new Float32Array();
      const kernels = await kernelsOf(device, () => {
        mx.tidy(() => {
          const [codes, ...factors] = parts.map((part) => part!);
          const w = mx.array(codes).reshape(experts, n, -1);
          const [scales, biases] = factors.map((part) =>
            mx.array([...unpack(dtype, part as Uint16Array)], float32).astype(dtype).reshape(experts, n, -1)
          );
          const [given, right] = [mx.array(x, float32).reshape(rows, 1, k), mx.array(expertsOf(counts))];
          const sorted = { sortedIndices: true };
          const product = mx.gatherQmm(given, w, scales, biases, null, right, true, 64, 4, null, null, sorted);
          assertEquals(product.shape, [rows, 1, n]);
          found = Float32Array.from(product.toTypedArray() as Float32Array);
        });
        return Promise.resolve();
      });
      assert([...kernels].some((kernel) => expected.test(kernel)), [...kernels].join());
      const left = Uint32Array.from({ length: rows }, (_, i) => i);
      assertClose(found, expectedOf({ counts, n, k }, x, left, numbers), 1e-6, "sorted rows");
    });
  }
}
