# python3 signatures.py > shim/signatures.txt, with MLX itself installed (pip install 'mlx[cpu]'): the parameters of MLX's functions and
# methods as its own bindings tell them. A: takes an array, S: array or number, D: a dtype, I: whole numbers. "-> t": gives a tuple.
import re, sys, types
sys.path.pop(0)  # the shim beside this file is no MLX
import mlx.core as mx

def split(s):
    out, depth, cur = [], 0, ""
    for c in s:
        depth += (c in "[({") - (c in "])}")
        if c == "," and depth == 0: out.append(cur); cur = ""
        else: cur += c
    return [p.strip() for p in out + [cur] if p.strip()]

def line(path, sig, defaults):
    sig = re.sub(r"\\(\d+)", lambda m: repr(defaults[int(m[1])]), sig.replace("\n", " "))
    depth, at = 0, sig.index("(")
    for i in range(at, len(sig)):
        depth += (sig[i] == "(") - (sig[i] == ")")
        if depth == 0: break
    params, result = split(sig[at + 1:i]), sig[i + 1:]
    out = []
    for p in params:
        m = re.match(r"(\*{0,2}\w+)\s*(?::\s*([^=]+?))?\s*(?:=\s*(.*))?$", p)
        if not m: out.append(p); continue
        name, kind, default = m[1], m[2] or "", m[3]
        if name == "stream": continue
        if default and re.fullmatch(r"\w+", default) and hasattr(mx, default): default = repr(default)
        k = "F" if "Callable" in kind else "S" if "scalar" in kind else "A" if re.search(r"\barray\b", kind) and "list" not in kind and "Sequence" not in kind else "D" if "Dtype" in kind else "I" if re.search(r"\bint\b", kind) and "float" not in kind and "str" not in kind else ""
        out.append(name + (": '%s'" % k if k else "") + (" = " + default if default is not None else ""))
    if out and out[-1] == "*": out.pop()
    if out and out[-1] == "/": pass
    return path + "(" + ", ".join(out) + ")" + (" -> 't'" if re.search(r"->\s*tuple", result) else "")

def walk(o, pre):
    for k in sorted(dir(o)):
        v = getattr(o, k)
        if k.startswith("_") or isinstance(v, type): continue
        if isinstance(v, types.ModuleType): yield from walk(v, pre + k + ".")
        sigs = getattr(v, "__nb_signature__", None)
        if sigs: yield line(pre + k, sigs[0][0], sigs[0][2] if len(sigs[0]) > 2 else ())
print("\n".join([*walk(mx, ""), *walk(mx.array, "array.")]))
