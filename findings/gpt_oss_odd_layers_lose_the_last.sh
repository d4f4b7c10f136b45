#!/usr/bin/env bash
# mlx-lm computes a gpt-oss model of an odd number of layers without its last layer where config.json has no layer_types.
#
# Software: mlx-lm 0.32.2 with mlx[cpu] 0.32.4, from PyPI.
# Expected: all layers of num_hidden_layers count in the logits, as they do where layer_types names each of them.
# Seen: the default of layer_types is two types for each pair of layers, so it has two entries for three layers. The model goes over layers
# and types together and ends with the shorter list. The last layer has weights and a cache, and changes no logit. No error or warning says so.
# With four layers, or with layer_types for three, the last layer counts.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "mlx[cpu]==0.32.4" mlx-lm==0.32.2
cat >"$folder/layers.py" <<'PY'
import mlx.core as mx
from mlx_lm.models.gpt_oss import Model, ModelArgs

def last_layer_counts(layers, layer_types=None):
    """Whether logits change where the norm before the last layer's experts is scaled."""
    mx.random.seed(0)
    args = ModelArgs(model_type="gpt_oss", num_hidden_layers=layers, num_local_experts=4, num_experts_per_tok=2, vocab_size=64,
                     hidden_size=64, intermediate_size=64, head_dim=16, num_attention_heads=4, num_key_value_heads=2,
                     sliding_window=8, rope_theta=10000, layer_types=layer_types)
    model = Model(args)
    model.eval()
    tokens = mx.array([[1, 2, 3, 4]])
    before = model(tokens)
    norm = model.model.layers[-1].post_attention_layernorm
    norm.weight = norm.weight * 3
    return bool(mx.any(before != model(tokens)).item())

types = ["sliding_attention", "full_attention", "sliding_attention"]
print(last_layer_counts(3), last_layer_counts(4), last_layer_counts(3, types))
PY
found=$("$folder/venv/bin/python" "$folder/layers.py")
echo "the last layer counts, of 3, of 4, of 3 with layer_types: $found"
[ "$found" = "False True True" ]
