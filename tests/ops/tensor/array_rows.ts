/**
 * Calls whose results tests/golden/arrays/mlx_arrays.json holds as MLX computes them (tests/golden/arrays/mlx_arrays.py). One row a call;
 * names are those of the file.
 */

import * as mx from "../../../mod.ts";
import { LIMITS } from "./limit_rows.ts";

type Result = mx.Tensor | readonly mx.Tensor[];

/** The shared operands, made anew for every row. */
function operands() {
  const { Slice: S, float32, int32 } = mx;
  const ints = (...v: number[]): mx.Tensor => mx.array(v, int32);
  const X = mx.arange(24).reshape(2, 3, 4);
  const F = mx.divide(mx.subtract(mx.arange(12).astype(float32), 5.5).reshape(3, 4), 3);
  const line = (n: number, by = 1): mx.Tensor => mx.multiply(mx.arange(n).astype(float32), by);
  const A = line(6).reshape(2, 3);
  const D = line(12).reshape(3, 4);
  // Made on the host: a GPU's division may be off by a bit, which turns groups whose ends are equally far from 0 around.
  const host = Float32Array.from({ length: 128 }, (_, i) => Math.fround(((i * 37) % 101) / 50) - 1);
  const W = mx.array(host).reshape(2, 64);
  return {
    S,
    ints,
    X,
    F,
    A,
    D,
    W,
    line,
    I: ints(0, 1, 1, 0, 1),
    B: mx.array([true, true, false, false]),
    C: mx.array([true, false, true, false]),
    K: mx.random.key(0),
    Z: (): mx.Tensor => mx.zeros([2, 3]),
    P: ints(0, 0, 2),
    O: mx.ones([3]),
    Q: mx.sin(line(192)).reshape(2, 4, 3, 8),
    KK: mx.cos(line(160, 0.7)).reshape(2, 2, 5, 8),
    V: mx.sin(line(160, 1.3)).reshape(2, 2, 5, 8),
    M: mx.notEqual(mx.remainder(mx.arange(15).reshape(3, 5), 3), 0),
    R: mx.divide(line(96), 7).reshape(2, 2, 3, 8),
    L: mx.array([0, 1, 2, 3]),
    L2: mx.array([[0, 1, 2, 3], [3, 2, 1, 0]]),
  };
}

type Operands = ReturnType<typeof operands>;
type ArrayRow = (o: Operands) => Result;

const ALL = null;
const SCALE = 8 ** -0.5;
const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

const INDEX: Record<string, ArrayRow> = {
  "index: 0": ({ X }) => X.index(0),
  "index: -1, 1:": ({ X, S }) => X.index(-1, S(1)),
  "index: ..., ::2": ({ X, S }) => X.index("...", S(ALL, ALL, 2)),
  "index: ::-1, 1:10:2": ({ X, S }) => X.index(S(ALL, ALL, -1), S(1, 10, 2)),
  "index: :, ::-1, ::-3": ({ X, S }) => X.index(S(), S(ALL, ALL, -1), S(ALL, ALL, -3)),
  "index: null, 1, ..., null": ({ X }) => X.index(null, 1, "...", mx.newaxis),
  "index: :, 2:1": ({ X, S }) => X.index(S(), S(2, 1)),
  "index: array": ({ X, I }) => X.index(I),
  "index: 0, :, array": ({ X, I, S }) => X.index(0, S(), I),
  "index: array, :, 0": ({ X, I, S }) => X.index(I, S(), 0),
  "index: array, :, array": ({ X, I, S }) => X.index(I, S(), I),
  "index: :, array, array": ({ X, I, S }) => X.index(S(), I, I),
  "index: :, 0, array": ({ X, I, S }) => X.index(S(), 0, I),
  "index: array, null, 0": ({ X, I }) => X.index(I, null, 0),
  "index: :, array, null, 0": ({ X, I, S }) => X.index(S(), I, null, 0),
  "index: array row, :, array column": ({ X, I, S }) => X.index(I.reshape(1, 5), S(), I.reshape(5, 1)),
  "index: small arrays": () => mx.arange(640).reshape(20, 32).index(mx.array([19], mx.uint8), mx.array([30], mx.uint8)),
  "index: small array and negative": ({ ints }) =>
    mx.arange(900).reshape(3, 300).index(mx.array([-1], mx.int8), ints(299)),
  "index: 1:, array, ::2": ({ X, I, S }) => X.index(S(1), I, S(ALL, ALL, 2)),
  "index: negative array": ({ X, S }) => X.index(S(), [-1, 0, -2]),
  "index: negative arrays": ({ X }) => X.index([-1, 0], [-1, -3]),
  "take flat": ({ X }) => mx.take(X, [[0, 23], [5, 7]]),
  "take axis 1": ({ X }) => mx.take(X, [2, 0], 1),
  "take scalar": ({ X }) => mx.take(X, 1, 2),
  "takeAlongAxis": ({ F }) => mx.takeAlongAxis(F, [[3, 0], [1, 1], [2, 3]], 1),
  "takeAlongAxis broadcast": ({ F }) => mx.takeAlongAxis(F, [[3, 0]], 1),
  "takeAlongAxis null": ({ F }) => mx.takeAlongAxis(F, [3, 11], null),
  "putAlongAxis": ({ F }) => mx.putAlongAxis(F, [[3, 0], [1, 2], [2, 3]], 9, 1),
  "putAlongAxis axis 0": ({ F }) => mx.putAlongAxis(F, [[2, 0, 1, 2]], [[1, 2, 3, 4]], 0),
  "put: 0": ({ Z }) => Z().indexPut_(0, 5),
  "put: :, 1:": ({ Z, S }) => Z().indexPut_([S(), S(1)], [[1], [2]]),
  "put: ..., -1": ({ Z }) => Z().indexPut_(["...", -1], [7, 8]),
  "put: ::-1": ({ S }) => mx.arange(4).indexPut_(S(ALL, ALL, -1), mx.multiply(mx.arange(4), 10)),
  "put: 1::2": ({ S }) => mx.arange(6).indexPut_(S(1, ALL, 2), 9),
  "put: int cast": ({ ints }) => ints(1, 2).indexPut_(0, 2.7),
  "put: array": ({ X, ints }) => X.indexPut_(ints(1), 0),
  "put: :, array": ({ Z, S }) => Z().indexPut_([S(), [0, 2]], [[1, 2], [3, 4]]),
  "put: arrays": ({ X }) => X.indexPut_([[0, 1], [2, 0]], -1),
  "put: 0, array, 1:3": ({ X, S }) => X.indexPut_([0, [0, 2], S(1, 3)], [[90, 91], [92, 93]]),
  "put: array, :, array": ({ X, S }) => X.indexPut_([[0, 1], S(), [3, 0]], [[-1, -2, -3], [-4, -5, -6]]),
  "put: mask scalar": ({ C }) => mx.arange(4).indexPut_(C, -1),
  "put: mask values": ({ C }) => mx.arange(4).indexPut_(C, [9, 8]),
  "put: mask rows": ({ Z }) => Z().indexPut_([true, false], 5),
  "put: mask row vector": ({ Z }) => Z().indexPut_(mx.array([false, true]), [1, 2, 3]),
  "at add": ({ P }) => mx.zeros([3]).at(P).add([1, 2, 3]),
  "at subtract": ({ O, P }) => O.at(P).subtract([1, 2, 3]),
  "at subtract of bools": ({ P, ints }) => mx.array([true, false, false]).at(P).subtract(ints(0, 3, 1)),
  "at multiply": ({ O, P }) => O.at(P).multiply([2, 3, 4]),
  "at divide": ({ O, P }) => O.at(P).divide([2, 2, 4]),
  "at maximum": ({ O, P }) => O.at(P).maximum([5, -2, 0]),
  "at minimum": ({ O, P }) => O.at(P).minimum([5, -2, 0]),
  "at slice add": ({ F, S }) => F.at(S(1), S(ALL, ALL, 2)).add(10),
  "at rows add": ({ F }) => F.at([0, 0]).add(1),
  "slice": ({ X, ints }) => mx.slice(X, ints(1, 1), [0, 2], [1, 3, 2]),
  "sliceUpdate": ({ F }) => mx.sliceUpdate(F, mx.ones([2, 2]), [1, 2], [0, 1]),
};

const MOVEMENT: Record<string, ArrayRow> = {
  "reshape": ({ X }) => X.reshape(4, -1),
  "flatten": ({ X }) => X.flatten(1),
  "flatten middle": ({ X }) => mx.flatten(X, 0, 1),
  "flatten scalar": () => mx.flatten(mx.array(1, mx.int32)),
  "unflatten": ({ X }) => mx.unflatten(X, 2, [2, -1]),
  "squeeze": () => mx.squeeze(mx.zeros([1, 3, 1])),
  "expandDims": ({ X }) => mx.expandDims(X, [0, -1]),
  "transpose": ({ X }) => X.transpose(2, 0, 1),
  "transpose list": ({ X }) => X.transpose([2, 0, 1]),
  "transpose all": ({ X }) => X.transpose(),
  "T": ({ X }) => X.T,
  "swapaxes": ({ X }) => X.swapaxes(0, -1),
  "moveaxis": ({ X }) => X.moveaxis(0, -1),
  "broadcastTo": ({ ints }) => mx.broadcastTo(ints(1, 2), [2, 2]),
  "concatenate": ({ X }) => mx.concatenate([X, X.multiply(2)], 1),
  "concatenate null": ({ ints }) => mx.concatenate([ints(1, 2).reshape(1, 2), [3.5]], null),
  "stack": ({ ints }) => mx.stack([ints(1, 2), ints(3, 4)], -1),
  "split": ({ X }) => mx.split(X, 2, 2),
  "split indices": () => mx.split(mx.arange(7), [2, 5]),
  "repeat": () => mx.repeat(mx.array([[1, 2], [3, 4]], mx.int32), 2),
  "repeat axis": () => mx.repeat(mx.array([[1, 2], [3, 4]], mx.int32), 2, 1),
  "tile": () => mx.tile(mx.array([[1, 2], [3, 4]], mx.int32), [2, 1, 2]),
  "pad": () => mx.pad(mx.array([[1, 2], [3, 4]], mx.int32), [[1, 0], [0, 2]], "constant", 7),
  "pad edge": () => mx.pad(mx.array([[1, 2], [3, 4]], mx.int32), 1, "edge"),
  "flip": ({ X }) => mx.flip(X, [0, 2]),
  "roll": ({ X }) => mx.roll(X, [1, -1], [1, 2]),
  "roll one axis twice": ({ X }) => mx.roll(X, [1, 2], 2),
  "roll flat": ({ X }) => mx.roll(X, 5),
  "asStrided": ({ X }) => mx.asStrided(X, [3, 2], [4, 2], 1),
  "atleast2d": ({ ints }) => mx.atleast2d(ints(1, 2)),
  "atleast3d": ({ ints }) => mx.atleast3d(ints(1, 2)),
  "diagonal": ({ X }) => X.diagonal(1, 1, 2),
  "diagonal below": ({ F }) => F.diagonal(-1),
  "diag": ({ ints }) => mx.diag(ints(1, 2), -1),
  "astype": ({ F }) => F.astype(mx.int32),
  "astype bool": () => mx.array([0.5, 0, nan]).astype(mx.bool),
  "arange float": () => mx.arange(0, 1, 0.25),
  "arange down": () => mx.arange(5, 0, -2),
  "arange empty": () => mx.arange(3, 0),
  "linspace": () => mx.linspace(-1, 1, 6),
  "linspace open": () => mx.linspace(0, 1, 5, false),
  "eye": () => mx.eye(2, 3, 1),
  "tri": () => mx.tri(3, 4, -1),
  "tril": ({ F }) => mx.tril(F, 1),
  "triu": ({ X }) => mx.triu(X),
  "meshgrid": ({ ints }) => mx.meshgrid([ints(1, 2), ints(3, 4, 5)]),
  "meshgrid empty": ({ ints }) => mx.meshgrid([mx.zeros([0]), ints(1, 2)]),
  "meshgrid ij sparse": ({ ints }) => mx.meshgrid([ints(1, 2), ints(3, 4, 5)], { sparse: true, indexing: "ij" }),
  "full bool": () => mx.full(2, true),
};

const ELEMENTWISE: Record<string, ArrayRow> = {
  "bool add": ({ B, C }) => mx.add(B, C),
  "bool subtract": ({ B, C }) => mx.subtract(B, C),
  "bool multiply": ({ B, C }) => mx.multiply(B, C),
  "bool maximum": ({ B, C }) => mx.maximum(B, C),
  "bool minimum": ({ B, C }) => mx.minimum(B, C),
  "bool power": ({ B, C }) => mx.power(B, C),
  "bool remainder": ({ B }) => mx.remainder(B, mx.array([true, true, true, true])),
  "bool bitwise_xor": ({ B, C }) => mx.bitwiseXor(B, C),
  "bool left_shift": ({ B, C }) => mx.leftShift(B, C),
  "bool right_shift": ({ B, C }) => mx.rightShift(B, C),
  "bool less": ({ B, C }) => mx.less(B, C),
  "bool logical_and": ({ B, C }) => mx.logicalAnd(B, C),
  "bool invert": ({ B }) => mx.bitwiseInvert(B),
  "bool divide": ({ B }) => mx.divide(B, mx.array([true, true, true, true])),
  "infinite less itself": () => {
    const x = mx.array([inf, -inf, nan, 1]);
    return mx.subtract(x, x);
  },
  "bool square": ({ B }) => mx.square(B),
  "bool abs": ({ B }) => mx.abs(B),
  "bool floor": ({ B }) => mx.floor(B),
  "int floorDivide": ({ ints }) => mx.floorDivide(ints(-5, 5, -6), ints(3, -3, 3)),
  ...Object.fromEntries(
    [mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int32, mx.uint32, mx.int64, mx.uint64].map((
      dtype,
    ): [string, ArrayRow] => [
      `${dtype.name} remainder of 0`,
      ({ ints }) => mx.remainder(ints(7, 0, 5, 100).astype(dtype), ints(0, 0, 3, 0).astype(dtype)),
    ]),
  ),
  "negative remainder of 0": ({ ints }) => mx.remainder(ints(-7, -5), ints(0, 3)),
  "int remainder": ({ ints }) => mx.remainder(ints(-5, 5, -6), ints(3, -3, 3)),
  "float floorDivide": () => mx.floorDivide([-5, 5, 7.5], 3),
  "float remainder": () => mx.remainder([-5, 5, 7.5], 3),
  "int divide": ({ ints }) => ints(1, 2).divide(ints(2, 4)),
  "int power": ({ ints }) => ints(2, 3).power(ints(3, 2)),
  "int power, negative": ({ ints }) => ints(1, -1, 2, -2, 0, -1).power(ints(-1, -1, -1, -2, -1, -2)),
  "uint8 wraps": () => mx.add(Uint8Array.of(250), Uint8Array.of(10)),
  "uint8 with number": () => mx.add(Uint8Array.of(250), 10),
  "int with fraction": ({ ints }) => mx.add(ints(1), 2.5),
  "f16 with number": () => mx.add(mx.array([1], mx.float16), 2.5),
  "f16 with bf16": () => mx.add(mx.array([1], mx.float16), mx.array([1], mx.bfloat16)),
  "bool with number": () => mx.add(mx.array([true]), 1),
  "int8 with uint8": () => mx.add(Int8Array.of(1), Uint8Array.of(2)),
  "round": () => mx.round([0.5, 1.5, 2.5, -0.5, -1.5]),
  "round 1": () => mx.round([1.25, 15, -2.55], 1),
  "round int -1": ({ ints }) => mx.round(ints(15, 25, 34), -1),
  "sign": ({ F }) => mx.sign(F),
  "sign nan": () => mx.sign([nan, -0, -inf]),
  "median nan": () => mx.median([[1, nan, 3], [2, 5, 4]], 1),
  "where": ({ F }) => mx.where(mx.greater(F, 0), F, 0),
  "where ints": ({ ints }) => mx.where(ints(1, 0), ints(1, 2), [1.5]),
  "clip": ({ F }) => mx.clip(F, -1, null),
  "clip int by fraction": ({ ints }) => mx.clip(ints(1, 2, 3), null, 2.5),
  "maximum nan": () => mx.maximum([nan, 1], [1, nan]),
  "logaddexp": () => mx.logaddexp([0, -inf, 1000], [0, -inf, 1000]),
  "isclose": () => mx.isclose([1, inf, -inf, nan], [1.000001, inf, inf, nan]),
  "isclose nan": () => mx.isclose([nan], [nan], undefined, undefined, { equalNan: true }),
  "allclose": ({ F }) => mx.allclose(F, F.add(1e-9)),
  "arrayEqual": ({ ints }) => mx.arrayEqual(ints(1, 2), [1, 2]),
  "arrayEqual shapes": ({ ints }) => mx.arrayEqual(ints(1, 2), [1]),
  "nanToNum": () => mx.nanToNum([nan, inf, -inf, 1]),
  "nanToNum f16": () => mx.nanToNum(mx.array([nan, inf, -inf, 1], mx.float16)),
  "degrees": ({ F }) => mx.degrees(F),
  "divmod": ({ ints }) => mx.divmod(ints(7, -7), ints(2, 2)),
  "isnan of int": ({ ints }) => mx.isnan(ints(1)),
  "isfinite of int": ({ ints }) => mx.isfinite(ints(1)),
  "logicalXor": ({ B, C }) => mx.logicalXor(B, C),
  ...rows("unary", {
    exp: mx.exp,
    expm1: mx.expm1,
    sin: mx.sin,
    cos: mx.cos,
    tan: mx.tan,
    arctan: mx.arctan,
    sinh: mx.sinh,
    cosh: mx.cosh,
    tanh: mx.tanh,
    arcsinh: mx.arcsinh,
    erf: mx.erf,
    sigmoid: mx.sigmoid,
    square: mx.square,
    reciprocal: mx.reciprocal,
    abs: mx.abs,
    negative: mx.negative,
    floor: mx.floor,
    ceil: mx.ceil,
    round: mx.round,
  }),
  "unary log1p": ({ F }) => mx.log1p(mx.add(mx.abs(F), 0.1)),
  "unary sqrt": ({ F }) => mx.sqrt(mx.add(mx.abs(F), 0.1)),
  "unary rsqrt": ({ F }) => mx.rsqrt(mx.add(mx.abs(F), 0.1)),
  ...rows("nn", {
    relu: mx.nn.relu,
    silu: mx.nn.silu,
    gelu: mx.nn.gelu,
    geluApprox: mx.nn.geluApprox,
    softplus: mx.nn.softplus,
    logSigmoid: mx.nn.logSigmoid,
    leakyRelu: mx.nn.leakyRelu,
    elu: mx.nn.elu,
  }),
};

/** Rows of functions of F alone. */
function rows(group: string, functions: Record<string, (a: mx.Tensor) => mx.Tensor>): Record<string, ArrayRow> {
  return Object.fromEntries(
    Object.entries(functions).map(([name, fn]): [string, ArrayRow] => [`${group} ${name}`, ({ F }) => fn(F)]),
  );
}

type Reduction = (a: mx.Tensor, axis?: number | null, keepdims?: boolean) => mx.Tensor;
const REDUCTIONS: Record<string, Reduction> = {
  sum: mx.sum,
  prod: mx.prod,
  min: mx.min,
  max: mx.max,
  mean: mx.mean,
  var: mx.variance,
  std: mx.std,
  all: mx.all,
  any: mx.any,
  argmin: mx.argmin,
  argmax: mx.argmax,
  logsumexp: mx.logsumexp,
  median: mx.median,
};

type Scan = (a: mx.Tensor, axis?: number | null, options?: mx.ScanOptions) => mx.Tensor;
const SCANS: Record<string, Scan> = {
  cumsum: mx.cumsum,
  cumprod: mx.cumprod,
  cummax: mx.cummax,
  cummin: mx.cummin,
  logcumsumexp: mx.logcumsumexp,
};

const REDUCE: Record<string, ArrayRow> = {
  ...Object.fromEntries(
    Object.entries(REDUCTIONS).flatMap(([name, fn]): [string, ArrayRow][] => [
      [`reduce ${name}`, ({ F }) => fn(F)],
      [`reduce ${name} axis`, ({ F }) => fn(F, 1)],
      [`reduce ${name} keepdims`, ({ F }) => fn(F, 0, true)],
    ]),
  ),
  ...Object.fromEntries(
    Object.entries(SCANS).flatMap(([name, fn]): [string, ArrayRow][] => [
      [`scan ${name}`, ({ F }) => fn(F, 1)],
      [`scan ${name} axis 0`, ({ F }) => fn(F, 0)],
      [`scan ${name} reverse`, ({ F }) => fn(F, 1, { reverse: true })],
      [`scan ${name} flat`, ({ F }) => fn(F)],
    ]),
  ),
  "sum axes": ({ X }) => X.sum([0, 2]),
  "sum bool": ({ B }) => B.sum(),
  "sum int8": () => mx.sum(Int8Array.of(100, 100)),
  "sum uint8": () => mx.sum(Uint8Array.of(200, 100)),
  "prod of an empty part": ({ X, S }) => X.index(S(), S(1, 1), S(2, 2)).prod(),
  "sum empty": () => mx.sum(mx.zeros([0, 3]), 0),
  "prod empty": () => mx.prod(mx.zeros([0])),
  "mean int": ({ X }) => X.mean(-1),
  "var ddof": ({ F }) => F.variance(null, false, 1),
  "max nan": () => mx.max([1, nan, 2]),
  "argmax ties": () => mx.argmax([1, 3, 3]),
  "countNonzero": ({ F }) => mx.countNonzero(mx.greater(F, 0)),
  "mean f16": () => mx.mean(mx.full([8], 2, mx.float16)),
  "cumsum exclusive": ({ F }) => F.cumsum(1, { inclusive: false }),
  "cumsum bool": ({ B }) => B.cumsum(),
  "cumprod reverse exclusive": ({ F }) => F.cumprod(1, { reverse: true, inclusive: false }),
  "softmax": ({ F }) => mx.softmax(F, -1),
  "softmax axis 0": ({ F }) => mx.softmax(F, 0),
  "softmax all": ({ F }) => mx.softmax(F),
  "softmax axes": ({ X }) => mx.softmax(X.astype(mx.float32).divide(7), [0, 2]),
  "softmax of no axes": () => mx.softmax([0, inf, nan], []),
  "softmax -inf": () => mx.softmax([[0, -inf], [1, -inf]], -1),
  "logSoftmax of large": () => mx.nn.logSoftmax([1e7, 1e7, 1e7 - 1], -1),
  "logSoftmax": ({ F }) => mx.nn.logSoftmax(F, -1),
  "sort": () => mx.sort([[3, 1, nan], [-1, 5, 0]]),
  "sort axis 0": ({ F, S }) => mx.sort(F.index(S(ALL, ALL, -1)), 0),
  "sort null": ({ F, S }) => mx.sort(F.index(S(ALL, ALL, -1)), null),
  "argsort": ({ ints }) => mx.argsort(ints(3, 1, 2, 1)),
  "argsort axis 0": ({ F, S }) => mx.argsort(F.index(S(ALL, ALL, -1)), 0),
  "topk": ({ F }) => mx.topk(F, 2, 0),
  "topk flat": ({ F }) => mx.topk(F, 3, ALL),
  "topk all": ({ ints }) => mx.topk(ints(3, 1, 2, 5), 2),
};

/** Rows of one function over many orders. */
function orders(
  what: string,
  list: readonly mx.linalg.NormOrder[],
  norm: (x: Operands, ord: mx.linalg.NormOrder) => mx.Tensor,
): Record<string, ArrayRow> {
  const name = (ord: mx.linalg.NormOrder): string => ord === null ? "None" : `${ord}`.replace("Infinity", "inf");
  return Object.fromEntries(list.map((ord) => [`norm ${name(ord)} ${what}`, (x: Operands) => norm(x, ord)]));
}

const VECTOR_ORDERS = [null, 0, 1, 2, 3, Infinity, -Infinity] as const;
const MATRIX_ORDERS = [null, "fro", 1, -1, Infinity, -Infinity] as const;

const LINALG: Record<string, ArrayRow> = {
  ...orders("of a vector", VECTOR_ORDERS, ({ F }, ord) => mx.linalg.norm(F.index(0), ord)),
  ...orders("along axis 0", VECTOR_ORDERS, ({ F }, ord) => mx.linalg.norm(F, ord, 0, true)),
  ...orders("of matrices", MATRIX_ORDERS, ({ X }, ord) => mx.linalg.norm(X, ord, [2, 0])),
  ...orders("of a matrix", MATRIX_ORDERS, ({ F }, ord) => mx.linalg.norm(F, ord, null, true)),
  "norm of all axes": ({ X }) => mx.linalg.norm(X),
  "cross": ({ F, S }) => mx.linalg.cross(F.index(S(null, null), S(null, 3)), F.index(S(1, 2), S(1))),
  "cross axis 0": ({ F }) => mx.linalg.cross(F, mx.arange(12).reshape(3, 4), 0),
  "cross of 3 and 2": ({ F, S }) =>
    mx.linalg.cross(F.index(S(null, null), S(null, 3)), F.index(S(null, null), S(null, 2))),
  "cross of 2 and 2": ({ F, S }) => mx.linalg.cross(F.index(S(null, null), S(null, 2)), F.index(S(null, null), S(2))),
};

const PRODUCTS: Record<string, ArrayRow> = {
  "matmul": ({ A, D }) => A.matmul(D),
  "matmul batch": ({ A, D }) => mx.matmul(mx.stack([A, A.multiply(2)]), D),
  "matmul batch broadcast": ({ A, D }) =>
    mx.matmul(mx.expandDims(mx.stack([A, A.multiply(2)]), 1), mx.stack([D, D.add(1), D.add(2)])),
  "matmul vector matrix": ({ D }) => mx.matmul([1, 2, 3], D),
  "matmul matrix vector": ({ A }) => mx.matmul(A, [1, 2, 3]),
  "matmul vectors": () => mx.matmul([1, 2], [3, 4]),
  "matmul transposed": ({ A, D }) => mx.matmul(A, D.T.reshape(3, 4)),
  "matmul f16 with f32": ({ A, D }) => mx.matmul(A.astype(mx.float16), D),
  "addmm": ({ A, D }) => mx.addmm([1], A, D, 2, 3),
  "inner": ({ A }) => mx.inner(A, A),
  "outer": ({ ints }) => mx.outer(ints(1, 2), ints(3, 4)),
  "tensordot": ({ X }) => mx.tensordot(X.astype(mx.float32), mx.ones([4, 3]), [[2, 1], [0, 1]]),
  "tensordot 1": ({ A, D }) => mx.tensordot(A, D, 1),
  "trace": ({ D }) => mx.trace(D, 1),
  "kron": ({ ints }) => mx.kron(ints(1, 2), mx.array([[1, 1], [0, 3]], mx.int32)),
  "vecdot": ({ A }) => mx.vecdot(A, A),
  "einsum ij,jk": ({ A, D }) => mx.einsum("ij,jk->ik", A, D),
  "einsum implicit": ({ A, D }) => mx.einsum("ji,jk", A.T, D),
  "einsum bij,bjk->bki": ({ A, D }) => mx.einsum("bij,bjk->bki", mx.stack([A, A.add(1)]), mx.stack([D, D.multiply(2)])),
  "einsum ii->i": ({ A, S }) => mx.einsum("ii->i", A.index(S(), S(ALL, 2))),
  "einsum ij->": ({ A }) => mx.einsum("ij->", A),
  "einsum i,j,k": () => mx.einsum("i,j,k->kji", [1, 2], [3, 4], [5, 6]),
  "einsum ij,ij->i": ({ A }) => mx.einsum("ij,ij->i", A, A),
  "einsum ...": ({ A, D }) =>
    mx.einsum(
      "...ij,...jk",
      mx.expandDims(mx.stack([A, A.add(1)]), 1),
      mx.stack([D, D.multiply(2), D.multiply(3)]),
    ),
  "einsum ... of nothing": ({ A, D }) => mx.einsum("...ij,...jk->...ik", A, D),
  "einsum i...->...i": ({ A }) => mx.einsum("i...->...i", mx.stack([A, A.add(1)])),
  "einsum ...i->i": ({ A }) => mx.einsum("...i->i", A),
  ...Object.fromEntries(
    [1, 2, 3, 4, 5, 6, 8].flatMap((bits): [string, ArrayRow][] => [
      [`quantize ${bits}`, ({ W }) => mx.quantize(W, 32, bits)],
      [`dequantize ${bits}`, ({ W }) => mx.dequantize(...mx.quantize(W, 32, bits), 32, bits)],
      [`quantizedMatmul ${bits}`, ({ F, W, S, line }) => {
        const x = mx.multiply(F.index(S(), S(ALL, 1)), mx.cos(line(64)));
        return mx.quantizedMatmul(x, ...mx.quantize(W, 32, bits), true, 32, bits);
      }],
    ]),
  ),
  ...Object.fromEntries(
    (["mxfp4", "mxfp8", "nvfp4"] as const).flatMap((mode): [string, ArrayRow][] => {
      const packed = (W: mx.Tensor): [mx.Tensor, mx.Tensor] => mx.quantize(W, null, null, mode);
      return [
        [`quantize ${mode}`, ({ W }) => packed(W)],
        [`dequantize ${mode}`, ({ W }) => mx.dequantize(...packed(W), null, null, null, mode)],
        [
          `dequantize ${mode} float16`,
          ({ W }) => mx.dequantize(...packed(W), null, null, null, mode, null, mx.float16),
        ],
        [
          `quantizedMatmul ${mode}`,
          ({ W, line }) =>
            mx.quantizedMatmul(mx.cos(line(192)).reshape([3, 1, 64]), ...packed(W), null, true, null, null, mode),
        ],
        [
          `quantizedMatmul ${mode} no transpose`,
          ({ F, W, S }) => mx.quantizedMatmul(F.index(S(), S(ALL, 2)), ...packed(W), null, false, null, null, mode),
        ],
        [`gatherQmm ${mode}`, ({ W, line }) => {
          const x = mx.cos(line(192)).reshape([3, 1, 64]);
          const [codes, scales] = packed(W).map((part) => mx.expandDims(part, 1));
          return mx.gatherQmm(x, codes, scales, null, [2, 0], [[1], [0]], true, null, null, mode);
        }],
        [
          `qqmm ${mode}`,
          ({ W, line }) => mx.qqmm(mx.cos(line(64)).reshape([1, 64]), ...packed(W), null, null, mode),
        ],
      ];
    }),
  ),
  "quantize global scale": ({ W }) => mx.quantize(W, null, null, "nvfp4", { globalScale: 3 }),
  "dequantize global scale": ({ W }) => {
    const parts = mx.quantize(W, null, null, "nvfp4", { globalScale: 3 });
    return mx.dequantize(...parts, null, null, null, { mode: "nvfp4", globalScale: 3, dtype: mx.float32 });
  },
  "gatherQmm": ({ W, line }) => {
    const [codes, scales, biases] = mx.quantize(W, 32, 4).map((part) => mx.expandDims(part, 1));
    const x = mx.cos(line(192)).reshape([3, 1, 64]);
    return mx.gatherQmm(x, codes, scales, biases, null, [1, 0, 1], true, 32, 4, null, null, { sortedIndices: false });
  },
  "quantizedMatmul no transpose": ({ F, W, S }) =>
    mx.quantizedMatmul(F.index(S(), S(ALL, 2)), ...mx.quantize(W, 64, 4), false, 64, 4),
  "quantizedMatmul vector": ({ W, line }) =>
    mx.quantizedMatmul(mx.cos(line(64)), ...mx.quantize(W, 64, 4), true, 64, 4),
};

const FAST: Record<string, ArrayRow> = {
  "rmsNorm": ({ F }) => mx.fast.rmsNorm(F, [1, 2, 3, 4], 1e-5),
  "rmsNorm no weight": ({ F }) => mx.fast.rmsNorm(F, null, 1e-5),
  "layerNorm": ({ F }) => mx.fast.layerNorm(F, [1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], 1e-5),
  "rope": ({ R }) => mx.fast.rope(R, 8, { offset: 3 }),
  "rope traditional": ({ R }) => mx.fast.rope(R, 8, { traditional: true, offset: 1 }),
  "rope partial": ({ R }) => mx.fast.rope(R, 4),
  "rope scale": ({ R }) => mx.fast.rope(R, 8, { scale: 0.5, base: 1e6 }),
  "rope array offset": ({ R }) => mx.fast.rope(R, 8, { offset: mx.array(5, mx.int32) }),
  "rope batch offsets": ({ R, ints }) => mx.fast.rope(R, 8, { offset: ints(2, 7) }),
  "rope freqs": ({ R }) => mx.fast.rope(R, 8, { freqs: [1, 2, 4, 8] }),
  "rope 3d": ({ R }) => mx.fast.rope(R.index(0), 8, { offset: 2 }),
  "sdpa": ({ Q, KK, V }) => mx.fast.scaledDotProductAttention(Q, KK, V, { scale: SCALE }),
  "sdpa causal": ({ Q, KK, V }) => mx.fast.scaledDotProductAttention(Q, KK, V, { scale: SCALE, mask: "causal" }),
  "sdpa bool": ({ Q, KK, V, M }) => mx.fast.scaledDotProductAttention(Q, KK, V, { scale: SCALE, mask: M }),
  "sdpa add": ({ Q, KK, V, M }) =>
    mx.fast.scaledDotProductAttention(Q, KK, V, { scale: SCALE, mask: mx.where(M, 0, -2) }),
  "sdpa sinks": ({ Q, KK, V }) => mx.fast.scaledDotProductAttention(Q, KK, V, { scale: SCALE, sinks: [0, 1, 2, -1] }),
  "sdpa length": ({ Q, KK, V, ints }) =>
    mx.fast.scaledDotProductAttention(Q, KK, V, { scale: SCALE, mask: "causal", lengths: ints(4) }),
};

const { random } = mx;
const parts = (z: mx.AnyTensor): mx.AnyTensor[] => [mx.real(z), mx.imag(z)];
const MEAN = [1, -2, 0.5];
const COV = [[2, 0.5, 0.1], [0.5, 1, -0.3], [0.1, -0.3, 0.7]];
const RANDOM: Record<string, ArrayRow> = {
  "random uniform": ({ K }) => random.uniform(0, 1, [3], mx.float32, K),
  "random uniform 5": ({ K }) => random.uniform(0, 1, 5, mx.float32, K),
  "random uniform range": ({ K }) => random.uniform(2, 5, [3], mx.float32, K),
  "random uniform f16": ({ K }) => random.uniform(0, 1, [3], mx.float16, K),
  "random uniform bf16": ({ K }) => random.uniform(0, 1, [3], mx.bfloat16, K),
  "random normal": ({ K }) => random.normal([7], mx.float32, null, null, K),
  "random normal loc scale": ({ K }) => random.normal([3], mx.float32, 1, 2, K),
  "random normal f16": ({ K }) => random.normal([3], mx.float16, null, null, K),
  "random split": ({ K }) => random.split(K, 3),
  "random split 2": ({ K }) => random.split(K),
  "random key": () => random.key(2 ** 33 + 5),
  "random bernoulli": ({ K }) => random.bernoulli(0.5, [6], K),
  "random randint": ({ K }) => random.randint(0, 10, [8], mx.int32, K),
  "random randint bounds": ({ K, ints }) => random.randint(-5, ints(5, 10), [3, 2], mx.int32, K),
  "random gumbel": ({ K }) => random.gumbel([3], mx.float32, K),
  "random truncatedNormal": ({ K }) => random.truncatedNormal(-1, 1, [3], mx.float32, K),
  "random laplace at": ({ K }) => mx.random.laplace([3], mx.float32, 2, 3, K),
  "random laplace": ({ K }) => random.laplace([3], mx.float32, 0, 1, K),
  "random permutation": ({ K }) => random.permutation(8, 0, K),
  "random permutation axis": ({ K }) => random.permutation(mx.arange(6).reshape(2, 3), 1, K),
  "random categorical": ({ L, K }) => random.categorical(L, -1, { key: K }),
  "random categorical one row": ({ L, K }) => random.categorical(L.reshape(1, 4), -1, { key: K }),
  "random categorical rows": ({ L2, K }) => random.categorical(L2, -1, { key: K }),
  "random categorical samples": ({ L, K }) => random.categorical(L, -1, { numSamples: 7, key: K }),
  "random categorical rows samples": ({ L2, K }) => random.categorical(L2, -1, { numSamples: 3, key: K }),
  "random categorical shape": ({ L, K }) => random.categorical(L, -1, { shape: [4], key: K }),
  "random categorical axis 0": ({ K }) => random.categorical([[0, 1], [3, 2], [0, 0]], 0, { key: K }),
  "random key of 64 bits": () => random.key(2n ** 64n - 1n),
  "random normal loc scale arrays": ({ K }) => random.normal([3, 2], mx.float32, [1, -1], [[1], [2], [3]], K),
  "random randint int64": ({ K }) => random.randint(-5, 2 ** 40, [5], mx.int64, K),
  "random randint uint64": ({ K }) => random.randint(7, 2 ** 50, [5], mx.uint64, K),
  "random randint int64 bounds": ({ K }) => random.randint(2 ** 40, 2 ** 40 + 1024, [5], mx.int64, K),
  "random normal complex64": ({ K }) => parts(random.normal([2, 3], mx.complex64, null, null, K)),
  "random normal complex64 loc scale": ({ K }) => parts(random.normal([3], mx.complex64, mx.complex(1, 2), 0.5, K)),
  "random gumbel f16": ({ K }) => random.gumbel([5], mx.float16, K),
  "random truncatedNormal arrays": ({ K }) => random.truncatedNormal([-1, 0], [[1], [2]], null, null, K),
  "random multivariateNormal": ({ K }) => random.multivariateNormal(MEAN, COV, [], null, K),
  "random multivariateNormal shape": ({ K }) => random.multivariateNormal(MEAN, COV, [4, 2], mx.float32, K),
  "random multivariateNormal batch": ({ K }) =>
    random.multivariateNormal(
      [MEAN, MEAN.map((x) => -x)],
      mx.stack([mx.array(COV), mx.multiply(COV, 2)]).reshape(2, 1, 3, 3),
      [],
      null,
      K,
    ),
  "random state": () => {
    random.seed(7);
    return [random.uniform(0, 1, [2]), random.normal([2]), random.randint(0, 100, [3])];
  },
};

const TRANSFORMS: Record<string, ArrayRow> = {
  ...Object.fromEntries([1, 2, 12, 20, 24, 28, 160].map((n): [string, ArrayRow] => [
    `hadamard ${n}`,
    ({ line }) => mx.hadamardTransform(line(2 * n).reshape(2, n)),
  ])),
  "hadamard scale": ({ line }) => mx.hadamardTransform(line(56).reshape(1, 56), 0.5),
  "hadamard f16": ({ line }) => mx.hadamardTransform(line(128).astype(mx.float16)),
  "hadamard ints": ({ ints }) => mx.hadamardTransform(ints(3, 4, 5, 6), 1),
  "hadamard number": () => mx.hadamardTransform(mx.array(5, mx.int32)),
};

const ROWS: Record<string, ArrayRow> = {
  ...INDEX,
  ...MOVEMENT,
  ...ELEMENTWISE,
  ...REDUCE,
  ...LINALG,
  ...PRODUCTS,
  ...FAST,
  ...RANDOM,
  ...TRANSFORMS,
  ...LIMITS,
};

/** Names of all rows. */
export const NAMES: readonly string[] = Object.keys(ROWS);

/** Runs one row; call it inside `mx.tidy()`. */
export function runRow(name: string): readonly mx.Tensor[] {
  const result = ROWS[name](operands());
  return result instanceof mx.Tensor ? [result] : result;
}
