/**
 * Attention of one query of each sequence over parts of the keys, which are merged, against float64 loops. GPUs take it where heads are fewer
 * than workgroups that they want.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";
import { kernelsOf } from "../support/devices/harness.ts";
import { generator } from "../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

interface Case {
  readonly batch: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly keys: number;
  readonly dim: number;
  readonly dtype: mx.Dtype;
  readonly sinks?: boolean;
}

const CASES: readonly Case[] = [
  { batch: 1, heads: 4, kvHeads: 2, keys: 600, dim: 64, dtype: mx.float32 },
  { batch: 2, heads: 2, kvHeads: 1, keys: 129, dim: 256, dtype: mx.float32 },
  { batch: 3, heads: 3, kvHeads: 3, keys: 513, dim: 36, dtype: mx.float32, sinks: true },
  { batch: 1, heads: 8, kvHeads: 1, keys: 1000, dim: 128, dtype: mx.bfloat16, sinks: true },
];

const next = generator(7);
const drawn = (n: number): number[] => Array.from({ length: n }, () => 2 * next() - 1);

/** Outputs in float64 over q (B, H, D), k and v (B, K, T, D). */
function attended(c: Case, [q, k, v]: readonly (readonly number[])[], sinks: readonly number[]): number[] {
  const { batch, heads, kvHeads, keys, dim } = c;
  const all: number[] = [];
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      const kv = (b * kvHeads + Math.floor(h * kvHeads / heads)) * keys * dim;
      const weights = Array.from({ length: keys }, (_, t) => {
        let score = 0;
        for (let d = 0; d < dim; d++) score += q[(b * heads + h) * dim + d] * k[kv + t * dim + d];
        return Math.exp(score / Math.sqrt(dim));
      });
      const sum = weights.reduce((a, w) => a + w, sinks.length > 0 ? Math.exp(sinks[h]) : 0);
      for (let d = 0; d < dim; d++) all.push(weights.reduce((a, w, t) => a + w * v[kv + t * dim + d], 0) / sum);
    }
  }
  return all;
}

for (const device of testDevices()) {
  for (const c of CASES) {
    const { batch, heads, kvHeads, keys, dim, dtype } = c;
    const what = `${heads} heads of ${dim}, ${keys} keys, ${dtype.name}${c.sinks ? ", sinks" : ""}`;
    Deno.test(`one query attends to parts of the keys: ${what} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      const given = [
        drawn(batch * heads * dim),
        drawn(batch * kvHeads * keys * dim),
        drawn(batch * kvHeads * keys * dim),
      ];
      const shapes = [[batch, heads, 1, dim], [batch, kvHeads, keys, dim], [batch, kvHeads, keys, dim]];
      const arrays = given.map((values, i) => mx.array(values, mx.float32).reshape(shapes[i]).astype(dtype));
      const [q, k, v] = arrays;
      const values = arrays.map((x) => Array.from(x.astype(mx.float32).toTypedArray() as Float32Array));
      const ofHeads = mx.array(drawn(heads), mx.float32).astype(dtype);
      const sinks = c.sinks ? Array.from(ofHeads.astype(mx.float32).toTypedArray() as Float32Array) : [];
      const options = c.sinks ? { sinks: ofHeads } : {};
      let found: number[] = [];
      const kernels = await kernelsOf(device, () => {
        const y = mx.fast.scaledDotProductAttention(q, k, v, { scale: dim ** -0.5, ...options });
        assertEquals([y.shape, y.dtype], [[batch, heads, 1, dim], dtype]);
        found = Array.from(y.astype(mx.float32).toTypedArray() as Float32Array);
        return Promise.resolve();
      });
      if (device !== "wasm") assert(kernels.has("attention_merge"), [...kernels].join());
      const expected = attended(c, values, sinks);
      const error = expected.reduce((sum, x, i) => sum + (x - found[i]) ** 2, 0);
      const power = expected.reduce((sum, x) => sum + x ** 2, 0);
      const bound = dtype === mx.float32 ? 1e-11 : 1e-5;
      assert(error <= bound * power, `NMSE ${error / power}`);
    });
  }
}
