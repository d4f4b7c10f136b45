"""Writes literals.json: texts as values of Python by ast.literal_eval and json.loads, null where they refuse; arguments of calls in the form of
Qwen3-Coder by mlx-lm's parser.

python3 tests/golden/templates/literals.py     (PyPI: mlx-lm 0.32.2)

A value is written with its kind: ["i", "5"] is a whole number (also 5.0, which JavaScript does not tell from 5), ["f", 0.5] another one.
"""

import ast
import json
import os
import random

from mlx_lm.tool_parsers.qwen3_coder import parse_tool_call

HERE = os.path.dirname(__file__)
random.seed(3)


def tagged(value):
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) or isinstance(value, float) and value.is_integer():
        return ["i", str(int(value))]
    if isinstance(value, float):
        return ["f", value]
    if isinstance(value, str):
        return ["s", value]
    if isinstance(value, (list, tuple)):
        return ["l", *map(tagged, value)]
    if isinstance(value, dict):
        return ["d", *([key if isinstance(key, str) else json.dumps(key), tagged(item)] for key, item in value.items())]
    raise ValueError(value)


def attempt(read, text):
    try:
        return {"value": tagged(read(text))}
    except Exception:
        return None


def drawn(depth=0):
    kinds = [None, True, False, 0, -7, 2**53, -(2**64), 0.5, -1e300, 1e-7, "", "a'b", 'a"b', "\n\t\\é\u200b😀", "it's \"x\""]
    kind = random.random()
    if depth < 3 and kind < 0.25:
        return [drawn(depth + 1) for _ in range(random.choice([0, 1, 2, 3]))]
    if depth < 3 and kind < 0.35:
        return tuple(drawn(depth + 1) for _ in range(random.choice([0, 1, 2])))
    if depth < 3 and kind < 0.6:
        return {random.choice(["a", "b c", "é", "d'", 1, None, True, 2.5]): drawn(depth + 1) for _ in range(random.choice([0, 1, 3]))}
    return random.choice(kinds)


PYTHON = [repr(drawn()) for _ in range(150)] + [
    "True", "False", "None", "true", "null", "{'a': True}", '{"a": None, }', "[1, 2,]", "(1,)", "(1)", "()", "[,]", "{,}", "[1 2]", 
    "{1: 2", "[", "]", "1 2", "'a' b", "a", "Truex", "1x", "012", "00", "0", "-0", "+5", "1.", ".5", "1e5", "1.e-2",
    "1e", ".", "1.2.3", "2512292042121000001", "-9007199254740993", "'\\x41\\u00e9\\U0001f600\\101\\n\\q'", "'\\x4'", "'\\u12'",
    "'a\nb'", "'a\\\nb'", " 5 ", "[ 1 ,\n 2 ]", "'", "'a", "\"a'", "nan", "inf", "lambda: 1", "__import__('os')",
    "{[]: 1}", "{'a'}", "{'a': 1, 'a': 2}", "1+2", "", "{'a': 1 'b': 2}", "('a', )", "((1), [2, (3,)])",
]
JSON = [json.dumps(drawn()) for _ in range(60)] + [
    "2512292042121000001", "[9007199254740991, 9007199254740992, 9007199254740993, -9007199254740993]", '{"id": 12345678901234567890123}',
    "1e25", "1.0", "123456789012345678.0", "-0", "0.1", "True", "'a'", "[1,]", "01", '{"__proto__": 1}', '"\\ud83d\\ude00"',
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"}, "o": {"type": "object"}, "l": {"type": "array"},
    "s": {"type": "string"}, "any": {"description": "no type"}}}}}]
CALLS = [
    {"i": "12", "n": "2.5", "b": "True", "s": "True"}, {"i": "-3", "n": "7", "b": "False", "s": "12"}, {"b": "true", "o": "{'a': True}"},
    {"o": "{\"a\": [1, null]}", "l": "['x', None, 2]"}, {"l": "[1, 2]", "s": "['x']"}, {"i": "3.0", "s": "a\nb"}, {"o": "None"},
    {"any": "[1]"}, {"any": "{\"a\": 1}"}, {"any": "5"}, {"any": "hello"}, {"other": "[1]"}, {"other": "True"}, {"s": " x "}, {"l": "(1, 2)"},
    {"o": "no object"}, {"i": "9007199254740991"},
]


def block(values):
    parameters = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in values.items())
    return f"<function=f>\n{parameters}</function>"


with open(os.path.join(HERE, "literals.json"), "w") as file:
    json.dump({
        "python": [[text, attempt(ast.literal_eval, text)] for text in PYTHON],
        "json": [[text, attempt(json.loads, text)] for text in JSON],
        "tools": TOOLS,
        "calls": [[block(values), tagged(parse_tool_call(block(values), TOOLS)["arguments"])] for values in CALLS],
    }, file, separators=(",", ":"))
