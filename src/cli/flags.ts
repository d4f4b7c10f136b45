/**
 * Command lines: flags from a table, other names for them, and mistakes that are named in one line.
 *
 * @module
 */

import { parseArgs } from "node:util";
import { quoted } from "../graph/error.ts";
import { nearest } from "../graph/nearest.ts";

/** A flag: a switch when it has no `value`. */
export interface Flag {
  /** Name of the argument in the help text. */
  readonly value?: string;
  readonly help: string;
  /** Lowest and highest number; without it the argument is text. */
  readonly range?: readonly [number, number];
  /** Whether the number must be whole. */
  readonly whole?: boolean;
  /** What the number counts, for errors. */
  readonly unit?: string;
  /** Its letter: "p" for -p. */
  readonly short?: string;
  /** Other names that mean the same, as other programs have them. */
  readonly aliases?: readonly string[];
  /** Names of other programs' flags that are not accepted: an error names this flag instead. */
  readonly meant?: readonly string[];
  /** Whether it may be given more than once: then its values are a list. */
  readonly many?: boolean;
}

/** Flags of other programs that this one lacks, with advice, by the flag of the commands that may get them. */
const ABSENT: Readonly<Record<string, { readonly names: readonly string[]; readonly advice: string }>> = {
  device: { names: ["t", "threads"], advice: "VKMX_THREADS sets the threads of the CPU" },
  "max-tokens": {
    names: ["c", "ctx-size", "ctx", "num-ctx", "n-ctx", "context-length", "max-kv-size"],
    advice: "the context is that of the model, and memory is taken as it fills",
  },
};

/** Flags by name. */
export type Flags = Readonly<Record<string, Flag>>;

type One<F extends Flag> = F extends { range: readonly [number, number] } ? number
  : F extends { value: string } ? string
  : boolean;

/** Values of the flags that were given. */
export type Values<F extends Flags> = {
  readonly [K in keyof F]?: F[K] extends { many: true } ? readonly One<F[K]>[] : One<F[K]>;
};

/** A mistake in the command line. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** Throws a {@link UsageError} unless `found` is one of some names; the message lists them, or names the nearest one. */
export function checkOneOf<T extends string>(what: string, found: string, names: readonly T[]): T {
  const known = names.find((name) => name === found);
  if (known !== undefined) return known;
  const near = nearest(found, names);
  const all = names.length < 2 ? names.join() : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
  const expected = near === undefined ? `, expected ${all}` : `: did you mean ${near}?`;
  throw new UsageError(`${what} is ${quoted(found)}${expected}`);
}

/** A flag with its name. */
type Named = readonly [name: string, flag: Flag];

/** Reads a command line. Throws a {@link UsageError} that names the flag, what is wrong and what would be right. */
export function readCommandLine<F extends Flags>(
  flags: F,
  args: readonly string[],
): { values: Values<F>; positionals: string[] } {
  /** The flag of each accepted name. */
  const known = new Map<string, Named>(
    Object.entries(flags).flatMap(([name, flag]) =>
      [name, ...flag.aliases ?? []].map((word) => [word, [name, flag]] as const)
    ),
  );
  // -model is -m with the value "odel" to a parser.
  const single = flagsOf(args).find((arg) => known.has(arg.slice(1)));
  if (single !== undefined) throw unknownFlag(flags, "-", single.slice(1), []);
  const options = Object.fromEntries(
    Array.from(known, ([word, [name, { value, short }]]) => {
      const type: "boolean" | "string" = value === undefined ? "boolean" : "string";
      return [word, { type, multiple: true, ...(short !== undefined && word === name && { short }) }];
    }),
  );
  const { values, positionals } = strictly(
    flags,
    known,
    args,
    () => parseArgs({ args: joinNegative(known, args), options, allowPositionals: true }),
  );
  const read: Record<string, unknown> = {};
  const words = new Map<string, string>();
  for (const [word, all] of Object.entries(values)) {
    const [name, flag] = known.get(word)!;
    const other = words.get(name);
    if (other !== undefined) throw new UsageError(`--${other} and --${word} are the same flag: give one`);
    words.set(name, word);
    const list = (all as readonly (string | boolean)[]).map((value) =>
      flag.range === undefined ? value : readNumber(`--${word}`, flag, String(value))
    );
    read[name] = flag.many ? list : list.at(-1);
  }
  return { values: read as Values<F>, positionals };
}

/** Command-line words in which a negative number that follows a numeric flag is joined to it: parseArgs takes "-1" for a flag. */
function joinNegative(known: ReadonlyMap<string, Named>, args: readonly string[]): string[] {
  const shorts = new Map(Array.from(known.values(), ([name, { short }]) => [short, name]));
  const nameOf = (arg: string): string | undefined => {
    const [, long, letter] = /^--([^=]+)$|^-(\w)$/.exec(arg) ?? [];
    const name = long ?? shorts.get(letter);
    return name !== undefined && known.get(name)?.[1].range !== undefined ? name : undefined;
  };
  const end = args.indexOf("--");
  const joined: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const name = end < 0 || i < end ? nameOf(args[i]) : undefined;
    if (name !== undefined && /^-\.?\d/.test(args[i + 1] ?? "")) joined.push(`--${name}=${args[++i]}`);
    else joined.push(args[i]);
  }
  return joined;
}

/** Arguments before "--" that begin with one dash, without "=value". */
function flagsOf(args: readonly string[]): string[] {
  const end = args.indexOf("--");
  return args.slice(0, end < 0 ? args.length : end).filter((arg) => /^-[^-]/.test(arg)).map((arg) => arg.split("=")[0]);
}

function strictly<T>(
  flags: Flags,
  known: ReadonlyMap<string, Named>,
  args: readonly string[],
  parse: () => T,
): T {
  try {
    return parse();
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    const [, dashes = "", name = ""] = /'(?:-\w, )?(--?)([^ '=]+)/.exec(message) ?? [];
    if (code === "ERR_PARSE_ARGS_UNKNOWN_OPTION") throw unknownFlag(flags, dashes, name, args);
    const [, flag] = known.get(name) ?? [];
    if (flag?.value !== undefined) {
      const dash = message.includes("ambiguous") ? `; one that begins with "-" follows "=": --${name}=-…` : "";
      throw new UsageError(`--${name} needs a value: --${name} ${flag.value}${dash}`);
    }
    if (flag !== undefined) throw new UsageError(`--${name} takes no value`);
    throw new UsageError(message.split("\n")[0]);
  }
}

/** The error of a flag that is not there. -temp is read as one name, where one of `args` is that. */
function unknownFlag(flags: Flags, dashes: string, name: string, args: readonly string[]): UsageError {
  const whole = dashes === "-" ? flagsOf(args).find((arg) => arg.includes(name)) : undefined;
  const found = whole?.slice(1) ?? name;
  const rows = Object.entries(flags);
  const near = rows.find(([, { meant }]) => meant?.includes(found))?.[0] ??
    (found.length > 1 ? nearest(found, rows.flatMap(([flag, { aliases = [] }]) => [flag, ...aliases])) : undefined);
  const absent = Object.entries(ABSENT).find(([flag, { names }]) => flag in flags && names.includes(found));
  const hint = absent !== undefined
    ? `: ${absent[1].advice}`
    : near === undefined
    ? ""
    : didYouMean(near, flags[near]?.unit);
  return new UsageError(`Unknown flag ${dashes}${shown(found)}${hint} (--help lists all)`);
}

/** A hint at a flag, with what its number counts: that of another program's flag may count something else. */
function didYouMean(name: string, unit: string | undefined): string {
  return `: did you mean --${name}${unit === undefined ? "" : `, a number of ${unit}`}?`;
}

/** A word of the command line as messages show it: as it is, or quoted if a terminal might obey a part of it. */
function shown(word: string): string {
  return quoted(word) === `"${word}"` ? word : quoted(word);
}

/** The number that a flag takes. Throws a {@link UsageError} that says `what` it is. */
export function readNumber(
  what: string,
  { range = [-Infinity, Infinity], whole = false, unit }: Flag,
  text: string,
): number {
  const value = text.trim() === "" ? NaN : Number(text);
  const [low, high] = range;
  if (value >= low && value <= high && (!whole || Number.isSafeInteger(value))) return value;
  const kind = `${whole ? "a whole number" : "a number"}${unit === undefined ? "" : ` of ${unit},`}`;
  const limits = high >= Number.MAX_SAFE_INTEGER
    ? `${unit === undefined ? "of " : ""}at least ${low}`
    : `from ${low} to ${high}`;
  throw new UsageError(`${what} is ${quoted(text)}, expected ${kind} ${limits}`);
}
