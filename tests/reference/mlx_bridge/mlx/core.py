"""mlx.core over a vkmx module in a Deno process. Converts names, arguments and data; computes nothing: see README.md."""
import re, sys, types
import numpy as np
from shim.arguments import call
from shim.arrays import array
from shim.connection import Missing, NAMES, camel
from shim.devices import *
from shim.dtypes import Dtype, DtypeCategory, SIZES, dtype
from shim.files import export_function, export_to_dot, exporter, import_function, load, save, save_gguf, save_safetensors, savez, savez_compressed
from shim.transforms import checkpoint, compile, custom_function, grad, jvp, value_and_grad, vjp, vmap
from shim.values import as_array, plain


def atleast(n):
    def f(*arrays, **kw):
        out = [call(f"atleast_{n}d", a) for a in arrays]
        return out[0] if len(out) == 1 else out
    return f


atleast_1d, atleast_2d, atleast_3d = atleast(1), atleast(2), atleast(3)


def asarray(a, dtype=None, *, copy=None):
    if copy is None: return a if isinstance(a, array) and dtype in (None, a.dtype) else array(a, dtype)
    return plain("asarray", as_array(a), dtype, {"copy": copy})


def from_dlpack(x, *, copy=None): return asarray(np.from_dlpack(x), copy=copy)


class Info:
    """Limits of a dtype, with their names in Python."""
    def __init__(self, name, d): self.__dict__.update({snake(k): v for k, v in call(name, d).items()})


def finfo(d): return Info("finfo", d)
def iinfo(d): return Info("iinfo", d)
def snake(name): return re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), name)
def device_info(d=None): return {snake(k): v for k, v in plain("device_info", *([] if d is None else [d])).items()}


class printoptions:
    def __init__(self, **options): self.options = options
    def __enter__(self): self.scope = plain("printoptions", self.options)
    def __exit__(self, *_): self.scope.dispose()


def einsum_path(*args):
    path, text = call("einsum_path", *args)
    return [tuple(step) for step in path], text


def eval(*trees): plain("eval", *trees)
def async_eval(*trees): plain("async_eval", *trees)


class Group:
    """Processes that compute together."""
    def __init__(self, remote): self.remote = remote
    def to_vkmx(self): return self.remote
    def rank(self): return self.remote.method("rank")
    def size(self): return self.remote.method("size")
    def split(self, color, key=-1): return Group(self.remote.method("split", color, key))
class ArrayLike: pass


class Namespace(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return find(f"{self.__name__.split('.')[-1]}.{name}")


def find(name):
    path = ".".join(camel(p) for p in name.split("."))
    kind = NAMES.get(path)
    if kind is None:
        if name in SIZES or name == "bool_": return dtype(name.rstrip("_"))
        raise Missing(f"vkmx has no {name}")
    if kind == "dtype": return dtype(path)
    if kind == "value" or kind == "object":
        if path not in OBJECTS: OBJECTS[path] = plain(name)
        return OBJECTS[path]
    def f(*args, **kwargs): return call(name, *args, **kwargs)
    f.__name__ = name.split(".")[-1]
    return f


def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return find(name)


OBJECTS = {}
for _name in ("random", "linalg", "fast", "fft", "metal", "cuda", "distributed"):
    sys.modules["mlx.core." + _name] = globals()[_name] = Namespace("mlx.core." + _name)
metal.is_available = cuda.is_available = lambda: False
distributed.Group, distributed.init = Group, lambda *args, **kwargs: Group(call("distributed.init", *args, **kwargs))
for _name in ("pi", "e", "inf", "nan", "newaxis"): globals()[_name] = plain(_name)
__version__ = "0.0.0"
