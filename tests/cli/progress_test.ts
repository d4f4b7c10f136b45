/** The output of a Progress on stderr: a line in place on a terminal, plain lines elsewhere, nothing for quick work. */

import { assert, assertEquals } from "@std/assert";
import { note } from "../../src/cli/output.ts";
import { BYTES, describeSeconds, Progress, type ProgressOptions, TOKENS } from "../../src/cli/progress.ts";

/** Amounts that are done, and at which millisecond. */
type Steps = readonly (readonly [at: number, done: number])[];

/** The output of progress to a total at a terminal of some columns, or to a file. */
function written(
  steps: Steps,
  total: number,
  { columns, ...options }: Omit<ProgressOptions, "now"> & { readonly columns?: number },
): string[] {
  const texts: string[] = [];
  const { stderr, consoleSize } = Deno;
  let clock = 0;
  const fake = {
    isTerminal: () => columns !== undefined,
    writeSync: (bytes: Uint8Array) => texts.push(new TextDecoder().decode(bytes)) && bytes.length,
  };
  Object.defineProperty(Deno, "stderr", { value: fake, configurable: true, writable: true });
  Object.defineProperty(Deno, "consoleSize", {
    value: () => ({ columns, rows: 24 }),
    configurable: true,
    writable: true,
  });
  try {
    const progress = new Progress("Loading", { ...options, now: () => clock });
    for (const [at, done] of steps) {
      clock = at;
      progress.update(done, total);
    }
    progress.clear();
    note("next\n");
  } finally {
    Object.defineProperty(Deno, "stderr", { value: stderr, configurable: true, writable: true });
    Object.defineProperty(Deno, "consoleSize", { value: consoleSize, configurable: true, writable: true });
  }
  return texts;
}

Deno.test("progress is a bar in place on a terminal, with the rate and the time left", () => {
  const steps: Steps = [[0, 0], [50, 1e8], [1000, 2e8], [2000, 5e8], [3000, 1e9]];
  assertEquals(written(steps, 1e9, { unit: BYTES, columns: 80 }), [
    `\rLoading [${" ".repeat(30)}] 0/1000 MB\x1b[K`,
    `\rLoading [${"#".repeat(6)}${" ".repeat(24)}] 200/1000 MB, 200.0 MB/s, 4 s left\x1b[K`,
    `\rLoading [${"#".repeat(15)}${" ".repeat(15)}] 500/1000 MB, 250.0 MB/s, 2 s left\x1b[K`,
    "\r\x1b[K",
    "next\n",
  ]);
});

Deno.test("progress shows after its delay, and its line fits any terminal", () => {
  const steps: Steps = [[0, 0], [900, 500], [1100, 1000]];
  assertEquals(written(steps, 5000, { unit: TOKENS, delay: 1000, columns: 60 }).slice(0, -1), [
    "\rLoading [#       ] 1000/5000 tokens, 909 tokens/s, 5 s left\x1b[K",
    "\r\x1b[K",
  ]);
  for (const columns of [1, 9, 20, 30, 40, 50, 200]) {
    const [line] = written(steps, 5000, { unit: TOKENS, columns, delay: 1000 });
    assert(line.length - "\r\x1b[K".length <= Math.max(1, columns - 1), `${columns}: ${line}`);
  }
});

Deno.test("without a terminal progress is plain lines, five seconds apart", () => {
  const steps: Steps = [[0, 0], [1000, 10], [4900, 20], [5000, 100], [9000, 150], [10000, 200], [11000, 1000]];
  assertEquals(written(steps, 1000, { unit: TOKENS }), [
    "Loading: 100/1000 tokens, 20 tokens/s, 45 s left\n",
    "Loading: 200/1000 tokens, 20 tokens/s, 40 s left\n",
    "next\n",
  ]);
});

Deno.test("seconds are told as people tell them", () => {
  assertEquals([0.2, 59.5, 61, 3599, 3600, 7260].map(describeSeconds), [
    "1 s",
    "1 min 0 s",
    "1 min 1 s",
    "59 min 59 s",
    "1 h 0 min",
    "2 h 1 min",
  ]);
});
