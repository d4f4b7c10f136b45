/** `deno task soak`: it finds planted leaks, and in a quick run the library has none. */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { importArguments } from "../../scripts/imports.ts";
import { ROOT } from "../../scripts/tools.ts";

async function soak(...args: readonly string[]): Promise<{ readonly code: number; readonly lines: string[] }> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-check", ...await importArguments(), `${ROOT}scripts/soak.ts`, "--quick", ...args],
    env: { NO_COLOR: "1" },
  }).output();
  return {
    code,
    lines: new TextDecoder().decode(stdout).trimEnd().split("\n").concat(new TextDecoder().decode(stderr)),
  };
}

Deno.test("soak finds memory that the process or the device loses, and takes what is made late for none", async () => {
  const rows = new URL("../support/planted/soak_planted.ts", import.meta.url).href;
  const { code, lines } = await soak("--rows", rows, "--device", "wasm");
  assertEquals(code, 1, lines.join("\n"));
  const row = (name: string): string => lines.find((line) => line.startsWith(name)) ?? "";
  assertMatch(row("process"), /FAILED: the process grew$/);
  assertMatch(row("endless"), /FAILED: the process grew$/);
  assertMatch(row("device "), /FAILED: .*the device grew$/);
  for (const name of ["none", "late"]) assert(!row(name).includes("FAILED"), row(name));
  assertEquals(lines.at(-2), "2 passed, 3 failed");
});

Deno.test("nothing grows while tokens are decoded, requests come and go, clients ask, models loaded and devices opened", async () => {
  const { code, lines } = await soak();
  assertEquals(code, 0, lines.join("\n"));
  assertMatch(lines.at(-2)!, /^(5|10) passed, 0 failed$/);
});
