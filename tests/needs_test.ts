/** Tests of what a machine may lack are skipped there, say why, and find that out in one way. */

import { assert, assertEquals } from "@std/assert";
import { ROOT, ZIG_VERSION } from "../scripts/tools.ts";
import { lack, needing } from "./support/needs.ts";
import { runCode } from "./support/processes/programs.ts";

Deno.test("a test of what is missing is skipped, and its name says why", async () => {
  const code = `
    import { lack, needing } from "./tests/support/needs.ts";
    console.log(JSON.stringify([await needing("it builds", "zig", "glslc"), await needing("it runs"), await lack("glslc")]));
  `;
  const env = { ZIG: "no-such-zig", GLSLC: "no-such-glslc" };
  const { code: status, stdout, stderr } = await runCode(code, env, ["-A", "--no-check"]);
  assertEquals(status, 0, stderr);
  const glslc = "glslc was not found";
  assertEquals(JSON.parse(stdout), [
    { name: `it builds (skipped: Zig ${ZIG_VERSION} was not found; ${glslc})`, ignore: true },
    { name: "it runs", ignore: false },
    ` (skipped: ${glslc})`,
  ]);
  assertEquals([await lack(), await needing("it runs")], ["", { name: "it runs", ignore: false }]);
});

/** Parts that a machine may lack, as tests ask for them. */
const NEEDED = /\bfindZig\(|\bprovideNbclient\(|\bprovidePythonClients\(|\bqwen3Source\b|\bvulkanKernel\(/;

Deno.test("tests that need what a machine may lack ask tests/support/needs.ts", async () => {
  const found: string[] = [];
  const asking: string[] = [];
  const look = async (folder: string): Promise<void> => {
    for await (const { name, isDirectory } of Deno.readDir(ROOT + folder)) {
      const path = `${folder}/${name}`;
      if (isDirectory) await look(path);
      if (!name.endsWith("_test.ts") || path === "tests/needs_test.ts") continue;
      const text = await Deno.readTextFile(ROOT + path);
      if (!NEEDED.test(text)) continue;
      (/\b(needing|lack)\(/.test(text) ? asking : found).push(path);
    }
  };
  await look("tests");
  assertEquals(found, []);
  assert(asking.length > 5, "tests that ask were not found");
});
