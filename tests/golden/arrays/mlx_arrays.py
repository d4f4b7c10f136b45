"""Writes mlx_arrays.json: results of MLX for the calls of tests/ops/tensor/array_rows.ts, row by row under the same name.

python3 tests/golden/arrays/mlx_arrays.py     (PyPI: mlx[cpu]; the file was made with 0.32)
"""

import json
import math
import os

import mlx.core as mx
import mlx.nn as nn

X = mx.arange(24).reshape(2, 3, 4)
F = (mx.arange(12).astype(mx.float32) - 5.5).reshape(3, 4) / 3
I = mx.array([0, 1, 1, 0, 1])
B = mx.array([True, True, False, False])
C = mx.array([True, False, True, False])
K = mx.random.key(0)
inf = float("inf")
nan = float("nan")
W = ((mx.arange(2 * 64).reshape(2, 64) * 37) % 101).astype(mx.float32) / 50 - 1
Q = mx.sin(mx.arange(2 * 4 * 3 * 8).astype(mx.float32)).reshape(2, 4, 3, 8)
KK = mx.cos(mx.arange(2 * 2 * 5 * 8).astype(mx.float32) * 0.7).reshape(2, 2, 5, 8)
V = mx.sin(mx.arange(2 * 2 * 5 * 8).astype(mx.float32) * 1.3).reshape(2, 2, 5, 8)
M = mx.arange(3 * 5).reshape(3, 5) % 3 != 0


def put(a, i, v):
    a = mx.array(a)
    a[i] = v
    return a


G = {}


def g(n, f):
    y = f()
    ys = y if isinstance(y, (list, tuple)) else [y]
    out = []
    for t in ys:
        mx.eval(t)

        def conv(v):
            if isinstance(v, list):
                return [conv(u) for u in v]
            if isinstance(v, float) and not math.isfinite(v):
                return "nan" if v != v else ("inf" if v > 0 else "-inf")
            return v

        out.append({"shape": list(t.shape), "dtype": str(t.dtype).split(".")[-1], "values": conv(t.tolist())})
    G[n] = out


s = slice
g("index: 0", lambda: X[0])
g("index: -1, 1:", lambda: X[-1, 1:])
g("index: ..., ::2", lambda: X[..., ::2])
g("index: ::-1, 1:10:2", lambda: X[::-1, 1:10:2])
g("index: :, ::-1, ::-3", lambda: X[:, ::-1, ::-3])
g("index: null, 1, ..., null", lambda: X[None, 1, ..., None])
g("index: :, 2:1", lambda: X[:, 2:1])
g("index: array", lambda: X[I])
g("index: 0, :, array", lambda: X[0, :, I])
g("index: array, :, 0", lambda: X[I, :, 0])
g("index: array, :, array", lambda: X[I, :, I])
g("index: :, array, array", lambda: X[:, I, I])
g("index: :, 0, array", lambda: X[:, 0, I])
g("index: array, null, 0", lambda: X[I, None, 0])
g("index: :, array, null, 0", lambda: X[:, I, None, 0])
g("index: array row, :, array column", lambda: X[I[None], :, I[:, None]])
g("index: small arrays", lambda: mx.arange(640).reshape(20, 32)[mx.array([19], mx.uint8), mx.array([30], mx.uint8)])
g("index: small array and negative", lambda: mx.arange(900).reshape(3, 300)[mx.array([-1], mx.int8), mx.array([299])])
g("index: 1:, array, ::2", lambda: X[1:, I, ::2])
g("index: negative array", lambda: X[:, mx.array([-1, 0, -2])])
g("index: negative arrays", lambda: X[mx.array([-1, 0]), mx.array([-1, -3])])
g("take flat", lambda: mx.take(X, mx.array([[0, 23], [5, 7]])))
g("take axis 1", lambda: mx.take(X, mx.array([2, 0]), axis=1))
g("take scalar", lambda: mx.take(X, 1, axis=2))
g("takeAlongAxis", lambda: mx.take_along_axis(F, mx.array([[3, 0], [1, 1], [2, 3]]), axis=1))
g("takeAlongAxis broadcast", lambda: mx.take_along_axis(F, mx.array([[3, 0]]), axis=1))
g("takeAlongAxis null", lambda: mx.take_along_axis(F, mx.array([3, 11]), axis=None))
g("putAlongAxis", lambda: mx.put_along_axis(F, mx.array([[3, 0], [1, 2], [2, 3]]), mx.array(9.0), axis=1))
g("putAlongAxis axis 0", lambda: mx.put_along_axis(F, mx.array([[2, 0, 1, 2]]), mx.array([[1.0, 2, 3, 4]]), axis=0))
Z = mx.zeros((2, 3))
g("put: 0", lambda: put(Z, 0, 5))
g("put: :, 1:", lambda: put(Z, (s(None), s(1, None)), mx.array([[1.0], [2]])))
g("put: ..., -1", lambda: put(Z, (..., -1), mx.array([7.0, 8])))
g("put: ::-1", lambda: put(mx.arange(4), s(None, None, -1), mx.arange(4) * 10))
g("put: 1::2", lambda: put(mx.arange(6), s(1, None, 2), 9))
g("put: int cast", lambda: put(mx.array([1, 2]), 0, 2.7))
g("put: array", lambda: put(X, mx.array([1]), 0))
g("put: :, array", lambda: put(Z, (s(None), mx.array([0, 2])), mx.array([[1.0, 2], [3, 4]])))
g("put: arrays", lambda: put(X, (mx.array([0, 1]), mx.array([2, 0])), -1))
g("put: 0, array, 1:3", lambda: put(X, (0, mx.array([0, 2]), s(1, 3)), mx.array([[90, 91], [92, 93]])))
g(
    "put: array, :, array",
    lambda: put(X, (mx.array([0, 1]), s(None), mx.array([3, 0])), mx.array([[-1, -2, -3], [-4, -5, -6]])),
)
g("put: mask scalar", lambda: put(mx.arange(4), C, -1))
g("put: mask values", lambda: put(mx.arange(4), C, mx.array([9, 8])))
g("put: mask rows", lambda: put(Z, mx.array([True, False]), 5))
g("put: mask row vector", lambda: put(Z, mx.array([False, True]), mx.array([1.0, 2, 3])))
P = mx.array([0, 0, 2])
O = mx.ones((3,))
g("at add", lambda: mx.zeros((3,)).at[P].add(mx.array([1.0, 2, 3])))
g("at subtract", lambda: O.at[P].subtract(mx.array([1.0, 2, 3])))
g("at subtract of bools", lambda: mx.array([True, False, False]).at[P].subtract(mx.array([0, 3, 1])))
g("at multiply", lambda: O.at[P].multiply(mx.array([2.0, 3, 4])))
g("at divide", lambda: O.at[P].divide(mx.array([2.0, 2, 4])))
g("at maximum", lambda: O.at[P].maximum(mx.array([5.0, -2, 0])))
g("at minimum", lambda: O.at[P].minimum(mx.array([5.0, -2, 0])))
g("at slice add", lambda: F.at[1:, ::2].add(10))
g("at rows add", lambda: F.at[mx.array([0, 0])].add(1))
g("slice", lambda: mx.slice(X, mx.array([1, 1]), (0, 2), (1, 3, 2)))
g("sliceUpdate", lambda: mx.slice_update(F, mx.ones((2, 2)), mx.array([1, 2]), (0, 1)))
# movement
g("reshape", lambda: X.reshape(4, -1))
g("flatten", lambda: mx.flatten(X, 1))
g("flatten middle", lambda: mx.flatten(X, 0, 1))
g("flatten scalar", lambda: mx.flatten(mx.array(1)))
g("unflatten", lambda: mx.unflatten(X, 2, (2, -1)))
g("squeeze", lambda: mx.squeeze(mx.zeros((1, 3, 1))))
g("expandDims", lambda: mx.expand_dims(X, (0, -1)))
g("transpose", lambda: mx.transpose(X, (2, 0, 1)))
g("transpose list", lambda: X.transpose([2, 0, 1]))
g("transpose all", lambda: X.transpose())
g("T", lambda: X.T)
g("swapaxes", lambda: mx.swapaxes(X, 0, -1))
g("moveaxis", lambda: mx.moveaxis(X, 0, -1))
g("broadcastTo", lambda: mx.broadcast_to(mx.array([1, 2]), (2, 2)))
g("concatenate", lambda: mx.concatenate([X, X * 2], 1))
g("concatenate null", lambda: mx.concatenate([mx.array([[1, 2]]), mx.array([3.5])], None))
g("stack", lambda: mx.stack([mx.array([1, 2]), mx.array([3, 4])], -1))
g("split", lambda: mx.split(X, 2, 2))
g("split indices", lambda: mx.split(mx.arange(7), [2, 5]))
g("repeat", lambda: mx.repeat(mx.array([[1, 2], [3, 4]]), 2))
g("repeat axis", lambda: mx.repeat(mx.array([[1, 2], [3, 4]]), 2, 1))
g("tile", lambda: mx.tile(mx.array([[1, 2], [3, 4]]), (2, 1, 2)))
g("pad", lambda: mx.pad(mx.array([[1, 2], [3, 4]]), ((1, 0), (0, 2)), constant_values=7))
g("pad edge", lambda: mx.pad(mx.array([[1, 2], [3, 4]]), 1, "edge"))
g("flip", lambda: X[::-1, :, ::-1])
g("roll", lambda: mx.roll(X, (1, -1), (1, 2)))
g("roll one axis twice", lambda: mx.roll(X, (1, 2), 2))
g("roll flat", lambda: mx.roll(X, 5))
g("asStrided", lambda: mx.as_strided(X, (3, 2), (4, 2), 1))
g("atleast2d", lambda: mx.atleast_2d(mx.array([1, 2])))
g("atleast3d", lambda: mx.atleast_3d(mx.array([1, 2])))
g("diagonal", lambda: mx.diagonal(X, 1, 1, 2))
g("diagonal below", lambda: mx.diagonal(F, -1))
g("diag", lambda: mx.diag(mx.array([1, 2]), -1))
g("astype", lambda: F.astype(mx.int32))
g("astype bool", lambda: mx.array([0.5, 0, nan]).astype(mx.bool_))
# creation
g("arange float", lambda: mx.arange(0, 1, 0.25))
g("arange down", lambda: mx.arange(5, 0, -2))
g("arange empty", lambda: mx.arange(3, 0))
g("linspace", lambda: mx.linspace(-1, 1, 6))
g("linspace open", lambda: mx.linspace(0, 1, 5, endpoint=False))
g("eye", lambda: mx.eye(2, 3, 1))
g("tri", lambda: mx.tri(3, 4, -1))
g("tril", lambda: mx.tril(F, 1))
g("triu", lambda: mx.triu(X))
g("meshgrid", lambda: list(mx.meshgrid(mx.array([1, 2]), mx.array([3, 4, 5]))))
g("meshgrid empty", lambda: list(mx.meshgrid(mx.zeros((0,)), mx.array([1, 2]))))
g("meshgrid ij sparse", lambda: list(mx.meshgrid(mx.array([1, 2]), mx.array([3, 4, 5]), sparse=True, indexing="ij")))
g("full bool", lambda: mx.full((2,), True))
# elementwise dtypes and quirks
for f in (
    "add subtract multiply maximum minimum power remainder bitwise_xor left_shift right_shift less logical_and".split()
):
    g("bool " + f, lambda: getattr(mx, f)(B, mx.array([True] * 4) if f == "remainder" else C))
g("bool invert", lambda: mx.bitwise_invert(B))
g("bool divide", lambda: mx.divide(B, mx.array([True] * 4)))
E = mx.array([inf, -inf, nan, 1])
g("infinite less itself", lambda: E - E)
g("bool square", lambda: mx.square(B))
g("bool abs", lambda: mx.abs(B))
g("bool floor", lambda: mx.floor(B))
g("int floorDivide", lambda: mx.array([-5, 5, -6]) // mx.array([3, -3, 3]))
for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
    zeros = mx.array([7, 0, 5, 100]).astype(getattr(mx, name)), mx.array([0, 0, 3, 0]).astype(getattr(mx, name))
    g(f"{name} remainder of 0", lambda: mx.remainder(*zeros))
g("negative remainder of 0", lambda: mx.array([-7, -5]) % mx.array([0, 3]))
g("int remainder", lambda: mx.array([-5, 5, -6]) % mx.array([3, -3, 3]))
g("float floorDivide", lambda: mx.array([-5.0, 5, 7.5]) // 3)
g("float remainder", lambda: mx.array([-5.0, 5, 7.5]) % 3)
g("int divide", lambda: mx.array([1, 2]) / mx.array([2, 4]))
g("int power", lambda: mx.array([2, 3]) ** mx.array([3, 2]))
g("int power, negative", lambda: mx.array([1, -1, 2, -2, 0, -1]) ** mx.array([-1, -1, -1, -2, -1, -2]))
g("uint8 wraps", lambda: mx.array([250], mx.uint8) + mx.array([10], mx.uint8))
g("uint8 with number", lambda: mx.array([250], mx.uint8) + 10)
g("int with fraction", lambda: mx.array([1]) + 2.5)
g("f16 with number", lambda: mx.array([1], mx.float16) + 2.5)
g("f16 with bf16", lambda: mx.array([1], mx.float16) + mx.array([1], mx.bfloat16))
g("bool with number", lambda: mx.array([True]) + 1)
g("int8 with uint8", lambda: mx.array([1], mx.int8) + mx.array([2], mx.uint8))
g("round", lambda: mx.round(mx.array([0.5, 1.5, 2.5, -0.5, -1.5])))
g("round 1", lambda: mx.round(mx.array([1.25, 15.0, -2.55]), 1))
g("round int -1", lambda: mx.round(mx.array([15, 25, 34]), -1))
g("sign", lambda: mx.sign(F))
g("sign nan", lambda: mx.sign(mx.array([nan, -0.0, -inf])))
g("median nan", lambda: mx.median(mx.array([[1, nan, 3], [2, 5, 4]]), 1))
g("where", lambda: mx.where(F > 0, F, 0))
g("where ints", lambda: mx.where(mx.array([1, 0]), mx.array([1, 2]), mx.array([1.5])))
g("clip", lambda: mx.clip(F, -1, None))
g("clip int by fraction", lambda: mx.clip(mx.array([1, 2, 3]), None, 2.5))
g("maximum nan", lambda: mx.maximum(mx.array([nan, 1.0]), mx.array([1.0, nan])))
g("logaddexp", lambda: mx.logaddexp(mx.array([0.0, -inf, 1000]), mx.array([0.0, -inf, 1000])))
g("isclose", lambda: mx.isclose(mx.array([1, inf, -inf, nan]), mx.array([1.000001, inf, inf, nan])))
g("isclose nan", lambda: mx.isclose(mx.array([nan]), mx.array([nan]), equal_nan=True))
g("allclose", lambda: mx.allclose(F, F + 1e-9))
g("arrayEqual", lambda: mx.array_equal(mx.array([1, 2]), mx.array([1.0, 2])))
g("arrayEqual shapes", lambda: mx.array_equal(mx.array([1, 2]), mx.array([1])))
g("nanToNum", lambda: mx.nan_to_num(mx.array([nan, inf, -inf, 1])))
g("nanToNum f16", lambda: mx.nan_to_num(mx.array([nan, inf, -inf, 1], mx.float16)))
g("degrees", lambda: mx.degrees(F))
g("divmod", lambda: mx.divmod(mx.array([7, -7]), mx.array([2, 2])))
g("isnan of int", lambda: mx.isnan(mx.array([1])))
g("isfinite of int", lambda: mx.isfinite(mx.array([1])))
g("logicalXor", lambda: mx.logical_xor(B, C))
for f in "exp expm1 log1p sqrt rsqrt sin cos tan arctan sinh cosh tanh arcsinh erf sigmoid square reciprocal abs negative floor ceil round".split():
    g("unary " + f, lambda: getattr(mx, f)(mx.abs(F) + 0.1 if f in ("log1p", "sqrt", "rsqrt") else F))
# reductions
for f in "sum prod min max mean var std all any argmin argmax logsumexp median".split():
    g("reduce " + f, lambda: getattr(mx, f)(F))
    g("reduce " + f + " axis", lambda: getattr(mx, f)(F, axis=1))
    g("reduce " + f + " keepdims", lambda: getattr(mx, f)(F, axis=0, keepdims=True))
g("sum axes", lambda: mx.sum(X, axis=(0, 2)))
g("sum bool", lambda: mx.sum(B))
g("sum int8", lambda: mx.sum(mx.array([100, 100], mx.int8)))
g("sum uint8", lambda: mx.sum(mx.array([200, 100], mx.uint8)))
g("prod of an empty part", lambda: mx.prod(X[:, 1:1, 2:2]))
g("sum empty", lambda: mx.sum(mx.zeros((0, 3)), axis=0))
g("prod empty", lambda: mx.prod(mx.zeros((0,))))
g("mean int", lambda: mx.mean(X, axis=-1))
g("var ddof", lambda: mx.var(F, ddof=1))
g("max nan", lambda: mx.max(mx.array([1, nan, 2])))
g("argmax ties", lambda: mx.argmax(mx.array([1, 3, 3])))
g("countNonzero", lambda: mx.sum(F > 0))
g("mean f16", lambda: mx.mean(mx.full((8,), 2.0, mx.float16)))
for f in "cumsum cumprod cummax cummin logcumsumexp".split():
    g("scan " + f, lambda: getattr(mx, f)(F, axis=1))
    g("scan " + f + " axis 0", lambda: getattr(mx, f)(F, axis=0))
    g("scan " + f + " reverse", lambda: getattr(mx, f)(F, axis=1, reverse=True))
    g("scan " + f + " flat", lambda: getattr(mx, f)(F))
g("cumsum exclusive", lambda: mx.cumsum(F, axis=1, inclusive=False))
g("cumsum bool", lambda: mx.cumsum(B))
g("cumprod reverse exclusive", lambda: mx.cumprod(F, axis=1, reverse=True, inclusive=False))
g("softmax", lambda: mx.softmax(F, -1))
g("softmax axis 0", lambda: mx.softmax(F, 0))
g("softmax all", lambda: mx.softmax(F))
g("softmax axes", lambda: mx.softmax(X.astype(mx.float32) / 7, (0, 2)))
g("softmax of no axes", lambda: mx.softmax(mx.array([0, inf, nan]), []))
g("softmax -inf", lambda: mx.softmax(mx.array([[0.0, -inf], [1, -inf]]), -1))
g("logSoftmax of large", lambda: nn.log_softmax(mx.array([1e7, 1e7, 1e7 - 1]), -1))
g("logSoftmax", lambda: nn.log_softmax(F, -1))
g("sort", lambda: mx.sort(mx.array([[3.0, 1, nan], [-1, 5, 0]])))
g("sort axis 0", lambda: mx.sort(F[::-1], axis=0))
g("sort null", lambda: mx.sort(F[::-1], axis=None))
g("argsort", lambda: mx.argsort(mx.array([3, 1, 2, 1])))
g("argsort axis 0", lambda: mx.argsort(F[::-1], axis=0))
g("topk", lambda: mx.sort(mx.topk(F, 2, axis=0), axis=0))
g("topk flat", lambda: mx.sort(mx.topk(F, 3, axis=None)))
g("topk all", lambda: mx.sort(mx.topk(mx.array([3, 1, 2, 5]), 2)))
# linalg
A = mx.arange(6).astype(mx.float32).reshape(2, 3)
D = mx.arange(12).astype(mx.float32).reshape(3, 4)
g("matmul", lambda: A @ D)
g("matmul batch", lambda: mx.stack([A, A * 2]) @ D)
g("matmul batch broadcast", lambda: mx.stack([A, A * 2])[:, None] @ mx.stack([D, D + 1, D + 2]))
g("matmul vector matrix", lambda: mx.array([1.0, 2, 3]) @ D)
g("matmul matrix vector", lambda: A @ mx.array([1.0, 2, 3]))
g("matmul vectors", lambda: mx.array([1.0, 2]) @ mx.array([3.0, 4]))
g("matmul transposed", lambda: A @ (D.T.reshape(3, 4)))
g("matmul f16 with f32", lambda: A.astype(mx.float16) @ D)
g("addmm", lambda: mx.addmm(mx.array([1.0]), A, D, 2.0, 3.0))
g("inner", lambda: mx.inner(A, A))
g("outer", lambda: mx.outer(mx.array([1, 2]), mx.array([3, 4])))
g("tensordot", lambda: mx.tensordot(X.astype(mx.float32), mx.ones((4, 3)), [[2, 1], [0, 1]]))
g("tensordot 1", lambda: mx.tensordot(A, D, 1))
g("trace", lambda: mx.trace(D, 1))
g("kron", lambda: mx.kron(mx.array([1, 2]), mx.array([[1, 1], [0, 3]])))
g("vecdot", lambda: mx.vecdot(A, A))
g("einsum ij,jk", lambda: mx.einsum("ij,jk->ik", A, D))
g("einsum implicit", lambda: mx.einsum("ji,jk", A.T, D))
g("einsum bij,bjk->bki", lambda: mx.einsum("bij,bjk->bki", mx.stack([A, A + 1]), mx.stack([D, D * 2])))
g("einsum ii->i", lambda: mx.einsum("ii->i", A[:, :2]))
g("einsum ij->", lambda: mx.einsum("ij->", A))
g("einsum i,j,k", lambda: mx.einsum("i,j,k->kji", mx.array([1.0, 2]), mx.array([3.0, 4]), mx.array([5.0, 6])))
g("einsum ij,ij->i", lambda: mx.einsum("ij,ij->i", A, A))
g("einsum ...", lambda: mx.einsum("...ij,...jk", mx.stack([A, A + 1])[:, None], mx.stack([D, D * 2, D * 3])))
g("einsum ... of nothing", lambda: mx.einsum("...ij,...jk->...ik", A, D))
g("einsum i...->...i", lambda: mx.einsum("i...->...i", mx.stack([A, A + 1])))
g("einsum ...i->i", lambda: mx.einsum("...i->i", A))
for bits in (1, 2, 3, 4, 5, 6, 8):
    g(f"quantize {bits}", lambda: list(mx.quantize(W, 32, bits)))
    q = mx.quantize(W, 32, bits)
    g(f"dequantize {bits}", lambda: mx.dequantize(*q, 32, bits))
    g(
        f"quantizedMatmul {bits}",
        lambda: mx.quantized_matmul(F[:, :1] * mx.cos(mx.arange(64).astype(mx.float32)), *q, True, 32, bits),
    )
g("quantizedMatmul no transpose", lambda: mx.quantized_matmul(F[:, :2], *mx.quantize(W, 64, 4), False, 64, 4))
g(
    "quantizedMatmul vector",
    lambda: mx.quantized_matmul(mx.cos(mx.arange(64).astype(mx.float32)), *mx.quantize(W, 64, 4), True, 64, 4),
)
T = mx.cos(mx.arange(3 * 64).astype(mx.float32)).reshape(3, 1, 64)
for mode in ("mxfp4", "mxfp8", "nvfp4"):
    q = mx.quantize(W, mode=mode)
    g(f"quantize {mode}", lambda: list(q))
    g(f"dequantize {mode}", lambda: mx.dequantize(*q, mode=mode))
    g(f"dequantize {mode} float16", lambda: mx.dequantize(*q, mode=mode, dtype=mx.float16))
    g(f"quantizedMatmul {mode}", lambda: mx.quantized_matmul(T, *q, mode=mode))
    g(f"quantizedMatmul {mode} no transpose", lambda: mx.quantized_matmul(F[:, :2], *q, transpose=False, mode=mode))
    g(
        f"gatherQmm {mode}",
        lambda: mx.gather_qmm(
            T, *[p[:, None] for p in q], lhs_indices=mx.array([2, 0]), rhs_indices=mx.array([[1], [0]]), mode=mode
        ),
    )
    g(f"qqmm {mode}", lambda: mx.qqmm(T[0], *q, mode=mode))
q = mx.quantize(W, mode="nvfp4", global_scale=mx.array(3.0))
g("quantize global scale", lambda: list(q))
g(
    "dequantize global scale",
    lambda: mx.dequantize(*q, mode="nvfp4", global_scale=mx.array(3.0), dtype=mx.float32),
)
q = mx.quantize(W, 32, 4)
g(
    "gatherQmm",
    lambda: mx.gather_qmm(
        T, *[p[:, None] for p in q], rhs_indices=mx.array([1, 0, 1]), group_size=32, bits=4, sorted_indices=True
    ),
)
# fast
g("rmsNorm", lambda: mx.fast.rms_norm(F, mx.array([1.0, 2, 3, 4]), 1e-5))
g("rmsNorm no weight", lambda: mx.fast.rms_norm(F, None, 1e-5))
g("layerNorm", lambda: mx.fast.layer_norm(F, mx.array([1.0, 2, 3, 4]), mx.array([0.1, 0.2, 0.3, 0.4]), 1e-5))
R = mx.arange(2 * 2 * 3 * 8).astype(mx.float32).reshape(2, 2, 3, 8) / 7
rp = lambda **k: mx.fast.rope(
    R, k.pop("dims", 8), **{"traditional": False, "base": 1e4, "scale": 1.0, "offset": 0, **k}
)
g("rope", lambda: rp(offset=3))
g("rope traditional", lambda: rp(traditional=True, offset=1))
g("rope partial", lambda: rp(dims=4))
g("rope scale", lambda: rp(scale=0.5, base=1e6))
g("rope array offset", lambda: rp(offset=mx.array(5)))
g("rope batch offsets", lambda: rp(offset=mx.array([2, 7])))
g("rope freqs", lambda: rp(base=None, freqs=mx.array([1.0, 2, 4, 8])))
g("rope 3d", lambda: mx.fast.rope(R[0], 8, traditional=False, base=1e4, scale=1.0, offset=2))
sd = lambda **k: mx.fast.scaled_dot_product_attention(Q, KK, V, scale=8**-0.5, **k)
g("sdpa", lambda: sd())
g("sdpa causal", lambda: sd(mask="causal"))
g("sdpa bool", lambda: sd(mask=M))
g("sdpa add", lambda: sd(mask=mx.where(M, 0.0, -2.0)))
g("sdpa sinks", lambda: sd(sinks=mx.array([0.0, 1, 2, -1])))
g(
    "sdpa length",
    lambda: mx.fast.scaled_dot_product_attention(Q, KK[:, :, :4], V[:, :, :4], scale=8**-0.5, mask="causal"),
)
# linalg
for p in (None, 0, 1, 2, 3, inf, -inf):
    g(f"norm {p} of a vector", lambda: mx.linalg.norm(F[0], p))
    g(f"norm {p} along axis 0", lambda: mx.linalg.norm(F, p, axis=0, keepdims=True))
for p in (None, "fro", 1, -1, inf, -inf):
    g(f"norm {p} of matrices", lambda: mx.linalg.norm(X, p, axis=[2, 0]))
    g(f"norm {p} of a matrix", lambda: mx.linalg.norm(F, p, keepdims=True))
g("norm of all axes", lambda: mx.linalg.norm(X))
g("cross", lambda: mx.linalg.cross(F[:, :3], F[1:2, 1:]))
g("cross axis 0", lambda: mx.linalg.cross(F, mx.arange(12).reshape(3, 4), axis=0))
g("cross of 3 and 2", lambda: mx.linalg.cross(F[:, :3], F[:, :2]))
g("cross of 2 and 2", lambda: mx.linalg.cross(F[:, :2], F[:, 2:]))
# nn
for f, h in (
    ("relu", nn.relu),
    ("silu", nn.silu),
    ("gelu", nn.gelu),
    ("geluApprox", nn.gelu_approx),
    ("softplus", nn.softplus),
    ("logSigmoid", nn.log_sigmoid),
    ("leakyRelu", nn.leaky_relu),
    ("elu", nn.elu),
):
    g("nn " + f, lambda: h(F))
# addmm: alpha, beta and c meet the sum before it is rounded
AH, BH = mx.full((1, 4), 200.0, mx.float16), mx.full((4, 1), 400.0, mx.float16)
g("addmm alpha f16", lambda: mx.addmm(mx.zeros((1, 1), mx.float16), AH, BH, 0.04))
g("addmm f16 and f32", lambda: mx.addmm(mx.ones((1, 1)), AH, BH, 0.04))
g("addmm f16 and int", lambda: mx.addmm(mx.array([[3]]), AH, BH, 0.04, 2.0))
g("addmm beta 0", lambda: mx.addmm(mx.full((1, 1), nan, mx.float16), AH, BH, 0.01, 0.0))
g("addmm beta 0 f32", lambda: mx.addmm(mx.full((4,), inf), A, D, 0.5, 0.0))
g("addmm alpha 0", lambda: mx.addmm(mx.full((1, 1), 2.0), mx.full((1, 4), nan), mx.ones((4, 1)), 0.0, 3.0))
g("addmm bf16", lambda: mx.addmm(mx.ones((1, 1), mx.bfloat16), mx.full((1, 3), 1.01, mx.bfloat16), mx.full((3, 1), 1.01, mx.bfloat16), 0.3, 0.7))
g("addmm int matrices", lambda: mx.addmm(mx.array([0.5, 0.25]), mx.array([[1, 2]]), mx.array([[3, 4], [5, 6]])))
g("addmm vectors", lambda: [mx.addmm(mx.array(1.0), mx.ones((4,)), mx.ones((4,))), mx.addmm(mx.ones((3,)), mx.ones((4,)), mx.ones((4, 3))), mx.addmm(mx.ones((2,)), mx.ones((2, 4)), mx.ones((4,)))])
g("addmm batch", lambda: mx.addmm(mx.arange(2).astype(mx.float32).reshape(2, 1, 1), mx.ones((2, 2, 4)), mx.ones((4, 3))))
g("vecdot axis 0", lambda: mx.vecdot(F, F[:, :1], axis=0))
g("vecdot broadcast", lambda: mx.vecdot(F[None], F[:, None], axis=-1))
g("arange fractions of ints", lambda: [mx.arange(0.5, 5, 1.5, mx.int32), mx.arange(-3, 3, 1.7, mx.int32), mx.arange(0, 3, 0.5, mx.uint8)])
g("arange infinite step", lambda: [mx.arange(2, 10, inf, mx.int32), mx.arange(2.5, 10, inf), mx.arange(0, 10, -inf, mx.int32), mx.arange(10, 0, -inf, mx.int32)])
g("putAlongAxis broadcast", lambda: [mx.put_along_axis(mx.zeros((1, 3)), mx.array([[0, 1], [1, 2]]), mx.ones((2, 2)), 1), mx.put_along_axis(mx.zeros((2, 3)), mx.array([[0, 1]]), mx.array([5.0, 6]), 1), mx.put_along_axis(mx.zeros((2, 3)), mx.array([[2], [0]]), mx.array([[[5.0, 6]]]), 1)])
g("putAlongAxis flat", lambda: mx.put_along_axis(F, mx.array([0, 5]), mx.array([7.0, 8]), None))
g("putAlongAxis empty", lambda: [mx.put_along_axis(mx.zeros((0,)), mx.array([]), mx.array([]), None), mx.put_along_axis(mx.zeros((0, 3)), mx.array([], mx.int32), mx.array(1.0), None), mx.put_along_axis(mx.zeros((0,)), mx.array([0, 1]), mx.zeros((2,)), None), mx.put_along_axis(mx.zeros((0, 3)), mx.array([[5, 5, 5]]), mx.array(1.0), 0)])
TRIG = mx.array([1e8, -1e9, 1e20, 3e38, 16777218.0])
g("sin far", lambda: mx.sin(TRIG))
g("cos far", lambda: mx.cos(TRIG))
g("tan far", lambda: mx.tan(TRIG))
g("sign of nan", lambda: [mx.sign(mx.array([nan, inf, -inf, -0.0, -2], t)) for t in (mx.float32, mx.float16, mx.bfloat16)])
# random
L = mx.array([0.0, 1, 2, 3])
L2 = mx.array([[0.0, 1, 2, 3], [3, 2, 1, 0]])
g("random uniform", lambda: mx.random.uniform(shape=(3,), key=K))
g("random uniform 5", lambda: mx.random.uniform(shape=(5,), key=K))
g("random uniform range", lambda: mx.random.uniform(2, 5, (3,), key=K))
g("random uniform f16", lambda: mx.random.uniform(0, 1, (3,), mx.float16, K))
g("random uniform bf16", lambda: mx.random.uniform(0, 1, (3,), mx.bfloat16, K))
g("random normal", lambda: mx.random.normal((7,), key=K))
g("random normal loc scale", lambda: mx.random.normal((3,), loc=1, scale=2, key=K))
g("random normal f16", lambda: mx.random.normal((3,), mx.float16, key=K))
g("random split", lambda: mx.random.split(K, 3))
g("random split 2", lambda: mx.random.split(K))
g("random key", lambda: mx.random.key(2**33 + 5))
g("random bernoulli", lambda: mx.random.bernoulli(0.5, (6,), K))
g("random randint", lambda: mx.random.randint(0, 10, (8,), key=K))
g("random randint bounds", lambda: mx.random.randint(-5, mx.array([5, 10]), (3, 2), key=K))
g("random gumbel", lambda: mx.random.gumbel((3,), key=K))
g("random truncatedNormal", lambda: mx.random.truncated_normal(-1, 1, (3,), key=K))
g("random laplace at", lambda: mx.random.laplace((3,), loc=2.0, scale=3.0, key=K))
g("random laplace", lambda: mx.random.laplace((3,), key=K))
g("random randint beyond 2^24", lambda: mx.random.randint(2**24, 2**24 + 2, (12,), key=K))
g("random randint array beyond 2^24", lambda: mx.random.randint(mx.array([2**24, 2**30]), mx.array([2**24 + 3, 2**30 + 9]), (6, 2), key=K))
g("random randint int32", lambda: mx.random.randint(-(2**31), 2**31 - 1, (8,), key=K))
g("random randint uint32", lambda: mx.random.randint(0, 2**32 - 1, (8,), mx.uint32, K))
g("random randint uint16", lambda: mx.random.randint(0, 65536, (8,), mx.uint16, K))
g("random randint int16", lambda: mx.random.randint(-32768, 32768, (8,), mx.int16, K))
g("random randint uint8", lambda: mx.random.randint(0, 256, (8,), mx.uint8, K))
g("random randint uint8 beyond", lambda: mx.random.randint(0, 1000, (8,), mx.uint8, K))
g("random randint int8", lambda: mx.random.randint(-128, 128, (8,), mx.int8, K))
g("random randint bool", lambda: mx.random.randint(0, 2, (8,), mx.bool_, K))
g("random randint bool 5", lambda: mx.random.randint(0, 5, (8,), mx.bool_, K))
g("random randint negative", lambda: mx.random.randint(-20, -10, (8,), key=K))
g("random randint fractions", lambda: mx.random.randint(-3.5, 1.2, (12,), key=K))
g("random randint float arrays", lambda: mx.random.randint(mx.array([-2.5, 0.5]), mx.array([2.5, 3.5]), (6, 2), key=K))
g("random randint none", lambda: mx.random.randint(5, 5, (4,), key=K))
g("random randint reversed", lambda: mx.random.randint(5, 2, (4,), key=K))
g("random laplace f16", lambda: mx.random.laplace((9,), mx.float16, key=K))
g("random laplace bf16", lambda: mx.random.laplace((9,), mx.bfloat16, 1.0, 2.0, K))
g("random permutation", lambda: mx.random.permutation(8, key=K))
g("random permutation axis", lambda: mx.random.permutation(mx.arange(6).reshape(2, 3), axis=1, key=K))
g("random categorical", lambda: mx.random.categorical(L, key=K))
g("random categorical one row", lambda: mx.random.categorical(L[None], key=K))
g("random categorical rows", lambda: mx.random.categorical(L2, key=K))
g("random categorical samples", lambda: mx.random.categorical(L, num_samples=7, key=K))
g("random categorical rows samples", lambda: mx.random.categorical(L2, num_samples=3, key=K))
g("random categorical shape", lambda: mx.random.categorical(L, shape=(4,), key=K))
g("random categorical axis 0", lambda: mx.random.categorical(mx.array([[0.0, 1], [3, 2], [0, 0]]), axis=0, key=K))
g("random key of 64 bits", lambda: mx.random.key(2**64 - 1))
g("random normal loc scale arrays", lambda: mx.random.normal((3, 2), loc=mx.array([1.0, -1.0]), scale=mx.array([[1.0], [2.0], [3.0]]), key=K))
g("random randint int64", lambda: mx.random.randint(-5, 2**40, (5,), mx.int64, K))
g("random randint uint64", lambda: mx.random.randint(7, 2**50, (5,), mx.uint64, K))
g("random randint int64 bounds", lambda: mx.random.randint(2**40, 2**40 + 1024, (5,), mx.int64, K))
PARTS = lambda z: [mx.real(z), mx.imag(z)]
g("random normal complex64", lambda: PARTS(mx.random.normal((2, 3), mx.complex64, key=K)))
g("random normal complex64 loc scale", lambda: PARTS(mx.random.normal((3,), mx.complex64, 1 + 2j, 0.5, K)))
g("random gumbel f16", lambda: mx.random.gumbel((5,), mx.float16, K))
g("random truncatedNormal arrays", lambda: mx.random.truncated_normal(mx.array([-1.0, 0.0]), mx.array([[1.0], [2.0]]), key=K))
MEAN, COV = mx.array([1.0, -2.0, 0.5]), mx.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 0.7]])
g("random multivariateNormal", lambda: mx.random.multivariate_normal(MEAN, COV, key=K, stream=mx.cpu))
g("random multivariateNormal shape", lambda: mx.random.multivariate_normal(MEAN, COV, (4, 2), key=K, stream=mx.cpu))
g("random multivariateNormal batch", lambda: mx.random.multivariate_normal(mx.stack([MEAN, -MEAN]), mx.stack([COV, 2 * COV])[:, None], key=K, stream=mx.cpu))

# transforms
LINE = lambda n: mx.arange(n).astype(mx.float32)
for n in (1, 2, 12, 20, 24, 28, 160):
    g(f"hadamard {n}", lambda: mx.hadamard_transform(LINE(2 * n).reshape(2, n)))
g("hadamard scale", lambda: mx.hadamard_transform(LINE(56).reshape(1, 56), 0.5))
g("hadamard f16", lambda: mx.hadamard_transform(LINE(128).astype(mx.float16)))
g("hadamard ints", lambda: mx.hadamard_transform(mx.array([3, 4, 5, 6]), 1.0))
g("hadamard number", lambda: mx.hadamard_transform(mx.array(5)))
mx.random.seed(7)
g("random state", lambda: [mx.random.uniform(shape=(2,)), mx.random.normal((2,)), mx.random.randint(0, 100, (3,))])

with open(os.path.join(os.path.dirname(__file__), "mlx_arrays.json"), "w") as out:
    out.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in G.items()) + "\n}\n")
