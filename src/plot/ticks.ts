/**
 * Axes: round numbers for their marks, and where a value lies along them.
 *
 * @module
 */

/** A scale from `low` to `high`, both finite and not equal; of a logarithmic one both are positive. It may run down. */
export interface Scale {
  readonly low: number;
  readonly high: number;
  readonly log: boolean;
}

/** A mark of an axis. */
export interface Tick {
  readonly at: number;
  readonly text: string;
}

/** Where a value lies on a scale, 0 to 1 between its ends. */
export function position({ low, high, log }: Scale, value: number): number {
  return log
    ? (Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low))
    : (value / 2 - low / 2) / (high / 2 - low / 2);
}

/** The scale of values from `low` to `high`; a single value gets room on both sides. Nothing is a scale of 0 to 1, or 1 to 10. */
export function scaleOf(range: readonly [number, number] | undefined, log: boolean): Scale {
  if (range === undefined) return log ? { low: 1, high: 10, log } : { low: 0, high: 1, log };
  const [low, high] = range;
  if (low < high) return { low, high, log };
  if (log) return { low: low / 2, high: low * 2, log };
  const room = low === 0 ? 1 : Math.abs(low) / 2;
  return { low: low - room, high: low + room, log };
}

/** A number with as many decimals as a step needs. */
function format(value: number, step: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) {
    const digits = Math.max(0, Math.min(6, Math.floor(Math.log10(size)) - Math.floor(Math.log10(step))));
    return value.toExponential(digits).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  return value.toFixed(Math.max(0, Math.min(12, -Math.floor(Math.log10(step) + 1e-9))));
}

/** About `count` marks at round numbers: steps of 1, 2 or 5 times a power of ten; powers of ten on a logarithmic scale. */
export function ticks(scale: Scale, count: number = 5): Tick[] {
  const { log } = scale;
  const [low, high] = [Math.min(scale.low, scale.high), Math.max(scale.low, scale.high)];
  if (log && high / low >= 10) {
    const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
    const step = Math.max(1, Math.ceil((last - first) / count));
    const powers = Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => first + i * step);
    return powers.map((power) => ({ at: 10 ** power, text: format(10 ** power, 10 ** power) }));
  }
  const rough = (high / 2 - low / 2) / count * 2;
  if (!(rough > 0 && Number.isFinite(rough))) return [{ at: low, text: format(low, Math.abs(low) || 1) }];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999)!;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.min(50, last - first + 1) }, (_, i) => {
    const at = (first + i) * step;
    return { at, text: format(Math.abs(at) < step / 2 ? 0 : at, step) };
  });
}
