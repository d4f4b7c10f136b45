"""The process that holds the module: questions go to it over pipes, and its functions may be called back in between."""
import atexit, json, os, pathlib, re, struct, subprocess, sys, threading

HERE = pathlib.Path(__file__).parent
DEVICE = os.environ.get("VKMX_BRIDGE_DEVICE", "wasm")
TRACE = os.environ.get("VKMX_BRIDGE_TRACE")


class Missing(AttributeError):
    """What vkmx does not have."""


class Unsupported(NotImplementedError):
    """What this shim cannot carry over."""


class BridgeDied(BaseException):
    """The Deno process ended."""


class InternalError(Exception):
    """A JavaScript error that is none of vkmx's own classes: a crash inside of it."""


class ArrayErrors:  # vkmx's classes, each caught as whatever MLX raises in its place
    class ShapeError(ValueError, OverflowError): pass
    class DtypeError(ValueError, TypeError): pass
    class IndexError(IndexError, ValueError): pass
    class ValueError(ValueError, TypeError): pass
    class ArrayError(ValueError): pass
    class RuntimeError(RuntimeError): pass


CODES = {"file": ArrayErrors.RuntimeError, "disposed": ArrayErrors.RuntimeError}  # of vkmx's errors that are RuntimeError in MLX
class NoDevice(ValueError): pass


class Connection:
    encode = decode = None  # values.py says how values travel

    def __init__(self):
        self.lock, self.dead, self.objects, self.ids, self.count = threading.RLock(), [], {}, {}, 0
        self.depth, self.ended = 0, []  # requests that are under way; functions that JavaScript calls no more once none is
        self.process = subprocess.Popen(["deno", "run", "-A", "--no-lock", str(HERE.parent / "bridge.ts"), os.environ["VKMX_BRIDGE_MOD"], DEVICE],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.close)

    def close(self):
        self.process.stdin.close()

    def exact(self, n):
        b = self.process.stdout.read(n)
        if len(b) < n: raise BridgeDied("the Deno process ended")
        return b

    def send(self, m, blob=b""):
        if self.dead: m["free"], self.dead = self.dead, []
        j = json.dumps(m).encode()
        try:
            self.process.stdin.write(struct.pack("<II", len(j), len(blob)) + j + blob)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise BridgeDied("the Deno process ended") from None

    def receive(self):
        a, b = struct.unpack("<II", self.exact(8))
        return json.loads(self.exact(a)), self.exact(b)

    def request(self, m, blob=b""):
        """One question and its answer; between them Python functions may be called, which may ask on."""
        with self.lock:
            if TRACE: print("->", json.dumps(m)[:300], file=sys.stderr)
            if self.depth == 0 and self.ended: m["gone"] = [self.forget(f) for f in self.take_ended()]
            self.depth += 1
            self.send(m, blob)
            while True:
                m, blob = self.receive()
                if "cb" not in m: break
                keep = []
                try:
                    answer = {"op": "return", "value": self.encode(self.objects[m["cb"]](*self.decode(m["args"])), keep)}
                except Exception as e:
                    answer = {"op": "raise", "id": self.reference(e)}
                self.send(answer)
            self.depth -= 1
            if TRACE: print("<-", json.dumps(m)[:300], file=sys.stderr)
        if "err" in m: raise self.error(m["err"])
        return (m["v"], blob) if blob else self.decode(m["v"])

    def error(self, e):
        if "py" in e:
            error = self.objects[e["py"]]
            self.ended.append(error)
            return error
        if not e.get("known"): return InternalError(f"{e.get('name')}: {e['message']} {first_frame(e.get('stack'))}")
        return (CODES.get(e.get("code")) or getattr(ArrayErrors, e["name"], ArrayErrors.ArrayError))(e["message"])

    def reference(self, o):
        """A number for a Python object that JavaScript only passes on."""
        if id(o) not in self.ids:
            self.count += 1
            self.ids[id(o)] = self.count
            self.objects[self.count] = o
        return self.ids[id(o)]

    def forget(self, o):
        n = self.ids.pop(id(o), None)
        self.objects.pop(n, None)
        return n

    def take_ended(self):
        ended, self.ended = self.ended, []
        return ended


def first_frame(stack):
    frames = [l.strip() for l in (stack or "").split("\n") if l.strip().startswith("at ")]
    return re.sub(r"file://\S*/(src/)", r"\1", frames[0]) if frames else ""


def exports():
    """What the module has: its names and the methods of its arrays, functions with the names of their parameters."""
    CONNECTION.send({"op": "exports"})
    m, _ = CONNECTION.receive()
    if "err" in m: raise RuntimeError(m["err"]["message"])
    return [m["v"]["$o"][part]["$o"] for part in ("names", "methods")]


CONNECTION = Connection()
NAMES, METHODS = exports()
CAMEL = {"var": "variance", "bool_": "bool"}
def camel(name): return CAMEL.get(name) or re.sub(r"_(\w)", lambda m: m[1].upper(), name)
