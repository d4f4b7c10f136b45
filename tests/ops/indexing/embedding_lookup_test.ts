/**
 * Rows of a quantized table that are looked up and dequantized in one dispatch must equal those of the ops one by one.
 * Intermediates that another array reads must be there.
 */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { kernelsOf } from "../../support/devices/harness.ts";
import { withOptions } from "../../../scripts/support/options.ts";

for (const device of testDevices()) {
  mx.withDevice(device, getBackend); // opened outside the test, which counts resources
  Deno.test(`rows of a quantized table are one dispatch on ${device}`, async () => {
    mx.setDefaultDevice(device);
    const w = mx.random.normal([7, 128], mx.float32, 0, 1, mx.random.key(3));
    const [codes, scales, biases] = mx.quantize(w, 32, 4);
    const ids = mx.array([[6, 0, -1], [2, 2, 5]], mx.int32);
    mx.eval(codes, scales, biases, ids);
    const look = (dtype: mx.Dtype, shared: boolean): mx.Tensor => {
      const [c, s, b] = [codes, scales, biases].map((table) => mx.take(table, ids, 0));
      const rows = mx.dequantize(c, s.astype(dtype), b.astype(dtype), 32, 4).astype(mx.float32);
      return shared ? mx.add(rows, mx.mean(s)) : rows;
    };
    for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
      for (const shared of [false, true]) {
        const run = (fusion: boolean): unknown => {
          using _options = withOptions({ fuse: fusion });
          return mx.tidy(() => look(dtype, shared).tolist());
        };
        const expected = run(false);
        const kernels = await kernelsOf(device, () => Promise.resolve(assertEquals(run(true), expected, dtype.name)));
        assertEquals(kernels.has("gather"), shared, [...kernels].join());
        if (shared) continue;
        const profile = await mx.profile(() => run(true), { device, timed: false });
        const { bytes } = profile.kernels.find(({ kernel }) => kernel === "dequantize")!;
        assertEquals(bytes, ids.size * (4 + 128 * dtype.bytes), "bytes of indices and rows");
      }
    }
    mx.dispose([w, codes, scales, biases, ids]);
  });
}
