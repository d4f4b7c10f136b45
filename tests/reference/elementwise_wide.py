"""Writes tests/golden/arrays/elementwise_wide.json: elementwise functions of int64, complex64 and float64, as NumPy computes them in float64 and
complex128 (integers exactly), with the dtypes that MLX gives.

python tests/reference/elementwise_wide.py > tests/golden/arrays/elementwise_wide.json
"""

import json
import sys

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
rng = np.random.default_rng(1)
N = 24


def normal():
    return (rng.normal(size=N) + 1j * rng.normal(size=N)).astype(np.complex64)


c, d = normal(), normal()
c[:6] = [0, 1, -1, 1j, -1j, 2]
i = rng.integers(-(2**62), 2**62, size=N)
i[:6] = [0, 1, -1, 7, -7, 2**53 + 1]
j = rng.integers(1, 100, size=N) * rng.choice([-1, 1], size=N)
s = np.abs(j) % 13
x = np.clip(np.abs(rng.normal(size=N)) * 0.9, 0.01, 0.99)
INPUTS = {"c": c, "d": d, "i": i, "j": j, "s": s, "x": x, "y": x[::-1].copy()}
EXACT = {"c": np.complex128, "x": np.float64, "i": np.int64}
MLX = {"c": mx.complex64, "x": mx.float64, "i": mx.int64}
CASES = [
    ("c", "c", "negative sign square sqrt rsqrt reciprocal exp log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh "
     "arcsinh arccosh arctanh abs real imag conjugate isnan isinf isfinite logical_not"),
    ("c", "cd", "add subtract multiply divide power maximum minimum equal not_equal less less_equal greater greater_equal logical_and "
     "logical_or"),
    ("i", "i", "negative abs sign square bitwise_invert logical_not"),
    ("i", "ij", "add subtract multiply remainder floor_divide maximum minimum equal less greater_equal bitwise_and bitwise_or "
     "bitwise_xor logical_or divide"),
    ("i", "is", "left_shift right_shift power"),
    ("x", "x", "negative sqrt rsqrt reciprocal exp expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh "
     "arctanh erf erfinv sigmoid ceil floor round"),
    ("x", "xy", "add divide remainder floor_divide power logaddexp arctan2 maximum less"),
]


def erfinv(v):
    from math import erf

    low, high = -6.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if erf(middle) < v else (low, middle)
    return low


OURS = {
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "erf": np.vectorize(__import__("math").erf),
    "erfinv": np.vectorize(erfinv),
    "divide": np.true_divide,
    "round": np.rint,
    "bitwise_invert": np.invert,
    "sign": lambda a: np.where(a == 0, 0, a / np.where(a == 0, 1, np.abs(a))) if np.iscomplexobj(a) else np.sign(a),
}


def plain(v):
    if isinstance(v, (complex, np.complexfloating)):
        return [plain(v.real), plain(v.imag)]
    if isinstance(v, (bool, np.bool_)):
        return int(v)
    if isinstance(v, (int, np.integer)):
        return str(int(v))
    return float(v) if np.isfinite(v) else str(float(v))


rows = []
with np.errstate(all="ignore"):
    for kind, names, functions in CASES:
        for function in functions.split():
            arrays = [INPUTS[name] for name in names]
            given = getattr(mx, function)(*[mx.array(a, dtype=MLX[kind]) for a in arrays])
            exact = OURS.get(function) or getattr(np, function)
            values = exact(*[a.astype(EXACT[kind]) for a in arrays])
            rows.append([kind, names, function, str(given.dtype).split(".")[-1].strip("_"), [plain(v) for v in values]])
json.dump({"inputs": {k: [plain(v) for v in a] for k, a in INPUTS.items()}, "rows": rows}, sys.stdout, separators=(",", ":"))
