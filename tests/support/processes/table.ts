/**
 * Command lines of `vkmx` as rows of a table: the typed text, and exactly the output of both streams. Each row is a process of its own
 * in an empty folder, on the CPU unless its environment says otherwise; two run at a time.
 *
 * Expected text is exact but for placeholders: {number}, {device} (a name such as wasm or vulkan:0), {text} (anything on one line) and
 * {lines} (anything).
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { turnOf } from "../../../scripts/test/seed.ts";
import { ROOT } from "../../../scripts/tools.ts";
import { SEED, TIER } from "../tier.ts";

/** A command line and what comes of it. */
export interface CommandLineRow {
  /** The arguments after `vkmx`. */
  readonly args: readonly string[];
  /** Typed or piped input; by default stdin is at its end. */
  readonly stdin?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** The folder that it runs in; default a temporary empty one. */
  readonly cwd?: string;
  /** The event when the first text is on stdout: Ctrl-C, or its reader goes. */
  readonly then?: "Ctrl-C" | "close stdout";
  /** The exit code; default 0. */
  readonly code?: number;
  /** Default nothing. */
  readonly stdout?: string;
  /** Default nothing. */
  readonly stderr?: string;
}

/** The output of a row's process. */
export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const PLACEHOLDERS: Readonly<Record<string, string>> = {
  "{number}": String.raw`-?\d[\d.,]*(?:e-?\d+)?`,
  "{device}": String.raw`(?:wasm|vulkan:\d+[-\w=]*)`,
  "{text}": "[^\\n]*",
  "{lines}": "[^]*",
};

const AT_A_TIME = 2;
/** A row that takes longer hangs. */
const LIMIT_MS = 120_000;

/**
 * Before the full tier one row in so many of a long table runs: a process takes half a second. No `shareOnCpu` of scripts/test/tiers.ts has
 * a common divisor with it.
 */
const TURNS = 3;
const LONG = 20;

/** Whether it is the turn of a row of a long table with a seed. */
export function isRowsTurn(row: number, seed: string): boolean {
  return row % TURNS === turnOf(seed) % TURNS;
}

/** Tests every row of a table; of a long one before the full tier, those whose turn it is with the seed. */
export function testTable(name: string, rows: readonly CommandLineRow[]): void {
  const all = TIER === "full" || rows.length < LONG;
  const chosen = all ? rows : rows.filter((_, i) => isRowsTurn(i, SEED));
  Deno.test(`${rows.length} command lines of ${name}`, () => checkRows(chosen));
}

/** Runs every row, and throws if one is not as expected. */
export async function checkRows(rows: readonly CommandLineRow[]): Promise<void> {
  const wrong: unknown[] = [];
  const expected: unknown[] = [];
  const left = rows.values();
  const work = async (): Promise<void> => {
    for (const row of left) {
      const outcome = await runRow(row);
      const want = { code: row.code ?? 0, stdout: row.stdout ?? "", stderr: row.stderr ?? "" };
      const right = outcome.code === want.code && matches(outcome.stdout, want.stdout) &&
        matches(outcome.stderr, want.stderr);
      if (right) continue;
      const line = ["vkmx", ...row.args].join(" ").slice(0, 200);
      wrong.push({ line, ...outcome });
      expected.push({ line, ...want });
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, work));
  assertEquals(wrong, expected);
}

/** Whether a text is the expected one. */
export function matches(text: string, expected: string): boolean {
  const pattern = expected.split(/(\{\w+\})/).map((part) =>
    PLACEHOLDERS[part] ?? part.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&")
  );
  return new RegExp(`^${pattern.join("")}$`).test(text);
}

/** Runs a row. */
export async function runRow(row: CommandLineRow): Promise<Outcome> {
  const cwd = row.cwd ?? await Deno.makeTempDir();
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", "--no-check", "--config", `${ROOT}deno.json`, `${ROOT}src/cli/mod.ts`, ...row.args],
    cwd,
    env: { VKMX_DEVICE: "wasm", NO_COLOR: "1", ...row.env },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const limit = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
  try {
    const stderr = new Response(child.stderr).text();
    const stdin = feed(child.stdin, row.stdin ?? "");
    const stdout = await readOutput(child, row.then);
    await stdin;
    return { code: (await child.status).code, stdout, stderr: await stderr };
  } finally {
    clearTimeout(limit);
    if (row.cwd === undefined) await Deno.remove(cwd, { recursive: true });
  }
}

/** Writes all of a text; a program that does not read it is done without. */
async function feed(stdin: WritableStream<Uint8Array>, text: string): Promise<void> {
  const writer = stdin.getWriter();
  try {
    if (text !== "") await writer.write(new TextEncoder().encode(text));
    await writer.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}

/** All of stdout, or what came before its reader went. */
async function readOutput(child: Deno.ChildProcess, then: CommandLineRow["then"]): Promise<string> {
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    if (text === "" && then === "Ctrl-C") child.kill("SIGINT");
    text += part.value;
    if (then !== "close stdout") continue;
    await reader.cancel();
    break;
  }
  return text;
}
