"""Writes tests/golden/arrays/fp8.json: SHA-256 of the codes that mlx[cpu] gives for every float16 number (NaN aside, infinities
with them) in the order of their bits, and the values of the codes as MLX reads them (null for NaN). Development only.

    python tests/reference/fp8.py > tests/golden/arrays/fp8.json
"""

import hashlib
import json
import math

import mlx.core as mx
import numpy as np

numbers = np.arange(65536, dtype=np.uint16).view(np.float16)
codes = np.array(mx.to_fp8(mx.array(numbers[~np.isnan(numbers)])))
values = mx.from_fp8(mx.arange(256).astype(mx.uint8), mx.float32).tolist()
print(json.dumps({
    "codes": hashlib.sha256(codes.tobytes()).hexdigest(),
    "values": [None if math.isnan(v) else v for v in values],
}))
