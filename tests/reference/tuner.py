"""Layers, batches, losses and a training of mlx_lm.tuner, for tests/training. Writes tests/golden/models/tuner.json.

    python tests/reference/tuner.py      # mlx 0.32, mlx-lm 0.32
"""

import json
import tempfile
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.tuner.datasets import TextDataset
from mlx_lm.tuner.dora import DoRAEmbedding, DoRALinear
from mlx_lm.tuner.lora import LoRAEmbedding, LoRALinear
from mlx_lm.tuner.trainer import TrainingArgs, default_loss, evaluate, iterate_batches, train
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load, save_config

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "examples/models/tiny-qwen3"


def numbers(x):
    return {"shape": x.shape, "values": [float(f"{v:.7g}") for v in x.astype(mx.float32).flatten().tolist()]}


def fill(seed, shape):
    """Numbers that both sides make."""
    size = int(np.prod(shape))
    return mx.sin(mx.arange(size, dtype=mx.float32) * 0.7 + seed).reshape(shape)


def base(kind, bias):
    if kind == "embedding":
        layer = nn.Embedding(6, 64)
        layer.weight = fill(1, (6, 64))
        return layer
    layer = nn.Linear(64, 32, bias=bias)
    layer.weight = fill(1, (32, 64)) * 0.1
    if bias:
        layer.bias = fill(2, (32,))
    return layer


def layer_cases():
    rows = []
    for cls, kind in ((LoRALinear, "linear"), (DoRALinear, "linear"), (LoRAEmbedding, "embedding"), (DoRAEmbedding, "embedding")):
        for bits in (0, 4):
            if bits and cls is DoRAEmbedding:
                continue
            for bias in (False, True) if kind == "linear" else (False,):
                made = base(kind, bias)
                if bits:
                    made = made.to_quantized(group_size=32, bits=bits)
                mx.random.seed(5)
                layer = cls.from_base(made, r=4, scale=3.0)
                fresh = {"lora_a": numbers(layer.lora_a), "lora_b": numbers(layer.lora_b)}
                if "m" in layer:
                    fresh["m"] = numbers(layer.m)
                layer.lora_b = fill(3, layer.lora_b.shape) * 0.1
                if "m" in layer:
                    layer.m = layer.m * 1.25
                x = mx.array([[0, 5], [3, 3]]) if kind == "embedding" else fill(4, (2, 3, 64))

                layer.freeze()
                layer.unfreeze(keys=["lora_a", "lora_b", "m"], recurse=False)

                def total(x):
                    return (layer(x) * fill(6, layer(x).shape)).sum()

                _, grads = nn.value_and_grad(layer, total)(x)
                row = {
                    "name": cls.__name__,
                    "bits": bits,
                    "bias": bias,
                    "fresh": fresh,
                    "out": numbers(layer(x)),
                    "grads": {k: numbers(v) for k, v in tree_flatten(grads)},
                    "fused": numbers(layer.fuse(dequantize=True)(x) if cls is not DoRAEmbedding else layer.fuse()(x)),
                }
                if kind == "embedding":
                    row["as_linear"] = numbers(layer.as_linear(fill(4, (2, 64))))
                rows.append(row)
    return rows


LENGTHS = [3, 40, 9, 31, 32, 33, 64, 70, 5, 12, 2]
OFFSETS = [0, 7, 2, 0, 30, 1, 0, 66, 4, 0, 1]


def dataset():
    return [([(7 * i + j) % 50 + 1 for j in range(n)], OFFSETS[i]) for i, n in enumerate(LENGTHS)]


def batch_cases():
    rows = []
    for batch_size, limit, seed in ((1, 2048, 0), (2, 2048, 3), (3, 50, 7), (2, 36, 5)):
        it = iterate_batches(dataset(), batch_size, limit, loop=True, seed=seed)
        batches = [next(it) for _ in range(12)]
        rows.append({
            "batchSize": batch_size,
            "maxSeqLength": limit,
            "seed": seed,
            "tokens": [b.tolist() for b, _ in batches],
            "lengths": [n.tolist() for _, n in batches],
        })
    return rows


class Table(nn.Module):
    """Logits of a token: a row of a table."""

    def __init__(self):
        super().__init__()
        self.weight = fill(8, (51, 51)) * 2

    def __call__(self, x):
        return self.weight[x]


def loss_cases():
    it = iterate_batches(dataset(), 3, 50, loop=False, seed=1)
    return [{"loss": loss.item(), "tokens": n.item()} for loss, n in (default_loss(Table(), *b) for b in it)]


def accumulated():
    """A training of the table in which three batches make one step of plain descent, which follows the size of gradients."""
    model = Table()
    np.random.seed(0)
    args = TrainingArgs(batch_size=2, iters=6, steps_per_report=100, steps_per_save=100, max_seq_length=36,
                        grad_accumulation_steps=3, adapter_file=tempfile.mkdtemp() + "/adapters.safetensors")
    train(model, optim.SGD(learning_rate=8.0), dataset(), args=args)
    return numbers(model.weight)


TEXTS = ["Once upon a time there was a fox.", "The fox was red.", "2 + 3 = 5.", "A bird sang in the garden, and the fox heard it.",
         "It was a cold day.", "The capital of France is Paris."]


def ended():
    """Tokens of a text that ends with the last token, and of the same text without it."""
    _, tokenizer = load(str(TINY))
    rows = [{"text": TEXTS[4] + end} for end in (tokenizer.eos_token, "")]
    return [TextDataset(rows, tokenizer).process(row)[0] for row in rows]


def training(kind):
    """A training of the embedded model in float32, by mlx-lm's train()."""
    model, tokenizer = load(str(TINY))
    model.set_dtype(mx.float32)
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text)
        if ids[-1] != tokenizer.eos_token_id:
            ids.append(tokenizer.eos_token_id)
        rows.append((ids, 0))
    np.random.seed(0)
    mx.random.seed(0)
    model.freeze()
    linear_to_lora_layers(model, 4, {"rank": 4, "scale": 10.0, "dropout": 0.0}, use_dora=kind == "dora")
    losses, valid = [], []

    class Callback:
        def on_train_loss_report(self, info):
            losses.append(info["train_loss"])

        def on_val_loss_report(self, info):
            valid.append([info["iteration"], info["val_loss"]])

    args = TrainingArgs(batch_size=2, iters=8, steps_per_report=1, steps_per_eval=4, val_batches=-1, steps_per_save=100,
                        adapter_file=tempfile.mkdtemp() + "/adapters.safetensors", max_seq_length=64)
    train(model, optim.Adam(learning_rate=1e-3), rows, rows[:4], args=args, training_callback=Callback())
    names = sorted(k for k, _ in tree_flatten(model.trainable_parameters()))
    return {"tokens": [ids for ids, _ in rows], "losses": losses, "valid": valid, "names": names}


def adapter():
    """A folder of adapters that mlx-lm wrote, and what the embedded model loses with it."""
    model, tokenizer = load(str(TINY))
    model.set_dtype(mx.float32)
    config = {"rank": 1, "scale": 10.0, "dropout": 0.0, "keys": ["self_attn.q_proj", "mlp.down_proj"]}
    mx.random.seed(2)
    model.freeze()
    linear_to_lora_layers(model, 2, config)
    np.random.seed(0)
    rows = [(tokenizer.encode(text), 0) for text in TEXTS]
    folder = ROOT / "tests/golden/mlx_adapter"
    folder.mkdir(exist_ok=True)
    args = TrainingArgs(batch_size=2, iters=6, steps_per_report=100, steps_per_save=100,
                        adapter_file=str(folder / "adapters.safetensors"), max_seq_length=64)
    train(model, optim.Adam(learning_rate=3e-3), rows, args=args)
    save_config({"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": config}, folder / "adapter_config.json")
    loss = evaluate(model, rows, 2, -1)
    bare, _ = load(str(TINY))
    bare.set_dtype(mx.float32)
    return {"loss": loss, "without": evaluate(bare, rows, 2, -1)}


golden = {
    "layers": layer_cases(),
    "batches": batch_cases(),
    "loss": loss_cases(),
    "accumulated": accumulated(),
    "ended": ended(),
    "texts": TEXTS,
    "adapter": adapter(),
    "training": {kind: training(kind) for kind in ("lora", "dora")},
}
(ROOT / "tests/golden/models/tuner.json").write_text(json.dumps(golden) + "\n")
