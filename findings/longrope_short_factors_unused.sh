#!/usr/bin/env bash
# mlx-lm's "longrope" positions ignore short_factor: prompts of every length are rotated with long_factor.
#
# Software: mlx-lm 0.32.2 with mlx[cpu] 0.32.2 from PyPI (mlx_lm/models/rope_utils.py). No model is needed.
# Expected: Phi-3's config.json has two lists, and up to original_max_position_embeddings the short one holds, as in transformers
# and as the class's own documentation says.
# Seen: two layers that differ in short_factor alone give the same numbers at position 5 of 4,096; those of another long_factor differ.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv >/dev/null
venv/bin/pip install --quiet --disable-pip-version-check --no-deps mlx-lm==0.32.2 >/dev/null
venv/bin/pip install --quiet --disable-pip-version-check "mlx[cpu]==0.32.2" >/dev/null
cat >rope.py <<'PY'
import glob, importlib.util
import mlx.core as mx
path = glob.glob("venv/lib/python3*/site-packages/mlx_lm/models/rope_utils.py")[0]
spec = importlib.util.spec_from_file_location("rope_utils", path)
ropes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ropes)
x = mx.random.normal([1, 1, 1, 8], key=mx.random.key(1))
def at_5(short, long):
    scaling = {"type": "longrope", "original_max_position_embeddings": 4096, "short_factor": short, "long_factor": long}
    rope = ropes.initialize_rope(8, 10000.0, False, scaling, max_position_embeddings=131072)
    return rope(x, offset=5)
base = at_5([1.0] * 4, [8.0] * 4)
same = mx.array_equal(base, at_5([4.0] * 4, [8.0] * 4)).item()
moved = not mx.allclose(base, at_5([1.0] * 4, [2.0] * 4)).item()
print(f"another short_factor gives the same numbers: {same}; another long_factor gives others: {moved}")
PY
seen=$(venv/bin/python rope.py)
echo "$seen"
[ "$seen" = "another short_factor gives the same numbers: True; another long_factor gives others: True" ]
