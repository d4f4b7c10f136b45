/**
 * mx.distributed in several processes that Open MPI starts: four on the CPU, two on a Vulkan device. Every process compares its results with
 * what it computes of the arrays of all.
 */

import { assert, assertEquals } from "@std/assert";
import { testDevices } from "../support/devices/devices.ts";
import { mpirun } from "../support/distributed/mpirun.ts";
import { needing } from "../support/needs.ts";

const CHECKS = new URL("../support/distributed/collective_checks.ts", import.meta.url);

for (const device of testDevices()) {
  const ranks = device === "wasm" ? 4 : 2;
  Deno.test(await needing(`collectives of ${ranks} processes on ${device}`, "mpirun"), async () => {
    const { code, stdout, stderr } = await mpirun(ranks, CHECKS, { env: { VKMX_DEVICE: device } });
    assertEquals([code, stderr], [0, ""]);
    const results = stdout.trim().split("\n").map((line) => JSON.parse(line));
    assertEquals(results.map(({ rank }) => rank).sort(), Array.from({ length: ranks }, (_, rank) => rank));
    for (const { rank, size, checks, failures } of results) {
      assertEquals({ rank, size, failures }, { rank, size: ranks, failures: [] });
      assert(checks > 150, `${checks} checks`);
    }
  });
}
