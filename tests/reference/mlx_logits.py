"""Reference logits of a model directory by mlx-lm in float32.

    python3 tests/reference/mlx_logits.py DIR OUT.f32 ID,ID,...

Writes the logits of every position, (positions, vocabulary) little-endian float32. For development: needs `pip install
mlx[cpu] mlx-lm`. All parameters become float32 first, because mlx sums in the dtype of the operands on a CPU.
"""

import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model


def logits(directory: str, ids: list[int]) -> np.ndarray:
    model, _ = load_model(Path(directory), lazy=False)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([ids]))[0], dtype="<f4")


if __name__ == "__main__":
    directory, out, ids = sys.argv[1:]
    logits(directory, [int(i) for i in ids.split(",")]).tofile(out)
