/** Rows of array_rows.ts at the limits of types and arguments: what rounds, overflows, is not read or holds nothing. */

import * as mx from "../../../mod.ts";

type LimitRow = () => mx.Tensor | readonly mx.Tensor[];

const { random, float16, bfloat16, float32, int32, int16, int8, uint32, uint16, uint8 } = mx;
const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

const line = (n: number): mx.Tensor => mx.arange(n).astype(float32);
const ints = (...v: number[]): mx.Tensor => mx.array(v, int32);
const F = (): mx.Tensor => mx.divide(mx.subtract(line(12), 5.5).reshape(3, 4), 3);
const halves = (): [mx.Tensor, mx.Tensor] => [mx.full([1, 4], 200, float16), mx.full([4, 1], 400, float16)];
const randint = (low: mx.TensorLike, high: mx.TensorLike, shape: number[], dtype: mx.Dtype = int32): mx.Tensor =>
  random.randint(low, high, shape, dtype, random.key(0));
const trig = (): mx.Tensor => mx.array([1e8, -1e9, 1e20, 3e38, 16777218]);

const PRODUCTS: Record<string, LimitRow> = {
  "addmm alpha f16": () => mx.addmm(mx.zeros([1, 1], float16), ...halves(), 0.04),
  "addmm f16 and f32": () => mx.addmm(mx.ones([1, 1]), ...halves(), 0.04),
  "addmm f16 and int": () => mx.addmm(mx.array([[3]], int32), ...halves(), 0.04, 2),
  "addmm beta 0": () => mx.addmm(mx.full([1, 1], nan, float16), ...halves(), 0.01, 0),
  "addmm beta 0 f32": () => mx.addmm(mx.full([4], inf), line(6).reshape(2, 3), line(12).reshape(3, 4), 0.5, 0),
  "addmm alpha 0": () => mx.addmm(mx.full([1, 1], 2), mx.full([1, 4], nan), mx.ones([4, 1]), 0, 3),
  "addmm bf16": () =>
    mx.addmm(mx.ones([1, 1], bfloat16), mx.full([1, 3], 1.01, bfloat16), mx.full([3, 1], 1.01, bfloat16), 0.3, 0.7),
  "addmm int matrices": () =>
    mx.addmm(mx.array([0.5, 0.25]), mx.array([[1, 2]], int32), mx.array([[3, 4], [5, 6]], int32)),
  "addmm vectors": () => [
    mx.addmm(1, mx.ones([4]), mx.ones([4])),
    mx.addmm(mx.ones([3]), mx.ones([4]), mx.ones([4, 3])),
    mx.addmm(mx.ones([2]), mx.ones([2, 4]), mx.ones([4])),
  ],
  "addmm batch": () => mx.addmm(line(2).reshape(2, 1, 1), mx.ones([2, 2, 4]), mx.ones([4, 3])),
  "vecdot axis 0": () => mx.vecdot(F(), F().index("...", mx.Slice(null, 1)), 0),
  "vecdot broadcast": () => mx.vecdot(F().index(null), F().index(mx.Slice(), null)),
};

const ARRAYS: Record<string, LimitRow> = {
  "arange fractions of ints": () => [
    mx.arange(0.5, 5, 1.5, int32),
    mx.arange(-3, 3, 1.7, int32),
    mx.arange(0, 3, 0.5, uint8),
  ],
  "arange infinite step": () => [
    mx.arange(2, 10, inf, int32),
    mx.arange(2.5, 10, inf),
    mx.arange(0, 10, -inf, int32),
    mx.arange(10, 0, -inf, int32),
  ],
  "putAlongAxis broadcast": () => [
    mx.putAlongAxis(mx.zeros([1, 3]), [[0, 1], [1, 2]], mx.ones([2, 2]), 1),
    mx.putAlongAxis(mx.zeros([2, 3]), [[0, 1]], [5, 6], 1),
    mx.putAlongAxis(mx.zeros([2, 3]), [[2], [0]], [[[5, 6]]], 1),
  ],
  "putAlongAxis flat": () => mx.putAlongAxis(F(), [0, 5], [7, 8]),
  "putAlongAxis empty": () => [
    mx.putAlongAxis(mx.zeros([0]), mx.array([]), mx.array([])),
    mx.putAlongAxis(mx.zeros([0, 3]), [], 1),
    mx.putAlongAxis(mx.zeros([0]), ints(0, 1), mx.zeros([2])),
    mx.putAlongAxis(mx.zeros([0, 3]), [[5, 5, 5]], 1, 0),
  ],
  "sin far": () => mx.sin(trig()),
  "cos far": () => mx.cos(trig()),
  "tan far": () => mx.tan(trig()),
  "sign of nan": () => [float32, float16, bfloat16].map((t) => mx.sign(mx.array([nan, inf, -inf, -0, -2], t))),
};

const RANDOM: Record<string, LimitRow> = {
  "random randint beyond 2^24": () => randint(2 ** 24, 2 ** 24 + 2, [12]),
  "random randint array beyond 2^24": () => randint(ints(2 ** 24, 2 ** 30), ints(2 ** 24 + 3, 2 ** 30 + 9), [6, 2]),
  "random randint int32": () => randint(-(2 ** 31), 2 ** 31 - 1, [8]),
  "random randint uint32": () => randint(0, 2 ** 32 - 1, [8], uint32),
  "random randint uint16": () => randint(0, 65536, [8], uint16),
  "random randint int16": () => randint(-32768, 32768, [8], int16),
  "random randint uint8": () => randint(0, 256, [8], uint8),
  "random randint uint8 beyond": () => randint(0, 1000, [8], uint8),
  "random randint int8": () => randint(-128, 128, [8], int8),
  "random randint bool": () => randint(0, 2, [8], mx.bool),
  "random randint bool 5": () => randint(0, 5, [8], mx.bool),
  "random randint negative": () => randint(-20, -10, [8]),
  "random randint fractions": () => randint(-3.5, 1.2, [12]),
  "random randint float arrays": () => randint([-2.5, 0.5], [2.5, 3.5], [6, 2]),
  "random randint none": () => randint(5, 5, [4]),
  "random randint reversed": () => randint(5, 2, [4]),
  "random laplace f16": () => random.laplace([9], float16, 0, 1, random.key(0)),
  "random laplace bf16": () => random.laplace([9], bfloat16, 1, 2, random.key(0)),
};

/** The rows, by the names of tests/golden/arrays/mlx_arrays.json. */
export const LIMITS: Record<string, LimitRow> = { ...PRODUCTS, ...ARRAYS, ...RANDOM };
