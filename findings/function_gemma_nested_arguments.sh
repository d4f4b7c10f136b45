#!/usr/bin/env bash
# mlx-lm's parser of FunctionGemma's calls ends the arguments at the first `}`: nested objects and texts with a brace are not read.
#
# Software: mlx-lm 0.32.2 from PyPI (mlx_lm/tool_parsers/function_gemma.py), with regex 2026.5.9 or later. No model is needed.
# Expected: the family's template writes objects in objects, so `where:{city:<escape>Oslo<escape>}` comes back as an object with a city.
# Seen: the argument is the text "{city:<escape>Oslo<escape>", and arguments after it are lost. A text that holds `}` raises
# "substring not found". Of two calls in a block only the first one is returned. Flat arguments are right.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv >/dev/null
venv/bin/pip install --quiet --disable-pip-version-check --no-deps mlx-lm==0.32.2 >/dev/null
venv/bin/pip install --quiet --disable-pip-version-check regex >/dev/null
cat >calls.py <<'PY'
import glob, importlib.util, json
path = glob.glob("venv/lib/python3*/site-packages/mlx_lm/tool_parsers/function_gemma.py")[0]
spec = importlib.util.spec_from_file_location("function_gemma", path) # by its file: the package itself would import mlx
parser = importlib.util.module_from_spec(spec)
spec.loader.exec_module(parser)
def read(text):
    try:
        return json.dumps(parser.parse_tool_call(text)["arguments"], sort_keys=True)
    except ValueError as error:
        return str(error)
print(read("call:f{city:<escape>Oslo<escape>,days:3}"))
print(read("call:f{where:{city:<escape>Oslo<escape>},days:3}"))
print(read("call:f{code:<escape>{a}<escape>}"))
PY
seen=$(venv/bin/python calls.py)
echo "mlx-lm 0.32.2, flat, nested, a text with braces:"
echo "$seen"
expected='{"city": "Oslo", "days": 3}
{"where": "{city:<escape>Oslo<escape>"}
substring not found'
[ "$seen" = "$expected" ] || { echo "this has changed"; exit 1; }
