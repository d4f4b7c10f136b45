"""Writes tokenizer_configs.json: ids of random texts by Hugging Face's tokenizers, with the tokenizer of the embedded model
under other normalizers, pre-tokenizers, post-processors and added tokens.

python3 tests/golden/tokenizers/tokenizer_configs.py [SEED COUNT OUT]     (PyPI: tokenizers; the file was made with 0.23.3, 1 40; special
tokens are added to every other text)
"""

import json
import os
import random
import sys

from tokenizers import Tokenizer

HERE = os.path.dirname(__file__)
BASE = json.load(open(os.path.join(HERE, "../../../examples/models/tiny-qwen3/tokenizer.json")))
SEED, COUNT = (int(value) for value in (sys.argv[1:3] or ["1", "40"]))
OUT = sys.argv[3] if len(sys.argv) > 3 else os.path.join(HERE, "tokenizer_configs.json")
random.seed(SEED)

# What patterns, normal forms and stripping treat in special ways, and ordinary letters of many scripts.
SPECIAL = [0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1F, 0x20, 0x20, 0x20, 0x27, 0x5F, 0x85, 0xA0, 0xBD, 0x17F, 0x180E, 0x2028]
SPECIAL += [0x200B, 0x200C, 0x200D, 0x203F, 0x3000, 0xFEFF, 0x212A, 0x2126, 0x301, 0x327, 0x345, 0x334, 0xFE0F, 0xFB01]
SPECIAL += [0x660, 0x2164, 0x1F600, 0x1F468, 0x10400, 0x3400, 0xAC00, 0x1100, 0x1161, 0x11A8]
LETTERS = [*range(0x21, 0x7F), *range(0x21, 0x7F), *range(0xC0, 0x180), *range(0x391, 0x3CA), *range(0x410, 0x450)]
LETTERS += [*range(0x905, 0x940), *range(0x3041, 0x3097), *range(0x4E00, 0x4E40)]
WORDS = ["'s", "'LL", "'Ve", "don't", "  ", "\n\n", " \n", "   x", "12345", "<a>", "<a><b>", "<think>", "<|im_end|>", " <a> "]
WORDS += ["é", "e\u0301", "Å", "ABCdef", "HelloWorld"]
TOKENS = ["<a>", "<a><b>", "<a", "ab", "é", "x y", " ", "  ", "\n", "\n", "the", "<|z|>", "ﬁ", "😀", "_w", "\t<", "a<"]

CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = [
    SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + REST,
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{CASED}*{SMALL}+{SHORT}?|[^\r\n\p{{L}}\p{{N}}]?{CASED}+{SMALL}*{SHORT}?|" + REST,
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", r"\s?\p{L}+", r" ?[^(\s|[.,!?…。，、।۔،])]+",
    rf"[\p{{Han}}]+|[{CASED}&&[^\p{{Han}}]]+|{SHORT}|\s+(?!\S)|\s+",
    r"(?<=\s)\S", r"(?<!\w)\w", r"(?<=[a-z])(?=[A-Z])", r"\b", r"^.", r".$", r"\A\s+|\s+\z|\s+\Z", r"(?m:.)+?\n|.",
    r"(?>a+|b)c?", r"(?:\p{L}\p{M}*)+", r"a*?b|x{2,}?", r"(?i)k+|[a-e]+", r"\w+|\W", r"[\w&&[^\d_]]+", r"(a|b|)+c?",
    r"(?:a?)*b", r"\h+", r"x*", r"(?i:[k-t]+)", r"\p{^L}+", r"[[a-c][x-z]]+", r"(?:ab?){2,3}+", r"[a-c]{2}?",
]
BEHAVIORS = ["Isolated", "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def chance(share):
    return random.random() < share


def text(words):
    out = ""
    for _ in range(random.choice([1, 2, 5, 10])):
        kind = random.random()
        if kind < 0.3:
            out += random.choice(words)
        elif kind < 0.6:
            out += chr(random.choice(SPECIAL)) * random.choice([1, 1, 1, 2, 5])
        else:
            out += "".join(chr(random.choice(LETTERS)) for _ in range(random.choice([1, 3, 6])))
    return out


def pattern(depth=0):
    """A random regular expression."""
    kind = random.random()
    if depth < 3 and 0.35 < kind < 0.55:
        return pattern(depth + 1) + "|" + pattern(depth + 1)
    if depth < 3 and 0.55 < kind < 0.85:
        return pattern(depth + 1) + pattern(depth + 1)
    if depth < 3 and kind < 0.1:
        return random.choice(["(?=%s)", "(?!%s)"]) % pattern(depth + 1)
    atoms = ["a", "b", "c", " ", r"\s", r"\p{L}", r"\p{N}", "[a-c]", "[^a]", r"\S", "'", r"\n", ".", r"\w", "e"]
    groups = ["(?:%s)", "(?:%s)", "(?>%s)", "(?i:%s)", "(%s)"]
    atom = random.choice(groups) % pattern(depth + 1) if depth < 3 and kind < 0.35 else random.choice(atoms)
    counts = ["", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{1,3}", "{2}", "{2,}", "{0,2}?"]
    return atom + random.choice(counts)


def step():
    if chance(0.1):
        return {"type": "Digits", "individual_digits": chance(0.5)}
    what = {"Regex": random.choice(PATTERNS) if chance(0.7) else pattern()}
    if chance(0.1):
        what = {"String": random.choice([" ", "a", "'s", "(", "é"])}
    return {"type": "Split", "pattern": what, "behavior": random.choice(BEHAVIORS), "invert": chance(0.2)}


def template():
    tokens = {"<a>": {"id": "<a>", "ids": [5], "tokens": ["<a>"]}, "<e>": {"id": "<e>", "ids": [7, 8], "tokens": ["x", "y"]}}
    special = [{"SpecialToken": {"id": random.choice(list(tokens)), "type_id": 0}} for _ in range(2)]
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    single = [*special[: chance(0.6)], a, *special[1 : 1 + chance(0.4)]]
    return {"type": "TemplateProcessing", "single": single, "pair": [a, b], "special_tokens": tokens}


def added_token(content, i):
    flags = {name: chance(0.3) for name in ["single_word", "lstrip", "rstrip", "normalized", "special"]}
    return {"id": BASE["model"]["vocab"].get(content, 4089 + i), "content": content, **flags}


def fields():
    """The fields of a tokenizer.json but for its model."""
    level = {"type": "ByteLevel", "add_prefix_space": chance(0.3), "trim_offsets": True, "use_regex": chance(0.4)}
    steps = [step() for _ in range(random.choice([0, 1, 1, 2, 3]))]
    contents = sorted(set(random.sample(TOKENS, random.choice([0, 1, 3, 6]))))
    fresh = [content for content in contents if content not in BASE["model"]["vocab"]]
    processors = [level, template()]
    return {
        "normalizer": random.choice([None, {"type": "NFC"}, {"type": "NFKD"}, {"type": "Sequence", "normalizers": []}]),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, level]} if steps else level,
        "post_processor": random.choice([None, *processors, {"type": "Sequence", "processors": processors}]),
        "added_tokens": [added_token(c, fresh.index(c) if c in fresh else 0) for c in [*fresh, *(set(contents) - set(fresh))]],
    }


rows = []
while len(rows) < COUNT:
    change = fields()
    words = WORDS + [token["content"] for token in change["added_tokens"]]
    texts = [text(words) for _ in range(6)]
    try:
        tokenizer = Tokenizer.from_str(json.dumps({**BASE, **change}))
        ids = [tokenizer.encode(t, add_special_tokens=i % 2 == 0).ids for i, t in enumerate(texts)]
    except BaseException:  # the library panics where a pattern takes it too long
        continue
    rows.append({"change": change, "texts": texts, "ids": ids})
with open(OUT, "w") as file:
    json.dump(rows, file, ensure_ascii=False, separators=(",", ":"))
