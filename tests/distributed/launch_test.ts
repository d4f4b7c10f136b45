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

Deno.test(await needing("vkmx doctor --distributed measures each pair and the sum", "mpirun"), async () => {
  const doctor = [
    "--",
    Deno.execPath(),
    "run",
    "-A",
    "--no-lock",
    "--no-check",
    CLI,
    "doctor",
    "--distributed",
    "--json",
  ];
  const python = await Deno.makeTempFile();
  const speed = (microseconds: number) => ({ microseconds, gigabytesPerSecond: 300 });
  const printed = JSON.stringify({ pairs: [speed(8.25)], sum: speed(12) });
  await Deno.writeTextFile(python, `#!/bin/sh\n[ "$3" = 0 ] && echo '${printed}'\nexit 0\n`); // stands for one that has torch
  await Deno.chmod(python, 0o755);
  const { code, stdout, stderr } = await launch(["-n", "2", ...doctor], { VKMX_PYTHON: python });
  await Deno.remove(python);
  assertEquals(code, 0, stderr);
  const { ok, checks: [pair, sum, ...others] } = JSON.parse(stdout); // one line: the other process prints nothing
  assertEquals([ok, pair.name, sum.name, others], [true, "ranks 0 and 1", "sum of 2", []]);
  const found = /^\d+(\.\d)? us, [\d.e+-]+ GB\/s; NCCL (8\.3|12) us, 300 GB\/s/;
  for (const { text } of [pair, sum]) assertMatch(text, found);
  assertMatch(pair.text, /\(wasm on \S+, wasm on \S+\)$/);
  const alone = await new Deno.Command(Deno.execPath(), { args: doctor.slice(2), env: ENVIRONMENT }).output();
  const message = new TextDecoder().decode(alone.stderr);
  assertMatch(message, /^error: Expected several processes: vkmx launch -n 2 -- vkmx doctor/);
  assertEquals(alone.code, 2);
});

Deno.test("vkmx launch says which package has mpirun", async () => {
  const { code, stderr } = await launch(["-n", "2", "--", "true"], { PATH: "/nowhere" });
  assertEquals(code, 1);
  assertMatch(stderr, /^error: mpirun was not found: install Open MPI \(Debian, Ubuntu: apt-get install openmpi-bin\)/);
});
