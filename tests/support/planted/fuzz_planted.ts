/**
 * Readers with a defect each, which the fuzzer must find: inputs with an "!" hang, throw what no user can handle, end
 * the process, or take too much time or memory. Others print more than one line, or give a wrong answer. Without it
 * they are accepted or refused as they should be.
 */

import process from "node:process";
import type { Random } from "../../../scripts/fuzz/random.ts";
import { type Format, Wrong } from "../../../scripts/fuzz/format.ts";
import { mutateBytes } from "../../../scripts/fuzz/bytes.ts";
import { LlmError } from "../../../src/llm/error.ts";

/** The action of a reader on the magic byte. */
const DEFECTS: Readonly<Record<string, () => void>> = {
  none: () => {},
  hang: () => {
    for (;;) { /* the defect */ }
  },
  untyped: () => (undefined as unknown as string[]).at(0),
  crash: () => Deno.exit(3),
  slow: () => {
    const start = process.cpuUsage().user;
    // Many rounds between two looks: asking for the time takes the system longer than the program on some machines.
    for (let x = 1; process.cpuUsage().user < start + 150_000;) {
      for (let i = 0; i < 1e5; i++) x = Math.imul(x, 1664525) + 1013904223 | 0;
    }
  },
  memory: () => void new Uint8Array(100 * 2 ** 20).fill(1),
  bomb: () => {
    const pieces: Uint8Array[] = [];
    for (;;) pieces.push(new Uint8Array(2 ** 24).fill(1));
  },
  message: () => {
    throw new LlmError("config", "two\nlines");
  },
  wrong: () => {
    throw new Wrong("a wrong answer");
  },
};

/** A format for each defect. */
export const FORMATS: readonly Format[] = Object.entries(DEFECTS).map(([name, defect]) => ({
  name,
  suffix: ".txt",
  share: 1,
  base: new TextEncoder().encode("a base of some bytes"),
  generate: (random: Random): Uint8Array =>
    random.once(2) ? new TextEncoder().encode("b!") : mutateBytes(new TextEncoder().encode('{"a": "c"}'), random),
  read: (bytes: Uint8Array): void => {
    if (bytes.includes(0x21)) defect();
    if (bytes.includes(0x7b)) throw new LlmError("config", "refused");
  },
}));
