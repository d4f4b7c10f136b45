/** Arrays of more bytes than one call of MPI moves, which are exchanged in pieces. */

import { assertEquals } from "@std/assert";
import { mpirun } from "../support/distributed/mpirun.ts";
import { needing } from "../support/needs.ts";

const CHECKS = new URL("../support/distributed/collective_checks.ts", import.meta.url);

Deno.test(await needing("large arrays are exchanged in pieces", "mpirun"), async () => {
  const { code, stdout } = await mpirun(2, CHECKS, { args: ["--large"], env: { VKMX_DEVICE: "wasm" } });
  assertEquals(code, 0);
  const results = stdout.trim().split("\n").map((line) => JSON.parse(line));
  assertEquals(results.map(({ failures }) => failures), [[], []]);
});
