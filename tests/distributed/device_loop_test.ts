/**
 * Loops whose steps are on several devices: a Plan for each part, and copies between them. Each step is compared with the same function
 * evaluated at once.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { DeviceLoop, hostVisible, readMapped, writeState } from "../../src/array/compile/loop.ts";
import { nodeOf } from "../../src/array/tensor/tensor.ts";
import { testDevices } from "../support/devices/devices.ts";

type State = Record<string, mx.Tensor>;
type Step = (now: State, donate: boolean) => State;

/** A device beside every tested one. */
const OTHER = "wasm-threads=1";

/** Steps by what they try, on devices a and b. */
const STEPS: Readonly<Record<string, (a: string, b: string) => { readonly state: () => State; readonly step: Step }>> =
  {
    "a token that goes round, with caches on both": (a, b) => ({
      state: () => ({
        token: mx.array([[1, 2]]),
        keysA: mx.zeros([4, 2]),
        keysB: mx.zeros([4, 2]),
        position: hostVisible(Int32Array.of(0)),
      }),
      step: (now, donate) => {
        const held = mx.add(now.position, 1).astype(mx.float32); // read on both
        const write = (keys: mx.Tensor, x: mx.Tensor): mx.Tensor =>
          mx.sliceUpdate(keys, x, now.position, [0], { donate });
        const [h, keysA] = mx.stream(a, () => {
          const keys = write(now.keysA, mx.multiply(now.token, 2));
          return [mx.divide(mx.sum(keys, 0, true), held), keys];
        });
        const [token, keysB] = mx.stream(b, () => {
          const keys = write(now.keysB, h);
          return [mx.multiply(mx.add(mx.sum(keys, 0, true), held), 0.25), keys];
        });
        return { token, keysA, keysB, position: mx.add(now.position, 1) };
      },
    }),
    "an array that nothing changes, read on both": (a, b) => ({
      state: () => ({ x: mx.array([1, 2, 3]), factor: mx.array([0.5, 0.25, 2]) }),
      step: ({ x, factor }) => {
        const h = mx.stream(a, () => mx.multiply(x, factor));
        return { x: mx.stream(b, () => mx.add(h, factor)), factor };
      },
    }),
    "there and back, and results on each": (a, b) => ({
      state: () => ({ x: mx.array([[1, 2], [3, 4]]), y: mx.array([1, 1]), z: mx.array([0.5, 1.5]) }),
      step: ({ x, y, z }) => {
        const first = mx.stream(a, () => mx.multiply(x, 0.5));
        const second = mx.stream(b, () => mx.add(first.T, y));
        const third = mx.stream(a, () => mx.add(mx.sum(second, 0), mx.sum(first, 1)));
        return { x: second, y: third, z: mx.add(z, y) };
      },
    }),
    "a view that goes over, and an old value that is read there": (a, b) => ({
      state: () => ({ x: mx.array([[1, 2, 3], [4, 5, 6]]), y: mx.array([0, 0]) }),
      step: ({ x, y }, donate) => {
        const written = mx.stream(
          a,
          () => mx.sliceUpdate(x, mx.array([[9]]), mx.array([1, 1], mx.int32), [0, 1], { donate }),
        );
        const column = mx.stream(a, () => written.index(mx.Slice(null), 1));
        return { x: written, y: mx.stream(b, () => mx.add(mx.add(column, y), x.index(mx.Slice(null), 1))) };
      },
    }),
  };

const copyOf = (state: State): State =>
  Object.fromEntries(Object.entries(state).map(([name, x]) => [name, mx.array(x.tolist(), x.dtype)]));
const valuesOf = (state: State): unknown[] =>
  mx.tidy(() => Object.values(state).map((x) => mx.multiply(x, 1).tolist()));

for (const device of testDevices()) {
  for (const [name, make] of Object.entries(STEPS)) {
    Deno.test(`a loop on several devices: ${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const backends = [device, OTHER].map((one) => getBackend(one));
      const { state, step } = make(device, OTHER);
      const wanted = mx.tidy(() => {
        const all: State[] = [];
        for (let i = 0; i < 4; i++) all.push(step(copyOf(all.at(-1) ?? state()), false));
        return all.map(valuesOf);
      });
      const objects = backends.map((backend) => backend.liveObjects());
      const held = state();
      const loop = new DeviceLoop(held, (now) => step(now, true));
      for (const [i, times] of [[0, 1], [1, 1], [3, 2]]) {
        await loop.done(loop.run(times));
        assertEquals(valuesOf(held), wanted[i], `step ${i + 1}`);
      }
      loop[Symbol.dispose]();
      mx.dispose(held);
      assertEquals(backends.map((backend) => backend.liveObjects()), objects, "buffers or Plans are left");
    });
  }

  Deno.test(`a position is on the first device where nothing comes back from the last one, on ${device}`, async () => {
    for (const comesBack of [false, true]) {
      const state = {
        position: hostVisible(Int32Array.of(0)),
        keysA: mx.zeros([4, 2]),
        keysB: mx.zeros([4, 2]),
        last: mx.zeros([1, 2]),
      };
      using loop = new DeviceLoop(state, ({ position, keysA, keysB, last }) => {
        const write = (keys: mx.Tensor, x: mx.Tensor): mx.Tensor =>
          mx.sliceUpdate(keys, x, position, [0], { donate: true });
        const a = mx.stream(
          device,
          () => write(keysA, mx.broadcastTo(position.reshape([1, 1]).astype(mx.float32), [1, 2])),
        );
        const h = mx.stream(device, () => mx.sum(a, 0, true));
        const b = mx.stream(OTHER, () => write(keysB, mx.multiply(h, 2)));
        const sum = comesBack ? mx.stream(OTHER, () => mx.sum(b, 0, true)) : last;
        return { position: mx.add(position, 1), keysA: a, keysB: b, last: sum };
      });
      const tickets = [loop.run(), loop.run(), loop.run()]; // steps that were not waited for
      await loop.done(tickets.at(-1));
      assertEquals(nodeOf(state.position).stored!.storage.device, comesBack ? OTHER : device);
      assertEquals([readMapped(state.position)[0], ...state.keysB.tolist().flat()], [3, 0, 0, 2, 2, 6, 6, 0, 0]);
      mx.dispose(state);
    }
  });

  Deno.test(`a loop on several devices takes what the host writes, on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const state = { x: mx.array([1, 2]), y: mx.array([0, 0]) };
    mx.eval(state); // both on the default device: y is moved to the other one
    using loop = new DeviceLoop(state, ({ x, y }) => {
      const h = mx.stream(device, () => mx.add(x, 1));
      return { x: h, y: mx.stream(OTHER, () => mx.add(y, h)) };
    });
    await loop.done(loop.run());
    writeState(state.x, Float32Array.of(10, 20));
    await loop.done(loop.run());
    assertEquals([state.x.tolist(), state.y.tolist()], [[11, 21], [13, 24]]);
    mx.dispose(state);
  });
}
