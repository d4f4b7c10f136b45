"""Converts tiny-qwen3 with mlx-lm as a user would, and keeps each config.json as it was written with a few logits in float32.

    python mlx_lm_conversions.py ../../examples/models/tiny-qwen3 > mlx_lm_conversions.json

Needs mlx, mlx-lm 0.32 and numpy. conversions_test.ts quantizes the same weights again and compares.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm import convert
from mlx_lm.utils import load_model

IDS = [4090, 1020, 85, 300, 7, 2048, 999, 12, 3000, 450, 77, 1500]
CONVERSIONS = {
    "bfloat16": {"dtype": "bfloat16"},
    "4 bits": {"quantize": True},
    "mixed_4_6": {"quantize": True, "quant_predicate": "mixed_4_6"},
    "mixed_3_6": {"quantize": True, "quant_predicate": "mixed_3_6"},
    "mxfp4": {"quantize": True, "q_mode": "mxfp4"},
    "mxfp8": {"quantize": True, "q_mode": "mxfp8"},
    "nvfp4": {"quantize": True, "q_mode": "nvfp4"},
}

mx.set_default_device(mx.cpu)
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
    dense = f"{folder}/dense"
    convert(sys.argv[1], dense, dequantize=True, dtype="bfloat16")
    rows = []
    for i, (name, options) in enumerate(CONVERSIONS.items()):
        path = f"{folder}/{i}"
        convert(dense, path, **options)
        model, _ = load_model(Path(path))
        model.set_dtype(mx.float32)
        logits = np.array(model(mx.array([IDS]))[0, -1])[::32]
        config = json.loads(Path(path, "config.json").read_text())
        rows.append({"name": name, "config": config, "logits": [float(f"{x:.9g}") for x in logits]})
print(json.dumps({"ids": IDS, "conversions": rows}, separators=(",", ":")))
