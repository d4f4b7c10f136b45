/**
 * The Dockerfile and the unit for systemd of docs/server.md: what can be checked of them without a daemon.
 */

import { assert, assertEquals } from "@std/assert";
import { SERVE } from "../../src/cli/serving.ts";
import { readCommandLine } from "../../src/cli/flags.ts";
import { APT } from "../../scripts/setup/packages.ts";
import { ROOT, run } from "../../scripts/tools.ts";
import { DOCKERFILE_LINTER, needing } from "../support/needs.ts";
import { blocks, runProgram } from "../support/server/client_programs.ts";

const CONFIG = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
const [DOCKERFILE] = blocks("dockerfile");
const [UNIT] = blocks("ini");

/** Asserts that words are a command of Deno that serves, with flags that there are. */
function assertServes(words: readonly string[]): void {
  const command = ["run", "-A", `jsr:${CONFIG.name}/cli`, "serve"];
  assertEquals(words.slice(1, 1 + command.length), command);
  assert(Object.hasOwn(CONFIG.exports, "./cli"));
  assertEquals(readCommandLine(SERVE.flags, words.slice(1 + command.length)).positionals, []);
}

/** Instructions of the Dockerfile, each on one line. */
const INSTRUCTIONS = DOCKERFILE.trimEnd().split("\n").map((line) => /^([A-Z]+) (.*)$/.exec(line)!.slice(1));
const argument = (name: string): string => INSTRUCTIONS.find(([one]) => one === name)![1];

Deno.test("the document starts servers with flags that there are", async () => {
  const text = await Deno.readTextFile(`${ROOT}docs/server.md`);
  const lines = Array.from(
    text.matchAll(/^deno task vkmx serve(.*)$/gm),
    ([, rest]) => rest.split(" ").filter(Boolean),
  );
  assert(lines.length >= 3 && lines.some((words) => words.includes("--replicas")));
  for (const words of lines) assertEquals(readCommandLine(SERVE.flags, words).positionals, []);
  const rows = Array.from(
    text.matchAll(/^\| (`--[^|]*)\|/gm),
    ([, names]) => names.matchAll(/`--([a-z-]+)`/g).toArray(),
  );
  const named = rows.flat().map(([, name]) => name);
  const flags = Object.keys(SERVE.flags).filter((name) => !name.startsWith("mcp-"));
  assertEquals(named.sort(), flags.sort());
});

Deno.test("the Dockerfile serves with flags that there are, in CI's version of Deno, with a package that there is", async () => {
  assertServes([...JSON.parse(argument("ENTRYPOINT")), ...JSON.parse(argument("CMD"))]);
  const workflow = await Deno.readTextFile(`${ROOT}.github/workflows/release.yml`);
  assertEquals(argument("FROM").replace("denoland/deno:", "v"), /DENO: (\S+)/.exec(workflow)![1]);
  const [, packages] = /apt-get install -y --no-install-recommends (.*?) &&/.exec(argument("RUN"))!;
  for (const name of packages.split(" ")) assert(APT.includes(name), name);
  const [, folder] = /^HF_HOME=(.*)$/.exec(argument("ENV"))!;
  assertEquals([argument("VOLUME"), argument("EXPOSE")], [folder, /\((\d+)\)$/.exec(SERVE.flags.port.help)![1]]);
});

Deno.test({
  ...await needing("a linter finds nothing in the Dockerfile", "dockerfile linter"),
  fn: async () => {
    const problems = async (text: string): Promise<unknown[]> =>
      JSON.parse(
        await runProgram(`
          import { validate } from "${DOCKERFILE_LINTER}";
          console.log(JSON.stringify(validate(${JSON.stringify(text)}).map(({ message }) => message)));
        `),
      );
    assertEquals(await problems(DOCKERFILE), []);
    assertEquals((await problems(DOCKERFILE.replace("EXPOSE 8080", "EXPOSE eighty"))).length, 1);
  },
});

Deno.test("the unit serves with flags that there are", () => {
  const settings = new Map(Array.from(UNIT.matchAll(/^(\w+)=(.*)$/gm), ([, name, value]) => [name, value]));
  assertServes(settings.get("ExecStart")!.split(" "));
  assertEquals(settings.get("Environment"), `HOME=/var/lib/${settings.get("StateDirectory")}`);
});

Deno.test({
  ...await needing("systemd finds nothing in the unit", "systemd-analyze"),
  fn: async () => {
    const folder = await Deno.makeTempDir();
    try {
      const verify = async (text: string): Promise<string> => {
        const file = `${folder}/vkmx.service`;
        await Deno.writeTextFile(file, text.replace("/usr/local/bin/deno", Deno.execPath()));
        const { ok, stderr } = await run(["systemd-analyze", "verify", "--man=no", file]);
        return `${ok} ${stderr}`.trim();
      };
      assertEquals(await verify(UNIT), "true");
      assert(/Unknown key.*'Restrat'/.test(await verify(UNIT.replace("Restart=", "Restrat="))));
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
