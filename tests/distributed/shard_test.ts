/** Sharded layers of several processes compute what the whole layers do, with their gradients. */

import { testDevices } from "../support/devices/devices.ts";
import { runChecks } from "../support/distributed/mpirun.ts";
import { needing } from "../support/needs.ts";

const CHECKS = new URL("../support/distributed/shard_checks.ts", import.meta.url);

for (const device of testDevices()) {
  for (const ranks of device === "wasm" ? [1, 4] : [2]) {
    Deno.test(
      await needing(`sharded layers of ${ranks} processes on ${device}`, "mpirun"),
      () => runChecks(ranks, CHECKS, device, 50),
    );
  }
}
