"""worker.py FILE < names: runs tests of one file of MLX's, one JSON line before and one after each. Started by run.py."""
import json, os, sys, traceback, unittest

path = sys.argv[1]
sys.path[0] = os.path.dirname(path)
out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def cause(err):
    kind, e, tb = err
    frames = [f for f in traceback.extract_tb(tb) if os.path.dirname(f.filename) == os.path.dirname(path) and "mlx_tests" not in f.filename]
    chain, seen = e, e
    text = (str(e).strip().split("\n") or [""])
    line = next((l for l in text if l.strip()), "")
    if kind is AssertionError and line.startswith("Not equal to tolerance"): line = " ".join(l.strip() for l in text[:6] if l.strip())
    where = f"{os.path.basename(path)}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
    return kind.__name__, line[:300], where[:200]


def tests(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite): yield from tests(t)
        else: yield t


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.status, self.why = "pass", None

    def set(self, status, why):
        if self.status in ("pass", "skip"): self.status, self.why = status, why

    def addError(self, test, err): self.set("error", cause(err))
    def addFailure(self, test, err): self.set("fail", cause(err))
    def addSubTest(self, test, sub, err):
        if err: self.set("fail" if issubclass(err[0], AssertionError) else "error", cause(err))
    def addSkip(self, test, reason): self.set("skip", ("skip", reason, ""))


def say(**m): out.write(json.dumps(m) + "\n")


try:
    found = list(tests(unittest.defaultTestLoader.loadTestsFromName(os.path.basename(path)[:-3])))
except BaseException as e:
    say(load=f"{type(e).__name__}: {e}"[:300])
    os._exit(1)
if len(sys.argv) > 2 and sys.argv[2] == "--list":
    say(tests=[t.id().split(".", 1)[-1] for t in found])
    os._exit(0)
todo = set(json.load(sys.stdin))
for t in found:
    name = t.id().split(".", 1)[-1]
    if name not in todo: continue
    say(start=name)
    r = Result()
    try:
        unittest.TestSuite([t]).run(r)
        say(end=name, status=r.status, why=r.why)
    except BaseException as e:  # the Deno process ended
        say(end=name, status="crash", why=[type(e).__name__, str(e)[:300], cause(sys.exc_info())[2]])
        os._exit(1)
os._exit(0)
