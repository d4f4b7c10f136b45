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


def clamped(w, codes, scales, mode):
    """Groups whose exponent MLX wraps around, with the least scale, 2^-127, instead: the nearest codes, ties to even."""
    most, bits = (6.0, 4) if mode == "mxfp4" else (448.0, 8)
    groups = np.array(w.astype(mx.float32)).reshape(-1, 32)
    size = np.array((mx.array(np.abs(groups).max(1)).astype(w.dtype) / most).astype(mx.float32), dtype=np.float64)
    with np.errstate(divide="ignore"):
        small = (size > 0) & (np.ceil(np.log2(size)) < -127)
    units = np.array((mx.array(groups).astype(mx.float32) * mx.array(2.0**127)).astype(w.dtype).astype(mx.float32))
    if mode == "mxfp4":
        values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        distance = np.abs(np.abs(units)[..., None] - values)
        best = distance == distance.min(-1, keepdims=True)
        found = np.where(best & (np.arange(8) % 2 == 0), np.arange(8), np.where(best, np.arange(8) + 8, 99)).min(-1) % 8
        found = (found + 8 * (np.signbit(units) & (found > 0))).astype(np.uint8)  # MLX writes no negative 0
        found = found[:, ::2] | found[:, 1::2] << 4
    else:
        found = np.array(mx.to_fp8(mx.array(units)))
    codes, scales = np.array(codes), np.array(scales)
    codes.view(np.uint8).reshape(-1, 32 * bits // 8)[small] = found[small]
    scales.reshape(-1)[small] = 0
    return mx.array(codes), mx.array(scales)


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
                if mode != "nvfp4":
                    codes, scales = clamped(w, codes, scales, mode)
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
