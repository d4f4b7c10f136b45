#!/usr/bin/env bash
# mlx-lm's max_kv_size bounds the cache of Qwen3 but not that of Llama: there it is ignored, and the cache grows with the text.
#
# Software: mlx-lm 0.32.2 with mlx[cpu] 0.32.2 from PyPI (mlx_lm/models/cache.py). Models are random and tiny.
# Expected: make_prompt_cache(model, max_kv_size=8) gives each layer a RotatingKVCache of 8 positions, as its documentation says of
# models without windows, and as --max-kv-size of mlx_lm.generate promises.
# Seen: a model that has make_cache() gets the caches of that, and nobody tells it the size. Llama has one because some of its
# checkpoints have windows, so a Llama without any gets a KVCache.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv >/dev/null
venv/bin/pip install --quiet --disable-pip-version-check "mlx-lm==0.32.2" "mlx[cpu]==0.32.2" >/dev/null
cat >caches.py <<'PY'
from mlx_lm.models import llama, qwen3
from mlx_lm.models.cache import make_prompt_cache

common = dict(hidden_size=64, num_hidden_layers=1, intermediate_size=64, num_attention_heads=2, rms_norm_eps=1e-5,
              vocab_size=32, num_key_value_heads=1, tie_word_embeddings=True)
models = [
    ("llama", llama.Model(llama.ModelArgs(model_type="llama", **common))),
    ("qwen3", qwen3.Model(qwen3.ModelArgs(model_type="qwen3", head_dim=32, rope_theta=1e4, max_position_embeddings=64, **common))),
]
print(", ".join(f"{name} {type(make_prompt_cache(model, max_kv_size=8)[0]).__name__}" for name, model in models))
PY
seen=$(venv/bin/python caches.py)
echo "$seen"
[ "$seen" = "llama KVCache, qwen3 RotatingKVCache" ]
