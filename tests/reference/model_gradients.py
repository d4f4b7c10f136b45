"""Writes tests/golden/models/model_gradients.json: a loss of the embedded model and its gradients, as mlx-lm's model gives them in float32.

python3 tests/reference/model_gradients.py     (PyPI: mlx[cpu], mlx-lm; the file was made with 0.32 and 0.31)

Once as it is, quantized: gradients of the norms, and of the vectors that the tokens have. Once with its matrices made dense: gradients
of every parameter, of each its length and its product with a pattern (`fill` here and in tests/llm/models/model_gradients_test.ts).
"""

import json
import os

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm import load
from mlx_lm.utils import dequantize_model

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
MODEL = os.path.join(ROOT, "examples", "models", "tiny-qwen3")
TOKENS = [[(7 + 131 * i + 977 * row) % 4096 for i in range(13)] for row in range(2)]


def fill(shape):
    n = 1
    for d in shape:
        n *= d
    k = mx.arange(n)
    return (((k * 37) % 101).astype(mx.float32) / 50 - 1).reshape(shape)


def number(x):
    return float(f"{x.item():.7g}")


def numbers(x):
    return [float(f"{v:.7g}") for v in x.flatten().tolist()]


def summary(grads):
    return {
        name: [number(mx.sqrt(mx.sum(mx.square(g)))), number(mx.sum(g * fill(g.shape)))]
        for name, g in tree_flatten(grads)
    }


def model():
    made, _ = load(MODEL)
    made.set_dtype(mx.float32)
    made.train()
    return made


def loss_of(made):
    def loss(tokens):
        return nn.losses.cross_entropy(made(tokens[:, :-1]), tokens[:, 1:], reduction="mean")

    return loss


mx.set_default_device(mx.cpu)
tokens = mx.array(TOKENS)

quantized = model()
value, grads = nn.value_and_grad(quantized, loss_of(quantized))(tokens)


def from_vectors(vectors):
    logits = quantized(tokens[:, :-1], input_embeddings=vectors)
    return nn.losses.cross_entropy(logits, tokens[:, 1:], reduction="mean")


vectors = mx.grad(from_vectors)(quantized.model.embed_tokens(tokens[:, :-1]))

dense = dequantize_model(model())
dense.set_dtype(mx.float32)
dense_value, dense_grads = nn.value_and_grad(dense, loss_of(dense))(tokens)

golden = {
    "tokens": TOKENS,
    "quantized": {
        "loss": number(value),
        "gradients": {name: numbers(g) for name, g in tree_flatten(grads)},
        "vectors": summary({"vectors": vectors})["vectors"],
    },
    "dense": {"loss": number(dense_value), "gradients": summary(dense_grads)},
}
with open(os.path.join(ROOT, "tests", "golden", "models", "model_gradients.json"), "w") as file:
    json.dump(golden, file)
    file.write("\n")
print(golden["quantized"]["loss"], golden["dense"]["loss"], len(golden["quantized"]["gradients"]), len(golden["dense"]["gradients"]))
