"""Writes tests/golden/arrays/mlx_cases.gz: what MLX gives for cases drawn from the calls of mlx_calls.py.

python3 tests/reference/mlx_cases.py     (PyPI: mlx[cpu]; the file was made with 0.32; names of functions show what these throw, and write
them alone)

The file, unpacked: the length of the JSON as u32, the JSON (a list of cases), then the elements of all arrays. A case is {f: function, a:
arguments, k: keyword arguments, o: results, and what the row of its call says}. In arguments {x: array, v: views} is an array seen through
views, {d} a dtype, {n} a number that JSON has no form for, {s} a slice, {c} a complex number; an array is [dtype, shape, byte offset].

Floating results of 16-bit arrays are those of the same call in float32: MLX on the CPU adds up in the dtype of the arrays, which is further
from the truth than what is asked of the devices here. The dtype is that of the call itself.
"""

import gzip
import json
import os
import random
import struct
import sys

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float16", "bfloat16", "float64"]
CLASSES = {
    "any": ["float32", "bool", "float16", "bfloat16", *INTS, "float64", "complex64"],
    "real": ["float32", "bool", "float16", "bfloat16", *INTS, "float64"],
    "number": ["float32", "float16", "bfloat16", *INTS, "float64"],
    "inexact": [*FLOATS, "complex64"],
    "float": FLOATS,
    "small": ["float32", "float16", "bfloat16"],
    "float32": ["float32"],
    "signed": ["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "float64", "complex64"],
    "int": INTS,
    "whole": [*INTS, "bool"],
    "complex": ["complex64"],
}
SHAPES = [[], [1], [7], [2, 3], [0], [33], [1, 5], [2, 3, 4], [5, 1], [0, 3], [130], [2, 1, 5], [3, 33], [1, 1, 1], [2, 0, 3], [2, 3, 1, 4], [65, 9]]
NUMPY = {"bfloat16": np.float32, "bool": np.bool_}


class Arr:
    """An array of a case: its elements as they lie, and the views that make of them what the call gets."""

    def __init__(self, base, dtype, views):
        self.base, self.dtype, self.views = base, dtype, views

    def mlx(self, dtype=None):
        x = mx.array(self.base).astype(getattr(mx, "bool_" if self.dtype == "bool" else self.dtype))
        if dtype:
            x = x.astype(dtype)
        for kind, *p in self.views:
            if kind == "transpose":
                x = mx.transpose(x, p[0])
            elif kind == "slice":
                x = x[tuple(slice(*s) for s in p[0])]
            else:
                x = mx.broadcast_to(x, p[0])
        return x

    @property
    def shape(self):
        return list(self.mlx().shape)


def is_float(name):
    return name in FLOATS


class Draw(random.Random):
    """Draws the arguments of one case."""

    def __init__(self, name, i, row):
        super().__init__(f"{name}/{i}")
        self.i, self.row = i, row
        dtypes = CLASSES[row.dt]
        self.dtype = dtypes[i % len(dtypes)]
        self.shape = self.choice([s for s in row.shapes if len(s) >= row.rank])
        self.special = row.special and is_float(self.dtype) and self.random() < 0.3
        self.args = []

    @property
    def first(self):
        return next(a for a in self.args if isinstance(a, Arr))

    def values(self, shape, dtype, dom=None):
        n = int(np.prod(shape, dtype=np.int64))
        dom = dom or self.row.dom
        r = np.random.default_rng(self.randrange(2**32))
        if dtype == "bool":
            return r.integers(0, 2, n).astype(bool).reshape(shape)
        low, high = {"any": (-4, 4), "pos": (0.25, 4), "unit": (-0.9375, 0.9375), "ge1": (1, 5), "nonzero": (0.25, 4), "tiny": (-1, 1),
                     "shift": (0, 5), "power": (0, 3), "prod": (-1.25, 1.25), "01": (0, 1)}[dom]
        if dtype in INTS:
            low, high = {"any": (-9, 9), "prod": (-2, 2), "nonzero": (1, 9), "01": (0, 1)}.get(dom, (int(np.ceil(low)), int(high)))
            whole = r.integers(max(low, 0) if dtype[0] == "u" else low, high + 1, n)
            if dom == "nonzero" and dtype[0] == "i":
                whole *= r.choice([1, -1], n)
            x = whole.astype(dtype)
            if dom == "any" and self.row.wide and n > 0 and self.random() < 0.3:
                info = np.iinfo(dtype)
                x[: min(n, 3)] = [info.max, info.min, info.max - 1][: min(n, 3)]
            return x.reshape(shape)

        def floats():
            v = r.integers(int(low * 16), int(high * 16) + 1, n) / 16
            return v * r.choice([1, -1], n) if dom == "nonzero" else v

        if dtype == "complex64":
            return (floats() + 1j * floats()).astype(np.complex64).reshape(shape)
        x = floats().astype(NUMPY.get(dtype, dtype))
        if self.special and n > 0:
            for v in [np.nan, np.inf, -np.inf, 0.0, -0.0]:
                x[self.randrange(n)] = v
        return x.reshape(shape)

    def array(self, shape=None, dtype=None, dom=None, plain=False):
        """An array of a shape, lying in one of many ways; one without elements lies plainly: sums over views of none may hang in MLX."""
        shape = list(self.shape if shape is None else shape)
        dtype = dtype or self.dtype
        rank, lying, views = len(shape), list(shape), []
        way = "plain" if plain or rank == 0 or 0 in shape else self.choice(["plain", "plain", "plain", "transposed", "strided", "reversed", "offset", "broadcast"])
        if way == "transposed" and rank > 1:
            order = self.sample(range(rank), rank)
            lying = [shape[a] for a in order]
            views = [["transpose", [order.index(a) for a in range(rank)]]]
        elif way == "strided":
            lying = [*shape[:-1], shape[-1] * 2]
            views = [["slice", [[None, None, None]] * (rank - 1) + [[None, None, 2]]]]
        elif way == "reversed":
            views = [["slice", [[None, None, -1] if self.random() < 0.7 else [None, None, None] for _ in shape]]]
        elif way == "offset":
            lying = [shape[0] + 3, *shape[1:]]
            views = [["slice", [[2, 2 + shape[0], None]]]]
        elif way == "broadcast" and shape[0] > 0:
            lying = [1, *shape[1:]]
            views = [["broadcast", shape]]
        return Arr(self.values(lying, dtype, dom), dtype, views)

    def partner(self, shape):
        """A shape that broadcasts with one."""
        way = self.random()
        if way < 0.4:
            return list(shape)
        if way < 0.6:
            return list(shape[self.randrange(len(shape) + 1):])
        return [1 if self.random() < 0.4 else n for n in shape] if way < 0.8 else [self.choice([1, 2]), *shape]

    def axis(self, shape=None):
        rank = len(self.first.shape if shape is None else shape)
        return self.randrange(-rank, rank) if rank else 0


class Row:
    """One line of the table: functions, and what draws each argument."""

    def __init__(self, names, *args, dt="any", dom="any", n=18, rank=0, shapes=SHAPES, special=False, wide=False, exact=False, own=False,
                 product=False, loose=False, then=None, **kw):
        self.names, self.args, self.kw = names.split(), args, kw
        self.dt, self.dom, self.n, self.rank, self.shapes, self.special, self.wide = dt, dom, n, rank, shapes, special, wide
        # exact: bit for bit; own: MLX's values also of 16-bit arrays; product: sums of products; loose: float64 is as good as float32;
        # then: what makes results comparable
        self.exact, self.own, self.product, self.loose, self.then = exact, own, product, loose, then


OMIT = object()


def draw_call(name, i, row):
    d = Draw(name, i, row)
    for arg in row.args:
        value = arg(d) if callable(arg) else arg
        if value is OMIT:
            break
        if isinstance(value, tuple) and value and value[0] is OMIT:  # several arguments at once
            d.args.extend(value[1:])
        else:
            d.args.append(value)
    kw = {}
    for key, arg in row.kw.items():
        value = arg(d) if callable(arg) else arg
        if value is not OMIT:
            kw[key] = value
    return d.args, kw


def live(v, dtype=None):
    """An argument as MLX takes it; 16-bit arrays as `dtype` where it is given."""
    if isinstance(v, Arr):
        return v.mlx(dtype if v.dtype in ("float16", "bfloat16") else None)
    if isinstance(v, list):
        return [live(u, dtype) for u in v]
    if isinstance(v, tuple):
        return tuple(live(u, dtype) for u in v)
    return v


class Pool:
    """The elements of all arrays, each once."""

    def __init__(self):
        self.at, self.bytes = {}, bytearray()

    def add(self, dtype, array):
        """An array as MLX holds it."""
        if dtype == "bfloat16":
            data = np.array(array.view(mx.uint16) if array.size else mx.zeros(array.shape, mx.uint16)).tobytes()
        else:
            data = np.ascontiguousarray(np.array(array)).tobytes()
        if data not in self.at:
            self.bytes.extend(b"\0" * (-len(self.bytes) % 8))
            self.at[data] = len(self.bytes)
            self.bytes.extend(data)
        return self.at[data]


def dtype_name(dtype):
    return str(dtype).split(".")[-1].rstrip("_")


def encode(v, pool):
    if isinstance(v, Arr):
        base = Arr(v.base, v.dtype, []).mlx()
        mx.eval(base)
        stored = {"x": [v.dtype, list(base.shape), pool.add(v.dtype, mx.contiguous(base))]}
        return {**stored, "v": v.views} if v.views else stored
    if isinstance(v, mx.Dtype):
        return {"d": dtype_name(v)}
    if isinstance(v, mx.array):
        v = mx.contiguous(v)
        mx.eval(v)
        return {"x": [dtype_name(v.dtype), list(v.shape), pool.add(dtype_name(v.dtype), v)]}
    if isinstance(v, float) and not np.isfinite(v):
        return {"n": "NaN" if v != v else "Infinity" if v > 0 else "-Infinity"}
    if isinstance(v, complex):
        return {"c": [v.real, v.imag]}
    if isinstance(v, slice):
        return {"s": [v.start, v.stop, v.step]}
    if v is Ellipsis:
        return "..."
    if isinstance(v, (list, tuple)):
        return [encode(u, pool) for u in v]
    if isinstance(v, (mx.finfo, mx.iinfo)):
        return {k: encode(getattr(v, k), pool) for k in ("min", "max", "bits", "eps") if hasattr(v, k)}
    return v


def indexed(x, i, v):
    x = mx.array(x)
    x[tuple(i)] = v
    return x


#: What Python has an operator for.
OPERATORS = {
    "index": lambda x, *i: x[tuple(i)],
    "index_put": indexed,
    **{f"at_{k}": (lambda k: lambda x, i, v: getattr(x.at[tuple(i)], k)(v))(k) for k in ("add", "subtract", "multiply", "divide", "maximum", "minimum")},
}


def function(name):
    if name in OPERATORS:
        return OPERATORS[name]
    at = mx
    for part in name.split("."):
        at = getattr(at, part)
    return at


THEN = {None: lambda y: y, "sort": lambda y: mx.sort(y.flatten()), "abs": lambda y: [mx.abs(t) for t in y]}


def results_of(name, row, args, kw):
    run = lambda dtype=None: THEN[row.then](function(name)(*live(args, dtype), **{k: live(v, dtype) for k, v in kw.items()}))
    own = run()
    mx.eval(own)
    several = isinstance(own, (list, tuple)) and any(isinstance(t, mx.array) for t in own)
    outs = list(own) if several else [own]
    if row.own or row.exact or not any(isinstance(t, mx.array) and t.dtype in (mx.float16, mx.bfloat16) for t in outs):
        return outs, None
    better = run(mx.float32)
    better = list(better) if several else [better]
    names = [dtype_name(t.dtype) for t in outs]
    return better, names


def main():
    from mlx_calls import ROWS

    pool, cases, seen = Pool(), [], {}
    only = set(sys.argv[1:])
    for row in ROWS:
        for name in row.names:
            if only and name not in only:
                continue
            for _ in range(row.n):
                i = seen[name] = seen.get(name, -1) + 1
                args, kw = draw_call(name, i, row)
                case = {"f": name, "a": [encode(a, pool) for a in args]}
                if kw:
                    case["k"] = {k: encode(v, pool) for k, v in kw.items()}
                for flag in ("exact", "product", "loose", "then"):
                    if getattr(row, flag):
                        case[flag] = getattr(row, flag)
                try:
                    outs, names = results_of(name, row, args, kw)
                except (ValueError, TypeError, RuntimeError, IndexError, OverflowError) as error:
                    case["throws"] = type(error).__name__
                    if only:
                        print(f"{name} {i}: {type(error).__name__}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
                    cases.append(case)
                    continue
                case["o"] = [encode(t, pool) for t in outs]
                if names:
                    case["as"] = names
                cases.append(case)
    text = json.dumps(cases, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8 + 4)  # the elements begin at a multiple of 8
    path = os.path.join(os.path.dirname(__file__), "..", "golden", "arrays", "mlx_cases.gz")
    with open(path, "wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(struct.pack("<I", len(text)) + text + bytes(pool.bytes))
    threw = sum("throws" in c for c in cases)
    print(f"{len(cases)} cases of {len(seen)} functions, {threw} throw, {len(text)} + {len(pool.bytes)} bytes, {os.path.getsize(path)} packed")


if __name__ == "__main__":
    sys.modules["mlx_cases"] = sys.modules["__main__"]
    main()
