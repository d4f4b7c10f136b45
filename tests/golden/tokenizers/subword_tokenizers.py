"""Writes subword_tokenizers.json.gz: small tokenizers of characters, not of bytes, and hashes of ids and texts by Hugging Face's tokenizers,
sentencepiece and tiktoken.

python3 tests/golden/tokenizers/subword_tokenizers.py     (PyPI: tokenizers, sentencepiece, protobuf, tiktoken; made with 0.23.3, 0.2.3,
7.36.2 and 0.14.0)

Vocabularies are trained by sentencepiece on a few hundred words. 1,500 texts are drawn from FRAGMENTS; the test draws the same ones.
A text has one hash, of its ids and of the text that they are decoded to. Where added tokens are found in the normal form of a text, ids
alone count: tokenizers 0.23 decodes such a token to its normal form, older versions to its content. They count alone too for a text that
is decoded to replacement characters, whose number differs.
"""

import base64
import gzip
import io
import json
import os
import tempfile

import sentencepiece as spm
import tiktoken
from sentencepiece import sentencepiece_model_pb2
from tiktoken._educational import bpe_train
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
    "e\u0301", "a\u0327\u0301", "ﬁ", "½", "Ⅴ", "Å", "\u212b", "ｶﾞ", "ＡＢ", "㈱", "\u00a0", "\u2003", "\u3000", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u0000", "\u001f", "\u0085",
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


# Rules as "nmt_nfkc" has, few so that the file stays small: characters and the ones that they become, in hexadecimal.
RULES = {
    "\t": " ", "\n": " ", "\r": " ", "\u3000": " ", "\u00a0": " ", "\u2003": " ", "\u2028": " ", "\u001f": "", "\u00ad": "",
    "\u200b": " ", "\ufeff": " ", "ﬁ": "fi", "½": "1⁄2", "Ⅴ": "V", "ｶﾞ": "ガ", "ｶ": "カ", "Ａ": "A", "Ｂ": "B", "㈱": "(株)", "e\u0301": "é", "ſ": "s",
    "\u212b": "Å", "word": "WORD",
}


def with_rules(**options):
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for left, right in RULES.items():
            file.write(" ".join(f"{ord(char):X}" for char in left) + "\t" + " ".join(f"{ord(char):X}" for char in right) + "\n")
        file.flush()
        return train(normalization_rule_tsv=file.name, **options)


def trained_charsmap(model):
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def changed(model, change):
    """A model with other fields."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    change(proto)
    return proto.SerializeToString()


def unused(proto):
    """Takes every seventh piece of several characters out of use."""
    for piece in [piece for piece in proto.pieces if piece.type == 1 and len(piece.piece) > 1][::7]:
        piece.type = 5


UNIGRAM = with_rules(vocab_size=500, model_type="unigram", character_coverage=0.99)
UNIGRAM_BYTES = train(vocab_size=700, model_type="unigram", byte_fallback=True, normalization_rule_name="identity",
                      remove_extra_whitespaces=False, character_coverage=0.99, user_defined_symbols=["<|user|>", "1,2", "jumps"])
GEMMA = train(vocab_size=700, model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
              add_dummy_prefix=False, character_coverage=0.995, control_symbols=["<|im|>"],
              user_defined_symbols=["<|user|>", "<|us", "▁▁", "▁▁▁", "\n", "\n\n", "word", "the"])
BPE_RULES = with_rules(vocab_size=500, model_type="bpe", character_coverage=0.99, user_defined_symbols=["word", "ſ"])
# name, tokenizer.model
MODELS = [
    ("BPE with bytes", LLAMA_2), ("BPE with user-defined pieces", GEMMA), ("BPE with rules", BPE_RULES), ("Unigram with rules", UNIGRAM),
    ("Unigram with bytes and user-defined pieces", UNIGRAM_BYTES), ("Unigram with unused pieces", changed(UNIGRAM, unused)),
]


def model_kind(name, model):
    sp = spm.SentencePieceProcessor(model_proto=model)
    return {"name": name, "file": base64.b64encode(model).decode(), **reference(sp.encode, sp.decode)}


def unigram(model):
    """"model" of a tokenizer.json."""
    return {"type": "Unigram", "unk_id": 0, "vocab": [[piece, score] for piece, score in pieces(model)]}


COLLAPSE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
# name, model, other fields
UNIGRAMS = [
    ("T5", unigram(UNIGRAM), {
        "normalizer": sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": trained_charsmap(UNIGRAM)},
                               {"type": "Strip", "strip_left": False, "strip_right": True}, COLLAPSE),
        "pre_tokenizer": metaspace("always"), "decoder": metaspace("always"), "added_tokens": SPECIALS}),
    ("Unigram with bytes", {**unigram(UNIGRAM_BYTES), "byte_fallback": True}, {
        "pre_tokenizer": metaspace("first", split=False), "decoder": STRIPPED, "post_processor": BOS, "added_tokens": SPECIALS}),
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
    hashes = b"".join(hashed(some, "" if "\ufffd" in text else text).to_bytes(4, "little") for some, text in zip(ids, texts))
    return {"hashes": base64.b64encode(hashes).decode(), "ids": ids[:8], "decoded": texts[:8] if decode else None}


def json_kind(name, model, fields, base=BPE):
    file = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None,
            **fields}
    tokenizer = Tokenizer.from_str(json.dumps({**file, "model": {**base, **model}}))
    changed = {key: value for key, value in model.items() if base.get(key) != value}
    if base and "vocab" in changed:
        vocab = changed.pop("vocab")
        changed["without"] = [token for token in BPE["vocab"] if token not in vocab]
        changed.pop("merges", None)
    normalized = any(token["normalized"] for token in fields["added_tokens"])
    decode = None if normalized else lambda ids: tokenizer.decode(ids, skip_special_tokens=False)
    return {"name": name, "file": file, "model": changed, **reference(lambda text: tokenizer.encode(text).ids, decode)}


TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tekken_kind():
    """A tekken.json of 450 tokens, of which a model uses 400 and 20 for control."""
    ranks = bpe_train(data="\n".join(CORPUS[:300]), vocab_size=450, pat_str=TEKKEN_PATTERN, visualise=None)
    controls = 20
    used = {token: rank for token, rank in ranks.items() if rank < 380}
    encoding = tiktoken.Encoding(name="small", pat_str=TEKKEN_PATTERN, mergeable_ranks=used, special_tokens={})
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode(errors="replace")}
             for token, rank in sorted(ranks.items(), key=lambda item: item[1])]
    config = {"pattern": TEKKEN_PATTERN, "num_vocab_tokens": len(ranks), "default_vocab_size": 400,
              "default_num_special_tokens": controls, "version": "v3"}

    def encode(text):
        return [token + controls for token in encoding.encode(text, disallowed_special=())]

    def decode(ids):
        return b"".join(encoding.decode_single_token_bytes(token - controls) for token in ids).decode()

    return {"name": "tekken", "file": {"config": config, "vocab": vocab}, **reference(encode, decode)}


with gzip.GzipFile(os.path.join(HERE, "subword_tokenizers.json.gz"), "w", mtime=0) as out:
    golden = {"fragments": FRAGMENTS, "model": BPE, "kinds": [json_kind(*kind) for kind in KINDS],
              "unigrams": [json_kind(*kind, base={}) for kind in UNIGRAMS], "models": [model_kind(*kind) for kind in MODELS], "tekken": tekken_kind()}
    out.write(json.dumps(golden, ensure_ascii=False, separators=(",", ":")).encode())
