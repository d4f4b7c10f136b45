"""Trees of lists, dicts and modules around arrays that are traced."""
from .arrays import array


def like(template, v):
    """A tree from JavaScript with the tuples of the tree that went there, and its own leaves where they are no arrays."""
    if isinstance(template, (list, tuple)) and isinstance(v, list) and len(template) == len(v):
        parts = [like(t, x) for t, x in zip(template, v)]
        return type(template)(*parts) if hasattr(template, "_fields") else parts if type(template) is list else type(template)(parts)
    if isinstance(template, dict) and isinstance(v, dict): return {k: like(template.get(k), x) for k, x in v.items()}
    if isinstance(v, (list, dict, array)) or template is None or isinstance(template, (array, list, tuple, dict)): return v
    return template


def fill(t, v):
    """Puts a tree's traced arrays into the very lists and dicts that were the arguments, as MLX does; modules are dicts too."""
    if isinstance(t, array): return v if isinstance(v, array) else t
    if isinstance(t, list) and isinstance(v, list) and len(t) == len(v):
        t[:] = map(fill, list(t), v)
    elif isinstance(t, tuple) and isinstance(v, list) and len(t) == len(v):
        parts = list(map(fill, t, v))
        return type(t)(*parts) if hasattr(t, "_fields") else type(t)(parts)
    elif isinstance(t, dict) and isinstance(v, dict):
        for k in v.keys() & t.keys(): dict.__setitem__(t, k, fill(t[k], v[k]))
    return t


def leaves(t):
    """What a tree holds besides lists and dicts."""
    if isinstance(t, dict): t = t.values()
    elif not isinstance(t, (list, tuple)): return [t]
    return [leaf for x in t for leaf in leaves(x)]


def pairs(t, v):
    """The traced arrays of a tree with those in whose place they stand."""
    if isinstance(t, array) and isinstance(v, array): yield v, t
    elif isinstance(t, (list, tuple)) and isinstance(v, list):
        for x, y in zip(t, v): yield from pairs(x, y)
    elif isinstance(t, dict) and isinstance(v, dict):
        for k in v: yield from pairs(t[k], v[k])


def restore(t, back):
    if isinstance(t, array): return back.get(id(t), t)
    if isinstance(t, list): t[:] = [restore(x, back) for x in t]
    elif isinstance(t, tuple): [restore(x, back) for x in t]
    elif isinstance(t, dict):
        for k in list(t): dict.__setitem__(t, k, restore(t[k], back))
    return t


def filled(t, v, run):
    """run(arguments) with traced arrays in place; then the originals stand there again."""
    known = list(pairs(t, v))
    args = fill(t, v)
    try: return run(args)
    finally: restore(t, {id(x): y for x, y in known})


def fits(t, v):
    if isinstance(t, (list, tuple)): return isinstance(v, list) and len(t) == len(v) and all(map(fits, t, v))
    if isinstance(t, dict): return isinstance(v, dict) and set(t) == set(v) and all(fits(t[k], v[k]) for k in t)
    return not isinstance(v, (list, dict))


def skeleton(v):
    if isinstance(v, (list, tuple)): return type(v)(map(skeleton, v)) if not hasattr(v, "_fields") else v
    if isinstance(v, dict): return {k: skeleton(x) for k, x in v.items()}
    return None


class Traced:
    """A Python function as JavaScript calls it: takes a list and an object of arguments, remembers the forms of its results."""
    def __init__(self, fn): self.fn, self.forms = fn, []

    def __call__(self, *args):
        out = self.fn(*args)
        form = skeleton(out)
        if form not in self.forms: self.forms.insert(0, form)
        return out

    def result(self, v): return next((like(f, v) for f in self.forms if fits(f, v)), v)
