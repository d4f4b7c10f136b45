/**
 * The machine code of pipelines: the driver's names for it, and a device without it, which says so. A layer gives any
 * device the extension with known figures (support/planted/statistics_layer.c). They must arrive in a profile.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { VulkanDevice, vulkanDeviceInfo } from "../../ffi/vulkan.ts";
import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { readKernelCode } from "../../src/backend/kernel_code.ts";
import { describePipelines, pipelineName } from "../../src/schedule/plan/profile_code.ts";
import { testDevices } from "../support/devices/devices.ts";
import { needing } from "../support/needs.ts";
import { arange, assertFails, copy, INDICES, plan } from "../support/devices/vulkan_device.ts";
import { compileLayer } from "../support/processes/layer.ts";

for (const name of testDevices()) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

Deno.test("readKernelCode() knows the names of several drivers, and takes the largest of several executables", () => {
  assertEquals(
    readKernelCode("Register Count\t128\nBinary Size\t119808\nLocal Memory Size\t68719476784\nOdd\t1.5\n"),
    { bytes: 119808, registers: 128, spilledBytes: 48 },
  );
  const intel = "Instruction Count\t900\nScratch Memory Size\t0\n";
  assertEquals(readKernelCode(intel), { bytes: undefined, registers: undefined, spilledBytes: 0 });
  assertEquals(readKernelCode("Code size\t64\nVGPRs\t24\nCode size\t128\nVGPRs\t8\n"), {
    bytes: 128,
    registers: 24,
    spilledBytes: undefined,
  });
  assertEquals(readKernelCode(""), { bytes: undefined, registers: undefined, spilledBytes: undefined });
});

Deno.test("describePipelines() names pipelines by region, kernel and the constants in which they differ", () => {
  const row = { device: "vulkan:0", region: "decoder step", kernel: "k", constants: { PHASES: 4 }, calls: 7 };
  const lines = describePipelines([{ ...row, bytes: 2048, registers: 128, spilledBytes: undefined }]);
  assertMatch(lines[1], /^decoder step {2}k PHASES=4 +7 +2\.0 +128 +-$/);
  assertEquals(describePipelines([]), []);
  assertEquals(pipelineName({ kernel: "k", constants: {} }), "k");
});

for (const index of INDICES) {
  Deno.test(`planStatistics() tells of a dispatch or that vulkan:${index} tells nothing`, () => {
    const tells = vulkanDeviceInfo(index).features.includes("pipelineStatistics");
    using device = new VulkanDevice(index, "");
    const p = device.planNew(plan(2, arange(0, 4, 0, 1), copy(0, 1, 4)));
    if (tells) assertMatch(device.planStatistics(p, 1), /^[^\t\n]+\t[\d.e+-]+$/m);
    else assertFails("unavailable", () => device.planStatistics(p, 1), "tells nothing of compiled pipelines");
    assertFails("argument", () => device.planStatistics(p, 2), "there is no dispatch 2");
    device.planFree(p);
    assertFails("handle", () => device.planStatistics(p, 0));
    if (!tells) return;
    using without = new VulkanDevice(index, "", "pipelineStatistics");
    const masked = without.planNew(plan(1, arange(0, 4, 0, 1)));
    assertFails("unavailable", () => without.planStatistics(masked, 0));
  });
}

Deno.test("a device that tells nothing of pipelines has none in its profiles", async () => {
  const work = (): void => mx.tidy(() => mx.eval(mx.exp(mx.arange(9))));
  for (const device of testDevices()) {
    const tells = mx.withDevice(device, getBackend).shaders?.features.includes("pipelineStatistics") ?? false;
    const asked = await mx.withDevice(device, () => mx.profile(work, { device, code: true }));
    assertEquals(asked.pipelines.length > 0, tells);
    const plain = await mx.withDevice(device, () => mx.profile(work, { device }));
    assertEquals(plain.pipelines, []);
  }
});

/** Run with the layer: what a profile finds with and without asking, and errors of calls. */
const PROGRAM = `
import * as mx from "@vkmx/vkmx";
mx.setDefaultDevice("vulkan:0");
const work = () => mx.tidy(() => mx.eval(mx.softmax(mx.add(mx.arange(64).reshape([4, 16]), 1), -1)));
const plain = await mx.profile(work, { timed: false });
const asked = await mx.profile(work, { timed: false, code: true });
const again = await mx.profile(work, { timed: false, code: true });
console.log(JSON.stringify({
  plain: plain.pipelines, asked: asked.pipelines, again: again.pipelines, kernels: asked.kernels,
  text: mx.describeProfile(asked), features: mx.deviceInfo("vulkan:0").features ?? null,
}));
`;

const test = await needing("a profile has the code of each pipeline as the driver tells it", "zig");

Deno.test({
  ...test,
  ignore: test.ignore || INDICES.length === 0 || Deno.build.os !== "linux",
  async fn() {
    const folder = await Deno.makeTempDir();
    const functions = { vkGetInstanceProcAddr: "statistics_instance", vkGetDeviceProcAddr: "statistics_device" };
    const env = await compileLayer(folder, "statistics_layer.c", functions);
    await Deno.writeTextFile(`${folder}/program.ts`, PROGRAM);
    const imports = ["--no-lock", "--no-check", `--import-map=${folder}/imports.json`];
    await Deno.writeTextFile(
      `${folder}/imports.json`,
      JSON.stringify({ imports: { "@vkmx/vkmx": new URL("../../mod.ts", import.meta.url).href } }),
    );
    const output = await new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", ...imports, `${folder}/program.ts`],
      env,
    }).output();
    assert(output.success, new TextDecoder().decode(output.stderr));
    const found = JSON.parse(new TextDecoder().decode(output.stdout));
    assert(found.features.includes("pipelineStatistics"));
    assertEquals(found.plain, []); // the caller did not ask, and nothing was compiled for it:
    const calls = (of: string): number => found.kernels.find((row: mx.KernelTime) => row.kernel === of).calls;
    const pipelines: mx.PipelineCode[] = found.asked;
    assertEquals(pipelines.map(({ bytes }) => bytes), pipelines.map((_, i) => 10000 + 1024 * (pipelines.length - i)));
    assertEquals(pipelines.map(({ registers }) => registers), pipelines.map((_, i) => 40 + pipelines.length - i));
    for (const { spilledBytes, kernel, constants, calls: count } of pipelines) {
      assertEquals([spilledBytes, constants, count], [48, {}, calls(kernel)]);
    }
    assertEquals(new Set(pipelines.map((p) => p.kernel)), new Set(found.kernels.map((k: mx.KernelTime) => k.kernel)));
    assertEquals(found.again.length, pipelines.length);
    assertMatch(found.text, /^op by op {2}softmax +1 +\d+\.\d +\d+ +48$/m);
    await Deno.remove(folder, { recursive: true });
  },
});
