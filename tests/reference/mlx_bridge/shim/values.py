"""How values travel: numbers, lists and objects as JSON, the rest as objects with one "$" key, as in bridge.ts."""
import math, pathlib
import numpy as np
from .connection import CONNECTION, NAMES, Unsupported, camel
from .dtypes import DTYPES, Dtype, DtypeCategory, JS_TYPES, SIZES, dtype, is_float


class Handle:
    """What Python holds of an array; arrays.py says what else an array is, and how one is made."""
    array = None


def encode(v, keep):
    """A value as JSON for the bridge; arrays made on the way are put into keep, so that they live until the answer."""
    if v is None or isinstance(v, (bool, str)): return v
    if isinstance(v, Handle):
        keep.append(v)
        return {"$h": v._id}
    if isinstance(v, (np.generic, np.ndarray)) or hasattr(v, "__mlx_array__"): return encode(as_array(v), keep)
    if isinstance(v, int): return v if abs(v) < 2**53 else {"$i": str(v)}
    if isinstance(v, float):
        if math.isfinite(v) and not (v == 0 and math.copysign(1, v) < 0): return v
        return {"$n": "nan" if v != v else "-0" if v == 0 else "inf" if v > 0 else "-inf"}
    if isinstance(v, complex): return {"$c": [encode(v.real, keep), encode(v.imag, keep)]}
    if isinstance(v, Dtype): return {"$d": dtype(v.name).name}
    if isinstance(v, DtypeCategory): return {"$v": v.name}
    if hasattr(v, "to_vkmx"): return encode(v.to_vkmx(), keep)
    if isinstance(v, (list, tuple)): return [encode(x, keep) for x in v]
    if isinstance(v, dict) and all(isinstance(k, str) for k in v): return {"$o": {k: encode(x, keep) for k, x in v.items()}}
    if isinstance(v, slice): return {"$sl": [None if x is None else x.item() if isinstance(x, Handle) else x.__index__() for x in (v.start, v.stop, v.step)]}
    if v is Ellipsis: return {"$e": 1}
    if v is UNDEFINED: return {"$u": 1}
    if isinstance(v, Typed): return {"$s": [encode(v.value, keep), v.dtype.name]}
    if isinstance(v, Callback):
        keep.append(v)
        return {"$f": CONNECTION.reference(v)}
    if isinstance(v, Remote): return {"$h": v._id}
    if isinstance(v, pathlib.PurePath): return str(v)
    return {"$p": CONNECTION.reference(v)}


def decode(v):
    if isinstance(v, list): return [decode(x) for x in v]
    if not isinstance(v, dict): return v
    if "$h" in v: return Handle.array(v)
    if "$n" in v: return float(v["$n"])
    if "$o" in v: return {k: decode(x) for k, x in v["$o"].items()}
    if "$c" in v: return complex(*map(decode, v["$c"]))
    if "$d" in v: return DTYPES[v["$d"]]
    if "$k" in v: return DtypeCategory(v["$k"])
    if "$p" in v: return CONNECTION.objects[v["$p"]]
    if "$i" in v: return int(v["$i"])
    return Remote(v["$j"])


class Undefined: pass
UNDEFINED = Undefined()


class Typed:
    """A number of a dtype."""
    def __init__(self, value, d): self.value, self.dtype = value, d


class Callback:
    """A Python function that JavaScript may call."""
    def __init__(self, fn): self.fn = fn
    def __call__(self, *args): return self.fn(*args)


class Remote:
    """A JavaScript function or object."""
    def __init__(self, id): self._id, self.functions = id, []

    def __call__(self, *args):
        keep = []
        return request("apply", fn=self._id, args=[encode(a, keep) for a in args], keep=keep)

    def method(self, name, *args):
        keep = []
        return request("method", self=self._id, name=name, args=[encode(a, keep) for a in args], keep=keep, owner=self)

    def __getitem__(self, i): return self.method(str(i))
    def dispose(self): request("dispose", self=self._id)

    def __del__(self):
        CONNECTION.dead.append(self._id)
        CONNECTION.ended += self.functions


def request(op, blob=b"", keep=(), owner=None, **m):
    """Asks JavaScript. Functions among what was encoded into keep live as long as the object that it gives, or as owner."""
    v = None
    try: return (v := CONNECTION.request({"op": op, **m}, blob))
    finally:
        functions = [k for k in keep if isinstance(k, Callback)]
        owner = owner or (v if isinstance(v, Remote) else None)
        (owner.functions if owner else CONNECTION.ended).extend(functions)


def plain(name, *args):
    """Calls a function with arguments as they are."""
    keep = []
    return request("call", path=camel(name), args=[encode(a, keep) for a in args], keep=keep)


def number_dtype(v):
    """What MLX makes of a Python number."""
    if isinstance(v, bool): return dtype("bool")
    if isinstance(v, int): return dtype("int32" if -2**31 <= v < 2**31 else "int64")
    if isinstance(v, complex): return dtype("complex64")
    return dtype("float32")


def is_number(v): return isinstance(v, (bool, int, float, complex))


def scalar(v, partner=None):
    """A Python number as MLX takes it: weak beside an array, where JavaScript's number is as weak, else of its own dtype."""
    if partner is None: return Typed(v, number_dtype(v))
    if isinstance(v, float) and not is_float(partner): return Typed(v, dtype("float32"))
    if isinstance(v, int) and not isinstance(v, bool) and partner.name == "bool": return Typed(v, dtype("int32"))
    if isinstance(v, bool): return Typed(v, partner)
    return v


def from_numpy(v, to=None):
    v = np.asarray(v)
    if v.nbytes > 2**30: raise Unsupported("more than 1 GiB through the pipe")
    name = to.name if to else {"float64": "float32", "complex128": "complex64"}.get(v.dtype.name, v.dtype.name)
    if name not in SIZES and not to: raise ValueError(f"cannot make an array of NumPy's {v.dtype}")
    d = dtype(name)
    carried = v.dtype.name
    if carried in ("int64", "uint64") and NAMES.get(carried) != "dtype":
        v = v.astype(d.name if d.name not in ("bfloat16", "bool") else "float32")
    if v.dtype.kind == "c": return whole_complex(v, d)
    if v.dtype.name not in JS_TYPES: v = v.astype("float32")
    if v.dtype == bool and d.name != "bool": v = v.astype("uint8")
    return request("data", np.ascontiguousarray(v).tobytes(), type=JS_TYPES[v.dtype.name], dtype=d.name, shape=list(v.shape))


def whole_complex(v, d):
    """An array of complex numbers, which travel as pairs."""
    a = request("data", np.ascontiguousarray(v, "complex64").tobytes(), type="Float32Array", pairs=True, shape=list(v.shape))
    return a if d.name == "complex64" else plain("astype", a, d)


def as_array(v, d=None):
    """An array of anything that mx.array() takes."""
    if isinstance(v, Handle): return plain("array", v) if d is None or d == v.dtype else plain("astype", v, d)
    if hasattr(v, "__mlx_array__"): return as_array(v.__mlx_array__(), d)
    if isinstance(v, (np.generic, np.ndarray)): return from_numpy(v, d)
    if is_number(v): return plain("array", v, d or number_dtype(v))
    if isinstance(v, (list, tuple)):
        leaves = []
        if has_arrays(v, leaves): return plain("array", typed_leaves(v), *([d] if d else []))
        if d is None:
            d = dtype("complex64") if any(isinstance(x, complex) for x in leaves) else dtype("float32") if not leaves or any(isinstance(x, float) for x in leaves) else \
                dtype("bool") if all(isinstance(x, bool) for x in leaves) else dtype("int32" if all(-2**31 <= x < 2**31 for x in leaves) else "int64")
        return plain("array", v, d)
    if isinstance(v, (bytes, bytearray)): return from_numpy(np.frombuffer(v, "uint8"), d)
    if hasattr(v, "__array__") or hasattr(v, "__buffer__"): return from_numpy(np.asarray(v if hasattr(v, "__array__") else memoryview(v)), d)
    raise ValueError(f"Invalid type {type(v).__name__} received in array initialization.")


def has_arrays(v, leaves):
    if isinstance(v, (list, tuple)): return any([has_arrays(x, leaves) for x in v])
    if is_number(v):
        leaves.append(v)
        return False
    if isinstance(v, (Handle, np.ndarray, np.generic)) or hasattr(v, "__mlx_array__"): return True
    raise ValueError(f"Invalid type {type(v).__name__} received in array initialization.")


def typed_leaves(v):
    """Lists among whose entries are arrays, with Python's numbers of MLX's dtypes."""
    if isinstance(v, (list, tuple)): return [typed_leaves(x) for x in v]
    return v if isinstance(v, Handle) else as_array(v)


Connection = type(CONNECTION)
Connection.encode, Connection.decode = staticmethod(encode), staticmethod(decode)
