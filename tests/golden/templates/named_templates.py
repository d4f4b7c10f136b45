"""Writes named_templates.json: which of a model's chat templates transformers takes, with and without tools, or null where it refuses.

python3 tests/golden/templates/named_templates.py     (PyPI: transformers 5.15.1)
"""

import json
import os
import shutil
import tempfile

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(__file__)
MODEL = os.path.join(HERE, "../../../examples/models/tiny-qwen3")
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}]


def template(name):
    return name + ": {{ messages[0].content }}{% if tools %} with {{ tools[0].function.name }}{% endif %}"


def named(*names):
    return [{"name": name, "template": template("config " + name)} for name in names]


ONE = template("config")
FILE = "chat_template.jinja"
TOOL = "additional_chat_templates/tool_use.jinja"
OTHER = "additional_chat_templates/rag.jinja"
CASES = [
    (ONE, []), (named("default", "tool_use"), []), (named("tool_use", "rag", "default"), []), (named("tool_use"), []),
    (named("default", "rag"), []), (named("rag"), []), (None, [FILE, TOOL]), (ONE, [FILE, TOOL, OTHER]), (None, [TOOL]),
    (named("default", "tool_use"), [FILE]), (None, [FILE, OTHER]),
]


def row(in_config, files):
    config = json.load(open(os.path.join(MODEL, "tokenizer_config.json")))
    config["chat_template"] = in_config
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "tokenizer.json"):
            shutil.copy(os.path.join(MODEL, name), folder)
        json.dump(config, open(os.path.join(folder, "tokenizer_config.json"), "w"))
        os.mkdir(os.path.join(folder, "additional_chat_templates"))
        for name in files:
            open(os.path.join(folder, name), "w").write(template(name))
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)

        def text(tools):
            try:
                return tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tools=tools, tokenize=False)
            except ValueError:
                return None

        return {"config": in_config, "files": {name: template(name) for name in files}, "plain": text(None), "tools": text(TOOLS)}


with open(os.path.join(HERE, "named_templates.json"), "w") as file:
    json.dump([row(*case) for case in CASES], file, indent=1)
    file.write("\n")
