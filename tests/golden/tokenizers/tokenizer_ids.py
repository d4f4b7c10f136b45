"""Writes tokenizer_ids.json: ids of texts by Hugging Face's tokenizers, for the published Qwen3 tokenizer, for that of the
embedded model and for changes of it.

python3 tests/golden/tokenizers/tokenizer_ids.py QWEN3/tokenizer.json     (PyPI: tokenizers; the file was made with 0.23.3)
"""

import json
import os
import random
import sys

from tokenizers import Tokenizer

HERE = os.path.dirname(__file__)
TINY = os.path.join(HERE, "../../../examples/models/tiny-qwen3/tokenizer.json")
random.seed(1)

# What pre-tokenizers and normal forms treat in special ways, and ordinary letters of many scripts.
SPECIAL = [0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1F, 0x20, 0x27, 0x85, 0xA0, 0x180E, 0x2028, 0x200B, 0x200D, 0x3000]
SPECIAL += [0xFEFF, 0x17F, 0x212A, 0x2126, 0x301, 0x327, 0xFE0F, 0xFB01, 0xBD, 0x660, 0x2164, 0x1F600, 0x1F468, 0x10400]
LETTERS = [*range(0x21, 0x7F), *range(0xC0, 0x180), *range(0x391, 0x3CA), *range(0x410, 0x450), *range(0x5D0, 0x5EB)]
LETTERS += [*range(0x905, 0x940), *range(0x3041, 0x3097), *range(0x4E00, 0x4E80), *range(0xAC00, 0xAC40)]

TEXTS = [
    "Hello, world! The quick brown fox jumps over the lazy dog.",
    "don't DON'T I'Ll they'Ve 's'S 'ſ we're",
    "  two  spaces   three\n\n\nlines \n \t end   ",
    "3.14159 and 1,234,567 or 0x7f",
    "for (let i = 0; i < n; i++) { sum += a[i] * b[i]; } // \"quoted\" \\ back\\slash",
    "naïve cafe\u0301 ﬁne ½ Ⅴ Å Ω",
    "日本語のテキスト、한국어 문장。 العربية עברית हिन्दी",
    "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪 𝒳𐐀",
    "a" * 300,
    "abcabc" * 60 + "x",
    "\n" * 20 + " " * 40 + "\t" * 9,
    "Once upon a time, there was a little girl named Lily.",
    "https://example.org/?q=a%20b&lang=de#top user@host.com",
    "ſ\u0085\ufeff\u00a0\u2028 x",
]
TEXTS += ["".join(chr(random.choice(random.choice([SPECIAL, LETTERS]))) for _ in range(random.choice([1, 3, 8, 24])))
          for _ in range(60)]


def changed(change):
    """The embedded model's tokenizer with other fields, by path."""
    value = json.load(open(TINY))
    for path, to in change.items():
        at = value
        *parents, last = path.split(".")
        for key in parents:
            at = at[key]
        at[last] = to + at[last] if last == "merges" else to
    return json.dumps(value)


def other_splits():
    """Merges that give tokens which other merges give too."""
    vocab = json.load(open(TINY))["model"]["vocab"]
    known = {tuple(pair) for pair in json.load(open(TINY))["model"]["merges"]}
    pairs = [[t[:i], t[i:]] for t in vocab for i in range(1, len(t)) if t[:i] in vocab and t[i:] in vocab]
    return random.sample([pair for pair in pairs if tuple(pair) not in known], 60)


LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CHANGES = [
    {},
    {"model.ignore_merges": True},
    {"model.merges": other_splits()},
    {"normalizer": None},
    {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFKC"}]}},
    {"pre_tokenizer": BYTES},
    {"pre_tokenizer": {**BYTES, "add_prefix_space": True, "use_regex": True}},
    {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\d"}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": LLAMA}, "behavior": "Isolated", "invert": False}, BYTES]}},
]


def ids(tokenizer):
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]


with open(os.path.join(HERE, "tokenizer_ids.json"), "w") as file:
    rows = [{"change": change, "ids": ids(Tokenizer.from_str(changed(change)))} for change in CHANGES]
    json.dump({"texts": TEXTS, "qwen3": ids(Tokenizer.from_file(sys.argv[1])), "tiny": rows}, file)
