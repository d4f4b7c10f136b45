/**
 * The command line: `vkmx COMMAND …`, which is `deno run -A jsr:@vkmx/vkmx/cli COMMAND …`.
 *
 * @example
 * ```ts ignore
 * import { main } from "jsr:@vkmx/vkmx/cli";
 *
 * await main(["generate", "--temp", "0", "Once upon a time"]); // ends the process where that fails
 * ```
 *
 * @module
 */

import { VERSION } from "../../ffi/version.ts";
import { quoted } from "../graph/error.ts";
import { nearest } from "../graph/nearest.ts";
import { type CommandRow, COMMANDS, HABITS } from "./commands.ts";
import { UsageError } from "./flags.ts";
import { print } from "./output.ts";
import { aligned, orExit, runMain } from "./program.ts";

/** Words that ask for the list of commands, and for the version. */
const HELP = ["help", "--help", "-h"];
const VERSIONS = ["--version", "-V"];

/**
 * Runs a command line. Results go to stdout, everything else to stderr. Ends the process with 1 after an error, 2 if the command line
 * is wrong, 130 after Ctrl-C; returns after success.
 */
export async function main(args: readonly string[]): Promise<void> {
  const [word = "help", ...rest] = args;
  await orExit(async () => {
    if (!HELP.includes(word) && !VERSIONS.includes(word)) return await run(word, rest);
    const topics = word === "help" ? rest.filter((arg) => !HELP.includes(arg)) : rest;
    if (topics.length > (word === "help" ? 1 : 0)) {
      throw new UsageError(
        `Expected ${word === "help" ? "one command" : "nothing"} after ${word}, found ${rest.length}`,
      );
    }
    if (topics.length > 0) return await run(topics[0], ["--help"]);
    print(VERSIONS.includes(word) ? `vkmx ${VERSION}\n` : overview());
    return 0;
  });
}

/** Runs a command, which ends the process if it does not succeed. */
async function run(name: string, args: readonly string[]): Promise<number> {
  const { default: command } = await find(name).load();
  await runMain(command.program, command.main, args);
  return 0;
}

function find(name: string): CommandRow {
  if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name];
  if (name.startsWith("-")) throw new UsageError(`Expected a command, found the flag ${name} (vkmx help lists all)`);
  const near = nearest(name, [...Object.keys(COMMANDS), "help"]);
  const hint = Object.hasOwn(HABITS, name) ? `: ${HABITS[name]}` : near === undefined ? "" : `: did you mean ${near}?`;
  throw new UsageError(`Unknown command ${quoted(name)}${hint} (vkmx help lists all)`);
}

/** The list of commands. */
function overview(): string {
  const rows = Object.entries(COMMANDS).map(([name, { summary }]) => [name, summary]);
  rows.push(["help [COMMAND]", "show this list, or what a command takes"]);
  return `usage: vkmx COMMAND [flags]

Language models on any Vulkan GPU, or on the CPU.

${aligned(rows)}
vkmx COMMAND --help shows what a command takes, vkmx --version the version.

examples:
  vkmx generate "Once upon a time"
  vkmx chat --model Qwen/Qwen3-0.6B-MLX-4bit
`;
}

if (import.meta.main) await main(Deno.args);
