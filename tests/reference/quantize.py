"""Prints the SHA-256 of codes, scales, biases and dequantized weights of a file of float32 rows, by dtype, bits and group size.

Called by quantize.ts. Needs mlx and numpy.
"""

import hashlib
import json
import sys

import mlx.core as mx
import numpy as np

path, columns = sys.argv[1:]
mx.set_default_device(mx.cpu)
rows = mx.array(np.fromfile(path, dtype=np.float32).reshape(-1, int(columns)))
sums = {}
for dtype in ("float32", "float16", "bfloat16"):
    w = rows.astype(getattr(mx, dtype))
    for bits in (1, 2, 3, 4, 5, 6, 8):
        for group_size in (32, 64, 128):
            parts = mx.quantize(w, group_size=group_size, bits=bits)
            again = mx.dequantize(*parts, group_size=group_size, bits=bits)
            found = hashlib.sha256()
            for part in (*parts, again):
                found.update(np.array(part.view(mx.uint8)).tobytes())
            sums[f"{dtype} {bits} {group_size}"] = found.hexdigest()
print(json.dumps(sums, indent=1))
