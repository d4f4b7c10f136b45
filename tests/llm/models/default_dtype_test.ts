/**
 * The dtype of a model that is loaded without one: the checkpoint's own where matrix units multiply it, else float32.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { withOptions } from "../../../scripts/support/options.ts";
import { bfloat16, type Dtype, float16, float32 } from "../../../src/graph/dtype.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { Weights } from "../../../src/llm/checkpoint/weights.ts";
import { hasMatrixKernels } from "../../../src/schedule/ops/matmul/coopmat_dense.ts";
import { anyDevice, testDevices } from "../../support/devices/devices.ts";
import { nmse } from "../../support/oracles/oracle.ts";

const IDS = [17, 300, 4, 1999, 52, 8, 1024, 77];
/** Of bfloat16 to float32: 8 bits of digits through eight layers. */
const LIMIT = 1e-3;

/** Runs with a value of the variable, or without it. */
async function withVariable<T>(value: string | undefined, work: () => Promise<T>): Promise<T> {
  using _options = withOptions({ env: { VKMX_DTYPE: value } });
  return await work();
}

/** The logits of the embedded model, whose floats are bfloat16, and its dtype. */
async function logitsOf(device: string, dtype?: Dtype): Promise<{ dtype: Dtype; logits: Float32Array }> {
  const loaded = await mx.lm.load(mx.lm.EMBEDDED_MODEL, { device, ...(dtype && { dtype }) });
  using model = loaded.model;
  const logits = mx.withDevice(device, () =>
    mx.tidy(() => {
      const all = model.forward(mx.array([IDS], mx.int32));
      assertEquals(all.dtype, loaded.dtype);
      return Float32Array.from(all.astype(mx.float32).reshape([-1]).tolist() as number[]);
    }));
  return { dtype: loaded.dtype, logits };
}

for (const device of testDevices()) {
  Deno.test(`a model computes in its own dtype where matrix units multiply it, else in float32, on ${device}`, async () => {
    const backend = mx.withDevice(device, getBackend);
    const exact = await logitsOf(device, mx.float32);
    const { dtype, logits } = await withVariable(undefined, () => logitsOf(device));
    assertEquals(dtype, hasMatrixKernels(backend, bfloat16) ? bfloat16 : float32);
    const error = nmse(logits, exact.logits);
    assert(dtype === float32 ? error === 0 : error <= LIMIT, `NMSE ${error}`);
  });
}

Deno.test("VKMX_DTYPE sets the dtype of models that are loaded without one", async () => {
  const device = anyDevice();
  assertEquals((await withVariable("float16", () => logitsOf(device))).dtype, float16);
  assertEquals((await withVariable("float16", () => logitsOf(device, mx.bfloat16))).dtype, bfloat16);
});

Deno.test("a checkpoint with floats of several dtypes has none of its own", () => {
  const config = {} as mx.lm.ModelConfig;
  const asked = (...dtypes: mx.Dtype[]): Dtype => {
    using weights = new Weights(
      "",
      config,
      new Map(dtypes.map((dtype, i) => [`${i}`, mx.zeros([2], dtype)])),
      (stored) => stored,
    );
    return weights.dtype;
  };
  assertEquals(asked(mx.bfloat16, mx.uint32, mx.bfloat16), bfloat16);
  assertEquals(asked(mx.float16), float16);
  assertEquals(asked(mx.float16, mx.float32), float32);
  assertEquals(asked(mx.uint8), float32);
});
