"""Adapters of mlx-lm on small checkpoints of its families, and the logits that it computes with them.

    python3 tests/reference/mlx_adapters.py [OUT]

Writes golden/models/mlx_adapters.json.gz. Checkpoints are those of mlx_lm_families.py; values of adapters are drawn as there, by their
place in the list. Dropout is above 0 in the configs: a loaded model does not drop. Logits are float32, of every row every 16th.
Lengths of gradients are those of the mean cross entropy by arrays of the adapters.

For development: needs `pip install mlx[cpu] mlx-lm==0.32.2 numpy`.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import load_model

from mlx_lm_families import CASES, PROMPTS, checkpoint, drawn, kept, logits_of

TOKENS = 12
LORA = {"rank": 3, "scale": 10.0, "dropout": 0.25}
DORA = {**LORA, "rank": 2, "keys": ["self_attn.v_proj", "mlp.up_proj"]}
ADAPTERS = [
    ("SmolLM3, bfloat16", "dora", 3, DORA),
    ("Mixtral, bfloat16", "lora", 2, LORA),
    ("Qwen3-MoE, mxfp4", "lora", -1, LORA),
    ("gpt-oss, 4 bits", "lora", 2, LORA),
    ("LFM2-MoE, 4 bits", "lora", 3, {**LORA, "keys": ["feed_forward.switch_mlp.down_proj", "conv.in_proj"]}),
    ("Qwen3.5, bfloat16", "lora", 2, LORA),
    ("Qwen3.5-MoE, 4 bits", "lora", 1, LORA),
    ("Gemma 3, the text of a model with images, 4 bits", "dora", 2, DORA),
]


def adapted(folder, entry, kind, layers, parameters):
    """Writes adapters of a checkpoint; returns their config and rows, and the logits."""
    checkpoint(folder, entry["config"], entry["format"], entry["spread"])
    model, _ = load_model(folder, lazy=False)
    linear_to_lora_layers(model, layers, parameters, use_dora=kind == "dora")
    rows, arrays = [], {}
    for name, array in tree_flatten(model.parameters()):
        part = name.rsplit(".", 1)[1]
        if part not in ("lora_a", "lora_b", "m"):
            continue
        low, high = (0.8, 1.2) if part == "m" else (-0.2, 0.2)
        row = [name, "float32", list(array.shape), low, high]
        arrays[name] = drawn(len(rows), array.shape, mx.float32, low, high)
        rows.append(row)
    config = {"fine_tune_type": kind, "num_layers": layers, "lora_parameters": parameters}
    mx.save_safetensors(str(folder / "adapters.safetensors"), arrays)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    model, _ = load_model(folder, lazy=False)
    model = load_adapters(model, str(folder))
    model.eval()
    model.set_dtype(mx.float32)
    return config, rows, kept(logits_of(model, PROMPTS[0][:TOKENS], None), 0), gradients(model, [name for name, *_ in rows])


def gradients(model, names):
    """Lengths of the gradients by arrays of the adapters."""
    tokens = mx.array([PROMPTS[0][:TOKENS]])
    model.freeze()
    model.apply_to_modules(lambda _, module: module.unfreeze(keys=["lora_a", "lora_b", "m"], recurse=False, strict=False))
    loss = nn.value_and_grad(model, lambda m: nn.losses.cross_entropy(m(tokens[:, :-1]), tokens[:, 1:], reduction="mean"))
    found = dict(tree_flatten(loss(model)[1]))
    return {name: float(f"{mx.linalg.norm(found[name]).item():.6g}") for name in names}


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden/models")
    cases = {entry["name"]: entry for entry in CASES}
    found = []
    for name, kind, layers, parameters in ADAPTERS:
        with tempfile.TemporaryDirectory() as folder:
            config, rows, logits, lengths = adapted(Path(folder), cases[name], kind, layers, parameters)
        assert np.isfinite(logits).all(), name
        values = [float(f"{v:.7g}") for v in logits]
        found.append({"checkpoint": name, "config": config, "tensors": rows, "logits": values, "gradients": lengths})
        print(name, kind, len(rows), f"std {logits.std():.2f}", file=sys.stderr)
    text = json.dumps({"tokens": TOKENS, "adapters": found}, separators=(",", ":")).encode()
    (out / "mlx_adapters.json.gz").write_bytes(gzip.compress(text, mtime=0))
