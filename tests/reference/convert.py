"""Runs mlx_lm.convert on what stdin says, {"jobs": [[source, output, options], ...], "names": [...]}, and prints the bits per weight of
each, and the SHA-256 of names in the order in which mx.save_safetensors() writes them.

Called by convert.ts. Needs mlx and mlx-lm 0.32.
"""

import contextlib
import hashlib
import io
import json
import re
import sys
import tempfile

import mlx.core as mx
from mlx_lm import convert, utils

NAMES = {
    "quantize": "quantize",
    "dequantize": "dequantize",
    "qBits": "q_bits",
    "qGroupSize": "q_group_size",
    "qMode": "q_mode",
    "quantPredicate": "quant_predicate",
    "dtype": "dtype",
}


class Bytes:
    """A number of gigabytes whose shift gives bytes: make_shards() knows whole gigabytes only."""

    def __init__(self, count):
        self.count = count

    def __lshift__(self, _):
        return self.count


mx.set_default_device(mx.cpu)
usual = utils.make_shards.__defaults__
rows = []
given = json.load(sys.stdin)
for source, output, options in given["jobs"]:
    most = options.pop("maxShardBytes", None)
    utils.make_shards.__defaults__ = usual if most is None else (Bytes(most),)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        convert(source, output, **{NAMES[name]: value for name, value in options.items()})
    rows.append((re.findall(r"with ([\d.]+) bits", said.getvalue()) or [None])[0])
order = {}
with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    for count in (1, 13, 14, 59, 60, 541, 1500, 7000):
        mx.save_safetensors(file.name, {name: mx.zeros((1,), mx.uint8) for name in given["names"][:count]})
        with open(file.name, "rb") as written:
            header = json.loads(written.read(int.from_bytes(written.read(8), "little")))
        header.pop("__metadata__", None)
        names = sorted(header, key=lambda name: header[name]["data_offsets"][0])
        order[count] = hashlib.sha256("\n".join(names).encode()).hexdigest()
print(json.dumps({"bits": rows, "order": order}))
