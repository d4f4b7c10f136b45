/**
 * The devices that tests run on: WASM and every usable Vulkan device, software ones too.
 *
 * A test file that imports this closes its devices at its end. It fails if native objects stay alive. It also fails if
 * the validation layers, which `deno task test` switches on, reported anything since the process began.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { liveObjects, validationMessages } from "../../../ffi/vulkan.ts";
import { closeDevices, devices } from "../../../src/backend/devices.ts";

/** Names of the devices present. Set VKMX_TEST_DEVICES to a comma-separated list to choose. */
export function testDevices(): string[] {
  const chosen = Deno.env.get("VKMX_TEST_DEVICES");
  if (chosen) return chosen.split(",");
  return devices().filter((d) => d.usable).map((d) => d.name);
}

/** The device for tests that are not about devices: the CPU if it is among them, as software Vulkan drivers are slow. */
export function anyDevice(): string {
  const names = testDevices();
  return names.includes("wasm") ? "wasm" : names[0];
}

const vulkan = devices().some((d) => d.usable && d.type !== "wasm"); // opens the library: a test that did would seem to leak it

Deno.test.afterAll(() => {
  closeDevices();
  if (!vulkan) return;
  assertEquals(liveObjects(), { devices: 0, buffers: 0, plans: 0, kernels: 0 }, "native objects stayed alive");
  const { count, text } = validationMessages();
  assertEquals(count, 0, `Vulkan validation: ${text}`);
});
