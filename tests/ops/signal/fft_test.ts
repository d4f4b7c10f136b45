/** `mx.fft` on every device against sums in float64: all sizes to 40, primes, composites and powers of two, axes, sizes and norms. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { generator } from "../../support/oracles/oracle.ts";
import { testDevices } from "../../support/devices/devices.ts";

/** Complex numbers in row-major order, in pairs. */
interface Pairs {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((n, d) => n * d, 1);

/** cos and sin of so many n-ths of a turn. */
const roots = new Map<number, Float64Array>();

function rootsOf(n: number): Float64Array {
  const known = roots.get(n) ?? Float64Array.from({ length: 2 * n }, (_, i) => {
    const angle = 2 * Math.PI * (i >> 1) / n;
    return i % 2 ? Math.sin(angle) : Math.cos(angle);
  });
  roots.set(n, known);
  return known;
}

/** One line of numbers transformed, halves by halves where the size is even. */
function line(x: Float64Array, sign: number): Float64Array {
  const n = x.length / 2;
  const out = new Float64Array(2 * n);
  const w = rootsOf(n);
  const add = (k: number, re: number, im: number, turns: number): void => {
    const at = 2 * (turns % n);
    const [c, s] = [w[at], sign * w[at + 1]];
    out[2 * k] += re * c - im * s;
    out[2 * k + 1] += re * s + im * c;
  };
  if (n % 2 === 1) {
    for (let k = 0; k < n; k++) for (let j = 0; j < n; j++) add(k, x[2 * j], x[2 * j + 1], j * k);
    return out;
  }
  const [even, odd] = [0, 2].map((from) => line(x.filter((_, i) => i % 4 === from || i % 4 === from + 1), sign));
  for (let k = 0; k < n; k++) {
    const at = 2 * (k % (n / 2));
    add(k, even[at], even[at + 1], 0);
    add(k, odd[at], odd[at + 1], k);
  }
  return out;
}

/** An axis cut or padded to n elements, then changed by `change` as a whole. */
function alongAxis(x: Pairs, axis: number, n: number, change: (line: Float64Array) => Float64Array): Pairs {
  const before = sizeOf(x.shape.slice(0, axis)), behind = sizeOf(x.shape.slice(axis + 1)), size = x.shape[axis];
  let data = new Float64Array(0), length = 0;
  for (let i = 0; i < before; i++) {
    for (let k = 0; k < behind; k++) {
      const row = new Float64Array(2 * n);
      for (let j = 0; j < Math.min(n, size); j++) {
        const at = 2 * ((i * size + j) * behind + k);
        row.set(x.data.subarray(at, at + 2), 2 * j);
      }
      const changed = change(row);
      length = changed.length / 2;
      if (data.length === 0) data = new Float64Array(2 * before * behind * length);
      for (let j = 0; j < length; j++) {
        data.set(changed.subarray(2 * j, 2 * j + 2), 2 * ((i * length + j) * behind + k));
      }
    }
  }
  return { shape: x.shape.with(axis, length), data };
}

const NORMS = ["backward", "ortho", "forward"] as const;

/** The results of the functions of `mx.fft`, by their definition. */
function expected(
  kind: "fft" | "ifft" | "rfft" | "irfft",
  x: Pairs,
  sizes: readonly number[],
  axes: readonly number[],
  norm: mx.fft.FftNorm = "backward",
): Pairs {
  const inverse = kind.startsWith("i");
  const real = kind.includes("r");
  const steps = axes.map((axis, i) => ({
    axis: (axis + x.shape.length) % x.shape.length,
    n: sizes[i],
    last: i === axes.length - 1,
  }));
  for (const { axis, n, last } of real && !inverse ? steps.toReversed() : steps) {
    const scale = norm === "ortho" ? 1 / Math.sqrt(n) : inverse === (norm === "backward") ? 1 / n : 1;
    const half = Math.floor(n / 2) + 1;
    x = alongAxis(x, axis, real && inverse && last ? half : n, (row) => {
      if (real && inverse && last) {
        const whole = new Float64Array(2 * n);
        for (let k = 0; k < n; k++) {
          const from = 2 * k <= n ? k : n - k;
          whole[2 * k] = row[2 * from];
          whole[2 * k + 1] = k === 0 || 2 * k === n ? 0 : k === from ? row[2 * from + 1] : -row[2 * from + 1];
        }
        row = whole;
      }
      const all = line(row, inverse ? 1 : -1).map((v) => v * scale);
      return real && !inverse && last ? all.slice(0, 2 * half) : all;
    });
  }
  return real && inverse ? { shape: x.shape, data: x.data.filter((_, i) => i % 2 === 0) } : x;
}

/** Relative to the size of the numbers, squared: some roundings of float32. */
const TOLERANCE = 2e-13;

function check(found: mx.AnyTensor, want: Pairs, what: string): void {
  assertEquals(found.shape, want.shape, what);
  const values = found.toTypedArray() as unknown as Float32Array;
  assertEquals(values.length, want.data.length, what);
  let [error, size] = [0, 0];
  want.data.forEach((v, i) => {
    error += (values[i] - v) ** 2;
    size += v ** 2;
  });
  assert(error <= TOLERANCE * size, `${what}: error ${error / size}`);
}

/** Random numbers, the imaginary parts 0 where they are to be real; and their array. */
function numbers(shape: readonly number[], real: boolean, seed: number): { x: Pairs; a: mx.AnyTensor } {
  const next = generator(seed);
  const data = Float64Array.from(
    { length: 2 * sizeOf(shape) },
    (_, i) => real && i % 2 ? 0 : Math.fround(next() - 0.5),
  );
  const list = Array.from({ length: sizeOf(shape) }, (_, i) => mx.complex(data[2 * i], data[2 * i + 1]));
  const a = real ? mx.array(Float32Array.from(list, ({ re }) => re)) : mx.array(list);
  return { x: { shape, data }, a: a.reshape([...shape]) };
}

const KINDS = ["fft", "ifft", "rfft", "irfft"] as const;

/** Sizes that take other ways; on a GPU each is pipelines of its own. */
const SIZES = [1, 2, 5, 7, 8, 11, 13, 16, 30, 49, 97, 256, 360, 1458, 2048, 4096];
const MORE = [
  3,
  12,
  17,
  32,
  64,
  81,
  121,
  128,
  169,
  243,
  512,
  625,
  1000,
  1009,
  1024,
  2058,
  4004,
  8192,
  65536,
  3 * 2 ** 15,
];

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));
  const wasm = device === "wasm";
  const sizes = wasm ? [...new Set([...SIZES, ...MORE, ...Array.from({ length: 40 }, (_, i) => i + 1)])] : SIZES;

  Deno.test(`fft of every size is the sum that defines it, on ${device}`, () => {
    mx.setDefaultDevice(device);
    for (const n of sizes) {
      mx.tidy(() => {
        for (const rows of n > 3000 ? [1] : wasm && n < 1000 ? [1, 3, 9] : [3]) {
          for (const kind of KINDS) {
            const { x, a } = numbers([rows, kind === "irfft" ? Math.floor(n / 2) + 1 : n], kind === "rfft", n);
            check(mx.fft[kind](a, n), expected(kind, x, [n], [1]), `${kind} of ${rows} x ${n}`);
          }
        }
      });
    }
  });

  Deno.test(`fft along other axes, of other sizes and norms, on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const shape = [3, 8, 5];
      const calls = [
        { axes: [0], s: [3] },
        { axes: [1], s: [6] },
        { axes: [-1], s: [9] },
        { axes: [0, 2], s: [4, 2] },
        { axes: [2, 0, 1], s: [5, 3, 8] },
      ];
      for (const [i, { axes, s }] of calls.entries()) {
        for (const kind of KINDS) {
          const norm = NORMS[i % 3];
          const { x, a } = numbers(shape, kind === "rfft", i);
          const want = expected(kind, x, s, axes, norm);
          check(mx.fft[`${kind}n`](a, s, axes, norm), want, `${kind}n ${axes} ${s} ${norm}`);
          if (axes.length === 2) check(mx.fft[`${kind}2`](a, s, axes, norm), want, `${kind}2 ${axes} ${s} ${norm}`);
          if (axes.length === 1) check(mx.fft[kind](a, s[0], axes[0], norm), want, `${kind} ${axes} ${s} ${norm}`);
        }
      }
      for (const norm of NORMS) {
        const { x, a } = numbers([6, 10], true, 7);
        const { x: y, a: b } = numbers([6, 10], false, 8);
        check(mx.fft.rfft2(a, null, [-2, -1], norm), expected("rfft", x, [6, 10], [0, 1], norm), `rfft2 ${norm}`);
        check(mx.fft.ifftn(b, null, null, norm), expected("ifft", y, [6, 10], [0, 1], norm), `ifftn ${norm}`);
        check(mx.fft.irfftn(b), expected("irfft", y, [6, 18], [0, 1]), "irfftn");
      }
    });
  });

  Deno.test(`fft of views, of other dtypes and of nothing, on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const { x, a } = numbers([4, 6], true, 3);
      const turned = {
        shape: [6, 4],
        data: Float64Array.from(
          { length: 48 },
          (_, i) => i % 2 ? 0 : x.data[2 * ((i >> 1) % 4 * 6 + Math.floor((i >> 1) / 4))],
        ),
      };
      check(mx.fft.fft(a.T), expected("fft", turned, [4], [1]), "transposed");
      check(mx.fft.rfft(a.T), expected("rfft", turned, [4], [1]), "transposed, real");
      const last = { shape: [4], data: x.data.slice(40, 48) };
      check(mx.fft.rfft(a.index(3, mx.Slice(2, null))), expected("rfft", last, [4], [0]), "behind other elements");
      const backwards = { shape: [6], data: Float64Array.from({ length: 12 }, (_, i) => i % 2 ? 0 : x.data[10 - i]) };
      check(mx.fft.fft(a.index(0, mx.Slice(null, null, -1))), expected("fft", backwards, [6], [0]), "reversed");
      const ints = { shape: [3], data: Float64Array.of(1, 0, 2, 0, 4, 0) };
      for (const dtype of [mx.int32, mx.uint8, mx.float16, mx.bfloat16]) {
        const b = mx.array([1, 2, 4], dtype);
        for (const kind of ["fft", "rfft"] as const) check(mx.fft[kind](b), expected(kind, ints, [3], [0]), dtype.name);
      }
      // rfft leaves imaginary parts out.
      const { x: y, a: b } = numbers([5], false, 4);
      check(
        mx.fft.rfft(b),
        expected("rfft", { ...y, data: y.data.map((v, i) => i % 2 ? 0 : v) }, [5], [0]),
        "rfft of complex",
      );
      assertEquals(mx.fft.fft(mx.zeros([0, 3])).shape, [0, 3]);
      assertEquals(mx.fft.fft(a).dtype, mx.complex64);
      assertEquals(mx.fft.irfft(a).dtype, mx.float32);
      assertEquals(mx.fft.fftn(a, null, []).dtype.name as string, "float32");
    });
  });

  Deno.test(`fft there and back of many elements on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const n = device === "wasm" ? 2 ** 20 : 2 ** 17;
      const x = mx.random.normal([n], mx.float32, null, null, mx.random.key(1));
      for (const back of [mx.fft.irfft(mx.fft.rfft(x)), mx.fft.irfft(mx.fft.ifft(mx.fft.fft(mx.fft.rfft(x))))]) {
        assert(mx.max(mx.abs(mx.subtract(back, x))).item() < 1e-5);
      }
      // A shifted impulse has the roots of unity for its spectrum, all of size 1.
      const spectrum = mx.fft.fft(mx.equal(mx.arange(n, mx.int32), 1).astype(mx.float32))
        .toTypedArray() as unknown as Float32Array;
      for (let k = 0; k < n; k += 997) {
        const angle = -2 * Math.PI * k / n;
        assert(Math.hypot(spectrum[2 * k] - Math.cos(angle), spectrum[2 * k + 1] - Math.sin(angle)) < 5e-7, `${k}`);
      }
    });
  });

  Deno.test(`fftshift() and ifftshift() roll by half on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const x = mx.arange(5);
      assertEquals(mx.fft.fftshift(x).tolist(), [3, 4, 0, 1, 2]);
      assertEquals(mx.fft.ifftshift(x).tolist(), [2, 3, 4, 0, 1]);
      const wide = mx.arange(6).reshape([2, 3]);
      assertEquals(mx.fft.fftshift(wide).tolist(), [[5, 3, 4], [2, 0, 1]]);
      assertEquals(mx.fft.fftshift(wide, 1).tolist(), [[2, 0, 1], [5, 3, 4]]);
      assertEquals(mx.fft.ifftshift(wide, [-1]).tolist(), [[1, 2, 0], [4, 5, 3]]);
      const { a } = numbers([4], false, 1);
      assertEquals(mx.fft.ifftshift(mx.fft.fftshift(a)).tolist(), a.tolist());
    });
  });
}

Deno.test("fftfreq() and rfftfreq() are those of NumPy", () => {
  assertEquals(mx.fft.fftfreq(4, 0.5).tolist(), [0, 0.5, -1, -0.5]);
  assertEquals(mx.fft.fftfreq(5).tolist(), [0, 0.2, 0.4, -0.4, -0.2].map(Math.fround));
  assertEquals(mx.fft.rfftfreq(5).tolist(), [0, 0.2, 0.4].map(Math.fround));
  assertEquals(mx.fft.rfftfreq(8, -0.5).tolist(), [-0, -0.25, -0.5, -0.75, -1]);
});

Deno.test("fft says what is wrong with its arguments", () => {
  const x = mx.zeros([2, 3]);
  const rows: readonly [() => unknown, new (message: string) => Error, string][] = [
    [() => mx.fft.fft(x, 0), mx.ShapeError, "fft() expected sizes above 0: found (0)"],
    [() => mx.fft.irfft(mx.zeros([1])), mx.ShapeError, "irfft() expected sizes above 0: found (0)"],
    [() => mx.fft.fft(x, null, 2), mx.IndexError, "fft() axis 2 is out of range"],
    [() => mx.fft.fft(x, null, -1, "none" as "ortho"), mx.ValueError, 'expected norm "backward", "ortho" or "forward"'],
    [() => mx.fft.fftn(x, [2]), mx.ValueError, "fftn() expected axes beside sizes"],
    [() => mx.fft.fftn(x, [2], [0, 1]), mx.ShapeError, "found 1 sizes and 2 axes"],
    [() => mx.fft.fft2(x, null, [0, -2]), mx.ValueError, "fft2() expected distinct axes"],
    [() => mx.fft.fft2(mx.zeros([3])), mx.IndexError, "fft2() axis -2 is out of range"],
    [() => mx.fft.irfftn(3), mx.ValueError, "irfftn() expected an array of at least one axis"],
    [() => mx.fft.fftshift(x, 5), mx.IndexError, "fftshift() axis 5 is out of range"],
    [() => mx.fft.fftfreq(0), mx.ValueError, "fftfreq() expected n above 0"],
    [() => mx.fft.rfftfreq(4, 0), mx.ValueError, "rfftfreq() expected d other than 0"],
  ];
  for (const [call, error, message] of rows) assertThrows(call, error, message);
});
