/**
 * `deno task test`: sets the machine up, runs the tests, and closes with the line "N passed, N failed".
 *
 * Arguments go to `deno test`: file names, `--filter`, … Vulkan runs under the validation layers, with synchronization
 * checks, where they are installed.
 *
 * @module
 */

import { importArguments } from "./imports.ts";
import { setup } from "./setup.ts";
import { exists, run, TOOLS } from "./tools.ts";

const LAYER = "VkLayer_khronos_validation.json";
const LAYER_FOLDERS = ["/usr/share", "/usr/local/share", "/etc", "/opt/homebrew/share"];

/** Environment that switches the validation layers on; empty where they are not installed. */
async function validation(): Promise<Record<string, string>> {
  const paths = LAYER_FOLDERS.map((folder) => `${folder}/vulkan/explicit_layer.d/${LAYER}`);
  const found = await Promise.all(paths.map(exists));
  if (!found.includes(true)) {
    console.error("test: the Vulkan validation layers are not installed; Vulkan runs without them");
    return {};
  }
  return {
    VK_INSTANCE_LAYERS: "VK_LAYER_KHRONOS_validation",
    VK_LAYER_ENABLES: "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
  };
}

/** Counts of a JUnit report; a run that ended before any test is one failure. */
async function counts(report: string, ok: boolean): Promise<{ readonly passed: number; readonly failed: number }> {
  const text = await Deno.readTextFile(report).catch(() => "");
  const head = /<testsuites [^>]*>/.exec(text)?.[0] ?? "";
  const number = (name: string): number => Number(new RegExp(` ${name}="(\\d+)"`).exec(head)?.[1] ?? 0);
  const skipped = text.match(/<skipped/g)?.length ?? 0;
  const failed = number("failures") + number("errors");
  return { passed: number("tests") - failed - skipped, failed: failed === 0 && !ok ? 1 : failed };
}

if (import.meta.main) {
  await setup();
  const report = `${TOOLS}/junit.xml`;
  await Deno.mkdir(TOOLS, { recursive: true });
  await Deno.remove(report).catch(() => {});
  const command = [Deno.execPath(), "test", "-A", ...await importArguments(), `--junit-path=${report}`, ...Deno.args];
  const { ok } = await run(command, { env: await validation(), show: true });
  const { passed, failed } = await counts(report, ok);
  console.log(`${passed} passed, ${failed} failed`);
  Deno.exit(failed > 0 ? 1 : 0);
}
