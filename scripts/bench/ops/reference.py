"""The Python side of `deno task bench:ops` (development only): times expressions in MLX on the CPU and in numpy.

Reads one JSON object a line from stdin and answers each with one line of JSON:

    {"n": 16, "inputs": [{"name", "shape", "dtype", "low", "high"}]}   new random inputs for all libraries
    {"library": "mlx" | "numpy", "run": "np.exp(a)", "ms": 20}  milliseconds of one call, averaged over at least so many

A call's result is waited for (mx.eval) before the next one starts.
"""

import json
import sys
import time


def libraries():
    """The two libraries, or an answer that says which one is missing."""
    try:
        import mlx.core as mx
        import numpy as np
    except ImportError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)
    mx.set_default_device(mx.cpu)
    return mx, np


mx, np = libraries()
rng = np.random.default_rng(1)
scopes = {}


def make_inputs(n, inputs):
    """Random inputs under their names: float32 numbers in [low, high), int32 ones, or what the dtype makes of them."""
    numpy_scope, mlx_scope = {"np": np, "n": n}, {"mx": mx, "n": n}
    for i in inputs:
        shape, dtype = i["shape"], i["dtype"]
        if dtype == "bool":
            values = rng.random(shape, dtype=np.float32) < 0.5
        elif dtype.startswith(("int", "uint")):
            values = rng.integers(i["low"], i["high"], shape).astype(dtype)
        else:
            values = (rng.random(shape, dtype=np.float32) * (i["high"] - i["low"]) + i["low"]).astype(dtype)
        numpy_scope[i["name"]] = values
        mlx_scope[i["name"]] = mx.array(values)
    mx.eval([v for v in mlx_scope.values() if isinstance(v, mx.array)])
    scopes.update(numpy=numpy_scope, mlx=mlx_scope)


def time_calls(library, run, ms):
    """Milliseconds of one call."""
    call = eval("lambda: " + run, scopes[library])
    wait = mx.eval if library == "mlx" else lambda result: None
    count, start = 0, time.perf_counter()
    while True:
        wait(call())
        count += 1
        taken = 1000 * (time.perf_counter() - start)
        if taken >= ms:
            return taken / count


def answer(request):
    if "inputs" in request:
        make_inputs(request["n"], request["inputs"])
        return {}
    return {"ms": time_calls(request["library"], request["run"], request["ms"])}


print(json.dumps({"mlx": mx.__version__, "numpy": np.__version__}), flush=True)
for line in sys.stdin:
    try:
        reply = answer(json.loads(line))
    except Exception as error:  # an expression that this version does not know
        reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), flush=True)
