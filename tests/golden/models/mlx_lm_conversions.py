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
    "1 bit": {"quantize": True, "q_bits": 1},
}


def mixed(path, module):
    """Three formats, in which the scales have two dtypes."""
    if "down_proj" in path:
        return {"group_size": 64, "bits": 8, "mode": "affine"}
    if "v_proj" in path:
        return {"group_size": 32, "bits": 2, "mode": "affine"}
    return hasattr(module, "to_quantized")


def unnamed(config):
    """A config that names one format for all matrices."""
    block = {key: value for key, value in config["quantization"].items() if not isinstance(value, dict)}
    config["quantization"] = config["quantization_config"] = block


def by_method(config):
    """A config as transformers writes it."""
    config["quantization_config"] = {"quant_method": config.pop("quantization")["mode"]}


# Conversions whose config.json is changed before mlx-lm loads them.
EDITED = {
    "mixed_3_6, whose config names one format": ({"quantize": True, "quant_predicate": "mixed_3_6"}, unnamed),
    "mxfp4 and affine, whose config names mxfp4": ({"quantize": True, "q_mode": "mxfp4", "quant_predicate": mixed}, unnamed),
    "affine and wider, whose config names 4 bits": ({"quantize": True, "quant_predicate": mixed}, unnamed),
    "mxfp4 by quant_method": ({"quantize": True, "q_mode": "mxfp4"}, by_method),
    "mxfp8 by quant_method": ({"quantize": True, "q_mode": "mxfp8"}, by_method),
}

mx.set_default_device(mx.cpu)
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
    dense = f"{folder}/dense"
    convert(sys.argv[1], dense, dequantize=True, dtype="bfloat16")
    rows = []
    cases = {**{name: (options, None) for name, options in CONVERSIONS.items()}, **EDITED}
    for i, (name, (options, edit)) in enumerate(cases.items()):
        path = f"{folder}/{i}"
        convert(dense, path, **options)
        file = Path(path, "config.json")
        config = json.loads(file.read_text())
        stored = {}
        if edit is not None:
            stored["stored"] = config["quantization"]
            edit(config)
            file.write_text(json.dumps(config))
        model, _ = load_model(Path(path))
        model.set_dtype(mx.float32)
        logits = np.array(model(mx.array([IDS]))[0, -1])[::32]
        rows.append({"name": name, "config": config, **stored, "logits": [float(f"{x:.9g}") for x in logits]})
print(json.dumps({"ids": IDS, "conversions": rows}, separators=(",", ":")))
