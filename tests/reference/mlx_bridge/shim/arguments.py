"""Calls: MLX's arguments, bound by its own signatures, as those of the module's functions."""
import inspect
import numpy as np
from .connection import HERE, METHODS, Missing, NAMES, Unsupported, camel
from .devices import Device, DeviceType, Stream, StreamContext
from .dtypes import DTYPES, Dtype, dtype, is_float
from .values import Handle, Typed, UNDEFINED, encode, from_numpy, is_number, number_dtype, request, scalar

ALIKE = {"start_indices": "start", "vals": "value"}


def load_signatures():
    out = {}
    for line in open(HERE / "signatures.txt"):
        name, _, rest = line.rstrip().partition("(")
        space = {}
        try: exec(f"def f({rest}: pass", space)
        except SyntaxError: continue
        out[name] = inspect.signature(space["f"])
    out["save_gguf"] = inspect.signature(lambda file, arrays, metadata={}: 0)
    out["arange"] = inspect.signature(lambda start=0, stop=None, step=None, dtype=None: 0)
    return out


HINTS = {("softmax", "precise"), ("contiguous", "allow_col_major"), ("fast.scaled_dot_product_attention", "force_fused")}  # change no result
WEAK = {"random.", "pad", "full", "full_like", "nan_to_num", "linspace", "random.uniform"}  # numbers that need no dtype of their own
def arguments(name, args, kwargs, params, self_dtype=None):
    """MLX's arguments as vkmx's positional ones, by the names of both; what MLX takes by keyword only goes into an object at the end."""
    sig = SIGNATURES.get(name)
    if sig is None:
        if kwargs: raise Unsupported(f"{name}() has no signature for its keywords")
        return list(args)
    if name == "arange" and "start" in kwargs and "stop" not in kwargs: raise TypeError("arange(): incompatible function arguments")
    bound = sig.bind(*([None] if name.startswith("array.") else []), *args, **kwargs)
    given = dict(bound.arguments)
    given.pop("self", None)
    numbers(name, sig, given, self_dtype)
    options_at = next((i for i, p in enumerate(params) if p == "options"), None)
    takes_rest = bool(params) and params[-1].startswith("...")
    slots = [p for p in params if p != "options" and not p.startswith("...")]
    own = {camel(ALIKE.get(n, n)) for n in sig.parameters} | {camel(n) for n in sig.parameters}
    out, options, free = {}, {}, [i for i, s in enumerate(slots) if s not in own]
    tail = []
    for n, p in sig.parameters.items():
        if n == "self": continue
        js = camel(ALIKE.get(n, n)) if camel(ALIKE.get(n, n)) in slots else camel(n)
        slot = slots.index(js) if js in slots else free.pop(0) if free and (p.kind not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) or (p.kind == p.VAR_POSITIONAL and not takes_rest)) else None
        if n not in given: continue
        v = given[n]
        if p.kind == p.VAR_POSITIONAL:
            if takes_rest: tail = list(v)
            elif slot is not None and slot == len(slots) - 1 and len(v) == 1 and name not in ("meshgrid", "broadcast_arrays"): out[slot] = v[0]
            elif slot is not None and name == "meshgrid": out[slot] = list(v)
            else: raise Missing(f"vkmx {name}() takes one array")
            continue
        if v is None and p.default is None: continue
        if slot is not None: out[slot] = v
        elif options_at is not None: options[camel(n)] = v
        elif v != p.default and (name, n) not in HINTS: raise Missing(f"vkmx {name}() takes no {n}")
    length = max(out, default=-1) + 1
    result = [out.get(i, UNDEFINED) for i in range(length)]
    if options:
        result += [UNDEFINED] * (options_at - len(result)) + [options]
    return result + tail


def whole(v):
    """Whole numbers as Python's index protocol takes them from arrays and NumPy; lists of them too."""
    if isinstance(v, (Handle, np.integer)) and not is_float(v.dtype) and v.dtype != DTYPES["bool"] and v.ndim == 0: return v.__index__()
    if type(v) in (list, tuple) and all(isinstance(x, (int, Handle, np.integer)) for x in v) and any(isinstance(x, np.integer) or isinstance(x, Handle) and x.ndim == 0 for x in v) and \
            not all(isinstance(x, Handle) for x in v): return type(v)(map(whole, v))
    return v


def numbers(name, sig, given, self_dtype):
    """Python's numbers among array arguments, typed as MLX types them."""
    kinds = {n: p.annotation for n, p in sig.parameters.items()}
    for n, k in kinds.items():
        if n not in given: continue
        v = given[n]
        if k == "I" or k is inspect.Parameter.empty: given[n] = v = whole(v)
        if k == "I" and any(isinstance(x, (float, str, np.generic)) for x in (v if isinstance(v, (list, tuple)) else [v])):
            raise TypeError(f"{name}(): incompatible function arguments: {n} takes whole numbers")
        if k in ("A", "S") and isinstance(v, (list, tuple)) and sig.parameters[n].kind != inspect.Parameter.VAR_POSITIONAL and n not in ("mask", "axes"):
            raise TypeError(f"{name}(): incompatible function arguments: {n} is a {type(v).__name__}")
        if k == "D" and v is None and sig.parameters[n].default is not inspect.Parameter.empty: del given[n]
        elif k == "D" and not isinstance(v, Dtype) and name not in ("isdtype", "issubdtype"): raise TypeError(f"{name}(): incompatible function arguments: {n} is no Dtype")
    if name == "random.bernoulli" and is_number(given.get("p")): given["p"] = scalar(given["p"])
    if name in WEAK or name.startswith("random."):
        if name in ("full", "full_like") and given.get("dtype") is None and is_number(given.get("vals")): given["vals"] = Typed(given["vals"], number_dtype(given["vals"]))
        return
    if name == "arange":
        if "start" not in given: given["start"] = 0 if "stop" in given else given.pop("stop")
        if given.get("dtype") is None and any(isinstance(given.get(n), (float, np.floating)) for n in ("start", "stop", "step")):
            given["dtype"] = dtype("float32")  # JavaScript's 5.0 is 5
        for n in ("start", "stop", "step"):
            if isinstance(given.get(n), Handle): raise TypeError("arange(): incompatible function arguments")
            if isinstance(given.get(n), np.generic): given[n] = given[n].item()
        return
    operands = [n for n, k in kinds.items() if k in ("A", "S") and n in given and n not in ("condition", "key", "indices", "offset")]
    partner = next((given[n].dtype for n in operands if isinstance(given[n], Handle)), self_dtype)
    if name == "where" and not any(isinstance(given.get(n), Handle) for n in ("x", "y")): partner = None
    for n in operands:
        v = given[n]
        if isinstance(v, np.ndarray) and v.ndim + 1 and partner and kinds[n] == "S": given[n] = from_numpy(v, partner)
        elif is_number(v): given[n] = scalar(v, partner)
    if is_number(given.get("condition")): given["condition"] = Typed(given["condition"], number_dtype(given["condition"]))
    if is_number(given.get("indices")): given["indices"] = Typed(given["indices"], number_dtype(given["indices"]))


def call(name, *args, **kwargs):
    path = ".".join(camel(p) for p in name.split("."))
    params = NAMES.get(path)
    if not isinstance(params, list): raise Missing(f"vkmx has no {name}")
    where = kwargs.pop("stream", None)
    if where is None and args and isinstance(args[-1], (Device, DeviceType, Stream)): *args, where = args
    if where is not None:
        with StreamContext(where): return call(name, *args, **kwargs)
    keep = []
    sent = [encode(a, keep) for a in (args if name in ("array", "astype", "stack") and not kwargs else arguments(name, args, kwargs, params))]
    v = request("call", path=path, args=sent, keep=keep)
    return tuple(v) if name in SIGNATURES and SIGNATURES[name].return_annotation == "t" and isinstance(v, list) else v


def call_method(self, name, args, kwargs):
    where = kwargs.pop("stream", None)
    if where is None and args and isinstance(args[-1], (Device, DeviceType, Stream)): *args, where = args
    if where is not None:
        with StreamContext(where): return call_method(self, name, args, kwargs)
    params = METHODS.get(camel(name))
    if params is None: raise Missing(f"vkmx has no array.{name}")
    if params == "property": return request("method", self=self._id, name=camel(name), args=[])
    keep = []
    sent = [encode(a, keep) for a in arguments("array." + name, args, kwargs, params, self.dtype)]
    return request("method", self=self._id, name=camel(name), args=sent, keep=keep)


SIGNATURES = load_signatures()
