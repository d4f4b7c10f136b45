"""Writes config_tokens.json: ids by transformers of texts with tokens that only tokenizer_config.json names, and by tokenizers of added tokens
with one normal form. The tokenizer is that of the embedded model, with fields changed.

python3 tests/golden/tokenizers/config_tokens.py     (PyPI: transformers 5.15.1, tokenizers 0.22.2)
"""

import json
import os
import shutil
import tempfile

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(__file__)
MODEL = os.path.join(HERE, "../../../examples/models/tiny-qwen3")
BASE = json.load(open(os.path.join(MODEL, "tokenizer.json")))
CONFIG = json.load(open(os.path.join(MODEL, "tokenizer_config.json")))
ADDED = BASE["added_tokens"]


def token(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **flags}


def without(*contents):
    """A tokenizer.json that does not add some tokens, which its vocabulary has then."""
    left = [t for t in ADDED if t["content"] not in contents]
    vocab = {**BASE["model"]["vocab"], **{t["content"]: t["id"] for t in ADDED if t["content"] in contents}}
    return {"added_tokens": left, "model": {**BASE["model"], "vocab": vocab}}


def same(first, second, **flags):
    """A tokenizer.json that adds two tokens whose normal form is one."""
    return {"normalizer": {"type": "NFC"}, "added_tokens": [*ADDED,
        {"id": 4096, **token(first, normalized=True, **flags)}, {"id": 4097, **token(second, normalized=True, **flags)}]}


NAMES = [t["content"] for t in ADDED]
TEXTS = ["Hi<|eot|>there", "a <tool> b<tool>", "a <end_of_turn>\n", "".join(NAMES), "<|im_end|>x<pad>", "x<|a|><|b|> <|c|>", "x\u015fy s\u0327", "<think> x <|im_end|> y"]
CASES = {
    "nothing": ({}, {}),
    "eos_token, a text": ({}, {"eos_token": "<|eot|>"}),
    "eos_token, an object that strips": ({}, {"eos_token": {"__type": "AddedToken", **token("<end_of_turn>", lstrip=True, rstrip=True)}}),
    "eos_token of the vocabulary": (without(*NAMES), {"eos_token": NAMES[-1]}),
    "bos_token, eos_token and pad_token": ({}, {"bos_token": "<|c|>", "eos_token": "<|a|>", "pad_token": "<|b|>"}),
    "additional_special_tokens": ({}, {"additional_special_tokens": ["<|b|>", "<tool>"]}),
    "extra_special_tokens, a list": ({}, {"extra_special_tokens": ["<|b|>", "<tool>"]}),
    "extra_special_tokens, an object": ({}, {"extra_special_tokens": {"image_token": "<tool>", "eot_token": "<|eot|>"}}),
    "a token of a name of its own": ({}, {"eot_token": "<|eot|>", "eos_token": "<|a|>"}),
    "added_tokens_decoder": ({}, {"added_tokens_decoder": {
        "4097": token("<|b|>"), "4096": token("<tool>", special=False, normalized=True), "4100": token("<|a|>")}}),
    "added_tokens_decoder of the vocabulary": (without(*NAMES), {"added_tokens_decoder": {
        str(t["id"]): token(t["content"], special=t["special"]) for t in ADDED}}),
    "added_tokens_decoder with other flags": ({}, {"added_tokens_decoder": {
        str(t["id"]): token(t["content"], special=not t["special"], rstrip=True) for t in ADDED}}),
    "all of them": ({}, {"added_tokens_decoder": {"4096": token("<|eot|>"), "4097": token("<tool>", special=False)},
        "eos_token": "<|eot|>", "pad_token": "<|a|>", "additional_special_tokens": ["<|b|>", "<tool>"]}),
    "one normal form": (same("s\u0327", "\u015f"), {}),
    "one normal form, the other way round": (same("\u015f", "s\u0327"), {}),
    "one normal form, ordinary": (same("\u015f", "s\u0327", special=False), {}),
    "one normal form, the second special": ({**same("\u015f", "s\u0327"), "added_tokens": [*ADDED,
        {"id": 4096, **token("\u015f", normalized=True, special=False)}, {"id": 4097, **token("s\u0327", normalized=True)}]}, {}),
}


def row(name, change, config):
    config = {**{k: v for k, v in CONFIG.items() if k not in ("eos_token", "bos_token", "additional_special_tokens", "pad_token", "added_tokens_decoder", "chat_template")}, **config}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(MODEL, "config.json"), folder)
        json.dump({**BASE, **change}, open(os.path.join(folder, "tokenizer.json"), "w"))
        json.dump(config, open(os.path.join(folder, "tokenizer_config.json"), "w"))
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    texts = TEXTS
    ids = [tokenizer.encode(t, add_special_tokens=False) for t in texts]
    plain = [tokenizer.decode(i, skip_special_tokens=True) for i in ids]
    return {"name": name, "change": change if "model" not in change else {"added_tokens": change["added_tokens"], "vocab": True},
            "config": config, "texts": texts, "ids": ids, "plain": plain, "eos": tokenizer.eos_token_id, "size": len(tokenizer)}


with open(os.path.join(HERE, "config_tokens.json"), "w") as file:
    json.dump([row(name, *case) for name, case in CASES.items()], file, ensure_ascii=False, separators=(",", ":"))
