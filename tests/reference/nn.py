"""Writes tests/golden/arrays/nn.json: what MLX's layers and losses give, with their gradients, for the cases of tests/nn/.

python3 tests/reference/nn.py     (PyPI: mlx[cpu]; the file was made with 0.32)

Weights, inputs and cotangents are filled by a formula (`fill` here and in tests/nn/golden_cases.ts), so only results are stored.
"""

import json
import os

import mlx.core as mx
import mlx.nn as nn
from mlx.nn import losses
from mlx.utils import tree_flatten, tree_unflatten


def fill(seed, shape):
    n = 1
    for d in shape:
        n *= d
    k = mx.arange(n)
    return (((k * 37 + seed * 29) % 101).astype(mx.float32) / 50 - 1).reshape(shape)


def seed_of(name):
    return sum(map(ord, name.replace("_", "").lower())) % 101


def filled(model):
    pairs = [(n, fill(seed_of(n), v.shape) * 0.5) for n, v in tree_flatten(model.parameters())]
    # Variances are positive.
    model.update(tree_unflatten([(n, mx.abs(v) + 0.5 if n.endswith("running_var") else v) for n, v in pairs]))
    return model


def numbers(x):
    x = x.astype(mx.float32) if x.dtype != mx.float32 else x
    return {"shape": list(x.shape), "values": [float(f"{v:.7g}") for v in x.flatten().tolist()]}


CASES = {}


def check(name, make, shapes, call=None, train=True, ints=(), grad=True, weights=True):
    mx.random.seed(9)
    model = make()
    fresh = [[n, numbers(mx.mean(mx.abs(v.astype(mx.float32))))] for n, v in tree_flatten(model.parameters())]
    if weights:
        filled(model)
    model.train(train)
    call = call or (lambda m, *xs: m(*xs))
    inputs = [fill(i + 1, s) for i, s in enumerate(shapes)]
    for i, most in ints:
        inputs[i] = ((mx.arange(inputs[i].size) * 7) % most).reshape(shapes[i])
    whole = [i for i, _ in ints]
    own = [i for i in range(len(inputs)) if i not in whole]

    def out(params, floats):
        model.update(params)
        xs = [None] * len(inputs)
        for i in whole:
            xs[i] = inputs[i]
        for i, x in zip(own, floats):
            xs[i] = x
        y = call(model, *xs)
        return y if isinstance(y, (list, tuple)) else [y]

    state = model.parameters()
    params = model.trainable_parameters()
    floats = [inputs[i] for i in own]
    row = {"print": repr(model), "fresh": fresh, "out": [numbers(y) for y in out(params, floats)]}
    if train and "running_mean" in dict(tree_flatten(model.parameters())):
        row["state"] = [[n, numbers(v)] for n, v in tree_flatten(model.parameters()) if "running" in n]
    model.update(state)
    if grad:

        def scalar(params, floats):
            total = mx.array(0.0)
            for i, y in enumerate(out(params, floats)):
                total = total + mx.sum(y.astype(mx.float32) * fill(50 + i, y.shape))
            return total

        gp, gx = mx.grad(scalar, argnums=(0, 1))(params, floats)
        row["parameters"] = [[n, numbers(g)] for n, g in tree_flatten(gp)]
        row["inputs"] = [numbers(g) for g in gx]
    CASES[name] = row


check("Linear", lambda: nn.Linear(4, 3), [[2, 5, 4]])
check("Linear without bias", lambda: nn.Linear(4, 3, False), [[4]])
check("Identity", lambda: nn.Identity(3, key=1), [[2, 3]])
check("Bilinear", lambda: nn.Bilinear(3, 2, 4), [[2, 3, 3], [2, 3, 2]])
check("Bilinear without bias", lambda: nn.Bilinear(3, 2, 1, bias=False), [[5, 3], [5, 2]])
check("Embedding", lambda: nn.Embedding(7, 3), [[2, 5]], ints=[(0, 7)])
check("Embedding as head", lambda: nn.Embedding(7, 3), [[2, 3]], lambda m, x: m.as_linear(x))
check("Conv1d", lambda: nn.Conv1d(4, 6, 3, 2, 1, 1, 2), [[2, 7, 4]])
check("Conv1d dilated", lambda: nn.Conv1d(2, 3, 2, dilation=2, bias=False), [[1, 6, 2]])
check("Conv2d", lambda: nn.Conv2d(2, 3, (2, 3), (1, 2), (1, 0)), [[2, 4, 5, 2]])
check("Conv2d groups", lambda: nn.Conv2d(4, 2, 3, padding=1, groups=2), [[1, 3, 3, 4]])
check("Conv3d", lambda: nn.Conv3d(2, 2, 2, padding=1), [[1, 2, 3, 2, 2]])
check("ConvTranspose1d", lambda: nn.ConvTranspose1d(3, 2, 3, 2, 1, 1, 1), [[2, 4, 3]])
check("ConvTranspose2d", lambda: nn.ConvTranspose2d(2, 3, (2, 3), 2, bias=False), [[1, 3, 2, 2]])
check("ConvTranspose3d", lambda: nn.ConvTranspose3d(2, 1, 2, 2), [[1, 2, 2, 1, 2]])
check("Dropout of nothing", lambda: nn.Dropout(0.0), [[2, 3]])
check("Dropout evaluated", lambda: nn.Dropout(0.25), [[2, 3]], train=False)
check("Dropout2d evaluated", lambda: nn.Dropout2d(), [[2, 3, 1]], train=False)
check("Dropout3d evaluated", lambda: nn.Dropout3d(), [[2, 3, 1, 1]], train=False)
check("LayerNorm", lambda: nn.LayerNorm(5), [[3, 5]])
check("LayerNorm without bias", lambda: nn.LayerNorm(5, bias=False), [[2, 2, 5]])
check("LayerNorm not affine", lambda: nn.LayerNorm(5, 1e-3, False), [[2, 5]])
check("RMSNorm", lambda: nn.RMSNorm(6, 1e-6), [[2, 6]])
check("InstanceNorm", lambda: nn.InstanceNorm(3), [[2, 4, 3]])
check("InstanceNorm affine", lambda: nn.InstanceNorm(3, affine=True), [[2, 3, 2, 3]])
check("GroupNorm", lambda: nn.GroupNorm(2, 4), [[2, 3, 4]])
check("GroupNorm like PyTorch", lambda: nn.GroupNorm(2, 4, pytorch_compatible=True), [[2, 3, 2, 4]])
check("GroupNorm not affine", lambda: nn.GroupNorm(3, 6, affine=False), [[2, 5, 6]])
check("BatchNorm", lambda: nn.BatchNorm(3), [[4, 3]])
check("BatchNorm of images", lambda: nn.BatchNorm(2, momentum=0.3), [[2, 3, 2, 2]])
check("BatchNorm evaluated", lambda: nn.BatchNorm(3), [[4, 3]], train=False)
check("BatchNorm untracked", lambda: nn.BatchNorm(3, affine=False, track_running_stats=False), [[2, 4, 3]], train=False)
check("MaxPool1d", lambda: nn.MaxPool1d(2), [[2, 6, 3]])
check("MaxPool1d overlapping", lambda: nn.MaxPool1d(3, 2, 1), [[1, 7, 2]])
check("MaxPool2d", lambda: nn.MaxPool2d((2, 3), (1, 2), 1), [[1, 4, 5, 2]])
check("MaxPool3d", lambda: nn.MaxPool3d(2, 1), [[1, 3, 2, 3, 2]])
check("AvgPool1d", lambda: nn.AvgPool1d(3, 2), [[1, 8, 2]])
check("AvgPool2d", lambda: nn.AvgPool2d(2), [[1, 4, 4, 2]])
check("AvgPool2d padded", lambda: nn.AvgPool2d(3, (2, 1), (1, 0)), [[1, 5, 4, 1]])
check("AvgPool3d", lambda: nn.AvgPool3d((1, 2, 2), 1), [[1, 2, 3, 3, 1]])
check("RoPE", lambda: nn.RoPE(4), [[1, 2, 3, 6]], lambda m, x: m(x, offset=2))
check("RoPE traditional", lambda: nn.RoPE(4, True, 100.0, 0.5), [[2, 3, 4]])
check("SinusoidalPositionalEncoding", lambda: nn.SinusoidalPositionalEncoding(8), [[3, 2]])
check("Sinusoidal in turns", lambda: nn.SinusoidalPositionalEncoding(6, 0.01, 2, 1.0, True, True), [[4]])
check("Sinusoidal of two", lambda: nn.SinusoidalPositionalEncoding(2), [[4]])
check("ALiBi", lambda: nn.ALiBi(), [[1, 4, 3, 3]])
check("ALiBi of six heads", lambda: nn.ALiBi(), [[2, 6, 2, 4], [2, 4]], lambda m, x, mask: m(x, 2, mask))
check("RNN", lambda: nn.RNN(3, 4), [[2, 3, 3]])
check("RNN with state", lambda: nn.RNN(3, 4, False, nn.relu), [[2, 3, 3], [2, 4]])
check("RNN of one sequence", lambda: nn.RNN(3, 2), [[3, 3]])
check("GRU", lambda: nn.GRU(3, 4), [[2, 3, 3]])
check("GRU with state", lambda: nn.GRU(3, 4), [[2, 2, 3], [2, 4]])
check("GRU without bias", lambda: nn.GRU(3, 2, False), [[2, 3, 3]])
check("LSTM", lambda: nn.LSTM(3, 4), [[2, 3, 3]])
check("LSTM with state", lambda: nn.LSTM(3, 2, False), [[2, 2, 3], [2, 2], [2, 2]])
check("MultiHeadAttention", lambda: nn.MultiHeadAttention(8, 2), [[2, 3, 8], [2, 4, 8]], lambda m, q, k: m(q, k, k))
check(
    "MultiHeadAttention of sizes",
    lambda: nn.MultiHeadAttention(8, 4, 3, 5, 6, 4, 2, True),
    [[1, 3, 3], [1, 3, 5], [1, 3, 6]],
    lambda m, q, k, v: m(q, k, v, nn.MultiHeadAttention.create_additive_causal_mask(3)),
)
check("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(4, 2), [[1, 3, 4]], lambda m, x: m(x, None))
check(
    "TransformerEncoder norm last",
    lambda: nn.TransformerEncoder(2, 4, 1, 6, 0.0, nn.gelu, False),
    [[2, 3, 4]],
    lambda m, x: m(x, "causal"),
)
check(
    "TransformerEncoder checkpointed",
    lambda: nn.TransformerEncoder(2, 4, 2, 4, checkpoint=True),
    [[1, 3, 4]],
    lambda m, x: m(x, None),
)
check(
    "TransformerDecoder",
    lambda: nn.TransformerDecoder(2, 4, 2, 5),
    [[1, 3, 4], [1, 2, 4]],
    lambda m, x, memory: m(x, memory, "causal", None),
)
check(
    "TransformerDecoder norm last",
    lambda: nn.TransformerDecoder(1, 4, 2, 5, norm_first=False),
    [[1, 3, 4], [1, 2, 4]],
    lambda m, x, memory: m(x, memory, None, None),
)
check(
    "Transformer",
    lambda: nn.Transformer(4, 2, 1, 1, 6),
    [[1, 3, 4], [1, 2, 4]],
    lambda m, s, t: m(s, t, None, "causal", None),
)
for mode in ["nearest", "linear", "cubic"]:
    check(f"Upsample {mode}", lambda: nn.Upsample(2, mode), [[1, 3, 4, 2]])
    check(f"Upsample {mode} by fractions", lambda: nn.Upsample((1.5, 0.6), mode), [[1, 4, 5, 2]])
    check(f"Upsample {mode} in one axis", lambda: nn.Upsample((2.5,), mode), [[2, 5, 1]])
    if mode != "nearest":
        check(f"Upsample {mode} of corners", lambda: nn.Upsample((2, 1.75), mode, True), [[1, 3, 4, 2]])
        check(f"Upsample {mode} antialiased", lambda: nn.Upsample((0.5, 1.5), mode, antialias=True), [[1, 6, 4, 1]])
check("Upsample nearest in three axes", lambda: nn.Upsample((2, 1, 3)), [[1, 2, 2, 1, 2]])
check("Sequential", lambda: nn.Sequential(nn.Linear(3, 4), nn.relu, nn.Sequential(nn.Linear(4, 2), nn.Tanh())), [[2, 3]])


def quantized(layer, *how):
    return filled(layer).to_quantized(*how)


check("QuantizedLinear", lambda: quantized(nn.Linear(64, 3)), [[2, 64]], weights=False)
check("QuantizedLinear of 8 bits", lambda: quantized(nn.Linear(64, 2, False), 32, 8), [[1, 64]], weights=False)
check("QuantizedEmbedding", lambda: quantized(nn.Embedding(5, 64), 64, 4), [[2, 3]], ints=[(0, 5)], weights=False, grad=False)
check(
    "QuantizedEmbedding as head",
    lambda: quantized(nn.Embedding(5, 64), 32, 3),
    [[2, 64]],
    lambda m, x: m.as_linear(x),
    weights=False,
)

for mode in ("mxfp4", "mxfp8", "nvfp4"):
    check(f"QuantizedLinear of {mode}", lambda: quantized(nn.Linear(64, 32), None, None, mode), [[2, 64]], weights=False)
    check(f"QuantizedEmbedding of {mode}", lambda: quantized(nn.Embedding(5, 64), None, None, mode), [[2, 3]], ints=[(0, 5)], weights=False, grad=False)


def qqmm(x, w, scales=None, **how):
    """mx.qqmm, which MLX does not have on the CPU: rounded by its quantize(), with gradients as if it were not."""

    def rounded(v, *codes):
        return mx.dequantize(*(codes or mx.quantize(v, **how)), **how)

    def through(v):
        return v + mx.stop_gradient(rounded(mx.stop_gradient(v)) - v)

    return through(x) @ (through(w) if scales is None else rounded(None, w, scales)).T


mx.qqmm = qqmm
for mode in ("mxfp8", "nvfp4"):
    check(f"QQLinear of {mode}", lambda: nn.QQLinear(64, 32, mode=mode), [[2, 3, 64]])
    check(f"QQLinear of {mode} evaluated", lambda: quantized(nn.Linear(64, 32, False), None, None, mode, True).eval(), [[2, 64]], train=False, weights=False, grad=False)

ACTIVATIONS = "Sigmoid Mish ReLU ReLU2 ReLU6 Softmax Softmin LogSoftmax LogSigmoid Softplus Softsign SiLU Tanh Hardswish HardTanh SELU"
for name in ACTIVATIONS.split():
    check(name, getattr(nn, name), [[3, 4]], lambda m, x: m(x * 4))
ACTIVATIONS = [("LeakyReLU", [0.2]), ("ELU", [0.5]), ("CELU", [2.0]), ("Softshrink", [1.0]), ("HardShrink", [1.5])]
ACTIVATIONS += [("GLU", [0]), ("GELU", []), ("GELU", ["tanh"]), ("GELU", ["precise"]), ("GELU", ["fast"]), ("PReLU", [4])]
for name, args in ACTIVATIONS:
    label = " ".join(map(str, [name] + [int(a) if isinstance(a, float) and a.is_integer() else a for a in args]))
    check(label, lambda: getattr(nn, name)(*args), [[4, 4]], lambda m, x: m(x * 4))
check("Step", lambda: nn.Step(0.5), [[3, 4]], grad=False)


class Loss(nn.Module):
    """A loss as a module without parameters."""

    def __init__(self, fn):
        super().__init__()
        self._fn = fn

    def __call__(self, *xs):
        return self._fn(*xs)


def loss(name, shapes, fn, ints=()):
    check(name, lambda: Loss(fn), shapes, ints=ints)
    del CASES[name]["print"]


A = [3, 4]
for r in ["none", "mean", "sum"]:
    loss(f"crossEntropy {r}", [A, [3]], lambda x, y: losses.cross_entropy(x, y, reduction=r), [(1, 4)])
loss("crossEntropy weighted", [A, [3], [3]], lambda x, y, w: losses.cross_entropy(x, y, w, -1, 0.1), [(1, 4)])
loss("crossEntropy of probabilities", [A, A], lambda x, y: losses.cross_entropy(x, mx.softmax(y, 0), axis=0, label_smoothing=0.2))
loss("crossEntropy along an axis", [[2, 3, 2], [2, 2]], lambda x, y: losses.cross_entropy(x, y, axis=1), [(1, 3)])
loss("binaryCrossEntropy", [A, A], lambda x, y: losses.binary_cross_entropy(x, mx.abs(y)))
loss(
    "binaryCrossEntropy of probabilities",
    [A, A, A],
    lambda x, y, w: losses.binary_cross_entropy(mx.sigmoid(x), mx.abs(y), w, False, "none"),
)
loss("l1Loss", [A, A], losses.l1_loss)
loss("mseLoss", [A, A], losses.mse_loss)
loss("mseLoss sum", [A, A], lambda x, y: losses.mse_loss(x, y, "sum"))
loss("nllLoss", [A, [3]], lambda x, y: losses.nll_loss(x, y), [(1, 4)])
loss("nllLoss along an axis", [A, [4]], lambda x, y: losses.nll_loss(x, y, 0, "mean"), [(1, 3)])
loss("gaussianNllLoss", [A, A, A], lambda x, y, v: losses.gaussian_nll_loss(x, y, mx.abs(v) + 0.1))
loss("gaussianNllLoss full", [A, A, A], lambda x, y, v: losses.gaussian_nll_loss(x, y, v, True, 0.3, "none"))
loss("klDivLoss", [A, A], lambda x, y: losses.kl_div_loss(x, y))
loss("klDivLoss mean", [A, A], lambda x, y: losses.kl_div_loss(x, y, 0, "mean"))
loss("smoothL1Loss", [A, A], lambda x, y: losses.smooth_l1_loss(x, y))
loss("smoothL1Loss beta", [A, A], lambda x, y: losses.smooth_l1_loss(x, y, 0.5, "sum"))
loss("tripletLoss", [A, A, A], lambda x, y, z: losses.triplet_loss(x, y, z))
loss("tripletLoss of p 3", [A, A, A], lambda x, y, z: losses.triplet_loss(x, y, z, 0, 3, 0.5, 1e-3, "mean"))
loss("hingeLoss", [A, A], lambda x, y: losses.hinge_loss(x, mx.sign(y)))
loss("huberLoss", [A, A], lambda x, y: losses.huber_loss(x, y, 0.7))
loss("logCoshLoss", [A, A], lambda x, y: losses.log_cosh_loss(x * 3, y, "mean"))
loss("cosineSimilarityLoss", [A, A], lambda x, y: losses.cosine_similarity_loss(x, y))
loss("cosineSimilarityLoss along an axis", [A, A], lambda x, y: losses.cosine_similarity_loss(x, y, 0, 1e-3, "sum"))
loss("marginRankingLoss", [A, A, A], lambda x, y, z: losses.margin_ranking_loss(x, y, mx.sign(z), 0.25))

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/arrays/nn.json")
with open(path, "w") as f:
    f.write("{\n")
    f.write(",\n".join(f"{json.dumps(n)}: {json.dumps(row, separators=(',', ':'))}" for n, row in CASES.items()))
    f.write("\n}\n")
print(len(CASES), os.path.getsize(path))
