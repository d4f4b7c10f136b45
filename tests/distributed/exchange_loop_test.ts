/**
 * Loops whose steps have collectives: several Plans with exchanges between them. Each step is compared with the same function evaluated at
 * once. One process stands for two here: the exchange doubles what it gets, as if the other one had the same.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { DeviceLoop } from "../../src/array/compile/loop.ts";
import { collectiveNode } from "../../src/array/distributed/nodes.ts";
import { nodeOf, wrap } from "../../src/array/tensor/tensor.ts";
import type { CollectiveKind, Communicator } from "../../src/graph/collective.ts";
import { testDevices } from "../support/devices/devices.ts";

const exchanged: string[] = [];
const PAIR: Communicator = {
  rank: 0,
  size: 2,
  exchange(kind: CollectiveKind, _, input): Uint8Array {
    const values = new Float32Array(input.slice().buffer);
    exchanged.push(`${kind} ${values.length}`);
    return new Uint8Array(values.map((x) => 2 * x).buffer);
  },
};

const allSum = (x: mx.Tensor): mx.Tensor => wrap(collectiveNode("sum", nodeOf(x), x.shape, PAIR)) as mx.Tensor;

type State = Record<string, mx.Tensor>;

/** Steps by what they try. */
const STEPS: Readonly<
  Record<string, { readonly state: () => State; readonly step: (now: State, donate: boolean) => State }>
> = {
  "a chain of exchanges beside a residual": {
    state: () => ({ x: mx.array([1, 2, 3]), unused: mx.array([5]) }),
    step: ({ x, unused }) => {
      let h: mx.Tensor = mx.add(x, 1);
      for (let i = 0; i < 4; i++) h = mx.add(h, mx.multiply(allSum(mx.sin(h)), 0.25));
      return { x: h, unused };
    },
  },
  "writes in place whose position changes": {
    state: () => ({ keys: mx.zeros([4, 2]), position: mx.array([0], mx.int32), x: mx.array([[0.5, 0.25]]) }),
    step: ({ keys, position, x }, donate) => {
      const summed = allSum(mx.multiply(x, 0.5));
      const held = mx.sliceUpdate(keys, mx.add(summed, 1), position, [0], { donate });
      const seen = allSum(mx.sum(held, 0, true));
      return { keys: held, position: mx.add(position, 1), x: mx.multiply(mx.add(seen, x), 0.1) };
    },
  },
  "an old value that a later part reads": {
    state: () => ({ a: mx.array([1, 2, 3, 4]), b: mx.array([0, 0, 0, 0]) }),
    step: ({ a, b }, donate) => {
      const written = mx.sliceUpdate(a, mx.array([9]), mx.array([1], mx.int32), [0], { donate });
      const summed = allSum(mx.multiply(written, 0.5));
      return { a: written, b: mx.add(mx.add(b, summed), a) };
    },
  },
  "values that are exchanged as they are, and results that nothing changes": {
    state: () => ({ a: mx.array([[1, 2], [3, 4]]), b: mx.array([1, 1]), c: mx.array([0.5, 0.5]) }),
    step: ({ a, b, c }) => ({ a: mx.multiply(allSum(a), 0.5).T, b: allSum(c), c: mx.multiply(b, 0.5) }),
  },
  "exchanges beside each other, and a constant": {
    state: () => ({ x: mx.array([1, 2]) }),
    step: ({ x }) => {
      const [a, b] = [allSum(mx.multiply(x, 0.1)), allSum(mx.add(x, 1))];
      return { x: mx.add(mx.add(mx.subtract(b, a), allSum(mx.array([1, 3]))), mx.multiply(x, 0)) };
    },
  },
  "states that change places": {
    state: () => ({ a: mx.array([1]), b: mx.array([2]), c: mx.array([3]) }),
    step: ({ a, b, c }) => ({ a: b, b: a, c: mx.add(allSum(c), a) }),
  },
};

for (const device of testDevices()) {
  for (const [name, { state, step }] of Object.entries(STEPS)) {
    Deno.test(`a loop with exchanges: ${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const backend = getBackend(device);
      const wanted: unknown[] = [];
      let now = state();
      const orders: string[][] = [];
      for (let i = 0; i < 3; i++) {
        const copy = Object.fromEntries(Object.entries(now).map(([key, x]) => [key, mx.array(x.tolist(), x.dtype)]));
        exchanged.length = 0;
        now = step(copy as State, false);
        wanted.push(Object.values(now).map((x) => x.tolist()));
        orders.push([...exchanged].sort());
      }
      const held = state();
      mx.eval(held);
      const objects = backend.liveObjects();
      const loop = new DeviceLoop(held, (now) => step(now, true));
      for (let i = 0; i < 3; i++) {
        exchanged.length = 0;
        await loop.done(loop.run());
        const found = mx.tidy(() => Object.values(held).map((x) => mx.multiply(x, 1).tolist()));
        assertEquals(found, wanted[i], `step ${i + 1}`);
        assertEquals([...exchanged].sort(), orders[i]);
      }
      await loop.done(loop.run(2));
      loop[Symbol.dispose]();
      mx.dispose(held);
      const { buffers, plans } = backend.liveObjects();
      assertEquals([buffers < objects.buffers, plans], [true, objects.plans], "buffers or Plans are left");
    });
  }
}
