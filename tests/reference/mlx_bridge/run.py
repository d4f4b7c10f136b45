"""run.py --mlx DIR [--device wasm] [--file test_ops ...] [--test part] [--timeout 60] [--json OUT] [--verbose] [--reference]
Runs MLX's own Python tests against the module: see README.md."""
import argparse, collections, json, os, pathlib, queue, re, signal, subprocess, sys, threading, time

HERE = pathlib.Path(__file__).resolve().parent
p = argparse.ArgumentParser()
p.add_argument("--mod", default=str(HERE.parents[2] / "mod.ts"), help="path or URL of another mod.ts")
p.add_argument("--mlx", required=True, help="a checkout of ml-explore/mlx (its folder python is used), or that folder")
p.add_argument("--device", default="wasm")
p.add_argument("--file", action="append", help="test_ops; several times for several; default: all")
p.add_argument("--test", action="append", help="a part of the names of the tests to run")
p.add_argument("--timeout", type=float, default=60, help="seconds for one test")
p.add_argument("--json", help="where to write each test's status")
p.add_argument("--verbose", action="store_true")
p.add_argument("--reference", action="store_true", help="with the installed MLX in place of the shim")
a = p.parse_args()
root = pathlib.Path(a.mlx).resolve()
python = root / "python" if (root / "python").is_dir() else root
env = {**os.environ, "VKMX_BRIDGE_MOD": a.mod if re.match("[a-z]+:", a.mod) else os.path.abspath(a.mod), "VKMX_BRIDGE_DEVICE": a.device, "MLX_PYTHON": str(python),
       "PYTHONPATH": "" if a.reference else str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
env.pop("DEVICE", None)


def worker(path, *args):
    return subprocess.Popen([sys.executable, str(HERE / "worker.py"), str(path), *args], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            start_new_session=True)


def end(proc):
    """Ends a worker that this program started and the Deno process in its group."""
    try: os.killpg(proc.pid, signal.SIGKILL)
    except ProcessLookupError: pass
    proc.wait()


def lines(proc):
    q = queue.Queue()
    def read():
        for line in proc.stdout: q.put(json.loads(line))
        q.put(None)
    threading.Thread(target=read, daemon=True).start()
    return q


def run(path):
    """Status, reason and seconds of each test of a file."""
    proc = worker(path, "--list")
    try: m = json.loads(proc.communicate(timeout=120)[0].splitlines()[-1])
    except Exception as e: m = {"load": repr(e)}
    end(proc)
    if "load" in m: return {"(load)": ("error", ["load", m["load"], ""], 0)}
    todo, done = [t for t in m["tests"] if not a.test or any(s in t for s in a.test)], {}
    while len(done) < len(todo):
        proc, current, since = worker(path), None, time.time()
        proc.stdin.write(json.dumps([t for t in todo if t not in done]))
        proc.stdin.close()
        q, before = lines(proc), len(done)
        while True:
            try: m = q.get(timeout=a.timeout if current else 60)
            except queue.Empty: m = {"late": True}
            took = time.time() - since
            if m is None or "late" in m or "load" in m:
                if current: done[current] = ("timeout", ["timeout", f"more than {a.timeout:g} s", ""], took) if m else ("crash", ["crash", "the process ended", ""], took)
                break
            if "start" in m: current, since = m["start"], time.time()
            if "end" in m:
                done[m["end"]] = (m["status"], m["why"], took)
                current = None
        end(proc)
        if len(done) == before:
            done.update({t: ("error", ["load", "the worker does not start", ""], 0) for t in todo if t not in done})
    return done


totals, everything = collections.Counter(), {}
files = sorted((python / "tests").glob("test_*.py"))
print(f"{'file':22} tests  pass  fail error skip timeout crash  seconds")
for f in files:
    if a.file and f.stem not in a.file: continue
    began, done = time.time(), run(f)
    c = collections.Counter(s for s, _, _ in done.values())
    totals += c
    totals["tests"] += len(done)
    everything[f.stem] = {t: {"status": s, "why": w, "seconds": round(n, 2)} for t, (s, w, n) in done.items()}
    print(f"{f.stem:22} {len(done):5} {c['pass']:5} {c['fail']:5} {c['error']:5} {c['skip']:4} {c['timeout']:7} {c['crash']:5} {time.time() - began:8.0f}", flush=True)
    if a.verbose:
        for t, (s, w, n) in done.items():
            if s not in ("pass", "skip"): print(f"   {s} {t}: {w[0]}: {w[1]}  [{w[2]}]")
    if a.json: json.dump(everything, open(a.json, "w"), indent=1)
print(f"{'total':22} {totals['tests']:5} {totals['pass']:5} {totals['fail']:5} {totals['error']:5} {totals['skip']:4} {totals['timeout']:7} {totals['crash']:5}")
