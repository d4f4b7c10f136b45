/** The CPU device with the accuracy of float32. */

import { closeDevices } from "../../src/backend/devices.ts";

/** Runs with a CPU device that was opened under VKMX_EXACT=1; other devices are closed. */
export async function withExactCpu(run: () => Promise<void>): Promise<void> {
  closeDevices();
  const before = Deno.env.get("VKMX_EXACT");
  Deno.env.set("VKMX_EXACT", "1");
  try {
    await run();
  } finally {
    closeDevices();
    if (before === undefined) Deno.env.delete("VKMX_EXACT");
    else Deno.env.set("VKMX_EXACT", before);
  }
}
