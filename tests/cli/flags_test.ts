/** Words of a command line and the values that are read of them: what a flag is, what is not, and what is a number. */

import { assertEquals, assertThrows } from "@std/assert";
import { type Flags, readCommandLine, UsageError } from "../../src/cli/flags.ts";

const FLAGS = {
  "max-tokens": { value: "N", short: "m", help: "tokens", range: [0, 100], whole: true },
  "temp": { value: "T", help: "temperature", range: [0, 2] },
  "bias": { value: "B", help: "bias", range: [-100, 100] },
  "prompt": { value: "TEXT", short: "p", help: "prompt" },
} as const satisfies Flags;

Deno.test('words after "--" are no flags, whatever they begin with', () => {
  // Guideline 10 of the utility syntax of POSIX: what follows "--" is an operand, even if it begins with "-".
  for (const words of [["-temp"], ["--temp", "1"], ["-prompt=x"], ["--bias", "-1"], ["-m", "-5"], ["--none"], ["--"]]) {
    assertEquals(readCommandLine(FLAGS, ["--temp", "1", "--", ...words]), {
      values: { temp: 1 },
      positionals: words,
    });
  }
  assertThrows(() => readCommandLine(FLAGS, ["-temp", "--", "-temp"]), UsageError, "did you mean --temp?");
});

Deno.test("a number is a number that is written out", () => {
  for (const [text, value] of [["0", 0], ["-0.5", -0.5], ["1e1", 10], [" 3 ", 3]] as const) {
    assertEquals(readCommandLine(FLAGS, [`--bias=${text}`]).values, { bias: value });
  }
  for (const text of ["", " ", "\t\n", "none", "1,5", "NaN", "Infinity"]) {
    assertThrows(() => readCommandLine(FLAGS, [`--bias=${text}`]), UsageError, "expected a number from -100 to 100");
    assertThrows(() => readCommandLine(FLAGS, ["--temp", text]), UsageError, "expected a number from 0 to 2");
  }
  for (const text of ["", "1.5"]) {
    assertThrows(() => readCommandLine(FLAGS, ["-m", text]), UsageError, "expected a whole number from 0 to 100");
  }
});
