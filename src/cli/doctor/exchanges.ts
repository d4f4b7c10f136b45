/**
 * Exchanges between the processes of `vkmx launch`: the latency and the bandwidth of each pair, and those of a sum over all.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { type Check, ok } from "./check.ts";
import { measureNccl, type Speed } from "./nccl.ts";

/** Bytes of the large exchange, and how often each is repeated after a first time. */
const [LARGE_BYTES, SMALL_TIMES, LARGE_TIMES] = [16 * 2 ** 20, 100, 3];
/** Bytes of a small sum: the hidden state of a token. */
const SUMMED_BYTES = 8192;
/** Bytes of the name of a process's place. */
const NAME_BYTES = 96;

/** The speed of each pair, in the order of {@link pairsOf}, and of a sum. */
interface Measured {
  readonly pairs: readonly Speed[];
  readonly sum: Speed;
}

/** The pairs of processes, the lower rank first. */
export function pairsOf(size: number): (readonly [number, number])[] {
  return Array.from({ length: size }, (_, a) => Array.from({ length: size - a - 1 }, (_, i) => [a, a + 1 + i] as const))
    .flat();
}

/**
 * Measures what processes exchange, on their default devices and back, with what NCCL does on the same GPUs where torch is there. All processes
 * call it; the findings are those of the first one.
 */
export async function checkExchanges(group: mx.distributed.Group): Promise<Check[]> {
  const places = placesOf(group);
  const measured = measure(group);
  if (group.rank() !== 0) return [];
  const nccl = await measureNccl(group.size());
  const pairs = pairsOf(group.size());
  const beside = (speed: Speed | undefined): string => speed ? `; NCCL ${describe(speed)}` : "";
  const checks = pairs.map(([a, b], i) =>
    ok(
      `ranks ${a} and ${b}`,
      `${describe(measured.pairs[i])}${beside(nccl.pairs?.[i])} (${places[a]}, ${places[b]})`,
    )
  );
  checks.push(ok(`sum of ${group.size()}`, `${describe(measured.sum)}${beside(nccl.sum)}`));
  if (nccl.reason !== undefined) checks.push(ok("NCCL", `not measured: ${nccl.reason}`));
  return checks;
}

function describe({ microseconds, gigabytesPerSecond: rate }: Speed): string {
  return `${microseconds.toFixed(microseconds < 10 ? 1 : 0)} us, ${
    rate < 100 ? rate.toPrecision(3) : rate.toFixed(0)
  } GB/s`;
}

/** The device and the machine of each process. */
function placesOf(group: mx.distributed.Group): string[] {
  const own = new Uint8Array(NAME_BYTES);
  new TextEncoder().encodeInto(`${mx.defaultDevice()} on ${Deno.hostname()}`, own);
  const all = mx.distributed.allGather(mx.array(own, mx.uint8).reshape(1, -1), { group }).toTypedArray() as Uint8Array;
  return Array.from({ length: group.size() }, (_, rank) => {
    const bytes = all.slice(rank * NAME_BYTES, (rank + 1) * NAME_BYTES);
    return new TextDecoder().decode(bytes).replace(/\0+$/, "");
  });
}

function measure(group: mx.distributed.Group): Measured {
  const [rank, size] = [group.rank(), group.size()];
  const [small, large] = [mx.zeros([1]), mx.zeros([LARGE_BYTES / 4])];
  const summed = mx.zeros([SUMMED_BYTES / 4]);
  mx.eval(small, large, summed);
  const together = (): void => mx.eval(mx.distributed.allSum(mx.array(0), { group }));
  const there = (x: mx.Tensor, peer: number): void => mx.eval(mx.distributed.send(x, peer, { group }));
  const back = (x: mx.Tensor, peer: number): void => mx.eval(mx.distributed.recvLike(x, peer, { group }));
  const pairs = pairsOf(size).map(([a, b]): number[] => {
    together();
    if (rank !== a && rank !== b) return [0, 0];
    const times = ([[small, SMALL_TIMES], [large, LARGE_TIMES]] as const).map(([x, count]) =>
      milliseconds(count, () => {
        if (rank === a) there(x, b);
        back(x, rank === a ? b : a);
        if (rank === b) there(x, a);
      }) / 2 // a way there and one back
    );
    return rank === a ? times : [0, 0];
  });
  together();
  const sum = [summed, large].map((x, i) =>
    milliseconds([SMALL_TIMES, LARGE_TIMES][i], () => mx.eval(mx.distributed.allSum(x, { group })))
  );
  const own = mx.array([...pairs, rank === 0 ? sum : [0, 0]]);
  const all = mx.distributed.allSum(own, { group }).tolist() as number[][];
  const speeds = all.map(([latency, time]): Speed => ({
    microseconds: latency * 1000,
    gigabytesPerSecond: LARGE_BYTES / time / 1e6,
  }));
  return { pairs: speeds.slice(0, -1), sum: speeds.at(-1)! };
}

/** The median time of a call, after a first one. */
function milliseconds(count: number, call: () => void): number {
  call();
  const times = Array.from({ length: count }, () => {
    const began = performance.now();
    call();
    return performance.now() - began;
  });
  return times.sort((a, b) => a - b)[Math.floor(count / 2)];
}
