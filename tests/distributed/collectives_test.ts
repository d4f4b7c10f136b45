/**
 * mx.distributed in several processes that Open MPI starts: four on the CPU, two on a Vulkan device. Every process compares its results with
 * what it computes of the arrays of all.
 */

import { testDevices } from "../support/devices/devices.ts";
import { runChecks } from "../support/distributed/mpirun.ts";
import { needing } from "../support/needs.ts";

const CHECKS = new URL("../support/distributed/collective_checks.ts", import.meta.url);

for (const device of testDevices()) {
  const ranks = device === "wasm" ? 4 : 2;
  Deno.test(
    await needing(`collectives of ${ranks} processes on ${device}`, "mpirun"),
    () => runChecks(ranks, CHECKS, device, 150),
  );
}
