/**
 * `deno task test:full`: everything that is too slow for each change, one step after the other. The nightly workflow
 * runs the steps in parallel.
 *
 *     deno task test:full                  all steps: hours on two cores
 *     deno task test:full --step fuzz      one of them
 *
 * Closes with the line "N passed, N failed", the sum of what the steps closed with.
 *
 * @module
 */

import type { Flags } from "../src/cli/flags.ts";
import { UsageError } from "../src/cli/flags.ts";
import { print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { setup } from "./setup.ts";
import { ROOT } from "./tools.ts";

const today = new Date().toISOString().slice(0, 10);

/** Scripts and their arguments, by the name of the step. */
const STEPS = {
  tests: ["test.ts", "--tier", "full"],
  validate: ["validate.ts"],
  sanitize: ["sanitize.ts"],
  fuzz: ["fuzz.ts", "--count", "1000000", "--seed", today],
  soak: ["soak.ts"],
  platforms: ["zig.ts", "build", "cross"],
} as const satisfies Record<string, readonly string[]>;

type Step = keyof typeof STEPS;
const NAMES = Object.keys(STEPS) as Step[];

const FLAGS = { "step": { value: "NAME", help: `one of ${NAMES.join(", ")} (all)` } } as const satisfies Flags;
const PROGRAM = { name: "test:full", about: "Runs all tests, checks and long runs.", flags: FLAGS };

/** Runs a step and shows what it prints; gives what its last line counts. A step without such a line is one failure. */
async function runStep(name: Step): Promise<{ readonly passed: number; readonly failed: number }> {
  const [script, ...args] = STEPS[name];
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", `scripts/${script}`, ...args],
    cwd: ROOT,
    stdin: "null",
    stdout: "piped",
  }).spawn();
  const decoder = new TextDecoder();
  let tail = "";
  for await (const bytes of child.stdout) {
    const text = decoder.decode(bytes, { stream: true });
    print(text);
    tail = (tail + text).slice(-200);
  }
  const { success } = await child.status;
  const [, passed, failed] = /(?:^|\n)(\d+) passed, (\d+) failed\s*$/.exec(tail) ?? [];
  if (passed === undefined) return { passed: Number(success), failed: Number(!success) };
  return { passed: Number(passed), failed: Math.max(Number(failed), Number(!success)) };
}

await runMain(PROGRAM, async ({ step }) => {
  const chosen = NAMES.filter((name) => step === undefined || name === step);
  if (chosen.length === 0) throw new UsageError(`--step is "${step}", expected one of ${NAMES.join(", ")}`);
  await setup();
  const total = { passed: 0, failed: 0 };
  for (const name of chosen) {
    print(`${name}\n`);
    const { passed, failed } = await runStep(name);
    total.passed += passed;
    total.failed += failed;
  }
  print(`${total.passed} passed, ${total.failed} failed\n`);
  return total.failed > 0 ? 1 : 0;
});
