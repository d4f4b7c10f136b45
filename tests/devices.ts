/** The devices that tests run on: WASM and every usable Vulkan device, software ones too. */

import { devices } from "../src/backend/devices.ts";

/** Names of the devices present. Set VKMX_TEST_DEVICES to a comma-separated list to choose. */
export function testDevices(): string[] {
  const chosen = Deno.env.get("VKMX_TEST_DEVICES");
  if (chosen) return chosen.split(",");
  return devices().filter((d) => d.usable).map((d) => d.name);
}

/** Whether a device is a CPU that plays GPU: right, but slow. */
export function isSoftware(name: string): boolean {
  return devices().some((d) => d.name === name && d.type === "cpu");
}
