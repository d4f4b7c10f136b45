/**
 * A program of its own for portability_test.ts. `integrated_process.ts DEVICE TOKENS` continues the first golden prompt greedily with the
 * record of integrated GPUs. It prints the device's threads of a subgroup, the tokens and the kernels. Its environment may widen the
 * subgroups of a software driver.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { closeDevices, getBackend } from "../../../src/backend/devices.ts";
import { tuneIntegrated } from "../../../src/schedule/tuning/integrated.ts";
import { GOLDEN, TINY_DIR } from "../models/models.ts";

const [device, count] = Deno.args;
using _options = withOptions({ regions: "on", launchMode: "barriers", tuning: tuneIntegrated(0) });
const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
const tokens: number[] = [];
const { kernels } = await mx.profile(async () => {
  const answers = mx.lm.streamGenerate(model, tokenizer, GOLDEN[0].prompt, { maxTokens: Number(count) });
  for await (const { token } of answers) tokens.push(token);
}, { timed: false });
const { subgroup } = getBackend(device).limits;
console.log(JSON.stringify({ subgroup, tokens, kernels: kernels.map(({ kernel }) => kernel) }));
model[Symbol.dispose]();
closeDevices();
