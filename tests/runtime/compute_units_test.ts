/**
 * Compute units as drivers tell them, by the extensions of NVIDIA and AMD that a layer gives any device
 * (support/planted/units_layer.c).
 */

import { assert, assertEquals } from "@std/assert";
import { ROOT, run } from "../../scripts/tools.ts";
import { INDICES } from "../support/devices/vulkan_device.ts";
import { needing } from "../support/needs.ts";
import { compileLayer } from "../support/processes/layer.ts";

/** Extensions of a device, and what it then tells. */
const TOLD: readonly (readonly [extensions: string, computeUnits: number])[] = [
  ["nvidia", 132],
  ["amd", 2 * 3 * 8],
  ["amd,amd2", 40],
];

const test = await needing("compute units are those that the driver tells, of NVIDIA and of AMD", "zig");

Deno.test({
  ...test,
  ignore: test.ignore || INDICES.length === 0 || Deno.build.os !== "linux",
  async fn() {
    const folder = await Deno.makeTempDir();
    try {
      const layer = await compileLayer(folder, "units_layer.c", { vkGetInstanceProcAddr: "units_instance" });
      const code = `import { vulkanDeviceInfo } from ${JSON.stringify(`file://${ROOT}ffi/vulkan.ts`)};
console.log(vulkanDeviceInfo(${INDICES[0]}).computeUnits);`;
      await Deno.writeTextFile(`${folder}/program.ts`, code);
      const program = [Deno.execPath(), "run", "-A", "--no-lock", "--no-check", `${folder}/program.ts`];
      for (const [extensions, computeUnits] of TOLD) {
        const { ok, stdout, stderr } = await run(program, { env: { ...layer, UNITS_LAYER: extensions } });
        assert(ok, stderr);
        assertEquals(Number(stdout), computeUnits, extensions);
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
