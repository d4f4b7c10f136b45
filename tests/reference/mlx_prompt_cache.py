"""A prompt cache by mlx-lm in float32, and the logits of a token behind it.

    python3 tests/reference/mlx_prompt_cache.py DIR ID,ID,... NEXT CACHE.safetensors LOGITS.json    writes both
    python3 tests/reference/mlx_prompt_cache.py DIR check NEXT CACHE.safetensors LOGITS.json        reads the cache, compares the logits

For development: needs `pip install mlx[cpu] mlx-lm`. Called by prompt_cache.ts.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import load_prompt_cache, make_prompt_cache, save_prompt_cache
from mlx_lm.utils import load_model

if __name__ == "__main__":
    directory, ids, following, cache_file, out = sys.argv[1:]
    model, _ = load_model(Path(directory), lazy=False)
    model.set_dtype(mx.float32)

    def logits(cache):
        return np.array(model(mx.array([[int(following)]]), cache=cache)[0, 0], dtype=np.float64)[::64]

    if ids == "check":
        cache, metadata = load_prompt_cache(cache_file, return_metadata=True)
        expected = np.array(json.loads(Path(out).read_text()))
        error = ((logits(cache) - expected) ** 2).sum() / (expected**2).sum()
        print(f"{cache[0].offset} tokens, metadata {sorted(metadata)}, NMSE {error:.3g}")
        sys.exit(0 if error < 1e-5 else 1)
    cache = make_prompt_cache(model)
    model(mx.array([[int(i) for i in ids.split(",")]]), cache=cache)
    mx.eval([c.state for c in cache])
    save_prompt_cache(cache_file, cache, {"model": "synthetic", "tokenizer_config": "{}"})
    Path(out).write_text(json.dumps([float(f"{x:.9g}") for x in logits(cache)]) + "\n")
