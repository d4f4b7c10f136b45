#!/usr/bin/env bash
# tokenizers 0.23 names a normalized added token by its normal form when it turns ids into text, and by its own content in the vocabulary.
#
# Software: tokenizers 0.23.3 from PyPI.
# Expected: AddedToken("Hello", normalized=True) beside a normalizer to lower case is found in "hello" too, and its id stands for "Hello"
# everywhere, so token_to_id(id_to_token(id)) gives the id.
# Seen: get_vocab() has "Hello", but id_to_token(), the tokens of an encoding and decode() give "hello", which token_to_id() does not know.
# A token with normalized=False keeps its content.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv >/dev/null
venv/bin/pip install --quiet --disable-pip-version-check "tokenizers==0.23.3" >/dev/null
cat >names.py <<'PY'
from tokenizers import AddedToken, Tokenizer, models, normalizers

tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.Lowercase()
tokenizer.add_tokens([AddedToken("Hello", normalized=True), AddedToken("World", normalized=False)])
for content in ("Hello", "World"):
    id = tokenizer.get_vocab()[content]
    name = tokenizer.id_to_token(id)
    print(content, name, tokenizer.encode(content).tokens, tokenizer.decode([id]), tokenizer.token_to_id(name) == id)
PY
seen=$(venv/bin/python names.py)
echo "$seen"
[ "$seen" = "Hello hello ['hello'] hello False
World World ['World'] World True" ]
