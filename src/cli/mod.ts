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
import { nearest } from "../graph/nearest.ts";
import { type CommandRow, COMMANDS } from "./commands.ts";
import { UsageError } from "./flags.ts";
import { print } from "./output.ts";
import { orExit, runMain } from "./program.ts";

/**
 * Runs a command line. Results go to stdout, everything else to stderr. Ends the process with 1 after an error, 2 where the command line
 * is wrong, 130 after Ctrl-C; returns after success.
 */
export async function main(args: readonly string[]): Promise<void> {
  const [word = "help", ...rest] = args;
  await orExit(async () => {
    if (word === "help" && rest.length > 0) await run(rest[0], ["--help"]);
    else if (["help", "--help", "-h"].includes(word)) print(overview());
    else if (["--version", "-V"].includes(word)) print(`vkmx ${VERSION}\n`);
    else await run(word, rest);
    return 0;
  });
}

async function run(name: string, args: readonly string[]): Promise<void> {
  const { default: command } = await find(name).load();
  await runMain(command.program, command.main, args);
}

function find(name: string): CommandRow {
  if (Object.hasOwn(COMMANDS, name)) return COMMANDS[name];
  const near = nearest(name, [...Object.keys(COMMANDS), "help"]);
  const hint = near === undefined ? "" : `: did you mean ${near}?`;
  throw new UsageError(`Unknown command ${JSON.stringify(name)}${hint} (vkmx help lists all)`);
}

/** The list of commands. */
function overview(): string {
  const rows = Object.entries(COMMANDS).map(([name, { summary }]) => [name, summary]);
  rows.push(["help [command]", "show this list, or what a command takes"]);
  const width = Math.max(...rows.map(([left]) => left.length));
  const list = rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}\n`).join("");
  return `usage: vkmx COMMAND [flags]\n\nLanguage models on any Vulkan GPU, or on the CPU.\n\n${list}\n` +
    `vkmx COMMAND --help shows what a command takes, vkmx --version the version.\n`;
}

if (import.meta.main) await main(Deno.args);
