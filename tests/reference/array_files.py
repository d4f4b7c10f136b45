"""Writes tests/golden/array_files/: small .npy and .npz files of NumPy, and blocks of every quantized type of GGUF with the values that the
package gguf gives them. gguf_blocks.json has blocks and float32 values in base64: random blocks, and blocks of the least and the largest codes.

python tests/reference/array_files.py [GGML] (needs numpy and gguf)

GGML, the folder "ggml" of llama.cpp's sources, gives gguf_k_quantized.json too, and needs gcc: values, and the blocks of Q4_K and Q6_K that
ggml's reference makes of them. The sdist of llama-cpp-python has it: vendor/llama.cpp/ggml. It is compiled without contraction of products
and sums, so that each operation is rounded as C says.
"""

import base64
import json
import subprocess
import sys
import tempfile
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


def scales_of(name):
    """Where the 16-bit scales and minima of a block are."""
    own = {"Q2_K": [80, 82], "Q3_K": [108], "Q6_K": [208], "MXFP4": []}
    return own.get(name, [0, 2] if name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else [0])


TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL MXFP4".split()
writer = gguf.GGUFWriter(out / "blocks.gguf", "test")
expected = {}
for name in TYPES:
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows = rng.integers(0, 256, size=(2, 2 * size), dtype=np.uint8)
    blocks = rows.reshape(-1, size)
    # Scales that are small numbers: the 16-bit floats of random bytes may be NaN.
    for offset in scales_of(name):
        blocks[:, offset : offset + 2] = rng.uniform(-1, 1, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = 120 + blocks[:, 0] % 16
    writer.add_tensor(f"{name}.weight", rows, raw_dtype=kind)
    expected[name] = [float(v) for v in gguf.dequantize(rows, kind).ravel()]
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
(out / "blocks.json").write_text(json.dumps(expected, separators=(",", ":")))

cases = {}
for name in TYPES:
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, size=(12, size), dtype=np.uint8)
    blocks[8], blocks[9], blocks[10], blocks[11] = 0, 255, 0x0F, 0xF0
    # The last four: the smallest number, none, and large ones whose products with a code are finite in float16.
    drawn = np.concatenate([rng.uniform(-1, 1, 8), [2.0**-24, 500, -500, -0.0]]).astype(np.float16)
    for offset in scales_of(name):
        blocks[:, offset : offset + 2] = np.concatenate([rng.permutation(drawn[:8]), drawn[8:]]).view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 2, 3, 60, 120, 127, 128, 140, 200, 250, 252]
    values = gguf.dequantize(blocks, kind).astype("<f4")
    cases[name] = {key: base64.b64encode(array.tobytes()).decode() for key, array in (("blocks", blocks), ("values", values))}
(out / "gguf_blocks.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")

# What the types that are written make of values: normal ones, none, equal ones, ties between codes, tiny and large ones.
values = rng.normal(size=(40, 32)).astype("<f4")
values[0] = 0
values[1] = 3
values[2] = np.arange(32) - 16
values[3] = np.linspace(-127, 127, 32) / 2
values[4] *= 1e-8
values[5] *= 1e4
values[6] = -np.abs(values[6])
values[7] = np.where(np.arange(32) % 2, 1, -1)
encoded = {"values": base64.b64encode(values.tobytes()).decode()}
for name in ("Q4_0", "Q8_0"):
    data = gguf.quantize(values, gguf.GGMLQuantizationType[name])
    encoded[name] = base64.b64encode(data.tobytes()).decode()
(out / "gguf_quantized.json").write_text(json.dumps(encoded, separators=(",", ":")) + "\n")

PROGRAM = """
#include "ggml-quants.c"
#include <stdio.h>
int main(void) {
    static float values[1 << 16];
    static block_q4_K fours[1 << 8];
    static block_q6_K sixes[1 << 8];
    size_t count = fread(values, sizeof(float), 1 << 16, stdin);
    quantize_row_q4_K_ref(values, fours, count);
    quantize_row_q6_K_ref(values, sixes, count);
    fwrite(fours, sizeof *fours, count / QK_K, stdout);
    fwrite(sixes, sizeof *sixes, count / QK_K, stdout);
}
"""


def blocks_of(values, ggml):
    """The blocks of Q4_K and of Q6_K."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "quants.c", Path(folder) / "quants"
        source.write_text(PROGRAM)
        # The file has functions that nothing calls here, of sources that are not compiled.
        flags = ["-O2", "-ffp-contract=off", "-static", "-ffunction-sections", "-Wl,--gc-sections", "-Wl,--unresolved-symbols=ignore-all"]
        subprocess.run(["gcc", *flags, f"-I{ggml}/include", f"-I{ggml}/src", source, "-o", program, "-lm"], check=True)
        out = subprocess.run([program], input=values.tobytes(), stdout=subprocess.PIPE, check=True).stdout
    split = values.size // 256 * 144
    return {"Q4_K": out[:split], "Q6_K": out[split:]}


if len(sys.argv) > 1:
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.normal(size=(10, 256)), rng.uniform(-1, 1, size=(6, 256))]).astype("<f4")
    values[10:12] *= 0.02
    special = rng.normal(size=(8, 256)).astype("<f4")
    special[0] = 0
    special[1] = 3
    special[2] = np.arange(256) - 128
    special[3] = np.abs(special[3])
    special[4] = -np.abs(special[4])
    special[5] = np.where(np.arange(256) % 2, 1, -1)
    special[6, ::16] *= 1e3  # most codes are small
    special[7, :128] *= 1e-20  # groups whose scale is 0
    values = np.concatenate([values, special])
    encoded = {"values": base64.b64encode(values.tobytes()).decode()}
    encoded |= {name: base64.b64encode(blocks).decode() for name, blocks in blocks_of(values, sys.argv[1]).items()}
    (out / "gguf_k_quantized.json").write_text(json.dumps(encoded, separators=(",", ":")) + "\n")
