"""mx.array, with Python's operators."""
import sys
import numpy as np
from .arguments import SIGNATURES, call, call_method
from .connection import CONNECTION, METHODS, Missing, camel
from .dtypes import DTYPES, NUMPY, is_float
from .values import Handle, UNDEFINED, as_array, encode, from_numpy, is_number, plain, request, scalar


def index_list(i, keep):
    parts = i if isinstance(i, tuple) else (i,)
    out = []
    for p in parts:
        if isinstance(p, np.ndarray) or (isinstance(p, list)): p = as_array(p)
        elif isinstance(p, np.integer): p = int(p)
        elif isinstance(p, bool): p = array(p)
        elif isinstance(p, (float, str)): raise ValueError("Cannot index mlx array using the given type.")
        out.append(encode(p, keep))
    return out


class array(Handle):
    def __init__(self, val, dtype=None):
        made = as_array(val, dtype)
        self._take(made)

    @classmethod
    def _of(cls, v):
        a = cls.__new__(cls)
        a._id, a._shape, a._dtype = v["$h"], tuple(v["s"]), DTYPES[v["d"]]
        return a

    def _take(self, other):
        """Shows what another array shows, which ends."""
        mine = self.__dict__.get("_id")
        self._id, self._shape, self._dtype = other._id, other._shape, other._dtype
        other._id = mine
        return self

    def __del__(self):
        try:
            if self.__dict__.get("_id") is not None: CONNECTION.dead.append(self._id)
        except Exception: pass

    shape = property(lambda s: s._shape)
    dtype = property(lambda s: s._dtype)
    ndim = property(lambda s: len(s._shape))
    size = property(lambda s: call_method(s, "size", (), {}))
    itemsize = property(lambda s: call_method(s, "itemsize", (), {}))
    nbytes = property(lambda s: call_method(s, "nbytes", (), {}))
    T = property(lambda s: call_method(s, "T", (), {}))
    at = property(lambda s: At(s))

    def item(self): return call_method(self, "item", (), {}) if not is_float(self.dtype) else float(call_method(self, "item", (), {}))

    def tolist(self):
        v = call_method(self, "tolist", (), {})
        to = float if is_float(self.dtype) else None
        def walk(x): return [walk(y) for y in x] if isinstance(x, list) else to(x) if to else x
        return walk(v)

    def _numpy(self):
        if self.dtype.name == "bfloat16": raise TypeError("bfloat16 arrays cannot be converted to NumPy.")
        kind, blob = ("Uint8Array", b"") if 0 in self.shape else request("read", self=self._id)
        kind = "complex64" if self.dtype.name == "complex64" else NUMPY.get(kind)
        v = np.frombuffer(bytearray(blob), kind) if blob else np.zeros(0, "bool" if self.dtype.name == "bool" else self.dtype.name)
        if self.dtype.name == "bool": v = v.view("bool")
        return v.reshape(self.shape)

    def __array__(self, dtype=None, copy=None):
        v = self._numpy()
        return v.astype(dtype) if dtype is not None else v

    def __buffer__(self, flags): return memoryview(self._numpy())
    def __dlpack__(self, *, stream=None, **kw): return self._numpy().__dlpack__(**kw)  # NumPy's copy of the values
    def __dlpack_device__(self): return (1, 0)

    def __array_namespace__(self, api_version=None):
        if api_version: raise ValueError("Explicitly specifying api_version is not yet implemented.")
        return sys.modules["mlx.core"]

    def __repr__(self): return request("method", self=self._id, name="toString", args=[])

    def __format__(self, spec):
        if self.ndim == 0: return format(self.item(), spec)
        if spec: raise TypeError("unsupported format string passed to mx.array.__format__")
        return repr(self)

    def __bool__(self): return bool(self.item())
    def __int__(self): return int(self.item())
    def __float__(self): return float(self.item())
    def __complex__(self): return complex(self.item())
    def __index__(self):
        if is_float(self.dtype): raise TypeError("only integer arrays can be converted to an index")
        return int(self.item())

    def __len__(self):
        if not self.shape: raise TypeError("len() 0-dimensional array.")
        return self.shape[0]

    def __iter__(self):
        if not self.shape: raise TypeError("iteration over 0-dimensional array")
        return iter(request("iterate", self=self._id))

    def __getitem__(self, i):
        keep = []
        return request("method", self=self._id, name="index", args=index_list(i, keep), keep=keep)

    def __setitem__(self, i, v):
        keep = []
        if isinstance(v, (list, tuple)): raise ValueError("Cannot assign a list")
        if isinstance(v, np.ndarray): v = from_numpy(v, self.dtype)
        elif is_number(v): v = scalar(v, self.dtype)
        index = index_list(i, keep)
        request("method", self=self._id, name="indexPut_", args=[index if isinstance(i, tuple) or len(index) != 1 else index[0], encode(v, keep)], keep=keep)

    def __copy__(self): return array(self)
    def __deepcopy__(self, memo): return array(self)
    def __reduce__(self): return (_unpickle, (self._numpy() if self.dtype.name != "bfloat16" else plain("astype", self, DTYPES["float32"])._numpy(), self.dtype.name))
    __hash__ = object.__hash__

    def __getattr__(self, name):
        if name in ("real", "imag"): return call(name, self)
        if name.startswith("_") or ("array." + name not in SIGNATURES and camel(name) not in METHODS):
            raise AttributeError(f"array has no attribute {name}")
        if camel(name) not in METHODS: raise Missing(f"vkmx has no array.{name}")
        if METHODS[camel(name)] == "property": return call_method(self, name, (), {})
        return lambda *args, **kwargs: call_method(self, name, args, kwargs)

    def reshape(self, *shape, **kw): return call_method(self, "reshape", flat(shape or (kw.pop("shape"),)), kw)
    def transpose(self, *axes, **kw): return call_method(self, "transpose", flat(axes or ((kw.pop("axes"),) if "axes" in kw else ())), kw)
    def unflatten(self, axis, shape, **kw): return call("unflatten", self, axis, shape, **kw)


def flat(v): return tuple(v[0]) if len(v) == 1 and isinstance(v[0], (list, tuple)) else () if v == (None,) else v
def _unpickle(v, name): return array(v, DTYPES[name])


class At:
    def __init__(self, a, i=UNDEFINED): self.a, self.i = a, i
    def __getitem__(self, i): return At(self.a, i)

    def __getattr__(self, name):
        def update(value):
            if self.i is UNDEFINED: raise ValueError("Must give indices to array.at")
            keep = []
            if is_number(value): value = scalar(value, self.a.dtype)
            return request("at", self=self.a._id, index=index_list(self.i, keep), name=name, value=encode(value, keep), keep=keep)
        if name not in ("add", "subtract", "multiply", "divide", "maximum", "minimum"): raise AttributeError(name)
        return update


def operators():
    def operand(a, b, what):
        if isinstance(b, array) or is_number(b) or hasattr(b, "__mlx_array__"): return b
        if isinstance(b, (np.ndarray, np.generic)): return from_numpy(b, a.dtype)
        raise ValueError(f"Cannot perform {what} on an mlx.core.array and {type(b).__name__}")

    def define(dunder, name):
        def plain(self, b): return call(name, self, operand(self, b, name))
        def reverse(self, b): return call(name, operand(self, b, name), self)
        def inplace(self, b):
            if name == "divide" and not is_float(self.dtype): raise ValueError("In-place division cannot be performed on integer arrays.")
            return self._take(call(name, self, operand(self, b, "inplace " + name)))
        setattr(array, f"__{dunder}__", plain)
        setattr(array, f"__r{dunder}__", reverse)
        setattr(array, f"__i{dunder}__", inplace)

    for dunder, name in dict(add="add", sub="subtract", mul="multiply", truediv="divide", floordiv="floor_divide", mod="remainder", pow="power", matmul="matmul",
                             lshift="left_shift", rshift="right_shift", xor="bitwise_xor").items(): define(dunder, name)
    define("and", "bitwise_and")
    define("or", "bitwise_or")
    for dunder, name in dict(lt="less", le="less_equal", gt="greater", ge="greater_equal").items():
        setattr(array, f"__{dunder}__", (lambda name: lambda self, b: call(name, self, operand(self, b, name)))(name))
    def comparable(b): return isinstance(b, (array, np.ndarray, np.generic)) or is_number(b) or hasattr(b, "__mlx_array__")
    array.__eq__ = lambda self, b: call("equal", self, operand(self, b, "")) if comparable(b) else False
    array.__ne__ = lambda self, b: call("not_equal", self, operand(self, b, "")) if comparable(b) else True
    array.__hash__ = object.__hash__
    array.__neg__ = lambda self: call("negative", self)
    array.__abs__ = lambda self: call_method(self, "abs", (), {})
    array.__invert__ = lambda self: call("bitwise_invert", self)
    array.__pos__ = lambda self: call("positive", self)


operators()
Handle.array = array._of
