/** `vkmx kernel`: where it writes, what it writes, and that it leaves other kernels alone. */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { join } from "node:path";
import { ROOT } from "../../scripts/tools.ts";

interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function vkmx(args: readonly string[], env: Readonly<Record<string, string>>): Promise<Result> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "src/cli/mod.ts", ...args],
    cwd: ROOT,
    env: { JUPYTER_DATA_DIR: "", NO_COLOR: "1", ...env },
  });
  const { code, stdout, stderr } = await command.output();
  return { code, stdout: new TextDecoder().decode(stdout).trim(), stderr: new TextDecoder().decode(stderr).trim() };
}

const read = (path: string): Record<string, unknown> => JSON.parse(Deno.readTextFileSync(path));

Deno.test("vkmx kernel writes, replaces and removes its kernel, and leaves Deno's alone", async () => {
  const folder = await Deno.makeTempDir();
  const env = { JUPYTER_DATA_DIR: folder };
  const own = join(folder, "kernels", "vkmx");
  const other = join(folder, "kernels", "deno");
  try {
    Deno.mkdirSync(other, { recursive: true });
    Deno.writeTextFileSync(join(other, "kernel.json"), `{"argv": ["deno"], "display_name": "Deno"}`);

    for (const display of ["Deno (vkmx)", "Mine"]) { // the second one replaces the first
      const added = await vkmx(["kernel", ...(display === "Mine" ? ["--display-name", display] : [])], env);
      assertEquals([added.code, added.stdout], [0, join(own, "kernel.json")], added.stderr);
      assertMatch(added.stderr, /choose the kernel/);
      const spec = read(added.stdout);
      assertEquals([spec.display_name, spec.language, spec.interrupt_mode], [display, "typescript", "message"]);
      const argv = spec.argv as string[];
      assertEquals(argv.at(-1), "{connection_file}");
      assert(Deno.statSync(argv[0]).isFile && Deno.statSync(argv.at(-2)!).isFile, `${argv}`);
    }

    for (const args of [["kernel", "--name", "deno"], ["kernel", "--name", "deno", "--remove"]]) {
      const refused = await vkmx(args, env);
      assertEquals([refused.code, refused.stdout], [1, ""]);
      assertMatch(refused.stderr, /^error: .*is another kernel: .*--force/);
    }
    assertEquals(read(join(other, "kernel.json")).display_name, "Deno");
    assertEquals((await vkmx(["kernel", "--name", "deno", "--force"], env)).code, 0);
    assertEquals(read(join(other, "kernel.json")).interrupt_mode, "message");

    assertEquals((await vkmx(["kernel", "--remove"], env)).stdout, own);
    assertEquals(Array.from(Deno.readDirSync(join(folder, "kernels")), ({ name }) => name), ["deno"]);
    const gone = await vkmx(["kernel", "--remove"], env);
    assertEquals(gone.code, 1);
    assertMatch(gone.stderr, /is not there/);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("vkmx kernel finds the folder of an environment and of the user", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const prefixed = await vkmx(["kernel", "--prefix", folder], {});
    assertEquals(prefixed.stdout, join(folder, "share", "jupyter", "kernels", "vkmx", "kernel.json"));
    const homes: Record<string, readonly [Record<string, string>, string]> = {
      linux: [{ HOME: folder, XDG_DATA_HOME: "" }, ".local/share/jupyter"],
      darwin: [{ HOME: folder }, "Library/Jupyter"],
      windows: [{ APPDATA: folder }, "jupyter"],
    };
    const [env, data] = homes[Deno.build.os];
    const users = await vkmx(["kernel", "--user"], { ...env, DENO_DIR: Deno.env.get("DENO_DIR") ?? `${folder}/deno` });
    assertEquals(users.stdout, join(folder, data, "kernels", "vkmx", "kernel.json"), users.stderr);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("vkmx kernel refuses names that lead elsewhere and two places", async () => {
  for (const args of [["--name", "../x"], ["--name", ".."], ["--user", "--prefix", "x"]]) {
    const { code, stdout, stderr } = await vkmx(["kernel", ...args], {});
    assertEquals([code, stdout], [2, ""]);
    assertMatch(stderr, /^error: --/);
  }
});
