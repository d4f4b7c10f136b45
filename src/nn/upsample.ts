/**
 * Interpolation along spatial axes, axis by axis. The source elements and their weights depend on sizes alone, so the host computes
 * them.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { Module } from "./module.ts";
import { pythonBool, pythonFloat } from "./print.ts";

/** How elements between others are found. */
export type UpsampleMode = "nearest" | "linear" | "cubic";

/** Elements along an axis that go into each new one, and their weights. */
interface Tap {
  readonly index: readonly number[];
  readonly weight: readonly number[];
}

/** A kernel of interpolation: weights by distance up to a radius, where weights are made to add up to 1. */
interface Kernel {
  readonly weight: (distance: number) => number;
  readonly radius: number;
}

/** Keys' cubic kernel with its parameter. */
function cubic(a: number): Kernel {
  const weight = (x: number): number => {
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x <= 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
  };
  return { weight, radius: 2 };
}

/** The triangle, which interpolates between two neighbours. */
const TRIANGLE: Kernel = { weight: (x) => Math.max(1 - x, 0), radius: 1 };

/** The kernels as they are, and those that are stretched if an axis shrinks. */
const KERNELS = {
  linear: { plain: TRIANGLE, antialias: TRIANGLE },
  cubic: { plain: cubic(-0.75), antialias: cubic(-0.5) },
} as const;

/** Size of an axis after its scaling. */
function scaledSize(size: number, scale: number): number {
  return Math.trunc(scale * size);
}

/** Where new elements lie among the old ones, in float32 as MLX has it. */
function positionsOf(size: number, scale: number, alignCorners: boolean): number[] {
  const count = scaledSize(size, scale);
  const at = (i: number): number => {
    if (alignCorners) return Math.fround(i * Math.fround((size - 1) / Math.max(count - 1, 1)));
    const start = ((count - 1) / scale - size + 1) / 2;
    return Math.fround(Math.fround(i * Math.fround(1 / scale)) - Math.fround(start));
  };
  return Array.from({ length: count }, (_, i) => at(i));
}

/** The taps of a kernel; what would lie beyond the edges is the element there. */
function plainTaps(size: number, positions: readonly number[], { weight, radius }: Kernel): Tap[] {
  const inside = (i: number): number => Math.min(Math.max(i, 0), size - 1);
  // Between two neighbours, positions beyond the edges are those of the edges.
  const places = radius === 1 ? positions.map(inside) : positions;
  return Array.from({ length: 2 * radius }, (_, k) => {
    const taps = places.map((place) => Math.floor(place) + k - radius + 1);
    return { index: taps.map(inside), weight: taps.map((tap, i) => weight(Math.abs(places[i] - tap))) };
  });
}

/** The taps of a kernel as wide as the axis shrinks; places beyond the edges are ignored. */
function antialiasTaps(size: number, positions: readonly number[], scale: number, { weight, radius }: Kernel): Tap[] {
  const stretch = scale < 1 ? 1 / scale : 1;
  const most = Math.ceil(radius * stretch);
  const taps = Array.from({ length: 2 * most + 1 }, (_, k) => positions.map((place) => Math.floor(place) + k - most));
  const weights = taps.map((index) =>
    index.map((tap, i) => tap >= 0 && tap < size ? weight(Math.abs(positions[i] - tap) / stretch) : 0)
  );
  const sums = positions.map((_, i) => weights.reduce((sum, row) => sum + row[i], 0));
  return taps.map((index, k) => ({
    index: index.map((tap) => Math.min(Math.max(tap, 0), size - 1)),
    weight: weights[k].map((w, i) => sums[i] > 0 ? w / sums[i] : w),
  }));
}

/** The nearest old element of each new one, in float32 as MLX has it. */
function nearestIndices(size: number, scale: number): number[] {
  const count = scaledSize(size, scale);
  const step = Math.fround(size / count);
  const even = (x: number): number => Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x);
  return Array.from({ length: count }, (_, i) => {
    if (count <= size) return Math.trunc(Math.fround(i * step));
    return Math.max(even(Math.fround(Math.fround(Math.fround(i + 0.5) * step) - 0.5)), 0);
  });
}

/** An axis of x with each element repeated. */
function repeated(x: Tensor, axis: number, times: number): Tensor {
  const { shape } = x;
  const one = [...shape.slice(0, axis + 1), 1, ...shape.slice(axis + 1)];
  const many = one.with(axis + 1, times);
  return mx.reshape(mx.broadcastTo(mx.reshape(x, one), many), shape.with(axis, shape[axis] * times));
}

/** An axis of x as weighted sums of its elements. */
function interpolated(x: Tensor, axis: number, taps: readonly Tap[]): Tensor {
  const shape = x.shape.map((_, i) => i === axis ? -1 : 1);
  const parts = taps.map(({ index, weight }): Tensor =>
    mx.multiply(mx.take(x, index, axis), mx.array([...weight]).reshape(shape))
  );
  return parts.reduce((sum, part) => mx.add(sum, part));
}

/**
 * x (N, …spatial, C) with spatial axes scaled, by repetition, between two neighbours, or between four.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const layer = new mx.nn.Upsample(2, "linear");
 * layer.forward(mx.arange(4).reshape(1, 4, 1)).shape; // [1, 8, 1]
 * ```
 */
export class Upsample extends Module {
  /** The factor of all spatial axes, or of each. */
  readonly scaleFactor: number | readonly number[];
  /** How elements between others are found. */
  readonly mode: UpsampleMode;
  /** Whether the outermost elements keep their places. */
  readonly alignCorners: boolean;
  /** Whether more elements count if an axis shrinks. */
  readonly antialias: boolean;

  /** Takes the factor of all spatial axes or of each, the mode, whether the outermost elements keep their places, and antialiasing. */
  constructor(
    scaleFactor: number | readonly number[],
    mode: UpsampleMode = "nearest",
    alignCorners: boolean = false,
    antialias: boolean = false,
  ) {
    super();
    if (mode !== "nearest" && !Object.hasOwn(KERNELS, mode)) {
      throw new mx.ValueError(`Upsample expected mode to be nearest, linear or cubic: found ${mode}`);
    }
    if (antialias && (mode === "nearest" || alignCorners)) {
      const found = mode === "nearest" ? 'mode "nearest"' : "alignCorners";
      throw new mx.ValueError(
        `Upsample takes antialias with linear and cubic interpolation only, without alignCorners: found ${found}`,
      );
    }
    this.scaleFactor = scaleFactor;
    this.mode = mode;
    this.alignCorners = alignCorners;
    this.antialias = antialias;
  }

  /** x (N, …spatial, C) → (N, …scaled, C) */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    const sizes = x.shape.slice(1, -1);
    const { scaleFactor } = this;
    const scales = typeof scaleFactor === "number" ? sizes.map(() => scaleFactor) : scaleFactor;
    if (sizes.length === 0 || sizes.length !== scales.length) {
      throw new mx.ShapeError(
        `Upsample expected (N, …, C) with a spatial axis for each factor of ${String(scaleFactor)}: found shape (${
          x.shape.join(", ")
        })`,
      );
    }
    return scoped((): Tensor => sizes.reduce((y, size, i) => this.#along(y, i + 1, size, scales, i), x));
  }

  #along(x: Tensor, axis: number, size: number, scales: readonly number[], i: number): Tensor {
    const scale = scales[i];
    if (this.mode === "nearest") {
      if (scales.every(Number.isInteger)) return repeated(x, axis, scale);
      return mx.take(x, nearestIndices(size, scale), axis);
    }
    const { plain, antialias } = KERNELS[this.mode];
    const positions = positionsOf(size, scale, this.alignCorners);
    const taps = this.antialias ? antialiasTaps(size, positions, scale, antialias) : plainTaps(size, positions, plain);
    return interpolated(x, axis, taps);
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const { scaleFactor } = this;
    const factor = typeof scaleFactor === "number"
      ? pythonFloat(scaleFactor)
      : `(${scaleFactor.map(pythonFloat).join(", ")}${scaleFactor.length === 1 ? "," : ""})`;
    const settings = `scale_factor=${factor}, mode='${this.mode}', align_corners=${pythonBool(this.alignCorners)}`;
    return this.antialias ? `${settings}, antialias=True` : settings;
  }
}
