/** Sharded layers of several processes compute what the whole layers do, with their gradients. */

import { assert, assertEquals } from "@std/assert";
import { testDevices } from "../support/devices/devices.ts";
import { mpirun } from "../support/distributed/mpirun.ts";
import { needing } from "../support/needs.ts";

const CHECKS = new URL("../support/distributed/shard_checks.ts", import.meta.url);

for (const device of testDevices()) {
  for (const ranks of device === "wasm" ? [1, 4] : [2]) {
    Deno.test(await needing(`sharded layers of ${ranks} processes on ${device}`, "mpirun"), async () => {
      const { code, stdout, stderr } = await mpirun(ranks, CHECKS, { env: { VKMX_DEVICE: device } });
      assertEquals([code, stderr], [0, ""]);
      const results = stdout.trim().split("\n").map((line) => JSON.parse(line));
      assertEquals(results.map(({ rank }) => rank).sort(), Array.from({ length: ranks }, (_, rank) => rank));
      for (const { rank, size, checks, failures } of results) {
        assertEquals({ rank, size, failures }, { rank, size: ranks, failures: [] });
        assert(checks > 50, `${checks} checks`);
      }
    });
  }
}
