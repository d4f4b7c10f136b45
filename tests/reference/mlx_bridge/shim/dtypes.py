"""Dtypes and their categories."""
from .connection import Missing, NAMES


class Dtype:
    def __init__(self, name, size):
        self.name, self.size = name, size

    def __repr__(self): return "mlx.core." + self.name
    def __eq__(self, o): return isinstance(o, Dtype) and o.name == self.name
    def __hash__(self): return hash(self.name)


class DtypeCategory:
    def __init__(self, name): self.name = name
    def __repr__(self): return "mlx.core." + self.name
    def __eq__(self, o): return isinstance(o, DtypeCategory) and o.name == self.name
    def __hash__(self): return hash(self.name)


SIZES = {"bool": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8}
DTYPES = {n: Dtype(n, s) for n, s in SIZES.items()}


def dtype(name):
    """The dtype of a name, where vkmx has it."""
    if NAMES.get(name) != "dtype": raise Missing(f"vkmx has no dtype {name}")
    return DTYPES[name]


def is_float(d): return "float" in d.name
JS_TYPES = {"bool": "Uint8Array", "float16": "Float16Array", "float32": "Float32Array", "float64": "Float64Array", "int64": "BigInt64Array", "uint64": "BigUint64Array",
            **{n: n.capitalize() + "Array" for n in ("int8", "int16", "int32", "uint8", "uint16", "uint32")}}
NUMPY = {v: k for k, v in JS_TYPES.items() if k != "bool"}  # of what toTypedArray() gives
CATEGORIES = ("generic", "number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating", "complexfloating")
for _name in CATEGORIES: setattr(DtypeCategory, _name, DtypeCategory(_name))
