/** The command line of the package, from a registry on localhost: with nothing else, it tells its story. */

import { assertEquals } from "@std/assert";
import { VERSION } from "../../ffi/version.ts";
import { PackageServer } from "../support/processes/package_server.ts";
import { LIBRARY } from "../support/processes/programs.ts";

Deno.test("the package's command line runs from a registry and by URL, the second time without network", async () => {
  await using server = await PackageServer.start(LIBRARY);
  const cache = server.folder();
  const env = { VKMX_DEVICE: "wasm" };
  const short = '["generate", "--temp", "0", "-m", "3", "--verbose", "false"]';
  const told = "[the answer was cut off at the limit of 3 tokens: --max-tokens sets it]\n";
  const first = `import { main } from "jsr:@vkmx/vkmx/cli"; await main(${short});`;
  assertEquals(await server.run(first, { variant: "full", cache, env }), {
    code: 0,
    stdout: ", there was\n",
    stderr: told,
  });
  const second = `import { main } from "TREE/src/cli/mod.ts"; await main(${short}); await main(["--version"]);`;
  const offline = { variant: "full", cache, env: { ...env, VKMX_OFFLINE: "1" } } as const;
  const story = { code: 0, stdout: `, there was\nvkmx ${VERSION}\n`, stderr: told };
  assertEquals(await server.run(second, offline), story);
  const fresh = await server.run(first, { variant: "full", env: { ...env, VKMX_OFFLINE: "1" } });
  assertEquals([fresh.code, fresh.stdout, fresh.stderr.match(/^error: [^\n]*VKMX_OFFLINE=1[^\n]*\n$/) !== null], [
    1,
    "",
    true,
  ], fresh.stderr);
});
