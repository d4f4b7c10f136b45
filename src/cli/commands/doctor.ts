/**
 * `vkmx doctor`: installed parts, missing parts, and the commands that help.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";
import * as mx from "../../../mod.ts";
import type { Check, State } from "../doctor/check.ts";
import { checkEngine } from "../doctor/engine.ts";
import { checkExchanges } from "../doctor/exchanges.ts";
import { checkPlaces } from "../doctor/places.ts";
import { checkVulkan } from "../doctor/vulkan.ts";
import { type Flags, UsageError } from "../flags.ts";
import { mute, print, printJson } from "../output.ts";
import { type Command, command, JSON_FLAG } from "../program.ts";

const FLAGS = {
  "distributed": { help: "measure what the processes of vkmx launch exchange instead: latency and bandwidth" },
  ...JSON_FLAG,
} as const satisfies Flags;

const PROGRAM = {
  name: "vkmx doctor",
  about:
    `Looks at all that vkmx runs on, computes a little on every device and compares it with the CPU. Each problem comes with
its remedy. Ends with 1 where vkmx cannot run, or a device computes wrongly.`,
  flags: FLAGS,
  examples: ["", "--json"],
};

const doctor: Command = command(PROGRAM, async ({ json, distributed = false }) => {
  const checks = distributed ? await measured() : [
    ...await checkEngine(),
    ...await checkVulkan(),
    ...await checkPlaces(),
  ];
  const good = checks.every(({ state }) => state !== "fail");
  if (json) printJson({ ok: good, checks });
  else print(checks.map(describe).join(""));
  return good ? 0 : 1;
});

export default doctor;

/** What processes exchange. All but the first one print nothing. */
async function measured(): Promise<Check[]> {
  const group = mx.distributed.init();
  if (group.size() === 1) {
    throw new UsageError("Expected several processes: vkmx launch -n 2 -- vkmx doctor --distributed");
  }
  if (group.rank() !== 0) mute();
  await mx.prepareDevices();
  return await checkExchanges(group);
}

const COLORS: Readonly<Record<State, number>> = { ok: 32, warn: 33, fail: 31 };

function describe({ name, state, text, advice }: Check): string {
  const word = (state === "fail" ? "FAIL" : state).padEnd(4);
  const colored = Deno.stdout.isTerminal() && environment("NO_COLOR") === undefined;
  const mark = colored ? `\x1b[${COLORS[state]}m${word}\x1b[0m` : word;
  return `${mark}  ${name}: ${text}\n${advice === undefined ? "" : `      ${advice}\n`}`;
}
