"""Writes llama_tokenizer.json: a small tokenizer of the form of Llama 3's, and ids of texts and conversations by Hugging Face's.

python3 tests/golden/tokenizers/llama_tokenizer.py     (PyPI: tokenizers, transformers; the file was made with 0.23.3 and 5.23.0)

Trained on these few texts, so that words of theirs are single tokens and all else is bytes.
"""

import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(__file__)
TEXTS = json.load(open(os.path.join(HERE, "tokenizer_ids.json")))["texts"]
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"]
# What the template of Llama 3 does, in words of our own.
TEMPLATE = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' ~ message.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
CONVERSATIONS = [
    [{"role": "user", "content": "Hello, world! 12345"}],
    [
        {"role": "system", "content": "  You're terse.\n"},
        {"role": "user", "content": "don't\n\nthe quick brown fox"},
        {"role": "assistant", "content": "日本語 ok"},
        {"role": "user", "content": "And 3.14159?"},
    ],
]

tokenizer = Tokenizer(models.BPE(ignore_merges=True))
level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"), level])
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
tokenizer.train_from_iterator(TEXTS, trainer)
tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", special=True) for name in SPECIAL])
bos = "<|begin_of_text|>"
template = processors.TemplateProcessing(
    single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
)
tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])

config = {"bos_token": bos, "eos_token": "<|eot_id|>", "chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, bos_token=bos, eos_token="<|eot_id|>", chat_template=TEMPLATE
)
with open(os.path.join(HERE, "llama_tokenizer.json"), "w") as file:
    golden = {
        "tokenizer": json.loads(tokenizer.to_str()),
        "config": config,
        "texts": TEXTS,
        "ids": [tokenizer.encode(text).ids for text in TEXTS],
        "conversations": CONVERSATIONS,
        "prompts": [
            fast.apply_chat_template(messages, add_generation_prompt=True, return_dict=False) for messages in CONVERSATIONS
        ],
    }
    json.dump(golden, file, ensure_ascii=False, separators=(",", ":"))
