/**
 * Kernels that a program brings, on every device. MLX's own tests of metal_kernel run in GLSL and TypeScript. Other
 * tests are about dtypes, strides, atomics, the kernel's place in graphs, and refusals.
 */

import { assert, assertEquals, assertInstanceOf, assertStringIncludes, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { testDevices } from "../support/devices/devices.ts";
import { lack } from "../support/needs.ts";

const { vulkanKernel } = mx.fast;
type Options = mx.fast.VulkanKernelOptions;
type Call = mx.fast.VulkanKernelCall;

/** Why kernels in GLSL are skipped on this machine, for names of tests. */
const NO_GLSL = await lack("glslc");

/** Tests on every device, and that no memory stays in use. */
function test(name: string, fn: (device: string) => void, on: (device: string) => boolean = () => true): void {
  for (const device of testDevices().filter(on)) {
    const why = isVulkan(device) ? NO_GLSL : "";
    Deno.test({ name: `${name} on ${device}${why}`, ignore: why !== "" }, () => {
      mx.setDefaultDevice(device);
      const backend = getBackend(device);
      mx.synchronize();
      const before = backend.liveObjects();
      mx.tidy(() => void fn(device));
      assertEquals(backend.liveObjects(), before, "buffers or Plans leaked");
    });
  }
}

const isVulkan = (device: string): boolean => device.startsWith("vulkan");
const close = (a: mx.AnyTensor, b: mx.AnyTensor, atol?: number): void =>
  assert(mx.allclose(a as mx.Tensor, b as mx.Tensor, 1e-5, atol).item(), `${a.tolist()} and ${b.tolist()}`);

/** One output like the first input, a thread an element. */
function like(x: mx.AnyTensor, more: Partial<Call> = {}): Call {
  return {
    inputs: [x as mx.Tensor],
    grid: [x.size, 1, 1],
    threadgroup: [64, 1, 1],
    outputShapes: [x.shape],
    outputDtypes: [x.dtype],
    ...more,
  };
}

const COPY: Options = {
  name: "copy",
  inputNames: ["a"],
  outputNames: ["out"],
  source: "uint elem = thread_position_in_grid.x; out[elem] = a[elem];",
  wasm: ([a], [out]) => void out.forEach((_, i) => out[i] = a[i]),
};

// ---- MLX's tests ----------------------------------------------------------------------------------------------------

test("test_custom_kernel_basic", () => {
  const a = mx.random.normal([2, 2]);
  const kernel = vulkanKernel({ ...COPY, name: "basic" });
  const [out] = kernel(like(a, { grid: [4, 1, 1], threadgroup: [2, 1, 1] }));
  assertEquals(out.tolist(), a.tolist());
});

test("test_custom_kernel_args", () => {
  const a = mx.random.normal([3, 6]);
  const c = mx.astype(mx.random.normal([2, 2]), mx.bfloat16);
  const kernel = vulkanKernel({
    name: "arg_test",
    inputNames: ["a", "b", "c", "d"],
    outputNames: ["out1", "out2"],
    source: `
      uint elem = thread_position_in_grid.x;
      T tmp = T(a[0]);
      if (e) {
        out1[elem] = a[1] + b[2] + to_float(c[3]) + d + f;
      } else {
        out1[elem] = 1;
      }
      out2[elem] = int(a[1] + b[2] + to_float(c[1]) - d);
    `,
    wasm([a, b, c, d], [out1, out2], { template: { e, f, T } }) {
      assertEquals(T, "bfloat16");
      const bfloat16 = (bits: number | bigint): number =>
        new Float32Array(Uint32Array.of(Number(bits) << 16).buffer)[0];
      const sum = Number(a[1]) + Number(b[2]);
      for (let i = 0; i < 6; i++) {
        out1[i] = e ? sum + bfloat16(c[3]) + Number(d[0]) + Number(f) : 1;
        out2[i] = sum + bfloat16(c[1]) - Number(d[0]);
      }
    },
  });
  const call = (e: boolean): mx.AnyTensor[] =>
    kernel({
      inputs: [a, mx.array([3, 4, 5]), c, 7.3],
      template: [["e", e], ["f", 3], ["T", mx.bfloat16]],
      grid: [6, 1, 1],
      threadgroup: [2, 1, 1],
      outputShapes: [[3, 2], [3, 2]],
      outputDtypes: [mx.float32, mx.int32],
    });
  const [a1, c1, c3] = [a.index(0, 1), c.index(0, 1), c.index(1, 1)].map((x) => Number(x.item()));
  const [one, two] = call(true);
  close(one, mx.full([3, 2], a1 + 5 + c3 + 7.3 + 3));
  close(two, mx.full([3, 2], Math.trunc(a1 + 5 + c1 - 7.3), mx.int32));
  assertEquals(call(false)[0].tolist(), [[1, 1], [1, 1], [1, 1]]);
});

test("test_custom_kernel_strides", () => {
  const a = mx.tile(mx.random.normal([3, 6]).index(mx.Slice(null, null, 2)), [4, 1]);
  const view = mx.transpose(mx.random.normal([5, 4, 3]).index(mx.Slice(1, 4)), [2, 0, 1]);
  const backwards = mx.random.normal([4, 3]).index(mx.Slice(null, null, -1));
  for (const x of [a, view, backwards] as mx.AnyTensor[]) {
    for (const contiguous of [true, false]) {
      const kernel = vulkanKernel({
        name: `myexp_${contiguous}`,
        inputNames: ["inp"],
        outputNames: ["out"],
        source: `uint elem = thread_position_in_grid.x;
          uint loc = ${contiguous ? "elem" : "elem_to_loc(elem, inp_shape, inp_strides, inp_ndim)"};
          T tmp = inp[loc];
          out[elem] = exp(tmp) * 32;`,
        ensureRowContiguous: contiguous,
        wasm([inp], [out], { shapes: [shape], strides: [strides] }) {
          for (let i = 0; i < out.length; i++) {
            let [rest, at] = [i, 0];
            for (let axis = shape.length - 1; axis >= 0; axis--) {
              at += rest % shape[axis] * strides[axis];
              rest = Math.floor(rest / shape[axis]);
            }
            out[i] = Math.exp(Number(inp[at])) * 32;
          }
        },
      });
      const [out] = kernel(like(x, { template: { T: mx.float32 }, threadgroup: [256, 1, 1] }));
      close(out, mx.multiply(mx.exp(x as mx.Tensor), 32));
    }
  }
});

test("test_custom_kernel_helper", () => {
  const a = mx.random.normal([2, 2]);
  const kernel = vulkanKernel({
    name: "helper",
    inputNames: ["a"],
    outputNames: ["out1"],
    header: "float do_exp(float x) { return exp(x); }",
    source: "uint elem = thread_position_in_grid.x; out1[elem] = do_exp(a[elem]);",
    wasm: ([a], [out]) => void out.forEach((_, i) => out[i] = Math.exp(Number(a[i]))),
  });
  close(kernel(like(a, { threadgroup: [2, 1, 1] }))[0], mx.exp(a));
});

test("test_custom_kernel_attributes", () => {
  const kernel = vulkanKernel({
    name: "test_fun",
    inputNames: ["a"],
    outputNames: ["out"],
    source: "out[0] = threads_per_threadgroup.x;",
    wasm: (_, [out], { threadgroup }) => void (out[0] = threadgroup[0]),
  });
  const call = like(mx.zeros([1, 1]), { grid: [2, 1, 1], threadgroup: [2, 1, 1], outputDtypes: [mx.uint32] });
  assertEquals(kernel(call)[0].item(), 2);
  // A workgroup is no larger than the grid, as Metal has it.
  assertEquals(kernel({ ...call, threadgroup: [64, 1, 1] })[0].item(), 2);
});

test("test_custom_kernel_caching, same name and different source in one evaluation", () => {
  const a = mx.arange(32, mx.float32);
  const run = (source: string, value: (x: number) => number): mx.AnyTensor =>
    vulkanKernel({
      name: "my_kernel",
      inputNames: ["inp"],
      outputNames: ["out"],
      source: `uint e = thread_position_in_grid.x; out[e] = ${source};`,
      wasm: ([inp], [out]) => void out.forEach((_, i) => out[i] = value(Number(inp[i]))),
    })(like(a))[0];
  const [twice, more] = [run("inp[e] * 2.0", (x) => x * 2), run("inp[e] + 100.0", (x) => x + 100)];
  mx.eval(twice, more);
  assertEquals(twice.tolist(), mx.multiply(a, 2).tolist());
  assertEquals(more.tolist(), mx.add(a, 100).tolist());
});

/** Bilinear samples of MLX's documentation of custom kernels, and their derivative with atomics. */
const GRID_SAMPLE = `
  uint elem = thread_position_in_grid.x;
  int H = x_shape[1];
  int W = x_shape[2];
  int C = x_shape[3];
  int gH = grid_shape[1];
  int gW = grid_shape[2];
  int w_stride = C;
  int h_stride = W * w_stride;
  int b_stride = H * h_stride;
  uint grid_idx = elem / C * 2;
  float ix = ((grid[grid_idx] + 1) * W - 1) / 2;
  float iy = ((grid[grid_idx + 1] + 1) * H - 1) / 2;
  int ix_nw = int(floor(ix));
  int iy_nw = int(floor(iy));
  int batch_idx = int(elem) / C / gH / gW * b_stride;
  int channel_idx = int(elem) % C;
  int base_idx = batch_idx + channel_idx;
`;
const SAMPLE: Options = {
  name: "grid_sample",
  inputNames: ["x", "grid"],
  outputNames: ["out"],
  source: `${GRID_SAMPLE}
    float sum = 0;
    for (int dy = 0; dy < 2; dy++) {
      for (int dx = 0; dx < 2; dx++) {
        int row = iy_nw + dy, col = ix_nw + dx;
        float weight = (1 - abs(ix - col)) * (1 - abs(iy - row));
        if (row >= 0 && row < H && col >= 0 && col < W) sum += weight * x[base_idx + row * h_stride + col * w_stride];
      }
    }
    out[elem] = sum;`,
  wasm: ([x, grid], [out], { shapes: [[, H, W, C], [, gH, gW]] }) =>
    corners(x.length / (H * W * C), [H, W, C, gH, gW], grid, (at, from, weight) => {
      out[at] = Number(out[at]) + (from < 0 ? 0 : weight * Number(x[from]));
    }),
};
const SAMPLE_GRAD: Options = {
  name: "grid_sample_grad",
  inputNames: ["x", "grid", "cotangent"],
  outputNames: ["x_grad", "grid_grad"],
  atomicOutputs: true,
  source: `${GRID_SAMPLE}
    float cot = cotangent[elem];
    float gix = 0, giy = 0;
    for (int dy = 0; dy < 2; dy++) {
      for (int dx = 0; dx < 2; dx++) {
        int row = iy_nw + dy, col = ix_nw + dx;
        if (row < 0 || row >= H || col < 0 || col >= W) continue;
        int at = base_idx + row * h_stride + col * w_stride;
        float wx = 1 - abs(ix - col), wy = 1 - abs(iy - row);
        x_grad_atomic_add(at, wx * wy * cot);
        gix += (dx == 0 ? -1 : 1) * wy * x[at] * cot;
        giy += (dy == 0 ? -1 : 1) * wx * x[at] * cot;
      }
    }
    grid_grad_atomic_add(grid_idx, gix * W / 2);
    grid_grad_atomic_add(grid_idx + 1, giy * H / 2);`,
  wasm([x, grid, cotangent], [xGrad, gridGrad], { shapes: [[B, H, W, C], [, gH, gW]] }) {
    corners(B, [H, W, C, gH, gW], grid, (at, from, weight, wx, wy, dx, dy) => {
      if (from < 0) return;
      const cot = Number(cotangent[at]);
      const place = 2 * Math.floor(at / C);
      xGrad[from] = Number(xGrad[from]) + weight * cot;
      gridGrad[place] = Number(gridGrad[place]) + (dx === 0 ? -1 : 1) * wy * Number(x[from]) * cot * W / 2;
      gridGrad[place + 1] = Number(gridGrad[place + 1]) + (dy === 0 ? -1 : 1) * wx * Number(x[from]) * cot * H / 2;
    });
  },
};

/** Tells of the four elements that each sample hangs on: -1 outside. */
function corners(
  B: number,
  [H, W, C, gH, gW]: number[],
  grid: ArrayLike<number | bigint>,
  tell: (at: number, from: number, weight: number, wx: number, wy: number, dx: number, dy: number) => void,
): void {
  for (let at = 0; at < B * gH * gW * C; at++) {
    const place = 2 * Math.floor(at / C);
    const ix = ((Number(grid[place]) + 1) * W - 1) / 2;
    const iy = ((Number(grid[place + 1]) + 1) * H - 1) / 2;
    for (const [dy, dx] of [[0, 0], [0, 1], [1, 0], [1, 1]]) {
      const [row, col] = [Math.floor(iy) + dy, Math.floor(ix) + dx];
      const [wx, wy] = [1 - Math.abs(ix - col), 1 - Math.abs(iy - row)];
      const inside = row >= 0 && row < H && col >= 0 && col < W;
      const from = inside ? ((Math.floor(at / C / gH / gW) * H + row) * W + col) * C + at % C : -1;
      tell(at, from, wx * wy, wx, wy, dx, dy);
    }
  }
}

/** The same by gathering. */
function sampleReference(x: mx.Tensor, grid: mx.Tensor): mx.Tensor {
  const [B, H, W] = x.shape;
  const part = (i: number): mx.Tensor => mx.takeAlongAxis(grid, mx.full([1, 1, 1, 1], i, mx.int32), -1);
  const ix = mx.divide(mx.subtract(mx.multiply(mx.add(part(0), 1), W), 1), 2);
  const iy = mx.divide(mx.subtract(mx.multiply(mx.add(part(1), 1), H), 1), 2);
  const flat = mx.reshape(x, [B * H * W, -1]);
  const batch = mx.reshape(mx.multiply(mx.arange(B, mx.float32), H * W), [B, 1, 1]);
  let sum: mx.Tensor = mx.array(0);
  for (const [dy, dx] of [[0, 0], [0, 1], [1, 0], [1, 1]]) {
    const [row, col] = [mx.stopGradient(mx.add(mx.floor(iy), dy)), mx.stopGradient(mx.add(mx.floor(ix), dx))];
    const weight = mx.multiply(
      mx.subtract(1, mx.abs(mx.subtract(ix, col))),
      mx.subtract(1, mx.abs(mx.subtract(iy, row))),
    );
    const inside = mx.logicalAnd(
      mx.logicalAnd(mx.greaterEqual(row, 0), mx.less(row, H)),
      mx.logicalAnd(mx.greaterEqual(col, 0), mx.less(col, W)),
    );
    const at = mx.add(
      mx.add(mx.multiply(mx.squeeze(mx.clip(row, 0, H - 1), -1), W), mx.squeeze(mx.clip(col, 0, W - 1), -1)),
      batch,
    );
    const picked = mx.take(flat, mx.astype(at, mx.int32), 0);
    sum = mx.add(sum, mx.multiply(mx.where(inside, weight, 0), picked));
  }
  return sum;
}

test("the grid_sample of MLX's documentation, with its derivative", () => {
  const [sample, gradient] = [vulkanKernel(SAMPLE), vulkanKernel(SAMPLE_GRAD)];
  const shape = ([B]: readonly number[], [, gH, gW]: readonly number[], C: number): number[] => [B, gH, gW, C];
  const gridSample = mx.customFunction((x: mx.Tensor, grid: mx.Tensor) => {
    const out = shape(x.shape, grid.shape, x.shape[3]);
    return sample({
      inputs: [x, grid],
      grid: [out.reduce((a, b) => a * b), 1, 1],
      threadgroup: [256, 1, 1],
      outputShapes: [out],
      outputDtypes: [x.dtype],
      initValue: 0,
    })[0] as mx.Tensor;
  }).vjp(([x, grid]: mx.Tensor[], cotangent: mx.Tensor) =>
    gradient({
      inputs: [x, grid, cotangent],
      grid: [cotangent.size, 1, 1],
      threadgroup: [256, 1, 1],
      outputShapes: [x.shape, grid.shape],
      outputDtypes: [x.dtype, x.dtype],
      initValue: 0,
    })
  );
  const x = mx.random.normal([2, 5, 7, 3], mx.float32);
  const grid = mx.random.uniform(-1, 1, [2, 4, 6, 2]);
  close(gridSample(x, grid), sampleReference(x, grid), 1e-5); // sums that cancel
  const loss = (fn: (x: mx.Tensor, grid: mx.Tensor) => mx.Tensor) => (x: mx.Tensor, grid: mx.Tensor) =>
    mx.sum(mx.square(fn(x, grid)));
  const own = mx.grad(loss(gridSample), [0, 1])(x, grid) as mx.Tensor[];
  const expected = mx.grad(loss(sampleReference), [0, 1])(x, grid) as mx.Tensor[];
  own.forEach((g, i) => assert(mx.allclose(g, expected[i], 1e-4, 1e-4).item(), `gradient ${i}`));
});

// ---- dtypes ---------------------------------------------------------------------------------------------------------

test("elements of every dtype come and go as they are", (device) => {
  const dtypes = [
    mx.bool,
    mx.uint8,
    mx.uint16,
    mx.uint32,
    mx.int8,
    mx.int16,
    mx.int32,
    mx.int64,
    mx.uint64,
    mx.float32,
  ];
  const has16 = !isVulkan(device) || mx.devices().find(({ name }) => name === device)?.features?.includes("float16");
  const kernel = vulkanKernel(COPY);
  for (const dtype of [...dtypes, mx.bfloat16, mx.complex64, ...(has16 ? [mx.float16] : [])]) {
    for (const n of [1, 3, 257]) {
      const x = mx.astype(mx.arange(n, mx.float32), dtype);
      assertEquals(kernel(like(x))[0].tolist(), x.tolist(), `${dtype.name} ${n}`);
      // Two outputs, of which the second begins after an odd number of bytes.
      const two = vulkanKernel({
        ...COPY,
        outputNames: ["b", "out"],
        source: "uint i = thread_position_in_grid.x; b[i] = uint8_t(i); out[i] = a[i];",
        wasm: ([a], [b, out]) => void out.forEach((_, i) => (b[i % n] = i % n, out[i] = a[i])),
      });
      const [bytes, same] = two(like(x, { outputShapes: [[n], [n]], outputDtypes: [mx.uint8, dtype] }));
      assertEquals(same.tolist(), x.tolist(), `${dtype.name} ${n} as second output`);
      assertEquals(bytes.tolist(), Array.from({ length: n }, (_, i) => i % 256));
    }
  }
  if (isVulkan(device)) {
    assertThrows(() => kernel(like(mx.astype(mx.array([1]), mx.float64)))[0].tolist(), mx.DtypeError, "float64");
  }
});

test("T(x) and to_float(x) round as astype does", () => {
  const values = mx.array([0, -0.1, 1 / 3, 65504, 1e-7, -3.1415927, 1e38, Infinity, NaN]);
  const kernel = vulkanKernel({
    ...COPY,
    source: "uint i = thread_position_in_grid.x; out[i] = T(a[i]);",
  });
  const back = vulkanKernel({ ...COPY, source: "uint i = thread_position_in_grid.x; out[i] = to_float(a[i]);" });
  for (const dtype of [mx.bfloat16, mx.float32]) {
    const expected = mx.astype(values, dtype);
    const [out] = kernel(like(values, { template: { T: dtype }, outputDtypes: [dtype] }));
    assertEquals(out.tolist(), expected.tolist(), dtype.name);
    assertEquals(back(like(out, { outputDtypes: [mx.float32] }))[0].tolist(), expected.tolist());
  }
}, isVulkan);

test("a device without float16 says so", (device) => {
  const without = `${device}-float16-floatAtomics-int64Atomics`;
  mx.withDevice(without, () => {
    const x = mx.ones([4]);
    const half = vulkanKernel(COPY)(like(mx.astype(x, mx.float16)));
    assertThrows(() => half[0].tolist(), mx.DtypeError, "float16");
    const sum = vulkanKernel({ ...COPY, atomicOutputs: true, source: "out_atomic_add(0, a[0]);" });
    assertEquals(sum(like(x, { outputShapes: [[1]], initValue: 1 }))[0].tolist(), [5]);
    const wide = sum(like(mx.astype(x, mx.int64), { outputShapes: [[1]] }));
    assertThrows(() => wide[0].tolist(), mx.DtypeError, "64 bits");
    mx.dispose(x, half, sum, wide);
  });
}, isVulkan);

// ---- grids ----------------------------------------------------------------------------------------------------------

test("threads of three axes, one for each place of a grid that is no multiple of the workgroup", () => {
  const kernel = vulkanKernel({
    name: "places",
    inputNames: [],
    outputNames: ["out", "count"],
    atomicOutputs: true,
    source: `uvec3 at = thread_position_in_grid;
      out[(at.z * threads_per_grid.y + at.y) * threads_per_grid.x + at.x] = int(at.x + 10 * at.y + 100 * at.z);
      atomicAdd(count[0], 1u);`,
    wasm(_, [out, count], { grid: [X, Y, Z] }) {
      count[0] = X * Y * Z;
      for (let i = 0; i < X * Y * Z; i++) out[i] = i % X + 10 * (Math.floor(i / X) % Y) + 100 * Math.floor(i / X / Y);
    },
  });
  const [out, count] = kernel({
    inputs: [],
    grid: [5, 3, 4],
    threadgroup: [4, 2, 3],
    outputShapes: [[4, 3, 5], []],
    outputDtypes: [mx.int32, mx.uint32],
    initValue: 0,
  });
  assertEquals(count.item(), 60);
  assertEquals(mx.max(out as mx.Tensor).item(), 324);
  assertEquals((out as mx.Tensor).index(2, 1).tolist(), [210, 211, 212, 213, 214]);
});

test("a workgroup shares memory between barriers", () => {
  const kernel = vulkanKernel({
    name: "reverse",
    inputNames: ["a"],
    outputNames: ["out"],
    header: "shared float tile[64];",
    source: `uint i = thread_position_in_threadgroup.x;
      tile[i] = a[thread_position_in_grid.x];
      barrier();
      out[thread_position_in_grid.x] = tile[threads_per_threadgroup.x - 1u - i];`,
    wasm([a], [out], { threadgroup: [n] }) {
      out.forEach((_, i) => out[i] = a[i - i % n + n - 1 - i % n]);
    },
  });
  const a = mx.arange(128, mx.float32);
  assertEquals(
    kernel(like(a))[0].tolist(),
    mx.flatten(mx.flip(mx.reshape(a, [2, 64]), 1)).tolist(),
  );
  assertThrows(() => kernel(like(mx.arange(100, mx.float32))), mx.ValueError, "whole workgroups");
});

test("a grid without threads leaves the initial value, or zeros", () => {
  const kernel = vulkanKernel(COPY);
  const none = like(mx.zeros([0]), { outputShapes: [[3]] });
  assertEquals(kernel({ ...none, initValue: 2.5 })[0].tolist(), [2.5, 2.5, 2.5]);
  assertEquals(kernel(none)[0].tolist(), [0, 0, 0]);
  assertEquals(kernel(like(mx.zeros([0])))[0].tolist(), []);
});

test("initValue is what outputs hold where no thread writes", () => {
  const kernel = vulkanKernel({
    ...COPY,
    source: "out[1] = a[0];",
    wasm: ([a], [out]) => void (out[out.length / 3] = a[0]), // complex numbers are pairs
  });
  for (const dtype of [mx.float32, mx.int8, mx.bfloat16, mx.int64, mx.complex64]) {
    const [out] = kernel(like(mx.ones([1], dtype), { outputShapes: [[3]], initValue: -7 }));
    assertEquals(out.tolist(), mx.array([-7, 1, -7], dtype).tolist(), dtype.name);
  }
});

// ---- in graphs --------------------------------------------------------------------------------------------------------

test("a kernel is an op of its graph: lazy, compiled, run once for all of its outputs", (device) => {
  let runs = 0;
  const double = vulkanKernel({
    name: "double_and_count",
    inputNames: ["a"],
    outputNames: ["twice", "n"],
    source: "uint i = thread_position_in_grid.x; twice[i] = 2 * a[i]; n[i] = int(i);",
    wasm([a], [twice, n]) {
      runs++;
      twice.forEach((_, i) => (twice[i] = 2 * Number(a[i]), n[i] = i));
    },
  });
  const call = (x: mx.Tensor): mx.AnyTensor[] =>
    double(like(x, { outputShapes: [x.shape, x.shape], outputDtypes: [mx.float32, mx.int32] }));
  call(mx.ones([4])); // never run
  assertEquals(runs, 0);
  const x = mx.add(mx.arange(4, mx.float32), 1);
  const [twice, n] = call(x) as mx.Tensor[];
  const y = mx.add(mx.multiply(twice, twice), mx.sum(x));
  assertEquals(y.tolist(), [14, 26, 46, 74]);
  assertEquals(n.tolist(), [0, 1, 2, 3]);
  if (!isVulkan(device)) assertEquals(runs, 1);
  // Views of views, chains of kernels, and a graph that is traced once.
  using step = mx.compile((x: mx.Tensor) => {
    const [once, places] = call(mx.transpose(mx.reshape(x, [2, 2]))) as mx.Tensor[];
    return mx.subtract(call(mx.flatten(once))[0] as mx.Tensor, mx.flatten(places));
  });
  for (const k of [1, 2, 3]) {
    const x = mx.multiply(mx.array([1, 2, 3, 4]), k);
    assertEquals(step(x).tolist(), [4 * k, 12 * k - 1, 8 * k - 2, 16 * k - 3]);
  }
});

test("outputs share no memory with inputs or each other", () => {
  const kernel = vulkanKernel({
    ...COPY,
    outputNames: ["out", "other"],
    source: "uint i = thread_position_in_grid.x; out[i] = a[i] + 1; other[i] = a[i] - 1;",
    wasm: ([a], [out, other]) => void out.forEach((_, i) => (out[i] = Number(a[i]) + 1, other[i] = Number(a[i]) - 1)),
  });
  let a = mx.arange(300, mx.float32);
  mx.eval(a);
  for (let i = 0; i < 5; i++) {
    const [up, down] = kernel(like(a, { outputShapes: [[300], [300]], outputDtypes: [mx.float32, mx.float32] }));
    assertEquals(mx.subtract(up as mx.Tensor, down as mx.Tensor).tolist(), Array(300).fill(2));
    assertEquals(a.tolist()[7], 7 + i);
    a = up as typeof a;
  }
});

test("derivatives, batches and files of functions are refused with what to do", () => {
  const kernel = vulkanKernel(COPY);
  const copy = (x: mx.Tensor): mx.Tensor => kernel(like(x))[0] as mx.Tensor;
  const x = mx.arange(3, mx.float32);
  assertThrows(() => mx.grad((x: mx.Tensor) => mx.sum(copy(x)))(x), mx.ValueError, "mx.customFunction");
  assertThrows(() => mx.jvp(copy, [x], [x]), mx.ValueError, "mx.customFunction");
  assertThrows(() => mx.vmap(copy)(mx.ones([2, 3])), mx.ValueError, ".vmap()");
  const path = Deno.makeTempFileSync({ suffix: ".mxfn" });
  try {
    assertThrows(() => mx.exportFunction(path, copy, x), mx.ValueError, "customKernel");
  } finally {
    Deno.removeSync(path);
  }
  // With rules, all of it goes.
  const own = mx.customFunction(copy)
    .vjp((_: mx.Tensor, cotangent: mx.Tensor) => mx.multiply(cotangent, 3))
    .vmap((x: mx.Tensor, axis: number) => [kernel(like(x))[0], axis]);
  assertEquals(mx.grad((x: mx.Tensor) => mx.sum(own(x)))(x).tolist(), [3, 3, 3]);
  assertEquals(mx.vmap(own)(mx.ones([2, 3])).tolist(), [[1, 1, 1], [1, 1, 1]]);
});

// ---- errors -----------------------------------------------------------------------------------------------------------

test("what is no kernel, or no call of it, is refused", () => {
  const kernels: readonly (readonly [object, string])[] = [
    [{ name: "a b" }, "name"],
    [{ name: "x".repeat(65) }, "name"],
    [{ name: 5 }, "name"],
    [{ inputNames: ["gl_x"] }, "inputNames"],
    [{ inputNames: ["vkmx_pc"] }, "inputNames"],
    [{ inputNames: ["float"] }, "inputNames"],
    [{ inputNames: ["a;"] }, "inputNames"],
    [{ inputNames: ["a", "a"] }, "differ"],
    [{ inputNames: ["a", "a_shape"] }, "differ"],
    [{ inputNames: ["out"] }, "differ"],
    [{ inputNames: "a" }, "list"],
    [{ inputNames: Array.from({ length: 13 }, (_, i) => `a${i}`) }, "at most 13"],
    [{ outputNames: [] }, "at least one output"],
    [{ source: 5 }, "source"],
    [{ source: "x".repeat(2 ** 20 + 1) }, "characters"],
    [{ source: '#include "/etc/passwd"' }, "#include"],
    [{ header: "\n  # version 450" }, "#version"],
    [{ source: "a\0b" }, "NUL"],
    [{ source: "", wasm: undefined }, "source, spirv or wasm"],
    [{ spirv: "module" }, "spirv"],
    [{ wasm: 5 }, "wasm"],
    [{ atomicOutputs: 1 }, "atomicOutputs"],
    [{ input_names: ["a"] }, "inputNames"],
  ];
  for (const [wrong, said] of kernels) {
    const error = assertThrows(() => vulkanKernel({ ...COPY, ...wrong } as Options), mx.ValueError);
    assertStringIncludes(error.message, said);
    assertStringIncludes(error.message, "vulkanKernel()");
  }
  const kernel = vulkanKernel(COPY);
  const x = mx.ones([4]);
  const calls: readonly (readonly [object, string])[] = [
    [{ inputs: [] }, "1 inputs"],
    [{ inputs: [x, x] }, "found 2"],
    [{ inputs: x }, "inputs"],
    [{ inputs: [{}] }, "expected an array"],
    [{ outputShapes: [[4], [4]] }, "1 outputShapes"],
    [{ outputShapes: [[-1]] }, "not negative"],
    [{ outputShapes: [[2 ** 31]] }, "2^31"],
    [{ outputShapes: [[1 << 20, 1 << 20]] }, "2^31"],
    [{ outputDtypes: [] }, "outputDtypes"],
    [{ outputDtypes: ["float32"] }, "mx.float32"],
    [{ grid: [4, 1] }, "grid"],
    [{ grid: [4, -1, 1] }, "grid"],
    [{ grid: [4.5, 1, 1] }, "grid"],
    [{ grid: [2 ** 32, 1, 1] }, "grid"],
    [{ threadgroup: [0, 1, 1] }, "threadgroup"],
    [{ template: { T: "float" } }, "template argument T"],
    [{ template: { n: 1.5 } }, "template argument n"],
    [{ template: { a: 1 } }, "differ"],
    [{ template: [["n", 1], ["n", 2]] }, "differ"],
    [{ template: { "n=1;": 1 } }, "template"],
    [{ template: [1] }, "pairs"],
    [{ initValue: "0" }, "initValue"],
    [{ stream: null, s: 1 }, "stream"],
  ];
  for (const [wrong, said] of calls) {
    const error = assertThrows(() => kernel({ ...like(x), ...wrong } as Call), mx.ArrayError);
    assertStringIncludes(error.message, said);
  }
});

test("a threadgroup or grid beyond the device is refused", () => {
  const kernel = vulkanKernel({ ...COPY, source: "out[0] = 1;" });
  const x = mx.ones([1]);
  for (const threadgroup of [[2 ** 16, 1, 1], [1, 1, 1 << 12], [64, 64, 64]] as const) {
    const grid = [2 ** 20, 2 ** 12, 2 ** 12];
    assertThrows(() => kernel(like(x, { grid, threadgroup }))[0].tolist(), mx.ValueError, "threadgroup of at most");
  }
  const error = assertThrows(
    () => kernel(like(x, { grid: [1, 2 ** 32 - 1, 1], threadgroup: [1, 1, 1] }))[0].tolist(),
    mx.ValueError,
  );
  assertStringIncludes(error.message, "grid of at most");
}, isVulkan);

test("a compile error names the program's line", () => {
  const x = mx.ones([1]);
  const failing = (options: Partial<Options>, call: Partial<Call> = {}): mx.KernelError => {
    const [out] = vulkanKernel({ ...COPY, ...options })(like(x, call));
    const error = assertThrows(() => out.tolist(), Error, "", JSON.stringify(options));
    assertInstanceOf(error, mx.KernelError);
    assertEquals(error.code, "kernel");
    assert(!error.message.includes("\n"), error.message);
    return error;
  };
  const inSource = failing({ source: "uint i = 0;\n\n  out[i] = missing(a[i]);\n" });
  assertEquals(inSource.line, 3);
  assertStringIncludes(inSource.message, "line 3 of its source: 'missing' : ");
  assertStringIncludes(inSource.message, "out[i] = missing(a[i]);");
  assertStringIncludes(inSource.log, "source:3");
  const inHeader = failing({ header: "float one() { return 1; }\nfloat two() { return two; }" });
  assertEquals(inHeader.line, 2);
  assertStringIncludes(inHeader.message, "of its header");
  for (const source of ["}", "{", "/*", '"', "#if 1", "out[0] = a;", "#error stop", "void f() {}", "x\\"]) {
    failing({ source });
  }
  assertStringIncludes(failing({ source: "out[0] = T;" }, { template: { T: mx.int32 } }).message, "source");
}, isVulkan);

Deno.test("a body that writes into an input is refused, one that reads it is not", () => {
  const make = (source: string): unknown => vulkanKernel({ ...COPY, inputNames: ["a", "x"], source });
  const writes = [
    "a[0] = 1;",
    "a[a[1]] += 2;",
    "a [ 3 ]\n= 4;",
    "x++;",
    "--a[0];",
    "atomicAdd(a[0], 1);",
    "a[0].x = 1;",
    "x <<= 1;",
  ];
  for (const wrong of writes) {
    const error = assertThrows(() => make(`int y;\n${wrong}`), mx.KernelError, "writes into its input");
    assertEquals(error.line, 2, wrong);
  }
  for (
    const right of [
      "out[0] = a[1] == x;",
      "v.x = 1;",
      "// a[0] = 1\n",
      "/* x++ */ y = a[0];",
      "bool b = x <= a[0];",
      "ax = 1;",
    ]
  ) make(right);
});

test("a kernel without the device's form says what is missing", (device) => {
  const x = mx.ones([1]);
  if (isVulkan(device)) {
    const [out] = vulkanKernel({ ...COPY, source: "" })(like(x));
    assertStringIncludes(assertThrows(() => out.tolist(), mx.ValueError).message, "CPU only");
  } else {
    const [out] = vulkanKernel({ ...COPY, wasm: undefined })(like(x));
    assertStringIncludes(assertThrows(() => out.tolist(), mx.ValueError).message, "no wasm function");
    const late = vulkanKernel({ ...COPY, wasm: (async () => {}) as unknown as Options["wasm"] })(like(x));
    assertStringIncludes(assertThrows(() => late[0].tolist(), mx.ValueError).message, "async");
    const thrown = vulkanKernel({
      ...COPY,
      wasm: () => {
        throw new RangeError("mine");
      },
    })(like(x));
    assertThrows(() => thrown[0].tolist(), RangeError, "mine");
  }
});

// ---- profiles -----------------------------------------------------------------------------------------------------------

for (const device of testDevices().filter(isVulkan)) {
  Deno.test({ name: `a profile names the kernel on ${device}${NO_GLSL}`, ignore: NO_GLSL !== "" }, async () => {
    mx.setDefaultDevice(device);
    using x = mx.ones([8]);
    const found = await mx.profile(() => void mx.tidy(() => void vulkanKernel(COPY)(like(x))[0].tolist()));
    const row = found.kernels.find(({ kernel }) => kernel === "vulkanKernel copy");
    assertEquals([row?.calls, row?.bytes], [1, 64]);
  });
}
