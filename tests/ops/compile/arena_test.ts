/**
 * Placement of intermediates. Blocks of values that live at the same time never overlap, and no arena is larger than a
 * buffer may be. Graphs that need several arenas compute the same as in one.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import type { Backend } from "../../../src/backend/backend.ts";
import { Executable } from "../../../src/schedule/execute.ts";
import { lower } from "../../../src/schedule/lower.ts";
import { type Lifetime, place } from "../../../src/schedule/plan/arena.ts";
import { options } from "../../../src/schedule/plan/options.ts";
import { nodeOf, wrap } from "../../../src/array/tensor/tensor.ts";
import { float32 } from "../../../src/graph/dtype.ts";
import { makeNode } from "../../../src/graph/node.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { unrunBackend } from "../../support/devices/unrun_device.ts";
import { generator } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

const overlap = (a: Lifetime, b: Lifetime): boolean => a.first <= b.last && b.first <= a.last;

Deno.test("values that live at the same time have memory of their own", () => {
  const random = generator(7);
  const draw = (n: number): number => Math.floor(random() * n);
  for (let round = 0; round < 300; round++) {
    const most = 1024 + draw(8000);
    const values = Array.from({ length: draw(60) }, (): Lifetime => {
      const first = draw(40);
      return { bytes: 4 + draw(random() < 0.1 ? 10_000 : 900), first, last: first + draw(12) };
    });
    const { blockOf, places, arenas } = place(values, most);
    const at = values.map((_, i) => places[blockOf[i]]);
    for (let i = 0; i < values.length; i++) {
      const end = at[i].byteOffset + values[i].bytes + 64;
      assert(at[i].byteOffset % 256 === 0 && end <= arenas[at[i].arena]);
      for (let j = 0; j < i; j++) {
        if (at[i].arena !== at[j].arena || !overlap(values[i], values[j])) continue;
        assert(end <= at[j].byteOffset || at[j].byteOffset + values[j].bytes + 64 <= at[i].byteOffset, "they overlap");
      }
    }
    for (const [arena, bytes] of arenas.entries()) {
      const alone = at.every((p) => p.arena !== arena || p.byteOffset === 0);
      assert(bytes <= most || alone, `an arena of ${bytes} bytes where ${most} are the most`);
    }
  }
});

Deno.test("a large value's block is not taken by a small one that lives long", () => {
  const values = [
    { bytes: 1 << 20, first: 0, last: 1 },
    { bytes: 4, first: 2, last: 9 },
    { bytes: 1 << 20, first: 3, last: 4 },
  ];
  const { arenas } = place(values, 1 << 30);
  assertEquals(arenas, [(1 << 20) + 256 + 256]);
});

Deno.test("a value takes the smallest block that is free", () => {
  const at = (bytes: number, first: number, last: number): Lifetime => ({ bytes, first, last });
  assertEquals(place([at(1000, 0, 1), at(100, 0, 1), at(90, 2, 3)], 1 << 20).blockOf, [0, 1, 1]);
  assertEquals(place([at(100, 0, 1), at(1000, 0, 1), at(2000, 2, 3)], 2304), {
    blockOf: [1, 0, 0],
    places: [{ arena: 0, byteOffset: 0 }, { arena: 1, byteOffset: 0 }],
    arenas: [2304, 256],
  });
});

Deno.test("large values share memory between two barriers, small ones do not", () => {
  /** Bytes of the arenas of products of products, on a device with barriers or without. */
  const bytes = (size: number, barriers: boolean): number => {
    const backend = unrunBackend({ barriers });
    let parameters = 0;
    const square = (): mx.Tensor =>
      wrap(makeNode("parameter", [], [size, size], float32, { index: parameters++ })) as mx.Tensor;
    return mx.tidy(() => {
      const weights = Array.from({ length: 8 }, square);
      const products = weights.map((w) => mx.matmul(mx.matmul(weights[0], w), weights[1]));
      return lower(products.map(nodeOf), backend, options).arenas.reduce((sum, n) => sum + n, 0);
    });
  };
  const [large, small] = [1024, 256]; // 4 MiB and 256 KiB each
  assertEquals(bytes(large, true), bytes(large, false));
  assert(bytes(small, true) > bytes(small, false));
});

/** Runs `fn` as on a device whose buffers hold no more than `bytes`. */
function withLargestBuffer<T>(backend: Backend, bytes: number, fn: () => T): T {
  const { limits } = backend;
  Object.assign(backend, { limits: { ...limits, maxBufferBytes: bytes } });
  try {
    return fn();
  } finally {
    Object.assign(backend, { limits });
  }
}

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));

  Deno.test(`intermediates beyond the largest buffer lie in several, on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const backend = getBackend(device);
      const x = mx.random.normal([128, 128]), w = mx.random.normal([128, 128]);
      mx.eval(x, w);
      const chain = (): mx.Tensor => {
        const layers = [x];
        for (let i = 0; i < 4; i++) layers.push(mx.tanh(mx.matmul(layers[i], w)));
        return mx.sum(mx.matmul(mx.matmul(layers[1], layers[2]), mx.matmul(layers[3], layers[4])), 0);
      };
      const whole = chain();
      const parts = chain();
      const node = nodeOf(parts);
      const lowered = withLargestBuffer(backend, 70_000, () => lower([node], backend, options));
      assert(lowered.arenas.length >= 3, `${lowered.arenas.length} arenas`);
      using executable = new Executable(backend, lowered);
      node.settle(executable.run([]).outputs[0]);
      assertEquals(parts.tolist(), whole.tolist());
    });
  });
}
