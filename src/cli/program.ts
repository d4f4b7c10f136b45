/**
 * The common part of all programs on the command line: its help text, errors as one line, exit codes.
 *
 * Exit codes: 0 done, 1 an error, 2 wrong usage, 130 Ctrl-C. Errors are lines on stderr, also with --json.
 *
 * @module
 */

import { environment } from "../../ffi/environment.ts";
import { RuntimeError } from "../../ffi/error.ts";
import { quoted } from "../graph/error.ts";
import { type Flag, type Flags, readCommandLine, UsageError, type Values } from "./flags.ts";
import { print, printError, status } from "./output.ts";

/** A program as its help text describes it. */
export interface Program<F extends Flags> {
  /** The command that runs it: "vkmx chat". */
  readonly name: string;
  /** The operand after the flags; without it the program takes none. */
  readonly operand?: string;
  readonly about: string;
  /** Its flags but for --help. */
  readonly flags: F;
  /** Flags and operands of calls that are worth trying; the first is the simplest. */
  readonly examples?: readonly string[];
}

/** Runs a program; returns its exit code. */
export type Main<F extends Flags> = (values: Values<F>, operands: readonly string[]) => Promise<number>;

/** A program with its function: the default export of a file in src/cli/commands. */
export interface Command {
  readonly program: Program<Flags>;
  readonly main: Main<Flags>;
}

/** A {@link Command} whose flags have the types that its code reads. */
export function command<F extends Flags>(program: Program<F>, main: Main<F>): Command {
  return { program, main: main as Main<Flags> };
}

/** How errors of the library begin: the call, which is no matter of users. */
const CALL = /^[\w.]+\([^()]*\):? (?=\S)/;

const HELP: { readonly help: Flag } = { help: { help: "show this text", short: "h" } };

/** The --json of commands that have no more to say about it. */
export const JSON_FLAG = { "json": { help: "print the result as JSON" } } as const satisfies Flags;

/** The help text: usage, description, flags as an aligned list, examples. */
export function describe({ name, operand, about, flags, examples = [] }: Program<Flags>): string {
  const rows = Object.entries<Flag>({ ...flags, ...HELP }).map(([flag, { value, short, aliases = [], help }]) => {
    const letter = short === undefined ? "    " : `-${short}, `;
    const also = aliases.length === 0 ? "" : `; also ${aliases.map((alias) => `--${alias}`).join(", ")}`;
    return [`${letter}--${flag}${value === undefined ? "" : ` ${value}`}`, help + also];
  });
  const calls = examples.map((line) => `  ${`${name} ${line}`.trimEnd()}\n`).join("");
  return `usage: ${name} [flags]${operand === undefined ? "" : ` ${operand}`}\n\n${about}\n\n${aligned(rows)}` +
    (calls && `\nexamples:\n${calls}`);
}

/** Rows of two columns as lines. */
export function aligned(rows: readonly (readonly string[])[]): string {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}\n`).join("");
}

/**
 * Runs a program on flags and operands, default those of the command line, and ends the process with its exit code. --help is answered
 * here. Errors print as one line; VKMX_DEBUG=1 adds the stack. A reader that closes stdout ends the program quietly.
 */
export async function runMain<F extends Flags>(
  program: Program<F>,
  main: Main<F>,
  args: readonly string[] = Deno.args,
): Promise<void> {
  await orExit(async () => {
    const { values, positionals } = readCommandLine<Flags>({ ...program.flags, ...HELP }, args);
    if (values.help) {
      print(describe(program));
      return 0;
    }
    if (program.operand === undefined && positionals.length > 0) {
      throw new UsageError(`Expected flags only, found ${quoted(positionals[0])} (--help lists all)`);
    }
    return await main(values as Values<F>, positionals);
  });
}

/** Does something and ends the process with the exit code that it gives, or the one of its error, which is printed. */
export async function orExit(work: () => Promise<number>): Promise<void> {
  try {
    const code = await work();
    if (code !== 0) Deno.exit(code);
    // Ends by itself, when what still runs has ended: the probe of a faster form, which later programs then know.
  } catch (error) {
    status("");
    if (error instanceof Deno.errors.BrokenPipe) Deno.exit(0);
    if (error instanceof DOMException && error.name === "AbortError") Deno.exit(130);
    const { message, stack } = error instanceof Error ? error : new Error(String(error));
    printError(`error: ${forUsers(error instanceof RuntimeError ? error.detail : message)}\n`);
    if (environment("VKMX_DEBUG") === "1") printError(`${stack}\n`);
    const usage = error instanceof UsageError || (error instanceof RuntimeError && error.code === "device");
    Deno.exit(usage ? 2 : 1);
  }
}

/** An error's message on one line, without the call that it names. */
function forUsers(message: string): string {
  const text = message.replaceAll(/\s*\n\s*/g, " ");
  const rest = text.replace(CALL, "");
  return rest === text ? text : rest[0].toUpperCase() + rest.slice(1);
}
