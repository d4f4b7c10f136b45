"""Prints the SHA-256 of what MLX makes of files of float32 rows in the modes of small floats, by file, dtype and mode, and of the numbers
that bytes of codes and scales stand for.

Called by quantize.ts. Needs mlx and numpy.
"""

import hashlib
import json
import sys

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
DTYPES = ("float32", "float16", "bfloat16")
GROUPS = {"mxfp4": 32, "mxfp8": 32, "nvfp4": 16}


def numbers(x):
    """float32 bytes, NaN as one of them."""
    values = np.array(x.astype(mx.float32))
    return np.where(np.isnan(values), np.float32(np.nan), values).tobytes()


def summed(*parts):
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


sums = {}
columns, *files = sys.argv[1:]
for file in files:
    name, path = file.split("=")
    rows = mx.array(np.fromfile(path, dtype=np.float32).reshape(-1, int(columns)))
    for dtype in DTYPES:
        w = rows.astype(getattr(mx, dtype))
        for mode in GROUPS:
            for scale in (None, 3.5) if mode == "nvfp4" else (None,):
                options = {"mode": mode} if scale is None else {"mode": mode, "global_scale": mx.array(scale)}
                codes, scales = mx.quantize(w, **options)
                again = mx.dequantize(codes, scales, dtype=getattr(mx, dtype), **options).astype(getattr(mx, dtype))
                key = f"{name} {dtype} {mode}" + ("" if scale is None else f" {scale}")
                sums[key] = summed(np.array(codes).tobytes(), np.array(scales).tobytes(), numbers(again))
for mode, group in GROUPS.items():
    for dtype in DTYPES:
        for name, known in (("near", range(8, 248)), ("every", range(256))):
            codes = np.tile(np.arange(256, dtype=np.uint8), (len(known), 1)).view(np.uint32)
            width = 256 if mode == "mxfp8" else 512
            scales = np.repeat(np.array(known, dtype=np.uint8)[:, None], width // group, 1)
            values = mx.dequantize(mx.array(codes), mx.array(scales), mode=mode, dtype=getattr(mx, dtype))
            sums[f"{name} {dtype} {mode}"] = summed(numbers(values))
print(json.dumps(sums, indent=1))
