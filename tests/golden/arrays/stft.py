"""Writes stft.json: short-time Fourier transforms by MLX, and the signals that it makes of them.

python3 tests/golden/arrays/stft.py     (PyPI: mlx[cpu]; the file was made with 0.32)
"""

import json
import os

import mlx.core as mx

X = (((mx.arange(50) * 37) % 101).astype(mx.float32) / 64 - 1).reshape(2, 25)
Z = X + 1j * X[::-1]
W = mx.array([0.1, 0.5, 0.9, 1.0, 0.8, 0.4])
ROWS = [
    ({"n_fft": 8}, {}),
    ({"n_fft": 7}, {"n_fft": 7}),
    ({"n_fft": 8, "hop_length": 3, "center": False}, {}),
    ({"n_fft": 8, "win_length": 5}, {}),
    ({"n_fft": 8, "window": W}, {}),
    ({"n_fft": 9, "hop_length": 4, "window": W, "win_length": 3, "norm": "ortho"}, {"n_fft": 9}),
    ({"n_fft": 8, "pad_mode": "constant", "norm": "forward"}, {"length": 20}),
    ({"n_fft": 8, "pad_mode": "edge"}, {"length": 30}),
    ({"n_fft": 8, "hop_length": 11, "center": False}, {"length": 21}),
    ({"n_fft": 8, "onesided": False}, {}),
    ({"n_fft": 8, "complex": True}, {"onesided": False}),
    ({"n_fft": 8, "complex": True, "onesided": True}, {}),
    ({"n_fft": 25, "hop_length": 1, "center": False}, {"n_fft": 25}),
    ({"n_fft": 50}, {}),
]


def told(x):
    return {"dtype": str(x.dtype).split(".")[-1], "shape": list(x.shape), "values": mx.view(mx.contiguous(x), mx.float32).flatten().tolist()}


out = []
for forward, back in ROWS:
    arguments = {k: v for k, v in forward.items() if k != "complex"}
    y = mx.fft.stft(Z if "complex" in forward else X, **arguments)
    kept = {k: v for k, v in arguments.items() if k not in ("n_fft", "pad_mode")}
    signal = mx.fft.istft(y, **{**kept, **back})
    plain = {k: v.tolist() if isinstance(v, mx.array) else v for k, v in forward.items()}
    out.append(json.dumps({"forward": plain, "back": {**{k: v for k, v in plain.items() if k in kept}, **back}, "spectra": told(y), "signal": told(signal)}))
with open(os.path.join(os.path.dirname(__file__), "stft.json"), "w") as f:
    f.write("[\n" + ",\n".join(out) + "\n]\n")
