/** Completions of shells: the scripts are run by those that are here. */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { COMMANDS } from "../../src/cli/commands.ts";
import { type CompletedCommand, type Shell, SHELLS } from "../../src/cli/completions.ts";

const commands: CompletedCommand[] = [];
for (const [name, { summary, load }] of Object.entries(COMMANDS)) {
  commands.push({ name, summary, program: (await load()).default.program });
}

/** Whether a program is here. */
async function isHere(program: string): Promise<boolean> {
  try {
    return (await new Deno.Command(program, { args: ["--version"] }).output()).success;
  } catch {
    return false; // where a program is missing, output() throws before it gives a promise
  }
}

async function runShell(shell: Shell, script: string): Promise<string> {
  const args = { bash: ["--norc", "-c"], zsh: ["-f", "-c"], fish: ["--no-config", "-c"] }[shell];
  const { stdout, stderr } = await new Deno.Command(shell, { args: [...args, script] }).output();
  assertEquals(new TextDecoder().decode(stderr), "");
  return new TextDecoder().decode(stdout);
}

Deno.test({
  name: "bash completes commands and their flags, and leaves values to files",
  ignore: !await isHere("bash"),
  fn: async () => {
    const complete = async (...words: string[]): Promise<string[]> => {
      const script = `${SHELLS.bash(commands)}
COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}; _vkmx
printf '%s\\n' "\${COMPREPLY[@]}"`;
      return (await runShell("bash", script)).trim().split("\n");
    };
    assertEquals(await complete("vkmx", "ge"), ["generate"]);
    assertEquals(await complete("vkmx", ""), [...Object.keys(COMMANDS), "help"]);
    assertEquals(await complete("vkmx", "generate", "--top"), ["--top-p", "--top-k"]);
    assertEquals(await complete("vkmx", "help", "mo"), ["models"]);
    assertEquals(await complete("vkmx", "generate", "--model", "--"), [""]);
    assertEquals(await complete("vkmx", "none", "--"), [""]);
  },
});

Deno.test({
  name: "zsh takes the script",
  ignore: !await isHere("zsh"),
  fn: async () => {
    const script = `autoload -U compinit; compinit -D; ${SHELLS.zsh(commands)}\nprint -r -- $_comps[vkmx]`;
    assertEquals(await runShell("zsh", script), "_vkmx\n");
  },
});

Deno.test({
  name: "fish completes commands and their flags",
  ignore: !await isHere("fish"),
  fn: async () => {
    const complete = (line: string): Promise<string> =>
      runShell("fish", `${SHELLS.fish(commands)}\ncomplete -C '${line}'`);
    assertStringIncludes(await complete("vkmx ge"), "generate\t");
    assertStringIncludes(await complete("vkmx generate --top"), "--top-k\t");
  },
});

Deno.test("every script names every flag of every command", () => {
  for (const [shell, script] of Object.entries(SHELLS)) {
    const text = script(commands);
    for (const { program } of commands) {
      for (const flag of Object.keys(program.flags)) {
        const named = shell === "fish" ? `-l ${flag} ` : `--${flag}`;
        assert(text.includes(named), `${shell} lacks ${named} of ${program.name}`);
      }
    }
  }
});
