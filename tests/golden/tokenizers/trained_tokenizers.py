"""Writes trained_tokenizers.json: byte-level tokenizers as Hugging Face's trainer makes them of few texts, their ids of other texts, and
what those are decoded to. The vocabularies lack tokens of bytes, or the file has no decoder.

python3 tests/golden/tokenizers/trained_tokenizers.py     (PyPI: tokenizers; the file was made with 0.23.3)
"""

import json
import os

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

OUT = os.path.join(os.path.dirname(__file__), "trained_tokenizers.json")
TRAINED = ["the cat sat on the mat", "hello world, hello cats"]
TEXTS = ["the cat", "hello mats", "Zebra the qat!", "naïve the é 漢 cat", "", "the\ncat  mat", "ÿ the \0 x", "<eos>the cat<eos> sat"]


def kind(name, unk_token=None, fuse_unk=False, alphabet=(), decoder=True):
    tokenizer = Tokenizer(models.BPE(unk_token=unk_token, fuse_unk=fuse_unk))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if decoder:
        tokenizer.decoder = decoders.ByteLevel()
    options = dict(vocab_size=300, special_tokens=["<unk>", "<eos>"], initial_alphabet=list(alphabet), show_progress=False)
    tokenizer.train_from_iterator(TRAINED, trainers.BpeTrainer(**options))
    ids = [tokenizer.encode(text).ids for text in TEXTS]
    decoded = [tokenizer.decode(each) for each in ids]
    return {"name": name, "file": json.loads(tokenizer.to_str()), "ids": ids, "decoded": decoded}


kinds = [
    kind("bytes without tokens are left out"),
    kind("bytes without tokens are unknown", unk_token="<unk>"),
    kind("bytes without tokens in a row are unknown together", unk_token="<unk>", fuse_unk=True),
    kind("tokens without a decoder have spaces between them", alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), decoder=False),
]
with open(OUT, "w") as out:
    json.dump({"texts": TEXTS, "kinds": kinds}, out, ensure_ascii=False, separators=(",", ":"))
    out.write("\n")
