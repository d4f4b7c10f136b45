"""Ids of llama.cpp's vocabularies with BPE of bytes or of pieces, as Hugging Face's tokenizers give them.

    python3 tests/reference/gguf/vocabularies.py VENDOR/llama.cpp/models

Writes golden/tokenizers/gguf_vocabularies.json.gz. The folder is part of the source package of llama-cpp-python; beside each vocabulary it
has texts (.inp) and their ids (.out). Of a vocabulary, only tokens and merges are kept that the texts can meet: those whose bytes occur in
one. Ids are numbered anew in their order.

For development: needs `pip install gguf`.
"""

import gzip
import json
import sys
from pathlib import Path

import gguf

NAMES = "command-r deepseek-coder gemma-4 gpt-2 llama-bpe llama-spm mpt phi-3 qwen2 qwen35 refact starcoder".split()
KEPT = ("model", "pre", "add_bos_token", "add_eos_token", "add_space_prefix", "bos_token_id", "eos_token_id", "unknown_token_id")


def byte_alphabet():
    """GPT-2's character of each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {**{byte: chr(byte) for byte in kept}, **{byte: chr(256 + i) for i, byte in enumerate(rest)}}


def vocabulary(path):
    fields = gguf.GGUFReader(path).fields
    value = lambda name: fields[f"tokenizer.ggml.{name}"].contents() if f"tokenizer.ggml.{name}" in fields else None
    tokens, kinds, scores = value("tokens"), value("token_type"), value("scores")
    texts = Path(f"{path}.inp").read_text().split("\n__ggml_vocab_test__\n")
    ids = [[int(i) for i in line.split()] for line in Path(f"{path}.out").read_text().split("\n")][: len(texts)]
    alphabet = byte_alphabet()
    by_pieces = value("model") == "llama"
    spaced = value("model") == "gemma4"
    spelled = ["▁" * by_pieces + text.replace(" ", "▁") if by_pieces or spaced else "".join(alphabet[b] for b in text.encode()) for text in texts]
    longest = max(len(token) for token in tokens)
    met = {text[i:j] for text in spelled for i in range(len(text)) for j in range(i + 1, min(len(text), i + longest) + 1)}
    named = {value(key) for key in KEPT if key.endswith("_id")} - {None}
    plain = set(alphabet.values())
    occurs = lambda token, kind: token in met or token in plain if kind == 1 else kind == 6 or any(token in text for text in texts)
    keep = [i for i, (token, kind) in enumerate(zip(tokens, kinds)) if i in named or occurs(token, kind)]
    number = {old: new for new, old in enumerate(keep)}
    merges = [merge for merge in value("merges") or [] if merge.replace(" ", "", 1) in met]
    metadata = {key: number[value(key)] if key.endswith("_id") else value(key) for key in KEPT if value(key) is not None}
    return {
        "metadata": metadata,
        "tokens": [tokens[i] for i in keep],
        "kinds": [kinds[i] for i in keep],
        **({"scores": [scores[i] for i in keep]} if by_pieces else {}),
        "merges": merges,
        "texts": texts,
        "ids": [[number[i] for i in line] for line in ids],
    }


if __name__ == "__main__":
    cases = {name: vocabulary(Path(sys.argv[1]) / f"ggml-vocab-{name}.gguf") for name in NAMES}
    out = Path(__file__).parent.parent.parent / "golden/tokenizers/gguf_vocabularies.json.gz"
    text = json.dumps(cases, separators=(",", ":"), ensure_ascii=False).encode()
    out.write_bytes(gzip.compress(text, mtime=0))
