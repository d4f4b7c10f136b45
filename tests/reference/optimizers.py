"""Parameters and state after steps of each optimizer of MLX, values of its schedules, and clipped gradients.

    python tests/reference/optimizers.py > tests/golden/arrays/optimizers.json

The cases are here; tests/optimizers/optimizers_test.ts runs them again by name, with options in camelCase. Needs mlx[cpu] 0.32.
"""

import json
import sys

import mlx.core as mx
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_map

STEPS = 6
SHAPES = {"wide": (3, 5), "layers": [{"tall": (5, 2)}, {"bias": (4,)}], "scalar": (), "conv": (2, 3, 2)}
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}

CASES = [
    ("SGD", {"learning_rate": 0.1}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.05, "dampening": 0.3}),
    ("SGD", {"learning_rate": 0.1, "momentum": 0.8, "weight_decay": 0.01, "nesterov": True}),
    ("RMSprop", {"learning_rate": 0.01}),
    ("RMSprop", {"learning_rate": 0.01, "alpha": 0.9, "eps": 1e-4}),
    ("Adagrad", {"learning_rate": 0.1}),
    ("Adagrad", {"learning_rate": 0.1, "eps": 1e-3}),
    ("AdaDelta", {"learning_rate": 1.0}),
    ("AdaDelta", {"learning_rate": 0.5, "rho": 0.7, "eps": 1e-4}),
    ("Adam", {"learning_rate": 0.02}),
    ("Adam", {"learning_rate": 0.02, "betas": [0.8, 0.95], "eps": 1e-5, "bias_correction": True}),
    ("Adam", {"learning_rate": 0.02, "betas": [0.0, 0.5], "bias_correction": True}),
    ("AdamW", {"learning_rate": 0.02}),
    ("AdamW", {"learning_rate": 0.02, "weight_decay": 0.3, "bias_correction": True}),
    ("Adamax", {"learning_rate": 0.02}),
    ("Adamax", {"learning_rate": 0.02, "betas": [0.7, 0.9], "eps": 1e-4}),
    ("Lion", {"learning_rate": 0.01}),
    ("Lion", {"learning_rate": 0.01, "betas": [0.8, 0.9], "weight_decay": 0.2}),
    ("Adafactor", {}),
    ("Adafactor", {"warmup_init": True, "beta_1": 0.9, "weight_decay": 0.1}),
    ("Adafactor", {"learning_rate": 0.01, "relative_step": False, "scale_parameter": False, "clip_threshold": 0.5}),
    ("Adafactor", {"learning_rate": 0.01, "relative_step": False, "decay_rate": -0.5, "eps": [1e-8, 1e-2]}),
    ("Muon", {"learning_rate": 0.02}),
    ("Muon", {"learning_rate": 0.02, "momentum": 0.8, "weight_decay": 0.0, "nesterov": False, "ns_steps": 3}),
]

# Also in 16 bits, where the order and the dtype of each operation show.
NARROW = {0, 3, 4, 6, 8, 10, 11, 13, 15, 18, 19, 23}

SCHEDULES = [
    ("exponential_decay", [0.1, 0.9]),
    ("step_decay", [0.1, 0.9, 4]),
    ("cosine_decay", [0.1, 12]),
    ("cosine_decay", [0.1, 12, 0.02]),
    ("linear_schedule", [0.0, 0.1, 10]),
    ("linear_schedule", [0.3, 0.1, 7]),
]


def numbers(count, seed):
    """Values between -1 and 1 of a generator that the test has too: exact in every language, and in 16 bits."""
    out = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) % 2**31
        out.append((seed // 2**16 % 257 - 128) / 128)
    return out


def tree_of(seed, dtype):
    at = [seed]

    def leaf(shape):
        size = 1
        for d in shape:
            size *= d
        at[0] += 1
        return mx.array(numbers(size, at[0])).reshape(shape).astype(dtype)

    return tree_map(leaf, SHAPES, is_leaf=lambda x: isinstance(x, tuple))


def flat(tree):
    return {
        path: {"dtype": str(a.dtype).split(".")[-1], "shape": list(a.shape), "values": a.astype(mx.float32).reshape(-1).tolist()}
        for path, a in tree_flatten(tree)
    }


def run(name, options, dtype):
    optimizer = getattr(optim, name)(**options)
    parameters = tree_of(100, DTYPES[dtype])
    for step in range(STEPS):
        parameters = optimizer.apply_gradients(tree_of(1000 * (step + 1), DTYPES[dtype]), parameters)
    mx.eval(parameters, optimizer.state)
    return {"name": name, "options": options, "dtype": dtype, "parameters": flat(parameters), "state": flat(optimizer.state)}


def main():
    mx.set_default_device(mx.cpu)
    runs = [run(name, options, "float32") for name, options in CASES]
    for i in sorted(NARROW):
        runs += [run(*CASES[i], dtype) for dtype in ("float16", "bfloat16")]
    steps = [0, 1, 3, 4, 9, 10, 11, 12, 13, 40]
    schedules = [
        {"name": name, "args": args, "steps": steps, "values": [getattr(optim, name)(*args)(mx.array(s, mx.uint64)).item() for s in steps]}
        for name, args in SCHEDULES
    ]
    clipped = []
    for dtype in DTYPES:
        for max_norm in (0.5, 100.0):
            grads, norm = optim.clip_grad_norm(tree_of(7, DTYPES[dtype]), max_norm)
            clipped.append({"dtype": dtype, "maxNorm": max_norm, "gradients": flat(grads), "norm": flat({"norm": norm})["norm"]})
    json.dump({"steps": STEPS, "runs": runs, "schedules": schedules, "clipped": clipped}, sys.stdout, separators=(",", ":"))
    print()


main()
