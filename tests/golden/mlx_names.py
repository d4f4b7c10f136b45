"""Prints the functions of mlx.core, one a line: the committed list that docs/parity.md is made from (development only).

    python tests/golden/mlx_names.py > tests/golden/mlx_names.txt
"""

import types

import mlx.core as mx

MODULES = ["fast", "fft", "linalg", "random"]


def functions(scope, prefix):
    """Names of what can be called in a module or class, but for private names, classes and modules."""
    for name in sorted(dir(scope)):
        value = getattr(scope, name)
        if name.startswith("_") or isinstance(value, (type, types.ModuleType)) or not callable(value):
            continue
        yield prefix + name


print(f"# mlx {mx.__version__}")
for name in functions(mx, ""):
    print(name)
for module in MODULES:
    for name in functions(getattr(mx, module), module + "."):
        print(name)
for name in sorted(n for n in dir(mx.array) if not n.startswith("_")):
    print("array." + name)
