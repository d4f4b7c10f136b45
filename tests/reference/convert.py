"""Runs mlx_lm.convert on what stdin says, a JSON list of [source, output, options], and prints the bits per weight of each.

Called by convert.ts. Needs mlx and mlx-lm 0.32.
"""

import contextlib
import io
import json
import re
import sys

import mlx.core as mx
from mlx_lm import convert, utils

NAMES = {
    "quantize": "quantize",
    "dequantize": "dequantize",
    "qBits": "q_bits",
    "qGroupSize": "q_group_size",
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
for source, output, options in json.load(sys.stdin):
    most = options.pop("maxShardBytes", None)
    utils.make_shards.__defaults__ = usual if most is None else (Bytes(most),)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        convert(source, output, **{NAMES[name]: value for name, value in options.items()})
    rows.append((re.findall(r"with ([\d.]+) bits", said.getvalue()) or [None])[0])
print(json.dumps(rows))
