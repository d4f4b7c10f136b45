#!/usr/bin/env bash
# gguf 0.19.0 of PyPI and the gguf-py of version 0.19.0 inside llama-cpp-python 0.3.36 are two APIs under one version.
#
# Software: gguf 0.19.0 and the source package of llama-cpp-python 0.3.36, both from PyPI.
# Expected: both say version 0.19.0, so a program that writes GGUF files with one can use the other, and `gguf>=0.19.0` says what it needs.
# Seen: the copy inside has 104 keys of attention and methods of the writer that the package lacks, of 393. GGUFWriter.add_recurrent_layers and
# Keys.Attention.RECURRENT_LAYERS are among them, which layers of hybrid models need. Code that was written against one raises
# AttributeError with the other.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv >/dev/null
venv/bin/pip install --quiet --disable-pip-version-check "gguf==0.19.0" >/dev/null
venv/bin/pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: "llama-cpp-python==0.3.36" >/dev/null
tar xzf llama_cpp_python-*.tar.gz --wildcards '*/gguf-py/*'
cat >compare.py <<'PY'
import importlib.metadata, pathlib, re, sys

inside = next(pathlib.Path(".").glob("*/vendor/llama.cpp/gguf-py"))
version = re.search(r'^version = "(.*)"', (inside / "pyproject.toml").read_text(), re.M)[1]
print("versions", importlib.metadata.version("gguf"), version)
import gguf

def names(module):
    found = {f"GGUFWriter.{name}" for name in vars(module.GGUFWriter) if name.startswith("add_")}
    return found | {f"Keys.Attention.{name}" for name in vars(module.Keys.Attention) if name.isupper()}

package = names(gguf)
for name in [name for name in sys.modules if name == "gguf" or name.startswith("gguf.")]:
    del sys.modules[name]
sys.path.insert(0, str(inside))
import gguf

copy = names(gguf)
more = copy - package
print("in the copy alone:", len(more), "of", len(copy))
for name in ("GGUFWriter.add_recurrent_layers", "Keys.Attention.RECURRENT_LAYERS"):
    print(name, name in package, name in copy)
PY
seen=$(venv/bin/python compare.py)
echo "$seen"
case "$seen" in
"versions 0.19.0 0.19.0"*"GGUFWriter.add_recurrent_layers False True"*"Keys.Attention.RECURRENT_LAYERS False True") ;;
*) exit 1 ;;
esac
