/** Means, variances and norms over axes, with axes that stay for broadcasting. */

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

mx.random.seed(0);
const x = mx.random.normal([8, 5]).multiply(3).add(1);

const normalized = x.subtract(x.mean(-1, true)).divide(mx.sqrt(x.variance(-1, true).add(1e-5)));
const means: number[] = normalized.mean(1).tolist();
for (const mean of means) assertAlmostEquals(mean, 0, 1e-5);
const layer = new mx.nn.LayerNorm(5);
assert(mx.allclose(layer.forward(x), normalized, 1e-4, 1e-5).item());

let standard = x;
standard = standard.subtract(standard.mean(0, true)).divide(standard.std(0, true));
assertAlmostEquals(mx.std(standard).item(), 1, 1e-4);

const logits = mx.array([[1, 2, 3], [1, 1, 1]]);
const logProbs = logits.subtract(logits.logsumexp(-1, true));
assertEquals(mx.exp(logProbs).sum(-1).round().tolist(), [1, 1]);
const [top] = mx.topk(logits.index(0), 1).tolist();
assertEquals(top, 3);
const order: number[] = mx.argsort(logits.index(0)).tolist();
assertEquals(order, [0, 1, 2]);
const running: number[] = mx.cumsum(mx.array([1, 2, 3])).tolist();
assertEquals(running, [1, 3, 6]);
const norms: number[] = mx.linalg.norm(logits, null, 1).tolist();
assertAlmostEquals(norms[1], Math.sqrt(3), 1e-5);
const both: number = logits.sum([0, 1]).item();
assertEquals(both, 9);
const perLast: number[][] = mx.max(mx.ones([2, 3, 4]), [2]).tolist();
assertEquals(perLast.length, 2);
