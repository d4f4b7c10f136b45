/** examples/custom_kernel.ts as a program, on every device: its kernel and derivative are those of primitives. */

import { assert, assertEquals } from "@std/assert";
import { ROOT } from "../../scripts/tools.ts";
import { testDevices } from "../support/devices/devices.ts";
import { needing } from "../support/needs.ts";

for (const device of testDevices()) {
  const needs = device === "wasm" ? [] : ["glslc"] as const;
  Deno.test(await needing(`examples/custom_kernel.ts runs on ${device}`, ...needs), async () => {
    const args = ["run", "-A", "--no-lock", `${ROOT}examples/custom_kernel.ts`, device];
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), { args, env: { NO_COLOR: "1" } }).output();
    assertEquals(code, 0, new TextDecoder().decode(stderr));
    const [, on, value, derivative] =
      /^swiglu on (\S+): differs from primitives by (\S+), its derivative by (\S+)\n$/.exec(
        new TextDecoder().decode(stdout),
      ) ?? [];
    assertEquals(on, device);
    assert(Number(value) < 1e-5 && Number(derivative) < 1e-4, `${value} and ${derivative}`);
  });
}
