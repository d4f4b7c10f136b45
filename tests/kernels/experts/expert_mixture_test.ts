/**
 * A layer of experts of many rows against float64, beside its definition in primitives, and the dispatches that it takes on a GPU. On one
 * without cooperative matrices they are emulated.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { type ExpertLayer, expertMixture } from "../../../src/array/quantized/sorted_experts.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../../src/graph/dtype.ts";
import type { ExpertUnit } from "../../../src/graph/experts.ts";
import type { QuantizationMode } from "../../../src/graph/quantization.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { hasMatrices } from "../../support/devices/matrices.ts";
import { assertClose, pack, unpack } from "../../support/oracles/kernel_values.ts";
import { choicesOf, expectedOf, matricesOf, orderOf, random, unitOf } from "../../support/oracles/sorted_experts.ts";

interface LayerCase {
  readonly mode: "affine" | "mxfp4";
  readonly bits?: number;
  readonly unit: ExpertUnit;
  readonly dtype: Dtype;
  readonly bias?: boolean;
  /** The largest number of a row. Default 1. */
  readonly reach?: number;
  readonly sizes: readonly [R: number, E: number, k: number, H: number, N: number];
}

/** Weights that share a scale. */
const GROUP = 32;
type Shapes = readonly (readonly [n: number, k: number])[];
const shapesOf = ({ sizes: [, , , H, N] }: LayerCase): Shapes => [[N, H], [N, H], [H, N]];

const LAYERS: readonly LayerCase[] = [
  { mode: "affine", unit: "silu", dtype: bfloat16, reach: 256, sizes: [37, 5, 3, 128, 96] }, // units beyond float16
  { mode: "affine", bits: 8, unit: "geluTanh", dtype: float16, sizes: [20, 40, 2, 64, 64] },
  { mode: "mxfp4", unit: "clipped", dtype: float32, bias: true, sizes: [70, 3, 2, 96, 160] },
];

/** Bits of a case, and the dtype of the scales of affine codes. */
const formatOf = ({ bits = 4, dtype }: LayerCase): { bits: number; scales: Dtype } => ({
  bits,
  scales: dtype === float32 ? float16 : dtype,
});

/** The layer on the device: gate, up and down of these shapes from what {@link matricesOf} and float64 read. */
function layerOf(
  one: LayerCase,
  shapes: Shapes,
  stacks: readonly ReturnType<typeof matricesOf>[],
  biases: readonly ArrayLike<number>[],
): ExpertLayer {
  const { mode, dtype, sizes: [, E] } = one;
  const { bits, scales: stored } = formatOf(one);
  const [gate, up, down] = shapes.map(([n], i) => {
    const [weight, scales, shifts] = stacks[i].parts.map((part, p) => {
      if (!part) return null;
      if (p === 0 || mode !== "affine") return mx.array(part).reshape(E, n, -1);
      return mx.array([...unpack(stored, part as Uint16Array)], float32).astype(stored).reshape(E, n, -1);
    });
    const bias = one.bias ? mx.array([...Array.from(biases[i])], float32).reshape(E, n).astype(dtype) : undefined;
    const format = { mode: mode as QuantizationMode, bits, groupSize: GROUP };
    return { weight: weight!, scales: scales!, biases: shifts, format, bias };
  });
  return { gate, up, down };
}

for (const device of testDevices()) {
  for (const one of LAYERS) {
    const { mode, bits = 4, unit, dtype, bias, reach = 1, sizes: [R, E, chosen, H] } = one;
    Deno.test(`${device}: a layer of ${E} experts of ${R} rows, ${mode} ${bits}, agrees with float64`, async () => {
      mx.setDefaultDevice(device);
      const shapes = shapesOf(one);
      const stacks = shapes.map(([n, k]) => matricesOf(E, { mode, group: GROUP, ...formatOf(one), counts: [], n, k }));
      const biases = shapes.map(([n]) => unpack(dtype, pack(dtype, random(bias ? E * n : 0))));
      const x = unpack(dtype, pack(dtype, random(R * H).map((value) => reach * value)));
      const { choice, weights } = choicesOf(R, chosen, E);
      const experts = choice.filter((_, i) => i % (2 * chosen) < chosen);
      const counts = Array.from({ length: E }, (_, e) => experts.filter((expert) => expert === e).length);
      const { order } = orderOf(experts, E, 16);
      const sumsOf = (i: number, from: readonly number[], left: Uint32Array): number[] => {
        const [n, k] = shapes[i];
        const sums = expectedOf({ counts, n, k }, from, left, stacks[i].numbers);
        const out = new Array(R * chosen * n).fill(0);
        sums.forEach((sum, at) => {
          const place = order[Math.floor(at / n)];
          out[place * n + at % n] = sum + (bias ? biases[i][experts[place] * n + at % n] : 0);
        });
        return out;
      };
      const rows = Uint32Array.from(order, (i) => Math.floor(i / chosen));
      const [gates, ups] = [0, 1].map((i) => sumsOf(i, x, rows));
      const units = gates.map((gate, i) => unitOf(unit, gate, ups[i]));
      assertEquals(units.some((value) => Math.abs(value) > 65504), reach > 1);
      const each = sumsOf(2, units, Uint32Array.from(order));
      const expected = Float64Array.from({ length: R * H }, (_, at) => {
        const [row, h] = [Math.floor(at / H), at % H];
        return weights[row].reduce((sum, w, i) => sum + w * each[(row * chosen + i) * H + h], 0);
      });
      for (const fuse of [true, false]) {
        using _ = withOptions({ fuse, ...(hasMatrices(device) ? {} : { matrices: "emulated" }) });
        let found: ArrayLike<number> = [];
        const kernels = await kernelsOf(device, () => {
          mx.tidy(() => {
            const layer = layerOf(one, shapes, stacks, biases);
            const given = mx.array([...x], float32).reshape(R, H).astype(dtype);
            const y = expertMixture(given, mx.array(choice, float32).reshape(R, 2 * chosen), layer, unit);
            assertEquals([y.shape, y.dtype], [[R, H], dtype]);
            found = (y.astype(float32).toTypedArray() as Float32Array).slice();
          });
          return Promise.resolve();
        });
        assertClose(found, expected, dtype === bfloat16 ? 1e-4 : dtype === float16 ? 1e-5 : 1e-6, `fused: ${fuse}`);
        if (!fuse || device.startsWith("wasm")) continue;
        const ours = [...kernels].filter((kernel) => /expert|half_rows|sort|gather|scatter|arange/.test(kernel));
        const products = ours.filter((kernel) => /^coopmat_experts_(direct|gated)/.test(kernel));
        assertEquals(products.length, 2);
        const converted = dtype === float16 ? [] : ["half_rows"];
        assertEquals(ours.toSorted(), [...products, "expert_mix", "expert_order", ...converted].toSorted());
      }
    });
  }
}

for (const device of testDevices()) {
  Deno.test(`${device}: the result of a row does not depend on the rows beside it`, () => {
    mx.setDefaultDevice(device);
    using _ = withOptions(hasMatrices(device) ? {} : { matrices: "emulated" });
    const one: LayerCase = { mode: "affine", unit: "silu", dtype: bfloat16, sizes: [400, 6, 2, 96, 64] };
    const [R, E, chosen, H] = one.sizes;
    const stacks = shapesOf(one).map(([n, k]) => matricesOf(E, { group: GROUP, ...formatOf(one), counts: [], n, k }));
    const [x, { choice }] = [random(R * H), choicesOf(R, chosen, E)];
    mx.tidy(() => {
      const layer = layerOf(one, shapesOf(one), stacks, []);
      const first = (rows: number): number[] => {
        const given = mx.array(x.slice(0, rows * H), float32).reshape(rows, H).astype(bfloat16);
        const own = mx.array(choice.slice(0, rows * 2 * chosen), float32).reshape(rows, 2 * chosen);
        return (expertMixture(given, own, layer, "silu").astype(float32).tolist() as number[][]).slice(0, 12).flat();
      };
      // By tiles of 8, of 16, of 32 and of more rows where a device has them.
      const expected = first(12);
      for (const rows of [18, 48, R]) assertEquals(first(rows), expected, `${rows} rows`);
    });
  });
}

Deno.test("a layer of experts of many rows comes back from an exported function, and has gradients", async () => {
  mx.setDefaultDevice(testDevices()[0]);
  const folder = await Deno.makeTempDir();
  mx.tidy(() => {
    const one: LayerCase = { mode: "affine", unit: "silu", dtype: float16, sizes: [12, 4, 2, 64, 32] };
    const [R, E, chosen, H] = one.sizes;
    const stacks = shapesOf(one).map(([n, k]) => matricesOf(E, { group: GROUP, ...formatOf(one), counts: [], n, k }));
    const { choice: drawn } = choicesOf(R, chosen, E);
    /** On the default device. */
    const made = (): { choice: mx.Tensor; layer: (x: mx.Tensor, given: mx.Tensor) => mx.Tensor } => {
      const own = layerOf(one, shapesOf(one), stacks, []);
      return {
        choice: mx.array(drawn, float32).reshape(R, 2 * chosen),
        layer: (x, given) => expertMixture(x, given, own, "silu"),
      };
    };
    const { choice, layer } = made();
    const values = random(R * H);
    const x = mx.array(values, float32).reshape(R, H);
    const expected = layer(x, choice).tolist();
    mx.exportFunction(`${folder}/layer`, (a: mx.Tensor, b: mx.Tensor) => [layer(a, b)], x, choice);
    using imported = mx.importFunction(`${folder}/layer`);
    assertEquals(([imported(x, choice)].flat(2)[0] as mx.Tensor).tolist(), expected);

    // On a GPU products of float16 are too coarse for differences.
    mx.setDefaultDevice("wasm");
    const here = made();
    const loss = (given: mx.Tensor): mx.Tensor => mx.sum(mx.square(here.layer(given, here.choice)));
    const gradient = mx.grad(loss)(mx.array(values, float32).reshape(R, H)).reshape(-1).tolist() as number[];
    const [at, step] = [137, 1e-2];
    const shifted = (by: number): number =>
      Number(loss(mx.array(values.with(at, values[at] + by), float32).reshape(R, H)).item());
    const slope = (shifted(step) - shifted(-step)) / (2 * step);
    assert(Math.abs(gradient[at] - slope) <= 2e-2 * Math.abs(slope) + 1e-4, `${gradient[at]} ${slope}`);
  });
  await Deno.remove(folder, { recursive: true });
});
