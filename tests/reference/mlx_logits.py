"""Reference logits of a model directory by mlx-lm in float32.

    python3 tests/reference/mlx_logits.py DIR OUT.f32 ID,ID,... [PROMPT]

Writes the logits of every position, (positions, vocabulary) little-endian float32; with PROMPT, those behind so many tokens one by
one, from a cache. For development: needs `pip install mlx[cpu] mlx-lm`. All parameters become float32 first, because mlx sums in the
dtype of the operands on a CPU.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

# mlx-lm's Llama passes "hidden_act" over.
ACTIVATIONS = {"silu": nn.silu, "gelu": nn.gelu, "gelu_pytorch_tanh": nn.gelu_approx}


def logits(directory: str, ids: list[int], prompt: int) -> np.ndarray:
    activation = ACTIVATIONS[json.loads((Path(directory) / "config.json").read_text()).get("hidden_act", "silu")]
    llama.swiglu = lambda gate, x: activation(gate) * x
    model, _ = load_model(Path(directory), lazy=False)
    model.set_dtype(mx.float32)
    cache = make_prompt_cache(model)
    parts = [ids[:prompt], *([token] for token in ids[prompt:])]
    rows = [np.array(model(mx.array([part]), cache=cache)[0], dtype="<f4") for part in parts]
    return np.concatenate(rows)


if __name__ == "__main__":
    directory, out, ids, *prompt = sys.argv[1:]
    tokens = [int(i) for i in ids.split(",")]
    logits(directory, tokens, int(prompt[0]) if prompt else len(tokens)).tofile(out)
