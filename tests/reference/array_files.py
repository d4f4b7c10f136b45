"""Writes tests/golden/array_files/: small .npy and .npz files of NumPy, and blocks of every quantized type of GGUF with the values that the
package gguf gives them.

python tests/reference/array_files.py (needs numpy and gguf)
"""

import json
from pathlib import Path

import gguf
import numpy as np

out = Path(__file__).parent.parent / "golden" / "array_files"
out.mkdir(exist_ok=True)
rng = np.random.default_rng(3)
x = np.arange(6).reshape(2, 3)
np.save(out / "big_endian.npy", x.astype(">f4"))
np.save(out / "fortran.npy", np.asfortranarray(x.astype("<i8")))
np.save(out / "complex.npy", (x + 1j * x[::-1]).astype(np.complex64))
np.save(out / "scalar.npy", np.float64(2.5))
np.savez(out / "stored.npz", a=x.astype(np.int16), b=np.array([True, False]))
np.savez_compressed(out / "deflated.npz", a=np.zeros((40, 50), np.float32), b=x.astype(np.float16))

TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K".split()
writer = gguf.GGUFWriter(out / "blocks.gguf", "test")
expected = {}
for name in TYPES:
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows = rng.integers(0, 256, size=(2, 2 * size), dtype=np.uint8)
    blocks = rows.reshape(-1, size)
    # Scales that are small numbers: the 16-bit floats of random bytes may be NaN.
    at = {"Q2_K": [80, 82], "Q3_K": [108], "Q6_K": [208]}.get(name, [0, 2] if name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else [0])
    for offset in at:
        blocks[:, offset : offset + 2] = rng.uniform(-1, 1, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    writer.add_tensor(f"{name}.weight", rows, raw_dtype=kind)
    expected[name] = [float(v) for v in gguf.dequantize(rows, kind).ravel()]
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
(out / "blocks.json").write_text(json.dumps(expected, separators=(",", ":")))
