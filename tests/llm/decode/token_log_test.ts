/** The log of chosen tokens: a ring for each row, of which the tokens at some positions are read. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { writeState } from "../../../src/array/compile/loop.ts";
import { fromLog, tokenLog } from "../../../src/llm/decode/state.ts";
import { testDevices } from "../../support/devices/devices.ts";

for (const device of testDevices()) {
  Deno.test(`each row reads its own tokens, also where the log turns, on ${device}`, () => {
    mx.withDevice(device, () => {
      using log = tokenLog(3);
      mx.eval(log);
      const size = log.shape[1];
      // The token in place i of row r is 1000 r + i; position p is in place p modulo the size.
      for (const row of [0, 1, 2]) {
        writeState(
          log,
          Int32Array.from({ length: size }, (_, i) => 1000 * row + i),
          row * size,
        );
      }
      for (const row of [0, 1, 2]) {
        for (const [position, count] of [[0, 1], [size - 2, 2], [size - 2, 5], [7 * size - 1, 3], [size + 3, size]]) {
          const expected = Array.from({ length: count }, (_, i) => 1000 * row + (position + i) % size);
          assertEquals([...fromLog(log, row, position, count)], expected, `row ${row}, ${count} from ${position}`);
        }
      }
    });
  });
}
