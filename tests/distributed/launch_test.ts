/** `vkmx launch` starts a module and any other program in several processes, and ends with the exit code of mpirun. */

import { assertEquals, assertMatch } from "@std/assert";
import { needing } from "../support/needs.ts";
import { ENVIRONMENT } from "../support/distributed/mpirun.ts";

const CLI = new URL("../../src/cli/mod.ts", import.meta.url).pathname;

/** Runs `vkmx launch`. */
async function launch(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<{
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", "--no-check", CLI, "launch", ...args],
    env: { ...ENVIRONMENT, VKMX_DEVICE: "wasm", ...env },
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

Deno.test(await needing("vkmx launch starts a module in each process", "mpirun"), async () => {
  const program = await Deno.makeTempFile({ suffix: ".ts" });
  const mod = new URL("../../mod.ts", import.meta.url);
  await Deno.writeTextFile(
    program,
    `import * as mx from "${mod}";\nconst group = mx.distributed.init();\n` +
      "if (group.rank() === 1) console.log(group.size(), Deno.args.join());\nDeno.exit(Number(Deno.args[1]));",
  );
  const started = await launch(["-n", "2", "--hosts", "localhost", "--", program, "--code", "0"]);
  assertEquals([started.code, started.stdout], [0, "2 --code,0\n"], started.stderr);
  assertEquals((await launch(["-n", "2", "--", program, "--code", "3"])).code, 3);
  await Deno.remove(program);
});

Deno.test(await needing("vkmx launch starts other programs as they are", "mpirun"), async () => {
  const { code, stdout } = await launch(["-n", "3", "--", "sh", "-c", "echo $OMPI_COMM_WORLD_SIZE"]);
  assertEquals([code, stdout], [0, "3\n3\n3\n"]);
});

Deno.test("vkmx launch says which package has mpirun", async () => {
  const { code, stderr } = await launch(["-n", "2", "--", "true"], { PATH: "/nowhere" });
  assertEquals(code, 1);
  assertMatch(stderr, /^error: mpirun was not found: install Open MPI \(Debian, Ubuntu: apt-get install openmpi-bin\)/);
});
