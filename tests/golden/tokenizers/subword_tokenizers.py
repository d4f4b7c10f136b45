"""Writes subword_tokenizers.json.gz: small tokenizers of characters, not of bytes, and hashes of ids and texts by Hugging Face's tokenizers.

python3 tests/golden/tokenizers/subword_tokenizers.py     (PyPI: tokenizers, sentencepiece; made with 0.23.3 and 0.2.3)

Vocabularies are trained by sentencepiece on a few hundred words. 1,500 texts are drawn from FRAGMENTS; the test draws the same ones.
A text has one hash, of its ids and of the text that they are decoded to. Where added tokens are found in the normal form of a text, ids
alone count: tokenizers 0.23 decodes such a token to its normal form, older versions to its content.
"""

import base64
import gzip
import io
import json
import os

import sentencepiece as spm
from tokenizers import Tokenizer

HERE = os.path.dirname(__file__)
WORDS = """the quick brown fox jumps over a lazy dog Hello world once upon time there was little girl named Lily who loved to play
outside in park and her mother said that she could don't I'll we're Don't print function return value for while import model token
one two three 1 2 3 10 2026 3.14159 1,234 naïve café Grüße straße Ελλάδα καλημέρα Привет мир как дела שלום مرحبا नमस्ते 你好 世界 中文
日本語 テキスト 東京 한국어 안녕 ไทย""".split()
PLAIN = [*WORDS, " ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", ", ", ". ", "! ", "? ", ": ", "(", ")", "[", "]", "{", "}", '"', "'", "=", "+", "-", "/", "_"]
# What normalizers, patterns and fallbacks treat in special ways.
SPECIAL = [
    "▁", "▁▁", " ▁", "<0x0A>", "<0xE2>", "<unk>", "<s>", "</s>", "<|user|>", "<|end|>", "<|im|>", "word", "😀", "👩‍👩‍👧‍👦", "🇩🇪", "𝒳", "\u0301",
    "e\u0301", "a\u0327\u0301", "ﬁ", "½", "Ⅴ", "Å", "ｶﾞ", "ＡＢ", "㈱", "\u00a0", "\u2003", "\u3000", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u0000", "\u001f", "\u0085",
    "\u2028", "ſ", "\r\n", "aaaaaaaa", "        ", "ქართული", "ᚠᛇᚻ", "\U0010ffff",
]
FRAGMENTS = PLAIN + PLAIN + SPECIAL


class Draws:
    """The generator of the test."""

    def __init__(self, seed):
        self.state = seed

    def below(self, count):
        self.state = self.state * 48271 % 0x7FFFFFFF
        return self.state % count

    def texts(self, count, fragments):
        return ["".join(fragments[self.below(len(fragments))] for _ in range(1 + self.below(14))) for _ in range(count)]


TEXTS = Draws(1).texts(1500, FRAGMENTS)
CORPUS = Draws(2).texts(4000, PLAIN)


def train(**options):
    """A model of sentencepiece, as its file."""
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter([line.replace("\n", " ") for line in CORPUS]), model_writer=out, minloglevel=2,
        hard_vocab_limit=False, **options,
    )
    return out.getvalue()


def pieces(model):
    sp = spm.SentencePieceProcessor(model_proto=model)
    return [(sp.id_to_piece(i), sp.get_score(i)) for i in range(sp.get_piece_size())]


def bpe(model):
    """"model" of a tokenizer.json, with merges as transformers' converter lists them."""
    vocab = {piece: i for i, (piece, _) in enumerate(pieces(model))}
    merges = []
    for piece, score in pieces(model):
        ways = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += [(left, right, score) for left, right in sorted(ways, key=lambda way: (vocab[way[0]], vocab[way[1]]))]
    merges.sort(key=lambda merge: -merge[2])
    return {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab,
            "merges": [[left, right] for left, right, _ in merges]}


LLAMA_2 = train(vocab_size=700, model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                remove_extra_whitespaces=False, character_coverage=0.995)
BPE = bpe(LLAMA_2)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def without(tokens):
    """The model without some tokens; ids stay."""
    return {
        **BPE,
        "vocab": {token: i for token, i in BPE["vocab"].items() if token not in tokens},
        "merges": [pair for pair in BPE["merges"] if "".join(pair) not in tokens],
    }


def added(content, **fields):
    """A token that is found in text."""
    token = {"id": BPE["vocab"].get(content), "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True, **fields}
    return token


NEW = len(BPE["vocab"])
SPECIALS = [added("<unk>"), added("<s>"), added("</s>")]
CHAT = [*SPECIALS, added("<|user|>", id=NEW), added("<|end|>", id=NEW + 1)]
PREPEND = {"type": "Prepend", "prepend": "▁"}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
TO_SPACES = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def sequence(name, *steps):
    return {"type": "Sequence", name: list(steps)}


def metaspace(scheme, **fields):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, **fields}


FALLBACK = [TO_SPACES, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIPPED = sequence("decoders", *FALLBACK, STRIP)
BOS = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
       "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}

# Forms of published files: name, fields of the model that differ, other fields.
KINDS = [
    ("Llama 2", {}, {"normalizer": sequence("normalizers", PREPEND, SPACES), "decoder": STRIPPED, "post_processor": BOS,
                     "added_tokens": SPECIALS}),
    ("Mistral", {}, {"pre_tokenizer": metaspace("first", split=False), "decoder": STRIPPED, "post_processor": BOS, "added_tokens": CHAT}),
    ("Gemma", {}, {
        "normalizer": SPACES, "post_processor": BOS, "decoder": sequence("decoders", *FALLBACK),
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "added_tokens": [*CHAT, added("\n\n", id=NEW + 2, special=False), added("▁▁", id=NEW + 3, special=False)]}),
    ("Phi-3", {}, {
        "normalizer": sequence("normalizers", PREPEND, SPACES), "decoder": STRIPPED,
        "added_tokens": [*SPECIALS[:2], added("</s>", rstrip=True, special=False), added("<|user|>", id=NEW, rstrip=True),
                         added("<|end|>", id=NEW + 1, lstrip=True, rstrip=True)]}),
    ("added tokens in the normal form", {}, {
        "normalizer": sequence("normalizers", {"type": "NFKC"}, SPACES, PREPEND), "decoder": STRIPPED,
        "added_tokens": [*SPECIALS, added("<|user|>", id=NEW, normalized=True), added("word", id=NEW + 1, normalized=True, special=False)]}),
    ("Metaspace, always", {"byte_fallback": False, "fuse_unk": False},
     {"pre_tokenizer": metaspace("always"), "decoder": metaspace("always"), "added_tokens": CHAT}),
    ("Metaspace, first, cut", {"byte_fallback": False, "ignore_merges": True},
     {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, metaspace("first", split=True)),
      "decoder": metaspace("first", split=True), "added_tokens": CHAT}),
    ("Metaspace, never", {"byte_fallback": False, "unk_token": None},
     {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}, "pre_tokenizer": metaspace("never", split=True),
      "decoder": metaspace("never", split=True), "added_tokens": SPECIALS}),
    ("words and punctuation", {"ignore_merges": True}, {
        "normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}|[\\n\\r\\t]"}, "content": " "},
        "pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}, metaspace("always")),
        "decoder": sequence("decoders", {"type": "ByteFallback"}, metaspace("always")), "added_tokens": SPECIALS}),
    ("some bytes, others unknown", {"fuse_unk": False, **without(set(BYTES[0x80:0xC0:3]))},
     {"normalizer": SPACES, "decoder": sequence("decoders", *FALLBACK), "added_tokens": SPECIALS}),
    ("some bytes, others unknown and fused", without(set(BYTES[0x80:0xC0:3])),
     {"normalizer": SPACES, "decoder": sequence("decoders", *FALLBACK), "added_tokens": SPECIALS}),
]


def hashed(ids, text):
    value = 0x811C9DC5
    for number in [*ids, *text.encode()]:
        value = (value ^ number) * 0x01000193 & 0xFFFFFFFF
    return value


def reference(encode, decode):
    """Hashes of all texts, and some texts written out. Without `decode` ids alone count."""
    ids = [encode(text) for text in TEXTS]
    texts = [decode(some) if decode else "" for some in ids]
    hashes = b"".join(hashed(*pair).to_bytes(4, "little") for pair in zip(ids, texts))
    return {"hashes": base64.b64encode(hashes).decode(), "ids": ids[:8], "decoded": texts[:8] if decode else None}


def json_kind(name, model, fields):
    file = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            **fields}
    tokenizer = Tokenizer.from_str(json.dumps({**file, "model": {**BPE, **model}}))
    changed = {key: value for key, value in model.items() if BPE.get(key) != value}
    if "vocab" in changed:
        vocab = changed.pop("vocab")
        changed["without"] = [token for token in BPE["vocab"] if token not in vocab]
        changed.pop("merges", None)
    normalized = any(token["normalized"] for token in fields["added_tokens"])
    decode = None if normalized else lambda ids: tokenizer.decode(ids, skip_special_tokens=False)
    return {"name": name, "file": file, "model": changed, **reference(lambda text: tokenizer.encode(text).ids, decode)}


with gzip.GzipFile(os.path.join(HERE, "subword_tokenizers.json.gz"), "w", mtime=0) as out:
    golden = {"fragments": FRAGMENTS, "model": BPE, "kinds": [json_kind(*kind) for kind in KINDS]}
    out.write(json.dumps(golden, ensure_ascii=False, separators=(",", ":")).encode())
