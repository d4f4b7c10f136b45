"""Prompt caches by mlx-lm in float32, and what follows them.

    python3 tests/reference/mlx_prompt_cache.py DIR write CACHE.safetensors JSON    writes a cache, prints logits and tokens
    python3 tests/reference/mlx_prompt_cache.py DIR read CACHE.safetensors JSON     goes on from a cache, prints the same

JSON has the prompt ("ids"), the tokens that are fed one by one ("steps"), the token after the cache ("next"), how many tokens to
choose ("count"), and for a quantized cache "bits" and "group". For a rotating one in all layers it has "size".

For development: needs `pip install mlx[cpu] mlx-lm==0.32.2`. Called by prompt_cache.ts.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import RotatingKVCache, load_prompt_cache, make_prompt_cache, save_prompt_cache
from mlx_lm.utils import load_model

if __name__ == "__main__":
    directory, mode, cache_file, text = sys.argv[1:]
    case = json.loads(text)
    model, _ = load_model(Path(directory), lazy=False)
    model.set_dtype(mx.float32)

    def feed(tokens, cache):
        return np.array(model(mx.array([tokens]), cache=cache)[0, -1], dtype=np.float64)

    if mode == "write":
        size = case.get("size")
        cache = [RotatingKVCache(size, keep=4) for _ in model.layers] if size else make_prompt_cache(model)
        # One pass over many tokens would not show them the first positions.
        for ids in [[i] for i in case["ids"]] if size else [case["ids"]]:
            feed(ids, cache)
        if "bits" in case:
            cache = [c.to_quantized(group_size=case["group"], bits=case["bits"]) for c in cache]
        for token in case["steps"]:
            feed([token], cache)
        mx.eval([c.state for c in cache])
        save_prompt_cache(cache_file, cache, {"model": "synthetic", "tokenizer_config": "{}"})
    else:
        cache, metadata = load_prompt_cache(cache_file, return_metadata=True)
        assert metadata["model"] == "synthetic"
    classes = [type(c).__name__ for c in cache]
    row = feed([case["next"]], cache)
    logits = [float(f"{x:.9g}") for x in row[::64]]
    tokens = []
    for _ in range(case["count"]):
        tokens.append(int(row.argmax()))
        row = feed(tokens[-1:], cache)
    print(json.dumps({"offset": cache[0].offset, "classes": classes, "logits": logits, "tokens": tokens}))
