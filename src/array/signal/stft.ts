/**
 * Short-time Fourier transforms: spectra of overlapping frames of a signal, and the signal of such spectra.
 *
 * @module
 */

import { complex64, float32 } from "../../graph/dtype.ts";
import { DtypeError, ShapeError, ValueError } from "../../graph/error.ts";
import type { Node } from "../../graph/node.ts";
import { contiguousStrides, formatShape, sizeOf } from "../../graph/shape.ts";
import { divide, maximum, multiply } from "../ops/binary.ts";
import { real } from "../ops/complex.ts";
import { castNode, type TensorLike, toInteger, toNode } from "../tensor/convert.ts";
import { ones } from "../ops/creation.ts";
import { fft, type FftNorm, ifft, irfft, rfft } from "./fft.ts";
import { asStrided, broadcastTo, contiguous, reshape, sliceNode, swapaxes } from "../ops/movement.ts";
import { pad, type PadMode } from "../ops/pad.ts";
import { scoped } from "../tensor/scope.ts";
import { type AnyTensor, nodeOf, type Tensor, wrap } from "../tensor/tensor.ts";

/** The least that an envelope of windows is taken for, as in MLX. */
const MIN_ENVELOPE = 1e-8;

/** Sizes of frames, and the window of each, in the middle of its frame. */
interface Frames {
  readonly size: number;
  readonly hop: number;
  readonly window: AnyTensor;
}

function framesOf(
  op: string,
  nFft: number,
  hopLength: number | null | undefined,
  winLength: number | null | undefined,
  window: TensorLike | null | undefined,
): Frames {
  const size = toInteger(op, "nFft", nFft), hop = toInteger(op, "hopLength", hopLength ?? Math.floor(size / 4));
  if (size <= 0) throw new ValueError(`${op}() expected nFft above 0: found ${size}`);
  if (hop <= 0) throw new ValueError(`${op}() expected hopLength above 0: found ${hop}`);
  const given = window === null || window === undefined ? undefined : toNode(op, window);
  if (given && given.shape.length !== 1) {
    throw new ShapeError(`${op}() expected a window of 1 axis: found ${formatShape(given.shape)}`);
  }
  if (given?.dtype.kind === "complex") {
    throw new DtypeError(`${op}() expected a window of real numbers: found complex64`);
  }
  const length = given ? given.shape[0] : toInteger(op, "winLength", winLength ?? size);
  if (length < 0 || length > size) {
    throw new ValueError(`${op}() expected a window of at most nFft ${size} elements: found ${length}`);
  }
  const values = given ? wrap(castNode(given, float32)) : ones([length]) as AnyTensor;
  const before = Math.floor((size - length) / 2);
  return { size, hop, window: pad(values, [[before, size - length - before]]) };
}

/**
 * Short-time Fourier transform of the last axis: complex64 (…, frequencies, frames). Frames of `nFft` elements, `hopLength` apart
 * (default a quarter of that), are multiplied by the window and transformed. The default window has `winLength` ones; a window stands in
 * the middle of the frame. With `center`, half a frame is padded at both ends by `padMode`. The result for real numbers has only the
 * frequencies from 0 on, or all if `onesided` is false; complex numbers have all.
 *
 * Throws a ShapeError for a signal shorter than a frame, a ValueError for sizes that do not fit.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const x = mx.sin(mx.arange(64));
 * const y = mx.fft.stft(x, 16, 4, null, mx.hanning(16));
 * y.shape; // [9, 17]
 * mx.fft.istft(y, 16, 4, null, mx.hanning(16)).shape; // [64]
 * ```
 */
export function stft(
  x: TensorLike,
  nFft: number = 2048,
  hopLength: number | null = null,
  winLength: number | null = null,
  window: TensorLike | null = null,
  center: boolean = true,
  padMode: PadMode = "reflect",
  norm: FftNorm = "backward",
  onesided: boolean | null = null,
): Tensor<"complex64"> {
  const given = toNode("stft", x), rank = given.shape.length;
  if (rank === 0) throw new ShapeError("stft() expected at least 1 axis");
  return scoped("stft", (): AnyTensor => {
    const { size, hop, window: weights } = framesOf("stft", nFft, hopLength, winLength, window);
    const isComplex = given.dtype === complex64;
    const signal = wrap(isComplex ? given : castNode(given, float32));
    const half = center ? Math.floor(size / 2) : 0;
    const whole = contiguous(
      pad(signal, given.shape.map((_, i) => i === rank - 1 ? [half, half] as const : [0, 0] as const), padMode),
    );
    const length = whole.shape[rank - 1];
    if (length < size) {
      throw new ShapeError(`stft() expected at least ${size} elements along the last axis: found ${length}`);
    }
    const lead = whole.shape.slice(0, -1), count = 1 + Math.floor((length - size) / hop);
    const strides = contiguousStrides(whole.shape).slice(0, -1);
    const frames = multiply(asStrided(whole, [...lead, count, size], [...strides, hop, 1]), weights);
    const parts = isComplex && onesided ? real(frames) : frames;
    const spectra = onesided ?? !isComplex ? rfft(parts, null, -1, norm) : fft(frames, null, -1, norm);
    return swapaxes(spectra, -1, -2);
  });
}

/** Frames (…, count, size) added where they overlap: (…, size + hop (count - 1)). */
function overlapped(frames: AnyTensor, hop: number): AnyTensor {
  const [count, size] = frames.shape.slice(-2), lead = frames.shape.slice(0, -2);
  // Frames in so many steps of a hop each, of which step k of frame i is step i + k of the sum.
  const steps = Math.ceil(size / hop);
  const padded = pad(frames, frames.shape.map((_, i) => [0, i === lead.length + 1 ? steps * hop - size : 0] as const));
  const rows = sizeOf(lead);
  const parts = reshape(padded, [rows, count, steps, hop]);
  // Row i moved by i: written with rows one longer than there are sums, read in rows of the length of the sums.
  const sums = count + steps - 1;
  const wide = pad(swapaxes(parts, 1, 2), [[0, 0], [0, 0], [0, sums - count + 1], [0, 0]]);
  const flat = reshape(wide, [rows, steps * (sums + 1), hop]);
  const cut = sliceNode(nodeOf(flat), [0, 0, 0], [1, 1, 1], [rows, steps * sums, hop]);
  const moved = reshape(wrap(cut), [rows, steps, sums * hop]);
  const total = moved.sum(1) as AnyTensor;
  const length = size + hop * (count - 1);
  return reshape(wrap(sliceNode(nodeOf(total), [0, 0], [1, 1], [rows, length])), [...lead, length]);
}

/** Elements from a place on along the last axis, cut or padded with zeros to a length. */
function part(x: AnyTensor, from: number, length: number): AnyTensor {
  const last = x.ndim - 1, there = Math.max(0, Math.min(length, x.shape[last] - from));
  const starts = x.shape.map((_, i) => i === last ? Math.min(from, x.shape[last]) : 0);
  const cut = wrap(sliceNode(nodeOf(x), starts, x.shape.map(() => 1), x.shape.with(last, there)));
  return pad(cut, x.shape.map((_, i) => [0, i === last ? length - there : 0] as const));
}

/**
 * The signal (…, length) of spectra (…, frequencies, frames): what {@link stft} makes with the same arguments, float32. Frames are added
 * where they overlap, and divided by what their windows add up to. `nFft` follows from the number of frequencies, and is even then where
 * only those from 0 on are there (`onesided`). The signal is cut or padded with zeros to `length`.
 */
export function istft(
  stftMatrix: TensorLike,
  nFft: number | null = null,
  hopLength: number | null = null,
  winLength: number | null = null,
  window: TensorLike | null = null,
  center: boolean = true,
  norm: FftNorm = "backward",
  onesided: boolean | null = null,
  length: number | null = null,
): Tensor<"float32"> {
  const given: Node = toNode("istft", stftMatrix), { shape } = given;
  if (shape.length < 2) throw new ShapeError("istft() expected at least 2 axes: frequencies and frames");
  if (length !== null && toInteger("istft", "length", length) < 0) {
    throw new ValueError(`istft() expected a length from 0 on: found ${length}`);
  }
  const [frequencies, count] = shape.slice(-2), half = onesided ?? true;
  return scoped("istft", (): AnyTensor => {
    const inferred = half ? 2 * (frequencies - 1) : frequencies;
    const { size, hop, window: weights } = framesOf("istft", nFft ?? inferred, hopLength, winLength, window);
    const spectra = swapaxes(wrap(castNode(given, complex64)), -1, -2);
    const frames = half ? irfft(spectra, size, -1, norm) : real(ifft(spectra, size, -1, norm));
    const signal = overlapped(multiply(frames, weights), hop);
    const envelope = overlapped(broadcastTo(multiply(weights, weights), [count, size]), hop);
    const even = divide(signal, maximum(envelope, MIN_ENVELOPE)) as AnyTensor;
    const from = center ? Math.floor(size / 2) : 0;
    return part(even, from, length ?? Math.max(0, even.shape.at(-1)! - 2 * from));
  });
}
