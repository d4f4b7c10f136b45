/** Short-time Fourier transforms are those of MLX, and the way back gives the signal. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";

/** Arguments by MLX's names. */
interface Arguments {
  readonly n_fft?: number;
  readonly hop_length?: number;
  readonly win_length?: number;
  readonly window?: readonly number[];
  readonly center?: boolean;
  readonly pad_mode?: "edge";
  readonly norm?: mx.fft.FftNorm;
  readonly onesided?: boolean;
  readonly length?: number;
  readonly complex?: boolean;
}
interface Told {
  readonly dtype: string;
  readonly shape: number[];
  readonly values: number[];
}
const ROWS: { forward: Arguments; back: Arguments; spectra: Told; signal: Told }[] = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/arrays/stft.json", import.meta.url)),
);

const forward = (x: mx.Tensor, a: Arguments): mx.Tensor =>
  mx.fft.stft(x, a.n_fft, a.hop_length, a.win_length, a.window, a.center, a.pad_mode, a.norm, a.onesided);
const back = (y: mx.Tensor, a: Arguments): mx.Tensor =>
  mx.fft.istft(y, a.n_fft, a.hop_length, a.win_length, a.window, a.center, a.norm, a.onesided, a.length);

/** Normalised mean squared error. */
function check(found: mx.Tensor, { dtype, shape, values }: Told, what: string): void {
  assertEquals([found.dtype.name, found.shape], [dtype, shape], what);
  const flat = mx.view(mx.contiguous(found), mx.float32).reshape(-1).tolist() as number[];
  const sum = (list: number[]): number => list.reduce((s, v) => s + v * v, 0);
  assert(sum(flat.map((v, i) => v - values[i])) <= 1e-11 * sum(values), what);
}

for (const device of testDevices()) {
  Deno.test(`stft() and istft() are those of MLX on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        const x = mx.array(Float32Array.from({ length: 50 }, (_, i) => (i * 37) % 101 / 64 - 1)).reshape(2, 25);
        const z = mx.add(x, mx.multiply(x.index(mx.Slice(null, null, -1)), mx.complex(0, 1)));
        for (const row of ROWS) {
          const what = JSON.stringify(row.forward);
          const y = forward(row.forward.complex ? z : x, row.forward);
          check(y, row.spectra, what);
          check(back(y, row.back), row.signal, `back ${what}`);
        }
      })));

  Deno.test(`istft() undoes stft() on ${device}`, () =>
    mx.withDevice(device, () =>
      mx.tidy(() => {
        for (const [length, size, hop] of [[64, 16, 4], [50, 15, 5], [33, 8, 8], [40, 10, 3], [7, 4, 1]]) {
          for (const shape of [[length], [2, 3, length]]) {
            const x = mx.random.normal(shape);
            const y = mx.fft.stft(x, size, hop), z = mx.fft.istft(y, size, hop);
            const kept = z.shape.at(-1)!;
            assert(kept > length - hop && z.ndim === shape.length);
            const same = mx.allclose(z, x.index("...", mx.Slice(0, kept)), 1e-4, 1e-5);
            if (kept <= length) assert(same.item(), `${length} ${size} ${hop}`);
          }
        }
        const none = mx.fft.stft(mx.zeros([0, 20]), 8);
        assertEquals([none.shape, mx.fft.istft(none).shape], [[0, 5, 11], [0, 20]]);
      })));
}

Deno.test("stft() and istft() say what they take", () => {
  const x = mx.ones([20]), { stft, istft } = mx.fft;
  assertThrows(() => stft(1, 8), mx.ShapeError, "at least 1 axis");
  assertThrows(() => stft(x, 0), mx.ValueError, "nFft above 0");
  assertThrows(() => stft(x, 3), mx.ValueError, "hopLength above 0: found 0");
  assertThrows(() => stft(x, 8, 0), mx.ValueError, "hopLength above 0");
  assertThrows(() => stft(x, 8, 2, 9), mx.ValueError, "at most nFft 8");
  assertThrows(() => stft(x, 8, 2, null, mx.ones([9])), mx.ValueError, "at most nFft 8");
  assertThrows(() => stft(x, 8, 2, null, mx.ones([2, 4])), mx.ShapeError, "window of 1 axis");
  assertThrows(() => stft(x, 8, 2, null, mx.ones([8], mx.complex64)), mx.DtypeError, "real numbers");
  assertThrows(() => stft(x, 32, 8, null, null, false), mx.ShapeError, "at least 32 elements");
  assertThrows(() => stft(x, 8, 2, null, null, true, "reflect", "x" as "ortho"), mx.ValueError, "norm");
  assertThrows(() => istft(x, 8), mx.ShapeError, "at least 2 axes");
  assertThrows(() => istft(stft(x, 8), 8, 2, null, null, true, "backward", true, -1), mx.ValueError, "found -1");
});
