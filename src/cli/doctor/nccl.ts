/**
 * What NCCL takes for the exchanges of exchanges.ts on the same GPUs, by torch of a Python that is there.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";

/** How long a small exchange takes one way, and how fast a large one is. */
export interface Speed {
  readonly microseconds: number;
  readonly gigabytesPerSecond: number;
}

/** The speeds of pairs and of a sum, or why there are none. */
export interface NcclSpeeds {
  readonly pairs?: readonly Speed[];
  readonly sum?: Speed;
  readonly reason?: string;
}

/** Milliseconds after which NCCL is given up. */
const TIMEOUT_MS = 60_000;

/** Each process of the measurement; its arguments are its rank, how many there are, and a free port. The first one prints JSON. */
const PROGRAM = `
import json, sys, time
rank, size, port = map(int, sys.argv[1:])
def end(reason):
    if rank == 0: print(json.dumps({"reason": reason}))
    sys.exit(0)
try:
    import torch, torch.distributed as dist
except ImportError:
    end("no torch in this Python (VKMX_PYTHON names another)")
if not torch.cuda.is_available() or torch.cuda.device_count() < size:
    end(f"torch finds {torch.cuda.device_count()} GPUs for {size} processes")
torch.cuda.set_device(rank)
dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
small, summed = torch.zeros(1, device="cuda"), torch.zeros(2048, device="cuda")
large = torch.zeros(4 * 2**20, device="cuda")
def timed(count, call):
    times = []
    for i in range(count + 1):
        torch.cuda.synchronize(); began = time.perf_counter()
        call(); torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[count // 2]
def there_and_back(x, a, b):
    if rank == a: dist.send(x, b); dist.recv(x, b)
    else: dist.recv(x, a); dist.send(x, a)
def speed(latency, seconds):
    return {"microseconds": latency * 1e6, "gigabytesPerSecond": large.nbytes / seconds / 1e9}
pairs = []
for a in range(size):
    for b in range(a + 1, size):
        dist.barrier()
        both = torch.zeros(2, dtype=torch.float64, device="cuda")
        if rank in (a, b):
            times = [timed(n, lambda: there_and_back(x, a, b)) / 2 for x, n in ((small, 100), (large, 3))]
            if rank == a: both = torch.tensor(times, dtype=torch.float64, device="cuda")
        dist.all_reduce(both)
        pairs.append(speed(*both.tolist()))
sums = [timed(n, lambda: dist.all_reduce(x)) for x, n in ((summed, 100), (large, 3))]
if rank == 0: print(json.dumps({"pairs": pairs, "sum": speed(*sums)}))
dist.destroy_process_group()
`;

/** Measures NCCL between so many GPUs of this machine. */
export async function measureNccl(size: number): Promise<NcclSpeeds> {
  const python = environment("VKMX_PYTHON") ?? "python3";
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const outputs = await Promise.all(Array.from({ length: size }, (_, rank) =>
      new Deno.Command(python, {
        args: ["-c", PROGRAM, `${rank}`, `${size}`, `${port}`],
        stdin: "null",
        stderr: "piped",
        signal,
      }).output()));
    const failed = outputs.find(({ success }) => !success);
    if (signal.aborted) return { reason: `it took longer than ${TIMEOUT_MS / 1000} s` };
    const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes).trim();
    if (failed) return { reason: `torch failed: ${text(failed.stderr).split("\n").at(-1)}` };
    return JSON.parse(text(outputs[0].stdout).split("\n").at(-1)!);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return { reason: `there is no ${python}` };
    throw error;
  }
}
