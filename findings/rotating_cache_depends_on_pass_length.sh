#!/usr/bin/env bash
# mlx-lm's rotating cache gives other logits for the same tokens when the prompt is read in passes of another length.
#
# Software: mlx-lm 0.32.2 with mlx[cpu] 0.32.2 from PyPI (RotatingKVCache in mlx_lm/models/cache.py). The model is random and tiny.
# Expected: with max_kv_size=24 each token sees the 4 kept positions and the last 20. prefill_step_size only cuts the prompt into passes, as it
# does with a plain cache, so the logits after the prompt are the same but for rounding.
# Seen: reading 40 tokens one by one and in passes of 8 or 40 gives logits that differ by several percent. In a pass of several tokens the mask
# counts entries of the cache from its end, so most tokens of a pass do not see the 4 kept positions, and see others instead. A plain cache
# differs by rounding only.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv >/dev/null
venv/bin/pip install --quiet --disable-pip-version-check "mlx-lm==0.32.2" "mlx[cpu]==0.32.2" >/dev/null
cat >passes.py <<'PY'
import mlx.core as mx
from mlx_lm.models import qwen3
from mlx_lm.models.cache import KVCache, RotatingKVCache

mx.random.seed(1)
model = qwen3.Model(qwen3.ModelArgs(model_type="qwen3", hidden_size=64, num_hidden_layers=2, intermediate_size=128, num_attention_heads=4,
                                    rms_norm_eps=1e-5, vocab_size=64, num_key_value_heads=2, tie_word_embeddings=True, head_dim=32,
                                    rope_theta=1e4, max_position_embeddings=256))
tokens = mx.random.randint(0, 64, (1, 40))


def logits(make, length):
    cache = [make() for _ in model.layers]
    for first in range(0, 40, length):
        out = model(tokens[:, first:first + length], cache=cache)
        mx.eval(out)
    return out[0, -1]


def apart(make, length):
    one, many = logits(make, 1), logits(make, length)
    return (mx.linalg.norm(one - many) / mx.linalg.norm(one)).item()


for length in (8, 40):
    plain, rotating = apart(KVCache, length), apart(lambda: RotatingKVCache(max_size=24, keep=4), length)
    print(f"passes of {length}: a plain cache {'equal' if plain < 1e-4 else 'differs'}, a rotating one {'equal' if rotating < 1e-2 else 'differs'}")
PY
seen=$(venv/bin/python passes.py)
echo "$seen"
[ "$seen" = "passes of 8: a plain cache equal, a rotating one differs
passes of 40: a plain cache equal, a rotating one differs" ]
