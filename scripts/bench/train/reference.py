"""The Python side of `deno task bench:train` (development only): the same models and steps in MLX on the CPU.

Reads one JSON object a line from stdin and answers each with one line of JSON:

    {"kind": "mlp" | "transformer" | "lora", sizes, "compiled": true, "checkpoint": true}   makes a model
    {"ms": 200}   milliseconds of one step, averaged over at least so many, and the most bytes in use

A step is waited for (mx.eval) before the next one starts.
"""

import json
import sys
import time
from functools import partial


def libraries():
    """MLX, or an answer that says what is missing."""
    try:
        import mlx.core as mx
        import mlx.nn as nn
        import mlx.optimizers as optim
    except ImportError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)
    mx.set_default_device(mx.cpu)
    return mx, nn, optim


mx, nn, optim = libraries()
step = None


class Mlp(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.layers = [nn.Linear(i, o) for i, o in zip(dims, dims[1:])]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nn.relu(layer(x))
        return self.layers[-1](x)


class LanguageModel(nn.Module):
    """MLX's example transformer_lm."""

    def __init__(self, layers, dims, heads, vocabulary, checkpoint):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dims)
        self.pe = nn.SinusoidalPositionalEncoding(dims)
        self.transformer = nn.TransformerEncoder(layers, dims, heads, norm_first=True, checkpoint=checkpoint)
        self.out_proj = nn.Linear(dims, vocabulary)

    def __call__(self, x):
        y = self.embedding(x) + self.pe(mx.arange(x.shape[1]))
        return self.out_proj(self.transformer(y, "causal"))


def make_mlp(dims, batch, **_):
    model = Mlp(dims)
    data = mx.random.uniform(shape=(batch, dims[0])), mx.random.randint(0, dims[-1], (batch,))
    return model, optim.Adam(1e-3), data


def make_transformer(layers, dims, heads, vocabulary, batch, length, checkpoint=False, **_):
    model = LanguageModel(layers, dims, heads, vocabulary, checkpoint)
    data = tuple(mx.random.randint(0, vocabulary, (batch, length)) for _ in range(2))
    return model, optim.AdamW(1e-3), data


def make_lora(path, layers, rank, batch, length, checkpoint=False, **_):
    """A model directory with LoRA layers, as mlx_lm.lora trains it."""
    from mlx_lm import load
    from mlx_lm.tuner.trainer import grad_checkpoint
    from mlx_lm.tuner.utils import linear_to_lora_layers

    model, _tokenizer = load(path)
    model.set_dtype(mx.float32)
    model.freeze()
    linear_to_lora_layers(model, layers, {"rank": rank, "dropout": 0.0, "scale": 20.0})
    if checkpoint:
        grad_checkpoint(model.layers[0])
    model.train()
    data = tuple(mx.random.randint(0, 1000, (batch, length)) for _ in range(2))
    return model, optim.Adam(1e-5), data


MAKERS = {"mlp": make_mlp, "transformer": make_transformer, "lora": make_lora}


def make(kind, compiled=False, **sizes):
    """A function that does one step and waits for it."""
    mx.random.seed(1)
    model, optimizer, data = MAKERS[kind](**sizes)

    def loss(model, x, y):
        return nn.losses.cross_entropy(model(x), y).astype(mx.float32).mean()

    gradient = nn.value_and_grad(model, loss)
    optimizer.init(model.trainable_parameters())
    state = [model.state, optimizer.state]

    def train(x, y):
        value, found = gradient(model, x, y)
        optimizer.update(model, found)
        return value

    if compiled:
        train = partial(mx.compile, inputs=state, outputs=state)(train)

    def run():
        mx.eval(train(*data), state)

    mx.eval(state, data)
    run()
    mx.reset_peak_memory()
    return run


def time_steps(ms):
    """Milliseconds of one step."""
    count, start = 0, time.perf_counter()
    while True:
        step()
        count += 1
        taken = 1000 * (time.perf_counter() - start)
        if taken >= ms:
            return taken / count


def answer(request):
    global step
    if "kind" in request:
        step = make(**request)
        return {}
    return {"ms": time_steps(request["ms"]), "peak": mx.get_peak_memory()}


print(json.dumps({"mlx": mx.__version__}), flush=True)
for line in sys.stdin:
    try:
        reply = answer(json.loads(line))
    except Exception as error:  # a model that this version does not know
        reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), flush=True)
