/**
 * Which drafted tokens count. A step chooses a token from the logits of each place of a draft, as if the draft were right up to there. As long
 * as the choices are the drafted tokens, they are right. The first other choice counts too; what follows it came of a wrong token.
 *
 * A sampler's choice x has the model's probability p(x), whatever was drafted. A draft d is accepted with p(d), and otherwise the choice has the
 * distribution p without d. So this is rejection sampling (Leviathan et al. 2023, Chen et al. 2023) for drafts that are not drawn. Draws
 * have the keys that they have without drafts, so equal seeds give equal answers.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";

/** How many of the drafted tokens are the choices in their places. */
export function acceptedOf(chosen: ArrayLike<number>, drafted: readonly number[]): number {
  const wrong = drafted.findIndex((token, i) => token !== chosen[i]);
  return wrong < 0 ? drafted.length : wrong;
}

/** The same on the device: of choices (B, n) and the first `lengths` (B,) of drafted tokens (B, n - 1), int32 (B,). */
export function countAccepted(chosen: Tensor, drafted: Tensor, lengths: Tensor): Tensor {
  const [rows, places] = drafted.shape;
  const first = chosen.index(mx.Slice(null), mx.Slice(0, places));
  const isDrafted = mx.less(mx.arange(0, places, 1, mx.int32).reshape([1, places]), lengths.reshape([rows, 1]));
  const right = mx.logicalAnd(mx.equal(first, drafted), isDrafted);
  return mx.sum(mx.cumprod(right.astype(mx.int32), 1), 1).astype(mx.int32).reshape([rows]);
}
