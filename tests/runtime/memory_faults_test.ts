/**
 * Memory that runs out at each allocation of loading a model and generating with it. Each gives a typed error, the
 * process lives, and no memory stays in use. The same work succeeds afterwards. Memory is asked for in small pieces, so
 * that there are many such places.
 */

import { assert, assertEquals } from "@std/assert";
import { liveObjects } from "../../ffi/vulkan.ts";
import * as mx from "../../mod.ts";
import { closeDevices } from "../../src/backend/devices.ts";
import { turnOf } from "../../scripts/test/seed.ts";
import { testDevices } from "../support/devices/devices.ts";
import { GOLDEN, TINY_DIR } from "../support/models/models.ts";
import { SEED, TIER } from "../support/tier.ts";
import { withOptions } from "../../scripts/support/options.ts";

/** VK_ERROR_OUT_OF_DEVICE_MEMORY. */
const REFUSED = -2;
/** Fewer allocations would not be a test. */
const LEAST = 50;
const TOKENS = 4;
/** Before the full tier one allocation in so many fails, beginning where the seed says. */
const STEP = TIER === "full" ? 1 : 4;
const FROM = turnOf(SEED) % STEP;

/** Loads the embedded model and generates; gives the tokens. */
async function work(device: string): Promise<number[]> {
  const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device });
  try {
    const tokens: number[] = [];
    for await (const { token } of mx.lm.streamGenerate(model, tokenizer, GOLDEN[0].prompt, { maxTokens: TOKENS })) {
      tokens.push(token);
    }
    return tokens;
  } finally {
    model[Symbol.dispose]();
  }
}

for (const base of testDevices().filter((name) => name !== "wasm")) {
  Deno.test(`memory that runs out at any allocation of a model on ${base} is a typed error`, async () => {
    const device = `${base}-chunkBytes=65536`;
    const expected = GOLDEN[0].greedy.slice(0, TOKENS);
    let failed = 0;
    try {
      for (let at = FROM;; at += STEP) {
        const fault = withOptions({ env: { VKMX_FAULT: `vkAllocateMemory:${REFUSED}:${at}` } });
        const error = await work(device).then((tokens) => assertEquals(tokens, expected), (error: unknown) => error);
        fault[Symbol.dispose]();
        assertEquals(liveObjects(), { devices: 1, buffers: 0, plans: 0, kernels: 0 }, `after allocation ${at} failed`);
        closeDevices();
        if (error === undefined) break;
        assert(error instanceof mx.RuntimeError && error.code === "out-of-memory", `allocation ${at}: ${error}`);
        failed++;
      }

      assert(failed * STEP > LEAST, `only ${failed} allocations, one in ${STEP}`);
      assertEquals(await work(device), expected);
    } finally {
      closeDevices();
    }
  });
}
