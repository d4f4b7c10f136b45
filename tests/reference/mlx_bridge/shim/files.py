"""Files: those of arrays, of functions and drawings of graphs. Python's file objects go by way of a file."""
import os, pathlib, tempfile
from .arguments import call
from .values import Callback, plain


def named(args, kwargs): return [*args, kwargs] if kwargs else list(args)


def saver(name, suffix):
    def f(file, *args, **kwargs):
        def write(path): return plain(name, path, *named(args, kwargs)) if name.startswith("savez") else call(name, path, *args, **kwargs)
        if isinstance(file, (str, pathlib.PurePath)): return write(str(file))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file" + suffix)
            write(path)
            file.write(pathlib.Path(path).read_bytes())
    return f


save, save_safetensors, save_gguf = saver("save", ".npy"), saver("save_safetensors", ".safetensors"), saver("save_gguf", ".gguf")
savez, savez_compressed = saver("savez", ".npz"), saver("savez_compressed", ".npz")


def load(file, *args, **kwargs):
    if isinstance(file, (str, pathlib.PurePath)): return call("load", str(file), *args, **kwargs)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file" + os.path.splitext(file.name)[1])
        pathlib.Path(path).write_bytes(file.read())
        loaded = call("load", path, *args, **kwargs)
        plain("eval", loaded)  # values are read when they are needed, and this file goes
        return loaded


def export_to_dot(file, *args, **kwargs):
    sink = {"write": Callback(file.write)} if hasattr(file, "write") else str(file)
    plain("export_to_dot", sink, *named(args, kwargs))


def with_keywords(fun):
    """A function as vkmx calls it: keyword arguments come as an object at the end."""
    return Callback(lambda *a: fun(*a[:-1], **a[-1]) if a and isinstance(a[-1], dict) else fun(*a))


def export_function(file_or_callback, fun, *args, shapeless=False, metadata=None, **kwargs):
    if args and isinstance(args[-1], dict): *args, last = args
    else: last = kwargs
    where = Callback(file_or_callback) if callable(file_or_callback) else str(file_or_callback)
    plain("export_function", where, with_keywords(fun), *args, {**last, "shapeless": shapeless, "metadata": metadata})


class exporter:
    def __init__(self, file, fun, *, shapeless=False, metadata=None):
        self.js = plain("exporter", str(file), with_keywords(fun), {"shapeless": shapeless, "metadata": metadata})

    def __call__(self, *args, **kwargs): self.js(*named(args, kwargs))
    def close(self): self.js.method("close")
    def __enter__(self): return self
    def __exit__(self, *_): self.close()


def import_function(file, return_metadata=False):
    found = plain("import_function", str(file), return_metadata)
    fn, metadata = found if return_metadata else (found, None)
    def imported(*args, **kwargs): return fn(*named(args, kwargs))
    return (imported, metadata) if return_metadata else imported
