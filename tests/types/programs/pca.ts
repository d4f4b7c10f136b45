/** Principal components by singular values: points along a line have one. */

import { assert, assertAlmostEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

mx.random.seed(0);
const direction = mx.array([0.6, 0.8]);
const along = mx.random.normal([100, 1]).multiply(3);
const noise = mx.random.normal([100, 2]).multiply(0.01);
const data = along.multiply(direction).add(noise);

const centered = data.subtract(data.mean(0));
const [, s, vt] = mx.linalg.svd(centered);
const explained = s.square().divide(s.square().sum());
const first = vt.index(0);
const projected = mx.matmul(centered, vt.T);

assert(explained.tolist()[0] > 0.99);
assertAlmostEquals(Math.abs(mx.sum(first.multiply(direction)).item()), 1, 1e-3);
assertAlmostEquals(projected.variance(0).tolist()[1], 1e-4, 1e-4);

const [values, vectors] = mx.linalg.eigh(mx.matmul(centered.T, centered).divide(99));
const largest = values.index(-1).item();
const axis: number[] = vectors.index("...", -1).tolist();
assertAlmostEquals(largest, projected.index("...", 0).variance(null, false, 1).item(), 1e-2);
assertAlmostEquals(Math.abs(axis[0]), 0.6, 1e-2);
