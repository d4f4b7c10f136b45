/**
 * Tests of the guards. Writes outside of a buffer are found, before it and after it, whether a kernel runs alone or a
 * Plan gets an array's buffer. Faults that guards found in the library stay mended.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { encodeSlots } from "../../src/backend/backend.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { testDevices } from "../support/devices/devices.ts";
import { BACK, FRONT, Guards } from "../support/devices/guards.ts";
import { encodePlan, encodePush, kernelTest, runKernel } from "../support/devices/harness.ts";

/** float32 numbers one after another, more than there is room for or starting before the buffer. */
const SPEC = { DTYPE_OUT: mx.float32.code };

kernelTest("a kernel that writes behind its buffer is found", (backend) => {
  const run = (count: number): void =>
    runKernel(backend, "arange", { spec: SPEC, push: { count }, buffers: { out: new Float32Array(10) }, items: count });
  run(10);
  assertThrows(() => run(11), Error, "arange wrote outside of out, 40 bytes");
  assertThrows(() => run(11), Error, "bytes 40 to 43");
});

kernelTest("a kernel that writes in front of its buffer is found", (backend) => {
  const run = (step: number): void =>
    runKernel(backend, "copy", {
      spec: { ELEMENT_BYTES: 4 },
      push: { count: 4, shape: [1, 1, 1, 1, 4], in_strides: [0, 0, 0, 0, 1], out_strides: [0, 0, 0, 0, step] },
      buffers: { in: Float32Array.of(1, 2, 3, 4), out: new Float32Array(4) },
      items: 4,
    });
  run(1);
  assertThrows(() => run(-1), Error, "bytes -12 to -1");
});

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));

  Deno.test(`guards of arrays find what a Plan writes outside on ${device}`, () => {
    const backend = getBackend(device);
    using guards = new Guards(backend);
    const buffer = backend.alloc(40);
    const run = (count: number): void => {
      const push = encodePush("ArangePush", { count, step: 0x3f800000 }); // bits of 1
      const dispatch = {
        kernel: "arange",
        spec: [64, mx.float32.code],
        push,
        grid: [1, 1, 1],
        buffers: [[0, 0]],
      } as const;
      const plan = backend.compile(encodePlan(1, [dispatch]));
      backend.wait(backend.run(plan, encodeSlots([{ buffer, byteOffset: 0 }])));
      backend.release(plan);
    };
    run(10);
    assertEquals(guards.check(), []);
    run(12);
    assertEquals(guards.check(), [`${device}: a buffer of 40 bytes was written outside, at bytes 40 to 47`]);
    assertEquals(guards.check(), []); // told once
    const out = new Uint8Array(40);
    backend.read(buffer, 0, out);
    assertEquals(new Float32Array(out.buffer)[9], 9);
    assertEquals(guards.alive, 1);
    backend.free(buffer);
    assertEquals(guards.alive, 0);
    assert(FRONT >= 256 && BACK >= 64);
  });

  Deno.test(`updates in place hold no buffer when their arrays are gone on ${device}`, () => {
    mx.setDefaultDevice(device);
    const backend = getBackend(device);
    const before = backend.liveObjects();
    const updates: Record<string, () => void> = {
      "of a view": () => {
        const line = mx.arange(8);
        mx.eval(line);
        const x = line.index(mx.Slice(null, null, 2));
        mx.eval(x);
        x.indexPut_(mx.Slice(1), 5);
        assertEquals(x.tolist(), [0, 5, 5, 5]);
        assertEquals(line.tolist(), [0, 1, 2, 3, 4, 5, 6, 7]);
      },
      "never evaluated": () => {
        const x = mx.arange(4);
        mx.eval(x);
        x.indexPut_(0, 5);
      },
      "one after another": () => {
        const x = mx.arange(4);
        mx.eval(x);
        for (let i = 0; i < 3; i++) x.indexPut_(mx.Slice(i), 5 + i);
        assertEquals(x.tolist(), [5, 6, 7, 7]);
      },
    };
    for (const [what, update] of Object.entries(updates)) {
      mx.tidy(update);
      assertEquals(backend.liveObjects(), before, what);
    }
  });
}
