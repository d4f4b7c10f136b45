/** Tokens of rows beside each other are chosen by the settings of each row alone; the expected ones are found by hand. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { tokenLog } from "../../../src/llm/decode/state.ts";
import { type ChoiceSettings, chooseRows, kindOf, penaltiesRow } from "../../../src/llm/engine/steps/choice.ts";
import { testDevices } from "../../support/devices/devices.ts";

const DEVICES = testDevices();
for (const name of DEVICES) mx.withDevice(name, getBackend); // opened outside the tests, which count resources

/** Settings that change nothing. */
const PLAIN: ChoiceSettings = {
  temperature: 0,
  topP: 1,
  minP: 0,
  topK: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  contextSize: 1,
  bias: [],
  logprobs: undefined,
};

/** A row: its settings, the tokens before, the last one at position 3, and its logits. */
interface Row {
  readonly settings: Partial<ChoiceSettings>;
  readonly recent: readonly number[];
  readonly logits: readonly number[];
}

/** The greedy choice of rows with penalties. */
function chosen(rows: readonly Row[]): unknown {
  const all = rows.map(({ settings }) => ({ ...PLAIN, ...settings }));
  const now = {
    token: mx.zeros([rows.length, 1], mx.int32),
    position: mx.array(rows.map(() => 3), mx.int32),
    key: undefined,
    recent: mx.array(rows.map(({ recent }) => recent.slice()), mx.int32),
    weights: undefined,
    log: tokenLog(rows.length),
    logprobs: undefined,
    settings: undefined,
    penalties: mx.array(all.map((settings) => Array.from(penaltiesRow(settings)))),
    biasIds: undefined,
    biasValues: undefined,
  };
  const logits = mx.array(rows.map((row) => row.logits.slice()));
  const { token } = chooseRows(kindOf(all), now, logits);
  return token.reshape([-1]).tolist();
}

for (const device of DEVICES) {
  Deno.test(`penalties of a row look at its own tokens, as many as it asks for, on ${device}`, () => {
    const logits = [0, 3, 2, -1];
    const tokens = mx.withDevice(device, () =>
      mx.tidy(() =>
        chosen([
          { settings: { frequencyPenalty: 0.6, contextSize: 4 }, recent: [1, 1, 0, 0], logits }, // 3 - 2 * 0.6
          { settings: { frequencyPenalty: 0.6, contextSize: 2 }, recent: [1, 1, 0, 0], logits }, // the last two are 0
          { settings: { frequencyPenalty: 1.1, contextSize: 3 }, recent: [1, 0, 0, 0], logits }, // the last three are 0
          { settings: { presencePenalty: 0.9, contextSize: 4 }, recent: [1, 1, 1, 1], logits }, // 3 - 0.9
          { settings: { repetitionPenalty: 2, contextSize: 4 }, recent: [1, 0, 0, 0], logits }, // 3 / 2
          { settings: {}, recent: [1, 1, 1, 1], logits },
        ])
      ));
    assertEquals(tokens, [2, 1, 1, 1, 2, 1]);
  });

  Deno.test(`a row without a token leaves the one before it alone on ${device}`, () => {
    const settings = { frequencyPenalty: 5, presencePenalty: 5, contextSize: 4 };
    const tokens = mx.withDevice(device, () =>
      mx.tidy(() =>
        chosen([
          { settings, recent: [0, 0, 0, 0], logits: [9, 0, 1, 2] }, // its last token is the largest one left
          { settings, recent: [-1, -1, -1, -1], logits: [NaN, NaN, NaN, NaN] },
          { settings, recent: [3, 3, 3, 3], logits: [0, 1, 2, 3] },
        ])
      ));
    assertEquals(tokens, [3, -1, 2]);
  });
}
