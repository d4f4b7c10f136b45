"""Writes tests/golden/arrays/mlx_derivatives.gz: what MLX's transforms give for calls drawn from the table of mlx_calls.py.

python3 tests/reference/mlx_derivatives.py     (PyPI: mlx[cpu]; the file was made with 0.32; names of functions show what is found for these
and write nothing)

The file is one as mlx_cases.py writes it. Besides function, arguments and keywords a case has

    c   cotangents of the floating results            t   tangents of the floating arguments ("primals")
    in  axes of all arrays of the arguments in a batch of `size`, null where there is none; out: axis of the results
    r   what transforms give, by their name: {o: results, as: dtypes of 16-bit ones}

    vjp       the cotangents of the primals           jvp       the tangents of the results
    twice     jvp along t of vjp by c: the second derivative, from either side
    vmap      the function over a batch               vmap_vjp  vjp over a batch of the primals
    vjp_vmap  vjp of vmap: c is repeated

A batch of an array is the array, its elements moved on by one, by two, ..: so values stay in the range that a function is defined on.
Factorizations need what they are given: their batches are the array times 1, 1.5, ...

Every value is held to another one that does not come from a rule of MLX: derivatives to central differences in float64, batches to a loop.
Where they differ, what is right by CORRECTED is written, "by" says so; a difference without a line there is an error. Where MLX has no rule
(it throws), the values are those of differences or of the loop, by themselves.
"""

import gzip
import json
import os
import struct
import sys
import warnings

import mlx.core as mx
import numpy as np

import mlx_cases
from mlx_cases import Arr, Draw, Pool, draw_call, dtype_name, encode, function

warnings.filterwarnings("ignore")

#: Cases of a function for each row of the table.
MOST = 5
SHAPES = [[2, 3], [], [1], [5], [0], [1, 4], [2, 3, 2], [3, 1], [9], [2, 1, 3], [0, 3], [1, 1]]
MIXED = ["float32", "float32", "float16", "float32", "bfloat16", "float32"]
mlx_cases.CLASSES["mixed"] = MIXED
mlx_cases.CLASSES["mixed and complex"] = ["complex64", *MIXED]

FLOATING = (mx.float16, mx.bfloat16, mx.float32, mx.float64, mx.complex64)
SMALL = (mx.float16, mx.bfloat16)

#: Where MLX's value is not used: (function, transform) and why.
CORRECTED = {
    ("addmm", "jvp"): "alpha and beta are exchanged",
    ("minmax", "vjp"): "of a scalar, drops the cotangent of the maximum",
    **{(f, "jvp"): "the tangent of the first of equal elements, which share the cotangent" for f in ("min", "max", "minmax")},
    **{(f, k): "of complex numbers, not the conjugate; the second derivative divides 0 by 0" for f in ("power", "pow", "cumprod", "cumulative_prod") for k in ("vjp", "twice")},
    **{("sign", k): "constant in MLX, also of complex numbers" for k in ("vjp", "jvp", "twice")},
    ("abs", "twice"): "the sign is constant in MLX, also of complex numbers",
    ("hadamard_transform", "vjp"): "not the transpose, which is another matrix where 20 or 28 divide the size",
    ("hadamard_transform", "vmap_vjp"): "as above",
}
#: Functions whose batches are not right in MLX (vmap, and vmap_vjp): what a loop gives is written.
CORRECTED_BATCHES = {
    "the batch of one operand is not moved to that of the other, nor sizes of 1 repeated":
        "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor isclose",
    "an update of a part is written into another one of the batch":
        "index_put at_add at_subtract at_multiply at_divide at_maximum at_minimum slice_update",
    "channels of groups are exchanged": "conv1d conv2d conv_general",
}
#: Functions whose batches are left to a loop at once: MLX writes behind the end of its arrays.
NO_BATCHES = "bitwise_and bitwise_or bitwise_xor left_shift right_shift bitwise_left_shift bitwise_right_shift".split()
#: Where MLX's value is right and differences are not: (function, transform) and why.
NO_DIFFERENCES = {
    **{("stop_gradient", k): "constant by definition" for k in ("vjp", "jvp")},
    **{("divmod", k): "constant in MLX, also the remainder" for k in ("vjp", "jvp")},
    **{(f, k): "of one number: 0 / 0" for f in ("std",) for k in ("vjp", "jvp", "twice")},
    **{("quantize", k): "scales are rounded, so that codes fit zero; the first of equal elements counts" for k in ("jvp", "twice")},
    **{("floor_divide", k): "constant in MLX, also of complex numbers" for k in ("vjp", "jvp")},
}


def is_array(v):
    return isinstance(v, (Arr, mx.array))


def arrays_of(v):
    if is_array(v):
        return [v]
    if isinstance(v, (list, tuple)):
        return [a for u in v for a in arrays_of(u)]
    if isinstance(v, dict):
        return [a for u in v.values() for a in arrays_of(u)]
    return []


def with_arrays(v, arrays):
    """The tree with other arrays, taken from an iterator."""
    if is_array(v):
        return next(arrays)
    if isinstance(v, (list, tuple)):
        return type(v)(with_arrays(u, arrays) for u in v)
    if isinstance(v, dict):
        return {k: with_arrays(u, arrays) for k, u in v.items()}
    return v


def floating(x):
    return x.dtype in FLOATING


def single(row):
    """A row with the dtypes and shapes of these cases, nothing but numbers in their range."""
    made = mlx_cases.Row("")
    made.__dict__.update(row.__dict__)
    classes = mlx_cases.CLASSES[row.dt]
    if "float32" in classes and len(classes) > 1:
        made.dt = "mixed and complex" if "complex64" in classes else "mixed"
    made.special = made.wide = False
    if row.shapes is mlx_cases.SHAPES:
        made.shapes = [s for s in SHAPES if 0 not in s] if "prod" in row.names else SHAPES  # sums of none may hang in MLX
    else:
        made.shapes = [s for s in row.shapes if np.prod(s, dtype=int) <= 24] or row.shapes
    return made


#: What MLX computes in float32, also of float64.
IN_FLOAT64 = {
    "linalg.det": lambda a: [np.linalg.det(a)],
    "linalg.slogdet": np.linalg.slogdet,
    "linalg.inv": lambda a: [np.linalg.inv(a)],
    "linalg.solve": lambda a, b: [np.linalg.solve(a, b)],
    "linalg.pinv": lambda a: [np.linalg.pinv(a)],
    "linalg.eigvalsh": lambda a: [np.linalg.eigvalsh(a)],
    "linalg.eigh": np.linalg.eigh,
    "linalg.qr": np.linalg.qr,
    "linalg.svd": np.linalg.svd,
}


class Case:
    """A call as a function of its arrays."""

    def __init__(self, name, row, args, kw):
        self.name, self.row, self.tree, self.traced = name, row, (args, kw), False
        self.arrays = [a.mlx() if isinstance(a, Arr) else a for a in arrays_of(self.tree)]
        self.at = [i for i, a in enumerate(self.arrays) if floating(a)]

    def run(self, arrays):
        """All results."""
        args, kw = with_arrays(self.tree, iter(arrays))
        f = function(self.name)
        if self.name in IN_FLOAT64 and arrays[0].dtype == mx.float64 and not self.traced:
            f = lambda *a, **k: [mx.array(np.asarray(y), mx.float64) for y in IN_FLOAT64[self.name](*[np.array(x) for x in a], **k)]
        out = mlx_cases.THEN[self.row.then](f(*args, **kw))
        return [o for o in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(o, mx.array)]

    def of(self, arrays):
        """The floating results as a function of the primals, the other arrays given."""
        def f(*primals):
            whole = list(arrays)
            for i, p in zip(self.at, primals):
                whole[i] = p
            return [o for o in self.run(whole) if floating(o)]
        return f

    def primals(self, arrays):
        return [arrays[i] for i in self.at]


def drawn(d, like):
    """Multiples of 1/4 in the shape of an array."""
    r = np.random.default_rng(d.randrange(2**32))
    x = r.integers(-4, 5, like.shape) / 4
    if like.dtype == mx.complex64:
        x = x + 1j * r.integers(-4, 5, like.shape) / 4
        return mx.array(x.astype(np.complex64))
    return mx.array(np.asarray(x, np.float32)).astype(like.dtype)


def batch_of(x, axis, size, scaled):
    """Batches as the head of this file says."""
    if scaled and floating(x):
        parts = [x * (1 + b / 2) for b in range(size)]
    else:
        parts = [mx.roll(mx.flatten(x), b).reshape(x.shape) if x.size else x for b in range(size)]
    return mx.stack(parts, axis)


def element(x, axis, b):
    return x if axis is None else mx.take(x, mx.array(b), axis)


ERRORS = (ValueError, TypeError, RuntimeError, IndexError, OverflowError)


def tried(fn):
    try:
        out = fn()
        mx.eval(out)
        return list(out), None
    except ERRORS as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0][:140]}"


def wide(x):
    return x.astype(mx.float64) if floating(x) and x.dtype != mx.complex64 else x


def numbers(x):
    return np.array(x.astype(mx.float32) if x.dtype in SMALL else x)


class Kink(ValueError):
    """Differences to the two sides are not the same."""


def along(f, primals, tangents, h):
    """The derivative along tangents by central differences of sixth order."""
    def at(s):
        out = f(*[p + (s * h * t).astype(p.dtype) for p, t in zip(primals, tangents)])
        mx.eval(out)
        return [numbers(o).astype(np.complex128 if o.dtype == mx.complex64 else np.float64) for o in out]
    values = [at(s) for s in (-3, -2, -1, 0, 1, 2, 3)]
    found = []
    for before, a, b, o, c, d, after in zip(*values):
        slope = (45 * (c - b) - 9 * (d - a) + after - before) / (60 * h)
        if np.any(np.abs((c - 2 * o + b) / h - (d - 2 * o + a) / (4 * h)) > 0.05 * (1 + np.abs(slope))):
            raise Kink()
        if not np.all(np.isfinite(slope)):
            raise Kink()
        found.append(slope)
    return found


def ones_of(like):
    """Arrays of which one element is 1, and i as well where they are complex, by their place."""
    for k in range(like.size):
        one = np.zeros(like.size, np.complex64 if like.dtype == mx.complex64 else np.float64)
        one[k] = 1
        yield k, 1, mx.array(one.reshape(like.shape)).astype(like.dtype)
        if like.dtype == mx.complex64:
            yield k, 1j, mx.array((1j * one).reshape(like.shape)).astype(like.dtype)


def inner(a, b):
    return sum(float(np.sum(np.real(np.conj(x) * y))) for x, y in zip(a, b))


def adjoint(inputs, outputs, forward):
    """What goes to `inputs` from `outputs` where `forward` is linear and goes the other way."""
    found = []
    for i, p in enumerate(inputs):
        back = np.zeros(p.size, np.complex128 if p.dtype == mx.complex64 else np.float64)
        for k, unit, one in ones_of(p):
            back[k] += unit * inner(outputs, forward([one if j == i else mx.zeros_like(q) for j, q in enumerate(inputs)]))
        found.append(back.reshape(p.shape))
    return found


def differences(case, arrays, kind, cotangents, tangents):
    """vjp, jvp or twice by differences, in float64 where MLX has the function; None where it has a kink."""
    case.traced = kind == "twice"
    h = 2.0**-7
    if case.name in IN_FLOAT64 and not case.traced:
        h = 2.0**-12  # eigenvalues and the like may lie close to each other
    elif case.traced and any(a.dtype == mx.complex64 for a in arrays):
        h = 2.0**-5  # complex numbers are of float32
    for own in (wide, lambda x: x):
        given = [own(a) for a in arrays]
        primals, f = case.primals(given), case.of(given)
        try:
            if case.row.then == "abs" and any(np.any(np.abs(numbers(o)) < 1e-3) for o in f(*primals)):
                raise Kink()
            if kind == "jvp":
                return along(f, primals, [own(t) for t in tangents], h)
            if kind == "twice":
                return along(lambda *p: mx.vjp(f, list(p), [own(c) for c in cotangents])[1], primals, [own(t) for t in tangents], h)
            cs = [numbers(c) for c in cotangents]
            return adjoint(primals, cs, lambda ts: along(f, primals, ts, h))
        except Kink:
            return None
        except ERRORS:
            pass
    return None


def transposed(case, arrays, tangents, like):
    """jvp from MLX's vjp, which is its adjoint."""
    f, primals = case.of(arrays), case.primals(arrays)
    try:
        found = adjoint(like, [numbers(t) for t in tangents], lambda cs: [numbers(v) for v in mx.vjp(f, primals, cs)[1]])
        return found if all(np.all(np.isfinite(x)) for x in found) else None
    except ERRORS:
        return None


def close(a, b):
    if a is None or b is None:
        return True
    for x, y in zip(a, b):
        x, y = numbers(x) if isinstance(x, mx.array) else x, numbers(y) if isinstance(y, mx.array) else y
        x, y = (v if v.dtype.kind in "fc" else v.astype(np.float64) for v in (x, y))
        if x.shape != y.shape or not np.allclose(x, y, 1e-3, 1e-3, equal_nan=True):
            return False
    return True


BATCHES = {name for names in CORRECTED_BATCHES.values() for name in names.split()}


def transforms(case, d):
    """What the transforms of a case give: (results by name, cotangents, tangents, batch)."""
    better = [a.astype(mx.float32) if a.dtype in SMALL else a for a in case.arrays]
    own, _ = tried(lambda: case.run(case.arrays))
    outs = [o for o in own if floating(o)]
    scaled = case.name.startswith("linalg.")
    found, notes = {}, []

    def note(kind, mlx, other, why, by):
        """Chooses between MLX's values and others; None where there are none."""
        chosen, source = mlx, None
        if (case.name, kind) in NO_DIFFERENCES:
            pass
        elif mlx is None:
            chosen, source = other, by
            if kind != "vmap":
                notes.append(f"{kind}: {why}" + ("" if other is not None else ", and no other value"))
        elif not close(mlx, other):
            chosen, source = other, by
            if (case.name, kind) not in CORRECTED and not (by == "loop" and case.name in BATCHES):
                notes.append(f"{kind}: MLX has {[numbers(x).tolist() for x in mlx]}, {by} {[np.asarray(numbers(x) if isinstance(x, mx.array) else x).tolist() for x in other]}")
        return chosen, source

    def keep(kind, values, source, like):
        if values is None:
            return
        arrays = [v if isinstance(v, mx.array) else mx.array(v.astype(np.complex64 if v.dtype.kind == "c" else np.float32)) for v in values]
        names = [dtype_name(a.dtype) for a in like]
        entry = {"o": arrays}
        if names != [dtype_name(a.dtype) for a in arrays]:
            entry["as"] = names
        if source:
            entry["by"] = source
        found[kind] = entry

    cotangents, tangents = [], []
    if outs and case.at:
        primals = case.primals(better)
        cotangents = [drawn(d, o) for o in case.of(better)(*primals)]
        tangents = [drawn(d, p) for p in primals]
        f = case.of(better)
        like = case.primals(case.arrays)
        vjp, why = tried(lambda: mx.vjp(f, primals, cotangents)[1])
        keep("vjp", *note("vjp", vjp, differences(case, better, "vjp", cotangents, tangents), why, "differences"), like)
        jvp, why = tried(lambda: mx.jvp(f, primals, tangents)[1])
        other, by = differences(case, better, "jvp", cotangents, tangents), "differences"
        if other is None and vjp is not None and "by" not in found["vjp"]:
            other, by = transposed(case, better, tangents, cotangents), "its adjoint"
        keep("jvp", *note("jvp", jvp, other, why, by), outs)
        if "vjp" in found and "by" not in found["vjp"] and d.i % 2 == 0:
            back = lambda *p: mx.vjp(f, list(p), cotangents)[1]
            twice, why = tried(lambda: mx.vjp(back, primals, tangents)[1])
            if twice is None:
                twice, why = tried(lambda: mx.jvp(back, primals, tangents)[1])
            keep("twice", *note("twice", twice, differences(case, better, "twice", cotangents, tangents), why, "differences"), like)

    n = len(case.arrays)
    batch = None
    if n > 0:
        size = d.choice([2, 3])
        chosen = [d.random() < 0.6 for _ in range(n)]
        if not any(chosen):
            chosen[d.randrange(n)] = True
        axes = [d.randrange(-a.ndim - 1, a.ndim + 1) if c else None for a, c in zip(case.arrays, chosen)]
        out = d.choice([0, -1])
        batch = {"in": axes, "out": out, "size": size, **({"scaled": True} if scaled else {})}
        asked = case.arrays if case.row.own or case.row.exact else better
        whole = [a if x is None else batch_of(a, x, size, scaled) for a, x in zip(asked, axes)]
        per = lambda fn, b: fn([element(a, x, b) for a, x in zip(whole, axes)])

        def loop(fn, at):
            parts = [per(fn, b) for b in range(size)]
            return [mx.stack(list(column), at) for column in zip(*parts)]
        looped, why = tried(lambda: loop(case.run, out))
        mapped = None
        if case.name not in NO_BATCHES:
            mapped, _ = tried(lambda: mx.vmap(lambda *a: case.run(a), tuple(axes), out)(*whole))
        if looped is not None:
            keep("vmap", *note("vmap", mapped, looped, why, "loop"), own)
        if "vjp" in found and "by" not in found["vjp"] and d.i % 2 == 1 and looped is not None:
            back = lambda arrays: mx.vjp(case.of(arrays), case.primals(list(arrays)), cotangents)[1]
            looped, why = tried(lambda: loop(back, 0))
            mapped, _ = tried(lambda: mx.vmap(lambda *a: back(a), tuple(axes), 0)(*whole))
            keep("vmap_vjp", *note("vmap_vjp", mapped, looped, why, "loop"), case.primals(case.arrays))
            # Of vmap: what is the same for all gets the sum.
            if looped is not None:
                parts = [x for x in (axes[i] for i in case.at)]
                total = [mx.moveaxis(v, 0, x) if x is not None else mx.sum(v, 0) for v, x in zip(looped, parts)]
                keep("vjp_vmap", total, "loop", case.primals(case.arrays))
    return found, cotangents, tangents, batch, notes


def main():
    from mlx_calls import ROWS

    pool, cases, seen, unexplained = Pool(), [], {}, []
    only = set(sys.argv[1:])
    for row in ROWS:
        for name in row.names:
            if only and name not in only:
                continue
            for _ in range(min(row.n, MOST)):
                i = seen[name] = seen.get(name, -1) + 1
                made = single(row)
                d = Draw(f"derivatives/{name}", i, made)
                args, kw = draw_call(f"derivatives/{name}", i, made)
                case = Case(name, made, args, kw)
                if not case.arrays:
                    continue
                own, why = tried(lambda: case.run(case.arrays))
                if own is None or not own or sum(a.size for a in case.arrays) + sum(o.size for o in own) > 9000:
                    continue
                found, cotangents, tangents, batch, notes = transforms(case, d)
                if only:
                    print(name, i, [f"{dtype_name(a.dtype)} {a.shape}" for a in case.arrays], {k: v.get("by", "mlx") for k, v in found.items()})
                for text in notes:
                    unexplained.append(f"{name} {i} {[f'{dtype_name(a.dtype)} {a.shape}' for a in case.arrays]} {kw} {text}")
                made = {"f": name, "a": [encode(a, pool) for a in args]}
                if kw:
                    made["k"] = {k: encode(v, pool) for k, v in kw.items()}
                for flag in ("product", "loose", "then"):
                    if getattr(row, flag):
                        made[flag] = getattr(row, flag)
                if cotangents:
                    made["c"] = [encode(c, pool) for c in cotangents]
                    made["t"] = [encode(t, pool) for t in tangents]
                if batch:
                    made.update(batch)
                made["r"] = {k: {**v, "o": [encode(o, pool) for o in v["o"]]} for k, v in found.items()}
                cases.append(made)
    for text in unexplained:
        print(text[:400], file=sys.stderr)
    if only:
        return
    text = json.dumps(cases, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8 + 4)
    path = os.path.join(os.path.dirname(__file__), "..", "golden", "arrays", "mlx_derivatives.gz")
    with open(path, "wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(struct.pack("<I", len(text)) + text + bytes(pool.bytes))
    print(f"{len(cases)} cases of {len(seen)} functions, {len(text)} + {len(pool.bytes)} bytes, {os.path.getsize(path)} packed")


if __name__ == "__main__":
    main()
