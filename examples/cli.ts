/**
 * What the command-line examples share: flags from a table, errors that fit on one line, a progress bar.
 *
 * Results go to stdout; everything else goes to stderr. Exit codes: 0 done, 2 wrong usage, 1 any other error, 130 Ctrl-C.
 *
 * @module
 */

import { parseArgs } from "node:util";
import { environment } from "../ffi/environment.ts";
import { RuntimeError } from "../ffi/error.ts";
import type { lm } from "../mod.ts";
import { nearest } from "../src/graph/nearest.ts";

/** A flag: a switch when it has no `value`. */
export interface Flag {
  /** Name of the argument in the help text. */
  readonly value?: string;
  readonly help: string;
  /** Lowest and highest number; without it the argument is text. */
  readonly range?: readonly [number, number];
  /** Whether the number must be whole. */
  readonly whole?: boolean;
}

/** Flags by name. */
export type Flags = Readonly<Record<string, Flag>>;

/** Values of the flags that were given. */
export type Values<F extends Flags> = {
  readonly [K in keyof F]?: F[K] extends { range: readonly [number, number] } ? number
    : F[K] extends { value: string } ? string
    : boolean;
};

/** A mistake in the command line. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** Reads a command line. Throws a {@link UsageError} that names the flag, what is wrong and what would be right. */
function readCommandLine<F extends Flags>(
  flags: F,
  args: readonly string[],
): { values: Values<F>; positionals: string[] } {
  const options = Object.fromEntries(
    Object.entries(flags).map(([name, { value }]) => {
      const type: "boolean" | "string" = value === undefined ? "boolean" : "string";
      return [name, name === "help" ? { type, short: "h" } : { type }];
    }),
  );
  const { values, positionals } = strictly(
    flags,
    () => parseArgs({ args: [...args], options, allowPositionals: true }),
  );
  const read: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(values)) {
    read[name] = flags[name].range === undefined ? value : readNumber(name, flags[name], String(value));
  }
  return { values: read as Values<F>, positionals };
}

function strictly<T>(flags: Flags, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    const [, dashes = "", name = ""] = /'(?:-\w, )?(--?)([^ '=]+)/.exec(message) ?? [];
    if (code === "ERR_PARSE_ARGS_UNKNOWN_OPTION") {
      const near = nearest(name, Object.keys(flags));
      throw new UsageError(
        `Unknown flag ${dashes}${name}${near === undefined ? "" : `: did you mean --${near}?`} (--help lists all)`,
      );
    }
    const flag = flags[name];
    if (flag?.value !== undefined) {
      const dash = message.includes("ambiguous") ? `; one that begins with "-" follows "=": --${name}=-…` : "";
      throw new UsageError(`--${name} needs a value: --${name} ${flag.value}${dash}`);
    }
    if (flag !== undefined) throw new UsageError(`--${name} takes no value`);
    throw new UsageError(message.split("\n")[0]);
  }
}

function readNumber(name: string, { range = [-Infinity, Infinity], whole = false }: Flag, text: string): number {
  const value = text.trim() === "" ? NaN : Number(text);
  const [low, high] = range;
  if (value >= low && value <= high && (!whole || Number.isSafeInteger(value))) return value;
  const kind = whole ? "a whole number" : "a number";
  const limits = high >= Number.MAX_SAFE_INTEGER ? `of at least ${low}` : `from ${low} to ${high}`;
  throw new UsageError(`--${name} is "${text}", expected ${kind} ${limits}`);
}

/** Tokens to generate where --max-tokens does not say. */
const MAX_TOKENS = 256;

/** Flags of programs that generate text. */
export const MODEL_FLAGS = {
  "model": {
    value: "DIR",
    help: "model directory, or a name of the Hugging Face Hub (default: the embedded tiny-qwen3)",
  },
  "system": { value: "TEXT", help: "system message; implies the chat template" },
  "max-tokens": {
    value: "N",
    help: `most tokens to generate (${MAX_TOKENS})`,
    range: [1, Number.MAX_SAFE_INTEGER],
    whole: true,
  },
  "temp": { value: "T", help: "temperature; 0 is greedy (default: the model's generation_config)", range: [0, 100] },
  "top-p": { value: "P", help: "keep the likeliest tokens up to this share (generation_config)", range: [0, 1] },
  "top-k": {
    value: "K",
    help: "keep this many tokens, 0 keeps all (generation_config)",
    range: [0, Number.MAX_SAFE_INTEGER],
    whole: true,
  },
  "min-p": { value: "P", help: "drop tokens below this share of the likeliest (generation_config)", range: [0, 1] },
  "repetition-penalty": { value: "P", help: "divide the logits of recent tokens by this (1)", range: [0.01, 100] },
  "presence-penalty": { value: "P", help: "subtract this from the logits of recent tokens (0)", range: [-100, 100] },
  "frequency-penalty": { value: "P", help: "the same for each time that they occur (0)", range: [-100, 100] },
  "stop": { value: "TEXT", help: "end before this text" },
  "seed": { value: "N", help: "make sampling repeatable", range: [0, Number.MAX_SAFE_INTEGER], whole: true },
  "no-think": { help: "switch thinking off; implies the chat template" },
  "device": {
    value: "NAME",
    help: "gpu, cpu, a name such as vulkan:1, or list (default: VKMX_DEVICE, else the best one)",
  },
} as const satisfies Flags;

/** What {@link MODEL_FLAGS} ask of a generation; where they say nothing, what the model wishes. */
export function generateOptions(values: Values<typeof MODEL_FLAGS>, wishes: lm.GenerationConfig): lm.GenerateOptions {
  return {
    maxTokens: values["max-tokens"] ?? MAX_TOKENS,
    temp: values.temp ?? wishes.temperature ?? 0,
    topP: values["top-p"] ?? wishes.topP,
    topK: values["top-k"] ?? wishes.topK,
    minP: values["min-p"] ?? wishes.minP,
    repetitionPenalty: values["repetition-penalty"],
    presencePenalty: values["presence-penalty"],
    frequencyPenalty: values["frequency-penalty"],
    stop: values.stop,
    seed: values.seed,
    enableThinking: !values["no-think"],
  };
}

/** Says on stderr why an answer ended where the model had not ended it. */
export function tellLimit(last: lm.GenerationResponse, { maxTokens = MAX_TOKENS }: lm.GenerateOptions): void {
  if (last.finishReason !== "length") return;
  const count = last.generationTokens;
  const why = count >= maxTokens
    ? `the limit of ${count} tokens: --max-tokens sets it`
    : "the end of the model's context";
  note(`[the answer was cut off at ${why}]\n`);
}

/** A program as its help text describes it. */
export interface Program<F extends Flags> {
  readonly name: string;
  /** What may stand behind the flags; without it nothing may. */
  readonly operand?: string;
  readonly about: string;
  /** Its flags but for --help. */
  readonly flags: F;
}

const HELP: { readonly help: Flag } = { help: { help: "show this text" } };

/** The help text: how to call a program, what it does, its flags as an aligned list. */
function describe({ name, operand, about, flags }: Program<Flags>): string {
  const rows = Object.entries<Flag>({ ...flags, ...HELP }).map((
    [name, flag],
  ) => [`--${name}${flag.value === undefined ? "" : ` ${flag.value}`}`, flag.help]);
  const width = Math.max(...rows.map(([left]) => left.length));
  const list = rows.map(([left, help]) => `  ${left.padEnd(width)}  ${help}`).join("\n");
  return `usage: ${name} [flags]${operand === undefined ? "" : ` ${operand}`}\n\n${about}\n\n${list}\n`;
}

/**
 * Runs a program on the command line's flags and operands and ends the process with the exit code that it gives. --help is
 * answered here. Errors print as one line; VKMX_DEBUG=1 adds the stack. A reader that closes stdout ends the program quietly.
 */
export async function runMain<F extends Flags>(
  program: Program<F>,
  main: (values: Values<F>, operands: readonly string[]) => Promise<number>,
): Promise<void> {
  try {
    const { values, positionals } = readCommandLine<Flags>({ ...program.flags, ...HELP }, Deno.args);
    if (values.help) {
      print(describe(program));
      Deno.exit(0);
    }
    if (program.operand === undefined && positionals.length > 0) {
      throw new UsageError(`Expected flags only, found "${positionals[0]}" (--help lists all)`);
    }
    const code = await main(values as Values<F>, positionals);
    if (code !== 0) Deno.exit(code);
    // Ends by itself, when what still runs has ended: the probe of a faster form, which later programs then know.
  } catch (error) {
    if (error instanceof Deno.errors.BrokenPipe) Deno.exit(0);
    if (error instanceof DOMException && error.name === "AbortError") Deno.exit(130);
    const { message, stack } = error instanceof Error ? error : new Error(String(error));
    const text = error instanceof RuntimeError ? error.detail : message; // which call it was is no matter of users
    note(`error: ${text.replaceAll(/\s*\n\s*/g, " ")}\n`);
    if (environment("VKMX_DEBUG") === "1") note(`${stack}\n`);
    const usage = error instanceof UsageError || (error instanceof RuntimeError && error.code === "device");
    Deno.exit(usage ? 2 : 1);
  }
}

const UTF8 = new TextEncoder();

/** Text of stdin as it comes. */
async function* inputText(): AsyncGenerator<string, void, void> {
  try {
    yield* Deno.stdin.readable.pipeThrough(new TextDecoderStream());
  } catch (cause) {
    throw new Error(`stdin cannot be read: ${(cause as Error).message}`, { cause });
  }
}

/** All of stdin, but for the end of its last line. */
export async function readInput(): Promise<string> {
  return (await Array.fromAsync(inputText())).join("").replace(/\r?\n$/, "");
}

/** Lines of stdin; the last one may lack its end. */
export async function* inputLines(): AsyncGenerator<string, void, void> {
  let rest = "";
  for await (const text of inputText()) {
    const lines = (rest + text).split(/\r?\n/);
    rest = lines.pop()!;
    yield* lines;
  }
  if (rest !== "") yield rest;
}

/** Writes to stdout. Throws Deno.errors.BrokenPipe when nobody reads. */
export function print(text: string): void {
  try {
    writeAll(Deno.stdout, text);
  } catch (cause) {
    if (cause instanceof Deno.errors.BrokenPipe) throw cause;
    throw new Error(`stdout cannot be written: ${(cause as Error).message}`, { cause });
  }
}

/** Writes to stderr; a closed stderr is nobody's problem. */
export function note(text: string): void {
  try {
    writeAll(Deno.stderr, text);
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}

function writeAll(to: { writeSync(bytes: Uint8Array): number }, text: string): void {
  let bytes = UTF8.encode(text);
  while (bytes.length > 0) bytes = bytes.subarray(to.writeSync(bytes));
}

/** A progress bar on stderr, drawn at most ten times a second and only on a terminal. */
export class ProgressBar {
  readonly #label: string;
  readonly #visible = Deno.stderr.isTerminal();
  #drawn = 0;

  /** `label` stands before the bar. */
  constructor(label: string) {
    this.#label = label;
  }

  /** Shows a share of work done. */
  update(done: number, total: number): void {
    const now = performance.now();
    if (!this.#visible || (now - this.#drawn < 100 && done < total)) return;
    this.#drawn = now;
    const share = total === 0 ? 1 : done / total;
    const filled = Math.round(share * 30);
    const megabytes = `${(done / 1e6).toFixed(0)}/${(total / 1e6).toFixed(0)} MB`;
    note(`\r${this.#label} [${"#".repeat(filled)}${" ".repeat(30 - filled)}] ${megabytes}`);
  }

  /** Takes the bar off the screen. */
  clear(): void {
    if (this.#visible && this.#drawn > 0) note("\r\x1b[2K");
  }
}
