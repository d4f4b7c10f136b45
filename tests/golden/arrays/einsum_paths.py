"""Writes einsum_paths.json: the paths that MLX finds for drawn subscripts, and what it says of them.

python3 tests/golden/arrays/einsum_paths.py     (PyPI: mlx[cpu]; the file was made with 0.32)
"""

import json
import os
import random

import mlx.core as mx

WRITTEN = [
    ("ii", [(5, 5)]),
    ("ij,jk -> ijk", [(5, 8), (8, 3)]),
    ("ij,jk,kl", [(5, 8), (8, 3), (3, 7)]),
    ("ij,jk,kl", [(5, 8), (8, 10), (10, 7)]),
    ("i,j,k,l->ijkl", [(2,), (3,), (4,), (5,)]),
    ("a,b,c", [(2,), (2,), (2,)]),
    ("", [()]),
    ("i...,i...,i...", [(2, 3), (2, 1), (2, 3)]),
    ("...ij,jk,...k->...i", [(2, 3, 4, 5), (5, 6), (3, 6)]),
    ("abi,abj,abk->abijk", [(2, 2, 1), (1, 2, 9), (2, 1, 4)]),
    ("bca,cdb,dbf,afc->", [(3, 4, 2), (4, 5, 3), (5, 3, 3), (2, 3, 4)]),
    ("dcc,fce,ea,dbf->ab", [(5, 4, 4), (3, 4, 4), (4, 2), (5, 3, 3)]),
    ("ab,ab,ab,ab->ab", [(9, 9)] * 4),
    ("aab,bb,bcc->c", [(3, 3, 2), (2, 2), (2, 4, 4)]),
    ("ab,ac,ad,bc,bd,cd->", [(3, 3)] * 6),
    ("ef,ab,ac,ad,bc,bd,fg,cd->e", [(3, 3)] * 8),
]


def drawn(count):
    draw = random.Random(7)
    for _ in range(count):
        letters = "abcdefgh"[: draw.randint(2, 8)]
        sizes = {c: draw.choice([1, 2, 3, 4, 5, 7, 11]) for c in letters}
        terms = ["".join(draw.choice(letters) for _ in range(draw.randint(1, 4))) for _ in range(draw.randint(3, 6))]
        used = sorted(set("".join(terms)))
        output = "".join(draw.sample(used, draw.randint(0, min(4, len(used)))))
        subscripts = ",".join(terms) + ("->" + output if draw.random() < 0.8 else "")
        yield subscripts, [tuple(sizes[c] for c in term) for term in terms]


rows = []
for subscripts, shapes in [*WRITTEN, *drawn(150)]:
    path, text = mx.einsum_path(subscripts, *[mx.zeros(shape) for shape in shapes])
    rows.append(json.dumps({"subscripts": subscripts, "shapes": shapes, "path": path, "text": text}))
with open(os.path.join(os.path.dirname(__file__), "einsum_paths.json"), "w") as f:
    f.write("[\n" + ",\n".join(rows) + "\n]\n")
