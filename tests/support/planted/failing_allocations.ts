/**
 * Each allocation of the host's memory in the native library fails once, alone and with all later ones. The call
 * answers a typed error, no memory stays in use, and the same work succeeds afterwards. Needs the test build of `deno
 * task test:sanitize`, which counts allocations.
 *
 *     deno run -A tests/support/planted/failing_allocations.ts
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { VKRT_BUFFER_HOST, VKRT_BUFFER_READBACK, VKRT_BUFFER_VISIBLE } from "../../../ffi/symbols.ts";
import { RuntimeError } from "../../../ffi/error.ts";
import { openLibrary } from "../../../ffi/library.ts";
import { liveObjects } from "../../../ffi/vulkan.ts";
import {
  arange,
  bufferOf,
  bytesOf,
  copy,
  EMPTY_KERNEL,
  INDICES,
  MIB,
  openWith,
  pattern,
  plan,
  slotsOf,
} from "../devices/vulkan_device.ts";

const ALL = 0xffffffff;

const { symbols: test } = Deno.dlopen(openLibrary().path, {
  vkrt_test_fail: { parameters: ["u32", "u32"], result: "void" },
  vkrt_test_asked: { parameters: [], result: "u32" },
  vkrt_test_live: { parameters: [], result: "i32" },
});

/** Everything that allocates: devices, buffers of all kinds, Plans with tables and aliases, replays, profiles, files. */
async function work(index: number, cache: string, staging: boolean): Promise<void> {
  using device = openWith(staging ? { VKMX_STAGING: "1" } : {}, index, cache);
  const data = pattern(4096);
  const [a, b, visible, host, readback, big] = [
    bufferOf(device, data),
    device.bufferNew(4096),
    device.bufferNew(256, VKRT_BUFFER_VISIBLE),
    device.bufferNew(256, VKRT_BUFFER_HOST),
    device.bufferNew(256, VKRT_BUFFER_READBACK),
    device.bufferNew(17 * MIB),
  ];
  const words = plan(3, copy(0, 1, 1024), arange(2, 16, 0, 1), copy(1, 2, 16));
  await device.planPrepare(words);
  const sound = device.planNew(words);
  for (const slots of [[a, b, visible], [b, a, visible], [a, a, readback], [a, b, big], [b, a, big], [a, b, visible]]) {
    device.planRun(sound, slotsOf(...slots), 2);
  }
  device.kernelNew({ name: "empty", spirv: EMPTY_KERNEL, buffers: 1, writes: 1, optional: 0 });
  device.profile(true);
  device.planRun(sound, slotsOf(a, b, visible));
  device.profileRead(sound, 3);
  device.profile(false);
  assertEquals(bytesOf(device, b, 4096), data);
  device.bufferLoad(big, 5, import.meta.filename!, 0, 100);
  for (let i = 0; i < 100; i++) device.bufferFree(device.bufferNew(1000 + i));
  device.planFree(sound);
  for (const buffer of [big, host, readback]) device.bufferFree(buffer);
  device.savePipelines();
}

if (import.meta.main) {
  const cache = Deno.makeTempDirSync();
  for (const index of INDICES) {
    for (const staging of [false, true]) {
      await work(index, cache, staging); // objects that live as long as the process are there now
      const live = test.vkrt_test_live();
      for (const count of [1, ALL]) {
        let failed = 0, at = 0;
        for (; at < 10_000; at++) {
          test.vkrt_test_fail(at, count);
          try {
            await work(index, cache, staging);
          } catch (error) {
            assert(error instanceof RuntimeError && error.code === "out-of-memory", `allocation ${at}: ${error}`);
            assert(error.detail.includes("memory"), error.message);
            failed++;
          }
          const asked = test.vkrt_test_asked();
          test.vkrt_test_fail(0, 0);
          assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0, kernels: 0 });
          assertEquals(test.vkrt_test_live(), live, `blocks stayed behind after allocation ${at} failed`);
          if (asked <= at) break; // the work needs no more
        }
        await work(index, cache, staging);
        const which = count === 1 ? "alone" : "with all behind it";
        console.log(
          `vulkan:${index}${
            staging ? " through staging" : ""
          }: each of ${at} allocations failed ${which}, ${failed} errors`,
        );
        assert(failed > 20);
      }
    }
  }
  Deno.removeSync(cache, { recursive: true });
}
