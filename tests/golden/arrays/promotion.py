# Writes promotion.json: the dtype that MLX gives for each pair of dtypes, rows and columns in the order of their codes.
#
#     python tests/golden/arrays/promotion.py > tests/golden/arrays/promotion.json

import json

import mlx.core as mx

NAMES = (
    "bool uint8 uint16 uint32 int8 int16 int32 float16 bfloat16 float32 int64 uint64 float64 complex64"
).split()
dtypes = [mx.bool_ if name == "bool" else getattr(mx, name) for name in NAMES]


def name_of(dtype):
    return str(dtype).split(".")[-1].rstrip("_")


rows = [f'  "{a}": ' + json.dumps([name_of(mx.result_type(x, y)) for y in dtypes]) for a, x in zip(NAMES, dtypes)]
print("{\n" + ",\n".join(rows) + "\n}")
