/**
 * The command line of `deno task test`.
 *
 * @module
 */

import { testFiles } from "../tools.ts";
import { type Tier, TIERS } from "./tiers.ts";

/** The arguments of an invocation. */
export interface Arguments {
  readonly tier: Tier;
  /** Of the cases that are drawn. */
  readonly seed: string;
  /** Runs on one GPU alone. */
  readonly gpu: boolean;
  /** The GPU by name; the best one if it is left out. */
  readonly device: string | undefined;
  /** Brings the machine up to date first. */
  readonly setup: boolean;
  /** Leaves out the check of types. */
  readonly checked: boolean;
  /** Nothing but the tier and the seed were given: the run stands for the whole suite. */
  readonly whole: boolean;
  /** Flags for `deno test`, each before its value. */
  readonly flags: readonly string[];
  /** Test files that are named, alone or by a folder. */
  readonly named: readonly string[];
}

/** Says what is wrong with the command line and ends the program. */
function refuse(message: string): never {
  console.error(`test: ${message}`);
  Deno.exit(1);
}

/** The test files that an argument names, or all of a folder; undefined if it names none. */
function filesOf(path: string): readonly string[] | undefined {
  if (path.endsWith(".ts")) return [path];
  try {
    return testFiles(path.replace(/\/$/, ""));
  } catch {
    return undefined;
  }
}

/** A flag's value, "--name value" or "--name=value", taken out of `args`. */
function takeValue(args: string[], name: string): string | undefined {
  const at = args.findIndex((arg) => arg === `--${name}` || arg.startsWith(`--${name}=`));
  if (at < 0) return undefined;
  const [, own] = /^--\w+=(.*)$/.exec(args[at]) ?? [];
  const [, value] = own === undefined ? args.splice(at, 2) : [args.splice(at, 1), own];
  return value ?? refuse(`--${name} needs a value`);
}

/** Whether a flag is there; it is taken out of `args`. */
function takeFlag(args: string[], name: string): boolean {
  const at = args.indexOf(`--${name}`);
  if (at >= 0) args.splice(at, 1);
  return at >= 0;
}

/** Reads the command line. Ends the program where an argument means nothing. */
export function argumentsOf(given: readonly string[]): Arguments {
  const args = [...given];
  const tier = takeValue(args, "tier") ?? "gate";
  if (!TIERS.some((one) => one === tier)) refuse(`--tier is "${tier}", expected one of ${TIERS.join(", ")}`);
  const seed = takeValue(args, "seed") ?? new Date().toISOString().slice(0, 10);
  const device = takeValue(args, "device");
  const gpu = takeFlag(args, "gpu") || device !== undefined;
  const setup = !takeFlag(args, "no-setup");
  const checked = takeFlag(args, "no-check");
  const flags: string[] = [];
  const named: string[] = [];
  for (const [i, arg] of args.entries()) {
    const files = filesOf(arg);
    if (arg.startsWith("-") || (!files && args[i - 1]?.startsWith("-"))) flags.push(arg);
    else if (files) named.push(...files);
    else refuse(`${arg} is neither a file that ends in .ts nor a folder of the repository, such as tests/ops`);
  }
  return { tier: tier as Tier, seed, gpu, device, setup, checked, whole: args.length === 0, flags, named };
}
