"""The calls of mlx_cases.py: functions in MLX's spelling, and what draws each of their arguments."""

import mlx.core as mx
from mlx_cases import OMIT, Row

R = Row


def X(d):
    return d.array()


def Y(d):
    """An array that broadcasts with the first one, of its dtype or another one of the class."""
    from mlx_cases import CLASSES
    dtype = d.dtype if d.random() < 0.7 else d.choice(CLASSES[d.row.dt])
    if "uint32" in (dtype, d.dtype) and dtype != d.dtype:
        dtype = d.dtype
    return d.array(d.partner(d.shape), dtype)


def either(*values):
    return lambda d: (lambda v: v(d) if callable(v) else v)(d.choice(values))


def opt(value, share=0.5):
    """An argument that is left out with a share, and all behind it."""
    return lambda d: OMIT if d.random() < share else value(d) if callable(value) else value


def of(shape, dtype=None, dom=None, plain=False):
    return lambda d: d.array(shape(d) if callable(shape) else shape, dtype, dom, plain)


def whole(low, high):
    return lambda d: d.randint(low, high)


def AXIS(d):
    return d.axis()


def AXES(d):
    rank = len(d.first.shape)
    way = d.random()
    if rank == 0 or way < 0.25:
        return None
    if way < 0.6:
        return d.axis()
    return [a - rank if d.random() < 0.3 else a for a in d.sample(range(rank), d.randint(1, rank))]


BOOL = either(False, True)
DTYPE = either(*[getattr(mx, n) for n in "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 complex64".split()])
KEY = lambda d: mx.random.key(d.randrange(2**32))
NONEMPTY = [[1], [7], [2, 3], [33], [1, 5], [2, 3, 4], [5, 1], [130], [2, 1, 5], [3, 33], [2, 3, 1, 4], [65, 9], [1025], [7, 300], [300, 7]]
LINES = [[], *NONEMPTY]
SMALL = [[], [1], [5], [2, 3], [3, 1], [2, 3, 4], [1, 3, 2, 2]]

ELEMENTWISE = [
    R("abs sign square logical_not degrees radians isnan isinf isfinite isposinf isneginf real imag conj conjugate positive", X, special=True, own=True),
    R("negative round", X, dt="number", special=True, own=True),
    R("negative", X, dt="complex", n=3, own=True),
    R("ceil floor trunc", X, dt="real", special=True, own=True),
    R("round", X, either(-1, 1, 2), dt="number", n=12, own=True),
    R("exp sin cos tan sinh cosh tanh arctan atan arcsinh asinh", X, special=True, loose=True),
    R("expm1 erf sigmoid", X, dt="real", special=True, loose=True),
    R("reciprocal", X, dom="nonzero", own=True),
    R("log log2 log10 log1p sqrt rsqrt", X, dom="pos", special=True, loose=True),
    R("arcsin arccos arctanh asin acos atanh", X, dom="unit", loose=True),
    R("erfinv", X, dom="unit", dt="real", loose=True),
    R("arccosh acosh", X, dom="ge1", loose=True),
    R("bitwise_invert", X, dt="whole", wide=True, own=True),
    R("nan_to_num", X, dt="small", special=True, own=True),
    R("nan_to_num", X, 1.5, opt(8.0), opt(-8.0), dt="float32", special=True, own=True, n=6),
    R("add subtract multiply maximum minimum", X, Y, special=True, n=28, own=True),
    R("add subtract multiply maximum minimum", X, either(2, -1, True, 0.5), dt="signed", n=12, own=True),
    R("subtract maximum", either(2, 0.5), X, dt="signed", n=6, own=True),
    R("equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor", X, Y, special=True, n=20, own=True),
    R("logaddexp", X, Y, special=True, loose=True, dt="real"),
    R("divide", X, Y, dom="nonzero", n=20, own=True),
    R("floor_divide remainder divmod", X, Y, dom="nonzero", dt="number", n=18),
    R("remainder floor_divide", X, either(3, -2), dom="nonzero", dt="signed", n=9),
    R("power pow", X, Y, dom="power", n=18, loose=True),
    R("arctan2 atan2", X, Y, dom="nonzero", dt="float", n=10, loose=True),
    R("bitwise_and bitwise_or bitwise_xor", X, Y, dt="whole", wide=True, own=True),
    R("left_shift right_shift bitwise_left_shift bitwise_right_shift", X, Y, dt="int", dom="shift", n=10, own=True),
    R("where", lambda d: d.array(d.partner(d.shape), "bool"), X, Y, exact=True, special=True, n=28),
    R("where", lambda d: d.array(d.partner(d.shape), "bool"), X, either(0, 1.5), dt="signed", n=8, own=True),
    R("clip", X, either(None, -1, 1), either(None, 2, 3), dt="number", n=18, own=True),
    R("clip", X, Y, Y, dt="real", n=12, own=True),
    R("isclose allclose", X, Y, either(1e-5, 0.125), either(1e-8, 0.25), dt="signed", special=True, equal_nan=BOOL, own=True),
    R("array_equal", X, either(X, lambda d: d.first, Y), equal_nan=opt(BOOL), special=True, own=True),
]

REDUCTIONS = [
    R("sum prod", X, opt(AXES, 0.2), opt(BOOL), dom="prod", n=28),
    R("min max", X, opt(AXES, 0.2), opt(BOOL), shapes=LINES, special=True, n=28, exact=True),
    R("all any", X, opt(AXES, 0.2), opt(BOOL), n=18),
    R("mean var std", X, opt(AXES, 0.2), opt(BOOL), n=20, shapes=LINES, dt="real"),
    R("var std", X, AXES, BOOL, 1, n=8, shapes=[[7], [33], [7, 5], [130]], dt="real"),
    R("logsumexp softmax", X, opt(AXES, 0.2), n=18, dt="inexact", shapes=LINES, loose=True),
    R("logsumexp", X, AXES, True, n=4, dt="float", shapes=NONEMPTY, loose=True),
    R("softmax", X, AXES, precise=True, n=4, dt="small", shapes=NONEMPTY),
    R("median", X, opt(AXES, 0.2), opt(BOOL), n=16, dt="real", shapes=NONEMPTY),
    R("argmin argmax", X, opt(AXIS, 0.3), opt(BOOL), n=24, dt="real", shapes=LINES, special=True),
    R("count_nonzero", X, axis=AXES, keepdims=BOOL, n=12),
    R("cumsum cumprod cummax cummin", X, n=3, rank=1, dom="prod", dt="number"),
    R("cumsum cumulative_sum", X, either(None, AXIS, AXIS, AXIS), reverse=BOOL, inclusive=BOOL, n=24, rank=1),
    R("cumprod cumulative_prod", X, either(None, AXIS, AXIS, AXIS), reverse=BOOL, inclusive=BOOL, n=24, rank=1, dom="prod"),
    R("cummax cummin", X, either(None, AXIS, AXIS, AXIS), reverse=BOOL, inclusive=BOOL, n=24, rank=1, exact=True),
    R("logcumsumexp", X, either(None, AXIS, AXIS, AXIS), reverse=BOOL, inclusive=BOOL, n=16, rank=1, dt="float"),
    R("sort", X, opt(AXIS, 0.3), n=24, rank=1, exact=True, special=True, wide=True),
    R("sort argsort", X, None, n=8, rank=1, exact=True, dt="number"),
    R("argsort", X, opt(AXIS, 0.3), n=20, rank=1, exact=True, special=True, dt="real"),
    R("topk", X, 1, opt(AXIS, 0.3), n=12, rank=1, exact=True, dt="number", shapes=NONEMPTY, then="sort"),
    R("argpartition", X, 0, opt(AXIS, 0.3), n=10, rank=1, exact=True, dt="real", shapes=NONEMPTY, then="sort"),
    R("partition", X, 0, opt(AXIS, 0.3), n=10, rank=1, exact=True, dt="number", shapes=NONEMPTY, then="sort"),
    R("searchsorted", lambda d: mx.sort(d.array([9], plain=True).mlx()), either(of([4]), of([2, 3]), of([])), either("left", "right"), dt="number", n=12),
    R("diff", X, opt(either(1, 2)), opt(AXIS), n=18, rank=1, shapes=NONEMPTY),
    R("minmax", X, opt(AXES, 0.2), opt(BOOL), shapes=LINES, n=8, exact=True, dt="real"),
]


def split_points(d):
    n = d.first.shape[0]
    return sorted(d.randint(0, n) for _ in range(d.randint(1, 3)))


def reshaped(d):
    n = 1
    for s in d.first.shape:
        n *= s
    way = d.choice([[n], [-1] if n else [0], [1, n], [n, 1, 1]] + [[k, n // k] for k in (2, 3, 7) if n and n % k == 0])
    return way


def permutation(d):
    rank = len(d.first.shape)
    return [a - rank if d.random() < 0.3 else a for a in d.sample(range(rank), rank)]


def same(d, other_dtype=True):
    """An array like the first one, of another size along the first axis."""
    shape = list(d.first.shape)
    shape[0] = d.choice([0, 1, 3])
    return d.array(shape)


def pads(d):
    rank = len(d.first.shape)
    return d.choice([2, [1, 2], [[d.randint(0, 2), d.randint(0, 2)] for _ in range(rank)]])


SHAPE = [
    R("reshape", X, reshaped, exact=True),
    R("flatten", X, opt(0), opt(-1), exact=True),
    R("flatten", X, 1, opt(-1), exact=True, rank=2, n=8),
    R("unflatten", X, 0, either([1, -1], [-1, 1]), exact=True, rank=1, shapes=NONEMPTY, n=10),
    R("squeeze", X, exact=True),
    R("squeeze", of(either([1, 3], [1, 0, 2], [1])), 0, exact=True, n=6),
    R("expand_dims", X, either(0, -1, [0, -1]), exact=True),
    R("transpose permute_dims", X, opt(permutation), exact=True),
    R("swapaxes moveaxis", X, AXIS, AXIS, rank=1, exact=True),
    R("matrix_transpose", X, rank=2, exact=True),
    R("broadcast_to", X, lambda d: [2, *[3 if n == 1 else n for n in d.first.shape]], exact=True),
    R("broadcast_arrays", X, Y, exact=True),
    R("broadcast_shapes", lambda d: d.shape, lambda d: d.partner(d.shape)),
    R("concatenate concat", lambda d: [d.array(), Y_like(d), d.array()], opt(0), rank=1, exact=True),
    R("concatenate", lambda d: [d.array(), d.array()], either(-1, None), rank=1, exact=True, n=10),
    R("stack", lambda d: [d.array(), d.array()], opt(either(0, -1)), exact=True),
    R("split", of([6, 4]), either(2, 3, [1, 4], [2, 2, 6]), opt(0), exact=True),
    R("split", X, split_points, rank=1, exact=True, n=8),
    R("unstack", of(either([3, 2], [2], [1, 4])), exact=True, n=10),
    R("repeat", X, either(0, 1, 3), opt(AXIS), exact=True, rank=1),
    R("tile", X, either(2, [2, 1], [1, 0, 2], [3]), exact=True),
    R("pad", X, pads, opt("constant"), either(0, 1), exact=True, rank=1),
    R("pad", X, 1, either("edge"), exact=True, rank=1, shapes=NONEMPTY, n=10),
    R("pad", X, [1, 1], either("reflect", "symmetric"), exact=True, shapes=[[7], [2, 3], [3, 33]], n=10),
    R("flip", X, opt(AXES), exact=True),
    R("roll", X, either(1, -2, 40), opt(AXIS), exact=True, rank=1),
    R("roll", of([3, 5]), [1, 2], [0, -1], exact=True, n=8),
    R("as_strided", of([12], plain=True), either([3, 2], [2, 2, 2]), lambda d: [2, 1, 3][: len(d.args[1])], opt(either(0, 3)), exact=True),
    R("atleast_1d atleast_2d atleast_3d", X, exact=True),
    R("diagonal", X, opt(either(0, 1, -1)), opt(0), 1, exact=True, rank=2),
    R("diagonal", of([2, 3, 4]), 1, -1, 0, exact=True, n=6),
    R("diag", of(either([4], [3, 4], [1], [0])), opt(either(-1, 2)), exact=True),
    R("trace", of(either([3, 4], [2, 2, 3], [1, 1])), opt(either(0, 1)), n=14),
    R("tril triu", X, opt(either(-1, 1, 9)), exact=True, rank=2),
    R("astype", X, DTYPE, own=True, dt="real", dom="pos", n=52, exact=True),
    R("astype", X, DTYPE, own=True, dt="signed", n=24, exact=True),
    R("view", of([8], plain=True), DTYPE, exact=True, n=28),
    R("contiguous stop_gradient", X, exact=True, n=14),
    R("full_like", X, either(2, True), opt(DTYPE), exact=True),
    R("zeros_like ones_like empty_like", X, opt(DTYPE), exact=True),
    R("meshgrid", of([3]), of([2]), sparse=BOOL, indexing=either("xy", "ij"), exact=True, n=14),
]


def Y_like(d):
    shape = list(d.shape)
    shape[0] = d.choice([0, 1, 3])
    return d.array(shape)


CREATION = [
    R("empty", either([2, 3], [], [0]), opt(DTYPE), n=6, exact=True),
    R("asarray", X, opt(DTYPE), dt="real", dom="pos", n=14, exact=True, own=True),
    R("zeros ones", either([2, 3], [], [0], [5]), opt(DTYPE), n=14, exact=True),
    R("full", either([2, 3], [], 3), either(True, 2.5), opt(DTYPE), n=12, exact=True),
    R("eye", whole(0, 5), opt(whole(1, 5)), either(-1, 0, 2), opt(DTYPE), n=14, exact=True),
    R("identity", whole(0, 4), opt(DTYPE), n=8, exact=True),
    R("tri", whole(1, 5), opt(whole(1, 5)), either(-1, 0, 2), n=8, exact=True),
    R("arange", whole(-4, 9), opt(whole(3, 12)), opt(either(1, 2, -1)), n=14, exact=True),
    R("arange", either(0.0, -1.5), 4.0, either(0.5, 1.25), n=6),
    R("arange", 0, 6, 1, DTYPE, n=14, exact=True),
    R("linspace", either(-1, 0.5), either(2, 7.5), opt(either(1, 2, 9)), opt(BOOL), n=12),
    R("hanning hamming blackman bartlett", either(0, 1, 2, 7, 12), n=6),
]

DTYPES = ["bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"]
ANYDTYPE = either(*[getattr(mx, n) for n in DTYPES])
QUESTIONS = [
    R("can_cast", ANYDTYPE, ANYDTYPE, n=60),
    R("issubdtype", ANYDTYPE, ANYDTYPE, n=20),
    R("result_type", ANYDTYPE, ANYDTYPE, n=60),
    R("finfo", either(mx.float16, mx.bfloat16, mx.float32, mx.float64), n=6),
    R("iinfo", either(*[getattr(mx, n) for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")]), n=12),
]


def indices(shape, axis_size, dtype="int32"):
    def draw(d):
        n = axis_size(d)
        x = d.array(shape(d) if callable(shape) else shape, "int32", "any")
        base = x.base
        x.base = (base.astype("int64") % n if n else base * 0).astype("int32")
        if dtype == "int32" and n and d.random() < 0.5:
            x.base = x.base - n * (x.base % 2)
        return x
    return draw


def one_index(d, n):
    """What may stand in one place of an index of an axis of n elements."""
    from mlx_cases import Arr
    way = d.random()
    if way < 0.25:
        return d.randrange(-n, n)
    if way < 0.75:
        step = d.choice([None, 1, 2, -1, -2])
        ends = [None, d.randint(-n, n), d.randint(-n, n)]
        return slice(d.choice(ends[:2]), d.choice([ends[0], ends[2]]), step)
    return indices(d.choice([[2], [3], [2, 1]]), lambda _: n)(d)


def index_of(d, basic=False):
    shape = d.first.shape
    out, arrays = [], False
    for n in shape[: d.randint(1, len(shape))]:
        i = one_index(d, n)
        while basic and not isinstance(i, (int, slice)):
            i = one_index(d, n)
        out.append(i)
    if len(out) < len(shape) and d.random() < 0.3:
        out.append(Ellipsis)
    if d.random() < 0.2:
        out.insert(d.randrange(len(out) + 1), None)
    if sum(not isinstance(i, (int, slice, type(None), type(...))) for i in out) > 1:  # arrays of an index broadcast
        out = [i if isinstance(i, (int, slice, type(None), type(...))) else indices([2], lambda _, n=i.n if hasattr(i, "n") else 1: n)(d) for i in out]
    return out


def some_index(d, draw=index_of):
    """An index of at least one element: MLX divides by zero where it updates none."""
    from mlx_cases import live
    while True:
        index = draw(d)
        if d.first.mlx()[tuple(live(index))].size:
            return index


def spread_index(d):
    return (OMIT, *index_of(d))


def update_for(kind):
    def draw(d):
        index = d.args[1]
        from mlx_cases import live
        shape = list(d.first.mlx()[tuple(live(index))].shape)
        way = d.random()
        return d.choice([1, 2]) if way < 0.3 else d.array(shape[d.randint(0, len(shape)):] if way < 0.6 else shape)
    return draw


def unique_index(d):
    """An index whose arrays name no element twice."""
    from mlx_cases import Arr
    import numpy as np
    shape = d.first.shape
    out = []
    for a, n in enumerate(shape[: d.randint(1, len(shape))]):
        i = one_index(d, n)
        if not isinstance(i, (int, slice)):
            i = slice(None) if any(isinstance(j, Arr) for j in out) else Arr(np.array(d.sample(range(n), d.randint(1, n)), "int32"), "int32", [])
        out.append(i)
    return out


BOXES = [[7], [2, 3], [33], [2, 3, 4], [3, 33], [5, 1], [2, 3, 1, 4]]
INDEXING = [
    R("index", X, spread_index, exact=True, n=70, shapes=BOXES),
    R("index_put", X, unique_index, update_for("put"), exact=True, n=56, shapes=BOXES),
    R("at_add at_subtract at_maximum at_minimum", X, some_index, update_for("at"), n=18, shapes=BOXES, dt="small"),
    R("at_multiply at_divide", X, lambda d: some_index(d, unique_index), update_for("at"), n=9, shapes=BOXES, dt="small", dom="nonzero"),
    R("at_add", X, some_index, update_for("at"), n=18, shapes=BOXES, dt="number"),
    R("take", X, indices([5], lambda d: d.first.mlx().size), n=12, shapes=BOXES, exact=True),
    R("take", X, indices(either([4], [2, 2], [0], []), lambda d: d.first.shape[0]), 0, n=16, shapes=BOXES, exact=True),
    R("take", X, 1, -1, n=6, shapes=[[7], [2, 3], [3, 33]], exact=True),
    R("take_along_axis", X, indices(lambda d: [*d.first.shape[:-1], 4], lambda d: d.first.shape[-1]), opt(-1), n=18, shapes=BOXES, exact=True),
    R("put_along_axis", X, lambda d: mx.argsort(d.array(d.first.shape, "float32").mlx(), -1), lambda d: d.array(d.first.shape), -1,
      n=16, shapes=BOXES, exact=True),
    R("slice", X, lambda d: mx.array([0, 1][: min(2, len(d.first.shape))]), lambda d: [0, 1][: len(d.args[1].tolist())],
      lambda d: [max(1, n - 1 - (i < 2)) if i < 2 else n for i, n in enumerate(d.first.shape)], n=12, shapes=[[2, 3], [2, 3, 4], [3, 33]], exact=True),
    R("slice_update", X, lambda d: d.array([1, *d.first.shape[1:]]), lambda d: mx.array([d.randrange(d.first.shape[0])]), [0], n=14, shapes=BOXES, exact=True),
]


def matrix(d):
    return d.array([*d.choice([[], [], [2], [3, 1]]), d.choice([1, 3, 17]), d.k], dom="tiny")


def with_k(fn):
    def draw(d):
        if not hasattr(d, "k"):
            d.k = d.choice([1, 5, 33, 0] if d.row.names[0] == "matmul" else [1, 5, 33])
        return fn(d)
    return draw


def right(d):
    batch = d.first.shape[:-2]
    return d.array([*d.choice([[], batch, [1] * len(batch)]), d.k, d.choice([1, 4, 18])], dom="tiny")


PRODUCTS = [
    R("matmul", with_k(matrix), right, dt="inexact", n=30, product=True),
    R("matmul", of([5], dom="tiny"), of(either([5], [5, 3], [2, 5, 3]), dom="tiny"), dt="small", n=6, product=True),
    R("matmul", of(either([3, 5], [2, 3, 5]), dom="tiny"), of([5], dom="tiny"), dt="small", n=6, product=True),
    R("addmm", of(either([4], [1], [3, 4], [3, 1])), of([3, 5]), of([5, 4]), opt(0.5), opt(2.0), dt="float", n=16, product=True),
    R("inner", of([2, 5]), of(either([3, 5], [5])), dt="small", n=6, product=True),
    R("outer", X, X, shapes=[[], [3], [2, 2], [0]], n=14),
    R("vecdot", of([2, 5]), of([2, 5]), dt="small", n=4, product=True),
    R("tensordot", of([2, 3, 4]), of([4, 3, 2]), either(1, [[2], [0]], [[1, 2], [1, 0]]), dt="small", n=9, product=True),
    R("kron", of(either([2], [2, 3])), of(either([3], [2, 2])), dt="number", n=12),
    R("einsum", either("ij,jk->ik", "ij,jk", "ij,jk->ki", "ij,jk->"), of([3, 5]), of([5, 4]), dt="small", n=9, product=True),
    R("einsum", either("ii->i", "ij->ji", "ij->", "ii"), of([3, 3]), dt="float", n=10, product=True),
    R("linalg.cross", of([4, 3]), of(either([4, 3], [3])), opt(-1), dt="float", n=8, own=True),
    R("block_masked_mm", of([64, 64], dom="tiny", plain=True), of([64, 32], dom="tiny", plain=True), 32, of([2, 1], "bool"), of([2, 2], "bool"), of([2, 1], "bool"),
      dt="float32", n=3, product=True),
    R("gather_mm", of([3, 2, 5]), of([4, 5, 3]), indices([6], lambda d: 3, "plain"), indices([6], lambda d: 4, "plain"), dt="small", n=6, product=True),
    R("segmented_mm", of([3, 8], dom="tiny"), of([8, 4], dom="tiny"), lambda d: mx.array([[0, 3], [3, 8], [2, 2]], mx.uint32), dt="float32", n=4, product=True),
    R("hadamard_transform", of(either([8], [3, 16], [2, 12], [5, 28])), opt(either(None, 0.5)), dt="small", n=8, product=True),
    R("convolve", of([9], dom="tiny"), of([4], dom="tiny"), either("full", "same", "valid"), dt="small", n=6, product=True),
]

PAIR = either(1, 2, [2, 1])
CONVOLUTIONS = [
    R("conv1d", of([2, 9, 4], dom="tiny"), of(either([3, 3, 4]), dom="tiny"), opt(either(1, 2)), opt(either(0, 1)), opt(either(1, 2)), dt="small", n=10, product=True),
    R("conv1d", of([2, 9, 4], dom="tiny"), of([6, 2, 2], dom="tiny"), 1, 1, 1, 2, dt="small", n=3, product=True),
    R("conv2d", of([2, 7, 6, 4], dom="tiny"), of([3, 3, 2, 4], dom="tiny"), opt(PAIR), opt(either(0, 1, [1, 0])), opt(PAIR), dt="small", n=12, product=True),
    R("conv2d", of([1, 5, 5, 4], dom="tiny"), of([4, 3, 3, 1], dom="tiny"), 1, 1, 1, 4, dt="small", n=3, product=True),
    R("conv3d", of([1, 4, 5, 3, 2], dom="tiny"), of([3, 2, 2, 2, 2], dom="tiny"), opt(either(1, [1, 2, 1])), opt(1), dt="small", n=6, product=True),
    R("conv_general", of([2, 7, 6, 4], dom="tiny"), of([3, 3, 2, 4], dom="tiny"), PAIR, either(1, [[0, 1], [2, 0]]), PAIR, opt(PAIR), dt="small", n=8, product=True),
    R("conv_general", of([2, 9, 4], dom="tiny"), of([3, 3, 4], dom="tiny"), flip=True, dt="small", n=3, product=True),
    R("conv_transpose1d", of([2, 6, 4], dom="tiny"), of([3, 3, 4], dom="tiny"), opt(either(1, 2)), opt(1), opt(1), opt(either(0, 1)), dt="small", n=8, product=True),
    R("conv_transpose2d", of([1, 4, 5, 2], dom="tiny"), of([3, 3, 2, 2], dom="tiny"), opt(PAIR), opt(either(0, 1)), dt="small", n=8, product=True),
    R("conv_transpose3d", of([1, 3, 3, 2, 2], dom="tiny"), of([3, 2, 2, 2, 2], dom="tiny"), opt(2), dt="small", n=4, product=True),
]


def quantized(d):
    """x, then the parts of a quantized matrix."""
    group, bits = d.choice([32, 64, 128]), d.choice([2, 3, 4, 5, 6, 8])
    transpose = d.random() < 0.6
    k, n = group * d.choice([1, 2]), d.choice([8, 32, 128]) if transpose else group
    w = d.array([n, k] if transpose else [k, n], d.dtype, plain=True).mlx()
    x = d.array([*d.choice([[1], [3], [2, 4]]), k], dom="tiny")
    parts = mx.quantize(w, group, bits)
    mx.eval(parts)
    return (OMIT, x, *parts, transpose, group, bits)


def packed(d):
    group, bits = d.choice([32, 64, 128]), d.choice([2, 3, 4, 5, 6, 8])
    parts = mx.quantize(d.array([d.choice([1, 5]), group * 2], plain=True).mlx(), group, bits)
    mx.eval(parts)
    return (OMIT, *parts, group, bits)


def eps(d):
    return d.choice([1e-5, 0.1])


def weight(d):
    return None if d.random() < 0.3 else d.array([d.first.shape[-1]], d.dtype)


HEADS = either(None, "causal", lambda d: d.array([4, 6], "bool"), lambda d: d.array([2, 1, 4, 6]))
FUSED = [
    R("quantize", of([3, 128], plain=True), either(32, 64, 128), either(2, 4, 8), dt="float32", n=8),
    R("dequantize", packed, dt="small", n=12),
    R("quantized_matmul", quantized, dt="small", n=24, product=True),
    R("from_fp8", of([16], "uint8"), opt(either(mx.float32, mx.float16)), exact=True, n=4),
    R("to_fp8", of([16]), dt="small", exact=True, n=4),
    R("fast.rms_norm", X, weight, eps, dt="small", n=14, shapes=NONEMPTY, rank=1),
    R("fast.layer_norm", X, weight, weight, eps, dt="small", n=14, shapes=NONEMPTY, rank=1),
    R("fast.rope", of(either([1, 5, 8], [2, 3, 4, 16])), either(4, 8), traditional=BOOL, base=either(10000.0, 100.0), scale=either(1.0, 0.5), offset=either(0, 3),
      dt="small", n=14, product=True),
    R("fast.scaled_dot_product_attention", of([2, 4, 4, 16], dom="tiny"), of(either([2, 4, 6, 16], [2, 2, 6, 16]), dom="tiny"),
      lambda d: d.array([*d.args[1].shape[:3], d.choice([16, 8])], dom="tiny"), scale=either(0.25, 1.0), mask=HEADS, dt="small", n=16, product=True),
]


def square(d):
    """Well-conditioned matrices."""
    import numpy as np
    from mlx_cases import Arr
    n = d.choice([1, 2, 5, 8])
    x = d.array([*d.choice([[], [2], [2, 1]]), n, n], "float32", "tiny", plain=True)
    x.base = (x.base + 3 * np.eye(n, dtype="float32") * n).astype("float32")
    if d.row.names[0] in ("linalg.cholesky", "linalg.eigvalsh", "linalg.eigh"):
        x.base = (x.base + np.swapaxes(x.base, -1, -2)) / 2
    if d.row.names[0] in ("linalg.tri_inv", "linalg.cholesky_inv", "linalg.solve_triangular"):
        x.base = np.tril(x.base)
    return x


def sides(d):
    return d.array([*d.first.shape[:-1], d.choice([1, 3])], "float32", "tiny")


F32 = dict(dt="float32", product=True)
LINALG = [
    R("linalg.inv linalg.det linalg.slogdet linalg.pinv linalg.lu linalg.lu_factor", square, n=5, **F32),
    R("linalg.cholesky", square, opt(BOOL), n=5, **F32),
    R("linalg.eigvalsh", square, n=5, **F32),
    R("linalg.tri_inv linalg.cholesky_inv", square, n=5, **F32),
    R("linalg.solve", square, sides, n=5, **F32),
    R("linalg.solve_triangular", square, sides, n=4, **F32),
    R("linalg.qr", square, then="abs", n=4, **F32),
    R("linalg.eigh linalg.svd", square, then="abs", n=4, **F32),
    R("linalg.norm", X, shapes=NONEMPTY, n=6, dt="float"),
    R("linalg.norm", of([4, 6]), either(None, 1, 2, 3, float("inf"), 0), either(0, -1), opt(BOOL), n=12, dt="small"),
    R("linalg.norm", of([2, 4, 6]), either(1, -1, "fro", float("inf"), float("-inf")), [1, 2], opt(BOOL), n=8, dt="float32"),
]


def length(d):
    return d.choice([None, 1, 4, 5, 12])


NORM = either("backward", "ortho", "forward")
LENGTHS = [[1], [2], [7], [16], [3, 5], [12, 4], [2, 3, 4], [33], [1, 64], [130]]
BOX = either([4, 6], [2, 3, 5], [8, 1])
FFT = [
    R("fft.fft fft.ifft", X, opt(length), opt(AXIS), opt(NORM), dt="complex", shapes=LENGTHS, n=12, product=True),
    R("fft.fft fft.rfft", X, opt(length), opt(AXIS), opt(NORM), dt="small", shapes=LENGTHS, n=6, product=True, own=True),
    R("fft.rfft", X, opt(length), opt(AXIS), opt(NORM), dt="float32", shapes=LENGTHS, n=8, product=True),
    R("fft.irfft", X, opt(either(None, 1, 4, 5, 12)), opt(AXIS), opt(NORM), dt="complex", shapes=[[2], [7], [9], [3, 5], [12, 4]], n=10, product=True),
    R("fft.fft2 fft.ifft2 fft.fftn fft.ifftn", of(BOX), opt(either(None, [4, 4])), opt([0, 1]), opt(NORM), dt="complex", n=6, product=True),
    R("fft.rfft2 fft.rfftn", of(BOX), opt(either(None, [4, 4])), opt([0, 1]), opt(NORM), dt="float32", n=6, product=True),
    R("fft.irfft2 fft.irfftn", of(either([4, 6], [2, 3, 5])), opt(either(None, [4, 4])), opt([0, 1]), opt(NORM), dt="complex", n=6, product=True),
    R("fft.fftshift fft.ifftshift", X, opt(either(None, [-1], [0])), rank=1, exact=True, n=14),
    R("fft.fftfreq fft.rfftfreq", either(1, 4, 7), opt(0.5), n=5),
]

DRAWN = either([], [1], [5], [2, 3], [0], [33], [7, 1, 3], [1001])
FLOATING = either(mx.float32, mx.float16, mx.bfloat16)
RANDOM = [
    R("random.key", lambda d: d.choice([0, 1, 42, 2**32 - 1, 2**32, 2**40 + 17]), exact=True, n=6),
    R("random.split", KEY, opt(either(2, 1, 5)), exact=True, n=8),
    R("random.uniform", 0, 1, DRAWN, either(None, mx.float32), KEY, exact=True, n=16),
    R("random.uniform", either(-1, 2.5), either(3, 10.5), DRAWN, FLOATING, KEY, own=True, n=16),
    R("random.uniform", lambda d: d.array([3], "float32"), 5, either([3], [2, 3]), mx.float32, KEY, n=6),
    R("random.randint", either(0, -5, -1000), either(2, 7, 100000), DRAWN, either(mx.int32, mx.uint32, mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int64), KEY, exact=True, n=28, own=True),
    R("random.randint", either(0, -2**31), 2**31 - 1, [33], mx.int32, KEY, exact=True, n=4),
    R("random.bernoulli", either(0.5, 0.1, 0.0, 1.0), DRAWN, KEY, exact=True, n=12),
    R("random.bernoulli", lambda d: d.array([3], "float32", "01"), either(None, [2, 3]), KEY, exact=True, n=6),
    R("random.permutation", either(1, 5, 33, 1000), 0, KEY, exact=True, n=8),
    R("random.permutation", of(either([7], [5, 3], [1, 4])), either(0, -1), KEY, exact=True, n=14),
    R("random.categorical", of(either([5], [3, 7], [2, 3, 33])), -1, key=KEY, dt="small", exact=True, n=12),
    R("random.categorical", of([3, 7]), either(0, 1), num_samples=either(1, 4, 9), key=KEY, dt="float32", exact=True, n=8),
    R("random.categorical", of([3, 7]), 1, shape=either([3], [5, 3]), key=KEY, dt="float32", exact=True, n=6),
    R("random.normal", DRAWN, FLOATING, None, None, KEY, own=True, n=16),
    R("random.normal", DRAWN, FLOATING, either(1, 2.5), either(2, 0.5), KEY, own=True, n=10),
    R("random.normal", either([4], [2, 3]), mx.complex64, None, None, KEY, n=3),
    R("random.gumbel", DRAWN, FLOATING, KEY, own=True, n=14),
    R("random.laplace", DRAWN, FLOATING, either(0.0, 1.5), either(1.0, 2.0), KEY, own=True, n=14),
    R("random.truncated_normal", either(-2, 0, -0.5), either(1, 3), DRAWN, FLOATING, KEY, own=True, n=14),
    R("random.truncated_normal", lambda d: d.array([3], "float32", "unit"), 2, either(None, [2, 3]), mx.float32, KEY, n=4),
    R("random.multivariate_normal", lambda d: d.array([3], "float32", plain=True), lambda d: mx.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]]), either([], [4], [2, 3]), mx.float32, KEY, n=5),
]

ROWS = [*ELEMENTWISE, *REDUCTIONS, *SHAPE, *CREATION, *QUESTIONS, *INDEXING, *PRODUCTS, *CONVOLUTIONS, *FUSED, *LINALG, *FFT, *RANDOM]
