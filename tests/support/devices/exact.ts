/** The CPU device with the accuracy of float32. */

import { closeDevices } from "../../../src/backend/devices.ts";
import { withOptions } from "../../../scripts/support/options.ts";

/** Runs with a CPU device that was opened under VKMX_EXACT=1; other devices are closed. */
export async function withExactCpu(run: () => Promise<void>): Promise<void> {
  closeDevices();
  using _options = withOptions({ env: { VKMX_EXACT: "1" } });
  try {
    await run();
  } finally {
    closeDevices();
  }
}
