/**
 * The shape of a convolution, which functions check and which is computed again for arrays of other sizes.
 *
 * @module
 */

import type { OpAttrs } from "../../graph/node.ts";
import type { Shape } from "../../graph/shape.ts";

/** The sizes of the window and of the input along spatial axis `i`, both dilated and padded. */
export function convSpan(x: Shape, w: Shape, attrs: OpAttrs["conv"], i: number): { size: number; span: number } {
  const dilated = (n: number, by: number): number => n === 0 ? 0 : 1 + (n - 1) * by;
  return {
    size: dilated(x[i + 1], attrs.inputDilation[i]) + attrs.paddingLow[i] + attrs.paddingHigh[i],
    span: dilated(w[i + 1], attrs.kernelDilation[i]),
  };
}

/** Whether a window fits into its input. */
export function convFits({ size, span }: { readonly size: number; readonly span: number }): boolean {
  return size >= span && size >= 1;
}

/** The shape of the result for an input (N, …, C) and weights (O, …, C / groups); undefined if they do not fit. */
export function convShape(x: Shape, w: Shape, attrs: OpAttrs["conv"]): number[] | undefined {
  const { stride, groups } = attrs;
  const rank = stride.length + 2;
  if (x.length !== rank || w.length !== rank || x[rank - 1] % groups !== 0 || w[0] % groups !== 0) return undefined;
  if (x[rank - 1] / groups !== w[rank - 1]) return undefined;
  const spans = stride.map((_, i) => convSpan(x, w, attrs, i));
  if (!spans.every(convFits)) return undefined;
  return [x[0], ...spans.map(({ size, span }, i) => Math.floor((size - span) / stride[i]) + 1), w[0]];
}
