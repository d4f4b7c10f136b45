/**
 * Packed quantized matrices on the CPU. They read back unchanged, and products agree with a float64 oracle. Any number
 * of threads gives the same result, and workers end.
 */

import { assert, assertEquals } from "@std/assert";
import { instantiateWasm } from "../../../ffi/wasm.ts";
import * as mx from "../../../mod.ts";
import { packQuantized } from "../../../src/array/quantized/packed.ts";
import { encodeSlots } from "../../../src/backend/backend.ts";
import { DTYPE_F32, type KernelName, KERNELS } from "../../../src/backend/kernels.ts";
import { createWasmBackend } from "../../../src/backend/wasm.ts";
import { type Dispatch, encodePlan, encodePush } from "../../support/devices/harness.ts";

const packs = Deno.env.get("VKMX_EXACT") !== "1";

/** Bounds of the NMSE: two bytes an activation are as good as float32, one is what long prompts are multiplied with. */
const FINE = 1e-7;
const COARSE = 5e-4;

interface Matrix {
  readonly plain: readonly mx.Tensor[];
  readonly packed: readonly mx.Tensor[];
}

/** A quantized matrix from a file, once as it is and once packed: of `values` (rows, columns), which are random by default. */
async function matrix(
  rows: number,
  columns: number,
  bits: number,
  group: number,
  dtype: mx.Dtype,
  values: mx.Tensor = mx.random.normal([rows, columns], mx.float32, 0, 1, mx.random.key(rows + columns + bits)),
): Promise<Matrix> {
  const w = values.astype(dtype);
  const [codes, scales, biases] = mx.quantize(w, group, bits);
  const path = await Deno.makeTempFile({ suffix: ".safetensors" });
  mx.saveSafetensors(path, { codes, scales, biases });
  const open = (): mx.Tensor[] => {
    const stored = mx.loadSafetensors(path);
    return [stored.codes, stored.scales, stored.biases];
  };
  const [plain, packed] = [open(), open()];
  mx.eval(plain);
  await packQuantized(packed[0], packed[1], packed[2], group, bits);
  mx.eval(packed);
  await Deno.remove(path);
  return { plain, packed };
}

/** x (m, k) times w (n, k) transposed, in float64. */
function product(x: ArrayLike<number>, w: ArrayLike<number>, m: number, n: number, k: number): Float64Array {
  const out = new Float64Array(m * n);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let d = 0; d < k; d++) sum += x[i * k + d] * w[j * k + d];
      out[i * n + j] = sum;
    }
  }
  return out;
}

function nmse(found: ArrayLike<number>, expected: ArrayLike<number>): number {
  let error = 0;
  let power = 0;
  for (let i = 0; i < expected.length; i++) {
    error += (found[i] - expected[i]) ** 2;
    power += expected[i] ** 2;
  }
  return error / power;
}

const numbers = (x: mx.Tensor): ArrayLike<number> => x.toTypedArray() as ArrayLike<number>;

for (const bits of [4, 8]) {
  for (const group of [32, 64, 128]) {
    for (const dtype of [mx.bfloat16, mx.float16, mx.float32]) {
      Deno.test(`a packed matrix of ${bits} bits, groups of ${group}, ${dtype.name} scales`, async () => {
        mx.setDefaultDevice("wasm");
        const [rows, columns] = [80, 384];
        const { plain, packed } = await matrix(rows, columns, bits, group, dtype);
        // Parts, views of them, and rows of them are what they were.
        plain.forEach((part, i) => {
          assertEquals(packed[i].toTypedArray(), part.toTypedArray());
          assertEquals(packed[i].T.toTypedArray(), part.T.toTypedArray());
          const ids = mx.array([[3, -1], [79, 0]], mx.int32);
          assertEquals(mx.take(packed[i], ids, 0).toTypedArray(), mx.take(part, ids, 0).toTypedArray());
        });
        const dense = numbers(
          mx.dequantize(
            plain[0],
            ...[plain[1], plain[2]].map((t) => t.astype(mx.float32)) as [mx.Tensor, mx.Tensor],
            group,
            bits,
          ),
        );
        // One row, odd numbers of rows, and a long prompt past one block.
        for (const [m, bound] of [[1, FINE], [2, FINE], [3, FINE], [31, FINE], [64, COARSE], [133, COARSE]]) {
          const x = mx.random.normal([m, columns], mx.float32, 0, 1, mx.random.key(m));
          const y = mx.quantizedMatmul(x, packed[0], packed[1], packed[2], true, group, bits);
          const error = nmse(numbers(y), product(numbers(x), dense, m, rows, columns));
          assert(error <= bound, `${m} rows: NMSE ${error}`);
        }
        mx.dispose(plain, packed);
      });
    }
  }
}

for (const bits of [4, 8]) {
  Deno.test(`a row of x times a packed matrix of ${bits} bits does not depend on its company`, async () => {
    mx.setDefaultDevice("wasm");
    const [rows, columns, most] = [48, 256, 11];
    const { plain, packed: [w, s, b] } = await matrix(rows, columns, bits, 64, mx.bfloat16);
    const x = mx.random.normal([most, columns], mx.float32, 0, 1, mx.random.key(5));
    const times = (from: number, to: number): Float32Array =>
      mx.quantizedMatmul(x.index(mx.Slice(from, to)), w, s, b, true, 64, bits).toTypedArray() as Float32Array;
    const alone = Array.from({ length: most }, (_, row) => Array.from(times(row, row + 1)));
    for (let count = 2; count <= most; count++) {
      assertEquals(Array.from(times(0, count)), alone.slice(0, count).flat(), `${count} rows`);
    }
    mx.dispose(plain, [w, s, b]);
  });

  Deno.test(`the largest sums of a packed matrix of ${bits} bits are held`, async () => {
    mx.setDefaultDevice("wasm");
    const [k, group] = [256, 128];
    // In each group, one code is 0 and the others are the largest; all of x are the largest of their group.
    const values = mx.array([Array.from({ length: k }, (_, i) => i % group === 0 ? -1 : 0.9)]);
    const { plain, packed: [w, s, b] } = await matrix(16, k, bits, group, mx.float32, mx.broadcastTo(values, [16, k]));
    const dense = numbers(mx.dequantize(plain[0], plain[1], plain[2], group, bits));
    for (const m of [1, 2, 3, 4]) {
      const y = numbers(mx.quantizedMatmul(mx.full([m, k], -3), w, s, b, true, group, bits));
      assert(nmse(y, product(new Float32Array(m * k).fill(-3), dense, m, 16, k)) <= FINE, `${m} rows`);
    }
    mx.dispose(plain, [w, s, b]);
  });
}

Deno.test("matrices that do not fit tiles stay as they are", async () => {
  mx.setDefaultDevice("wasm");
  for (const [rows, bits] of [[72, 4], [81, 4], [64, 3]]) {
    const { plain, packed } = await matrix(rows, 128, bits, 64, mx.float16);
    const x = mx.random.normal([2, 128]);
    const [a, b] = [plain, packed].map(([w, s, z]) => mx.quantizedMatmul(x, w, s, z, true, 64, bits));
    assertEquals(a.toTypedArray(), b.toTypedArray());
  }
});

Deno.test({ name: "infinite and NaN activations reach the product", ignore: !packs }, async () => {
  mx.setDefaultDevice("wasm");
  const { packed: [w, s, b] } = await matrix(16, 64, 4, 32, mx.float16);
  for (const bad of [Infinity, NaN]) {
    const x = mx.array([Array.from({ length: 64 }, (_, i) => i === 40 ? bad : 1)], mx.float32);
    const y = numbers(mx.quantizedMatmul(x, w, s, b, true, 32, 4));
    assert(Array.from(y).every((v) => !Number.isFinite(v)));
  }
});

Deno.test("an update of a packed part leaves the others alone", async () => {
  mx.setDefaultDevice("wasm");
  const { plain, packed } = await matrix(32, 64, 4, 32, mx.float16);
  const update = mx.zeros([1, 2], mx.float16);
  const [a, b] = [plain, packed].map((parts) => mx.sliceUpdate(parts[1], update, mx.array([1], mx.int32), [0]));
  assertEquals(a.toTypedArray(), b.toTypedArray());
  for (const i of [0, 1, 2]) assertEquals(packed[i].toTypedArray(), plain[i].toTypedArray());
});

/** Seconds are plenty for workers to come up; they need some 50 ms. */
async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 400 && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
  assert(condition(), "gave up waiting");
}

Deno.test("workers come up, and end when they are stopped", async () => {
  const runtime = instantiateWasm(true);
  assert(runtime.shared);
  runtime.startWorkers(2);
  await until(() => runtime.workers === 2);
  runtime.stopWorkers();
  await until(() => runtime.workers === 0);
});

Deno.test("the module without shared memory has no workers", () => {
  const runtime = instantiateWasm();
  assert(!runtime.shared);
  runtime.startWorkers(2);
  assertEquals(runtime.workers, 0);
});

/** A dispatch over slots by number. */
function dispatch(
  kernel: KernelName,
  slots: readonly number[],
  push: Uint32Array,
  spec: Record<string, number>,
): Dispatch {
  return {
    kernel,
    grid: [1, 1, 1],
    buffers: slots.map((slot) => [slot, 0] as const),
    spec: KERNELS[kernel].spec.map((name) => name === "THREADS" ? 1 : spec[name]),
    push,
  };
}

// One product by its kernels, on devices of one thread and of three, whose products add up in both ways.
for (const [bits, bytes] of [[4, 2], [4, 1], [8, 2]]) {
  const name = `a product of ${bits} bits and ${bytes} bytes`;
  Deno.test(`${name} gives the same bits on any number of threads, in slices or at once, by pairs or quads`, () => {
    return sameBits(bits, bytes);
  });
}

async function sameBits(bits: number, bytes: number): Promise<void> {
  const [n, k, group] = [2048, 256, 64];
  const types = { DTYPE_SCALES: DTYPE_F32, DTYPE_X: DTYPE_F32, DTYPE_OUT: DTYPE_F32 };
  const spec = { BITS: bits, GROUP: group, BYTES: bytes, ...types };
  const results: Uint8Array[][] = [];
  for (const [threads, quads] of [[1, false], [1, true], [3, undefined]] as const) {
    using backend = createWasmBackend(threads, quads);
    backend.free(backend.alloc(65 << 20)); // large enough for workers to be started
    // The product lies beyond 4 GiB.
    if (threads > 1) { for (const gigabytes of [3, 2]) backend.alloc(gigabytes * 2 ** 30); }
    const buffer = (data: ArrayBufferView<ArrayBuffer>): number => {
      const at = backend.alloc(data.byteLength);
      backend.write(at, 0, new Uint8Array(data.buffer));
      return at;
    };
    const codes = new Uint8Array(n * k * bits / 8 + n * k / group * 8).map((_, i) => Math.imul(i, 2654435761) >>> 24);
    const factors = (v: number): Float32Array<ArrayBuffer> => new Float32Array(n * k / group).fill(v);
    const out = backend.alloc(8 * n * 4);
    const buffers = [
      ...[codes, factors(0.01), factors(-0.05), Float32Array.from({ length: 8 * k }, (_, i) => Math.sin(i))].map(
        buffer,
      ),
      ...[8 * k * bytes, 2 * 8 * k / group * 4].map((bytes) => backend.alloc(bytes)),
      out,
    ];
    const slots = encodeSlots(buffers.map((buffer) => ({ buffer, byteOffset: 0 })));
    const compile = (dispatches: readonly Dispatch[]): number =>
      backend.compile(encodePlan(buffers.length, dispatches));
    const push = (count: number): Uint32Array => encodePush("PackedPush", { rows: n, columns: k, count });
    backend.run(compile([dispatch("pack_quantized", [0, 1, 2], push(n), spec)]), slots);
    const own: Uint8Array[] = [];
    for (const [count, kernel] of [[1, "packed_matvec"], [6, "packed_matmul"], [8, "packed_matmul"]] as const) {
      const plan = compile([
        dispatch("quantize_activations", [3, 4, 5], push(count), spec),
        dispatch(kernel, [4, 5, 0, 6], push(count), spec),
      ]);
      for (let turn = 0; turn < (threads > 1 ? 40 : 2); turn++) {
        const ticket = backend.run(plan, slots);
        if (turn % 2) backend.wait(ticket);
        else await backend.waitAsync(ticket);
        if (turn === 5) await new Promise((resolve) => setTimeout(resolve, 100)); // workers are up from here on
        const bytes = new Uint8Array(count * n * 4);
        backend.read(out, 0, bytes);
        if (turn === 0) own.push(bytes);
        else assertEquals(bytes, own.at(-1));
      }
    }
    results.push(own);
  }
  for (const other of results.slice(1)) assertEquals(other, results[0]);
}
