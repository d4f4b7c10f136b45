#!/usr/bin/env bash
# mlx-lm ignores "rope_scaling" of Qwen3-MoE and Mixtral: the same logits with and without it, at any length and without a message.
#
# Software: mlx-lm 0.32.2 with mlx[cpu] 0.32.4 from PyPI (mlx_lm/models/qwen3_moe.py and mixtral.py). Weights are random.
# Expected: Qwen advises a "yarn" rope_scaling in config.json for long contexts of its models with experts. Both families have the
# field in their arguments, the dense qwen3 beside them uses it, and transformers does for all three.
# Seen: with rope_scaling, qwen3 gives other logits for 48 tokens, qwen3_moe and mixtral the same: positions come from rope_theta alone.
#
# Exits 1 where that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "mlx[cpu]==0.32.4" "mlx-lm==0.32.2"
cat > "$folder/program.py" <<'PY'
import importlib

import mlx.core as mx

mx.set_default_device(mx.cpu)
SIZES = dict(hidden_size=64, num_hidden_layers=2, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
             rms_norm_eps=1e-6, vocab_size=64, rope_theta=10000.0, max_position_embeddings=4096, tie_word_embeddings=True)
MOE = dict(num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1, mlp_only_layers=[], moe_intermediate_size=32,
           norm_topk_prob=True)
FAMILIES = {
    "qwen3": dict(head_dim=16),
    "qwen3_moe": dict(head_dim=16, **MOE),
    "mixtral": dict(num_local_experts=4, num_experts_per_tok=2),
}
YARN = {"rope_type": "yarn", "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
tokens = mx.array([list(range(48))])
for name, more in FAMILIES.items():
    module = importlib.import_module("mlx_lm.models." + name)
    logits = []
    for scaling in (None, YARN):
        mx.random.seed(0)
        model = module.Model(module.ModelArgs.from_dict(dict(model_type=name, rope_scaling=scaling, **SIZES, **more)))
        logits.append(model(tokens))
    same = mx.array_equal(*logits).item()
    print(f"{name}: {'the same' if same else 'other'} logits with rope_scaling")
PY
found=$("$folder/venv/bin/python" "$folder/program.py")
echo "$found"
expected="qwen3: other logits with rope_scaling
qwen3_moe: the same logits with rope_scaling
mixtral: the same logits with rope_scaling"
[ "$found" = "$expected" ]
