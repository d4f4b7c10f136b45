"""Writes tool_calls.json: calls of functions as models write them, and how mlx-lm reads them.

    pip install mlx-lm==0.32.2
    python tests/golden/templates/tool_calls.py
"""

import json
import os

from mlx_lm.tool_parsers import function_gemma, gemma4, json_tools, mistral, pythonic

HERE = os.path.dirname(os.path.abspath(__file__))
Q = '<|"|>'
E = "<escape>"

# Format, module, and texts between its marks.
CASES = [
    ("hermes", json_tools, [
        '{"name": "f", "arguments": {"a": 1, "b": [true, null], "c": {"d": "e}"}}}',
        '\n{"name": "f", "arguments": {}}\n',
        '{"name": "f", "arguments": {"id": 2512292042121000001}}',
        "no JSON",
    ]),
    ("mistral", mistral, [
        '[{"name": "f", "arguments": {"a": "]"}, "id": "123456789"}]',
        ' [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {"b": [1, 2.5]}}]',
        '[{"name": "f", "arguments": "{\\"a\\": 1}"}]',
        'f[ARGS]{"a": "x[ARGS]{}", "n": -9007199254740993}',
        'get-it [ARGS] {"a": {"b": []}}',
        '[{"name": 1, "arguments": {}}]',
        '[{"name": "f", "arguments": "no JSON"}]',
        "[1, 2]",
    ]),
    ("gemma4", gemma4, [
        f"call:f{{a:{Q}text, with }} and : in it{Q},n:2,b:true,none:null}}",
        f"call:f-g{{o:{{x:{Q}y{Q},l:[1,{Q}two{Q},[]]}},e:{{}}}}",
        f"call:f{{a:{Q}line\nbreak \"quoted\" \\ {Q}}}",
        "call:f{}",
        f"call:f{{n:-2.5e3,id:2512292042121000001}}call:g{{t:{Q}{Q}}}",
        'call:f{"city": "Paris"}',
        "weather",
    ]),
    ("functionGemma", function_gemma, [
        f"call:f{{city:{E}Paris, France{E},days:3}}",
        f"call:f{{a:{E}x:y{E},b:true,c:bare words}}",
        "call:f{}",
        "nothing",
    ]),
    ("lfm2", pythonic, [
        '[f(a="x", n=-2, l=[1, True, None])]',
        "[f(a='it\\'s'), g(), h.i(o={'k': 'v'})]",
        '[f(o={"a": true, "b": null})]',
        "[f(n=2512292042121000001)]",
        "nothing",
    ]),
]


def calls(module, text):
    try:
        found = module.parse_tool_call(text, [])
    except Exception:
        return None
    return found if isinstance(found, list) else [found]


with open(os.path.join(HERE, "tool_calls.json"), "w") as file:
    json.dump([[name, text, calls(module, text)] for name, module, texts in CASES for text in texts], file, indent=1)
    file.write("\n")
