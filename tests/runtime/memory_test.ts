/**
 * Memory stays bounded. Evaluation is over when `eval` returns, and forgotten arrays are found in time. A program that
 * submits without waiting is slowed down. Elementwise results take over memory that no other array reads.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { enqueue } from "../../src/array/compile/evaluate.ts";
import { DeviceLoop } from "../../src/array/compile/loop.ts";
import { uninitialised } from "../../src/array/devices/kv_memory.ts";
import { engine } from "../../src/schedule/plan/collector.ts";
import { collect } from "../../src/schedule/plan/garbage.ts";
import { testDevices } from "../support/devices/devices.ts";

const sleep = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Resolves when the bytes in use are down to `bytes`, or after 15 seconds: the waits of a collector that found nothing double. */
async function settled(bytes: number): Promise<number> {
  for (let i = 0; i < 1500 && mx.getActiveMemory() > bytes; i++) await sleep(10);
  return mx.getActiveMemory();
}

/** Runs a function that is given how often V8 has collected everything since it began. */
function collections(run: (soFar: () => number) => void): void {
  const v8 = engine() as { gc: () => void };
  const { gc } = v8;
  let count = 0;
  v8.gc = () => {
    count++;
    gc();
  };
  try {
    run(() => count);
  } finally {
    v8.gc = gc;
  }
}

/** Evaluates something: results before it may be a reason to collect. */
function evaluate(): void {
  using one = mx.ones([4]);
  using next = mx.add(one, 1);
  mx.eval(next);
}

const SIZE = 1 << 20;
const BYTES = 4 * SIZE;
const step = (x: mx.Tensor): mx.Tensor => mx.add(mx.multiply(x, 0.99), 1);

/** Ways to evaluate and to let go; each gives the first element. */
const WAYS: Readonly<Record<string, (x: mx.Tensor) => number>> = {
  "dispose()": (x) => {
    const y = step(x);
    mx.eval(y);
    const first = mx.tidy(() => y.index(0).item()) as number;
    mx.dispose(y);
    return first;
  },
  using: (x) => {
    using y = step(x);
    mx.eval(y);
    return mx.tidy(() => y.index(0).item()) as number;
  },
  neither: (x) => {
    const y = step(x);
    mx.eval(y);
    return y.index(0).item() as number;
  },
};

for (const device of testDevices()) {
  for (const [way, round] of Object.entries(WAYS)) {
    Deno.test(`a synchronous loop with ${way} holds little on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const before = mx.getActiveMemory();
      mx.resetPeakMemory();
      const rounds = (): void => {
        const x = mx.ones([SIZE]);
        mx.eval(x);
        for (let i = 0; i < (device === "wasm" ? 100 : 40); i++) {
          assertEquals(round(x), Math.fround(Math.fround(0.99) + 1));
        }
        x.dispose();
      };
      rounds();
      const peak = mx.getPeakMemory() - before;
      assert(peak < (way === "neither" ? 80e6 : 4 * BYTES), `${peak} bytes`);
      assertEquals(await settled(before), before);
    });
  }

  Deno.test(`a loop that submits without waiting holds little on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const before = mx.getActiveMemory();
    mx.resetPeakMemory();
    const rounds = (dispose: boolean): Promise<void> => {
      const x = mx.ones([SIZE]);
      let last = mx.asyncEval(x);
      for (let i = 0; i < (device === "wasm" ? 100 : 40); i++) {
        const y = step(x);
        last = mx.asyncEval(y);
        if (dispose) y.dispose();
      }
      x.dispose();
      return last;
    };
    await rounds(true);
    await rounds(false);
    const peak = mx.getPeakMemory() - before;
    assert(peak < 100e6, `${peak} bytes`);
    assertEquals(await settled(before), before);
  });

  Deno.test(`eval() waits for what asyncEval() submitted on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const large = mx.ones([512, 512]);
    const product = mx.tidy(() => mx.matmul(mx.matmul(large, large), large));
    let resolved = false;
    const pending = mx.asyncEval(product).then(() => resolved = true);
    mx.eval(product);
    const start = performance.now();
    mx.eval(product);
    assertEquals(product.index(0, 0).item(), 512 * 512);
    assert(performance.now() - start < 10_000);
    assertEquals(resolved, false); // in this very task
    await pending;
    mx.dispose(large, product);
  });

  Deno.test(`rows of a cache are no reason to collect on ${device}`, () => {
    mx.setDefaultDevice(device);
    collections((soFar) => {
      const rows = uninitialised([128 << 20], mx.uint8);
      enqueue(rows);
      evaluate();
      evaluate();
      assertEquals(soFar(), 0);
      mx.dispose(rows);
      const results = mx.zeros([32 << 20], mx.float32);
      mx.eval(results);
      evaluate();
      assert(soFar() > 0, "results of a program are one");
      mx.dispose(results);
    });
  });

  Deno.test(`a state that grows between loops is no reason to collect on ${device}`, () => {
    mx.setDefaultDevice(device);
    collect();
    collections((soFar) => {
      let state = mx.zeros([1 << 20], mx.float32);
      for (let bytes = 8 << 20; bytes <= 64 << 20; bytes *= 2) {
        const grown = mx.concatenate([state, state]);
        state.dispose();
        state = grown;
        new DeviceLoop([state], ([x]) => [mx.add(x, 1)])[Symbol.dispose]();
        assertEquals(state.nbytes, bytes);
      }
      evaluate();
      assertEquals(soFar(), 0);
      state.dispose();
    });
  });

  Deno.test(`elementwise results take over memory through views on ${device}`, () => {
    mx.setDefaultDevice(device);
    const chain = (x: mx.Tensor): mx.Tensor => {
      for (let i = 0; i < 3; i++) {
        x = mx.abs(x);
        x = x.index(mx.Slice(null, -1)).reshape(-1);
        x = mx.abs(x);
      }
      return x;
    };
    const measured = (forget: boolean): number => {
      const x = mx.subtract(mx.arange(0, SIZE, 1, mx.float32), 1000);
      mx.eval(x);
      const before = mx.getActiveMemory() - BYTES;
      mx.resetPeakMemory();
      const y = mx.tidy(() => chain(x));
      if (forget) x.dispose();
      mx.eval(y);
      const buffers = (mx.getPeakMemory() - before) / BYTES;
      assertEquals(mx.tidy(() => mx.take(y, mx.array([0, 1000, SIZE - 4], mx.int32)).tolist()), [1000, 0, SIZE - 1004]);
      if (!forget) assertEquals(mx.tidy(() => x.index(0).item()), -1000);
      mx.dispose(x, y);
      return buffers;
    };
    assert(measured(false) < 2.1);
    assert(measured(true) < 1.1);
  });

  Deno.test(`memory is not taken over from arrays that can still be read on ${device}`, () => {
    mx.setDefaultDevice(device);
    const x = mx.array([-1, 2, -3, 4]);
    mx.eval(x);
    const first = mx.abs(x);
    const view = first.reshape(2, 2);
    const second = mx.negative(first.index(mx.Slice(0, 4)));
    const sum = mx.add(view, mx.negative(view));
    x.dispose();
    mx.eval(second);
    assertEquals(second.tolist(), [-1, -2, -3, -4]);
    assertEquals(first.tolist(), [1, 2, 3, 4]);
    assertEquals(view.tolist(), [[1, 2], [3, 4]]);
    assertEquals(sum.tolist(), [[0, 0], [0, 0]]);
  });

  Deno.test(`random graphs give what they give op by op on ${device}`, () => {
    mx.setDefaultDevice(device);
    let state = 7;
    const random = (below: number): number => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % below;
    };
    const pick = <T>(list: readonly T[]): T => list[random(list.length)];
    for (let round = 0; round < (device === "wasm" ? 60 : 15); round++) {
      const seed = state;
      /** The same graph each time; `each` sees every new array. */
      const build = (each: (x: mx.Tensor) => void): mx.Tensor[] => {
        state = seed;
        const all: mx.Tensor[] = [mx.subtract(mx.arange(0, 24, 1, mx.float32), 11.5).reshape(4, 6)];
        each(all[0]);
        for (let i = 0; i < 8; i++) {
          const x = pick(all.slice(-3));
          const rows = x.shape[0];
          const made = [
            () => mx.abs(x),
            () => mx.add(x, x.index(0)),
            () => mx.multiply(x, pick(all.filter((y) => String(y.shape) === String(x.shape)))),
            () => mx.subtract(x, 0.5),
            () => rows > 1 ? x.index(mx.Slice(null, -1)) : x.reshape(x.shape),
            () => x.reshape([x.shape[1], rows]).T,
            () => x.astype(mx.float16).astype(mx.float32),
            () => x.index(mx.Slice(null, null, -1)),
          ][random(8)]();
          each(made);
          all.push(made);
        }
        return all;
      };
      mx.tidy(() => {
        const expected = build((x) => mx.eval(x)).map((x) => x.tolist());
        const built = build(() => {});
        const keep = new Set([built.length - 1, random(built.length), random(built.length)]);
        built.forEach((x, i) => keep.has(i) || x.dispose());
        mx.eval(...[...keep].map((i) => built[i]));
        for (const i of keep) assertEquals(built[i].tolist(), expected[i], `array ${i} of seed ${seed}`);
      });
    }
  });
}
