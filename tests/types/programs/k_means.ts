/** k-means: three clusters in the plane. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

mx.random.seed(0);
const centers = mx.array([[0, 0], [10, 0], [0, 10]]);
const points = mx.concatenate(Array.from(centers, (center) => mx.random.normal([20, 2]).add(center)));

function kMeans(points: mx.Tensor, k: number, steps = 10) {
  let centroids = points.index(mx.Slice(null, null, Math.floor(points.shape[0] / k)));
  let assigned = mx.zeros([points.shape[0]], mx.uint32);
  for (let step = 0; step < steps; step++) {
    const offsets = mx.subtract(mx.expandDims(points, 1), centroids);
    assigned = mx.argmin(offsets.square().sum(-1), 1);
    const means: mx.Tensor[] = [];
    for (let i = 0; i < k; i++) {
      const members = mx.equal(assigned, i).astype(points.dtype);
      const total = mx.sum(mx.multiply(points, mx.expandDims(members, 1)), 0);
      means.push(mx.divide(total, mx.maximum(members.sum(), 1)));
    }
    centroids = mx.stack(means);
  }
  return { centroids, assigned };
}

const { centroids, assigned } = kMeans(points, 3);
const rounded = mx.divide(centroids, 10).round();
assertEquals(rounded.tolist(), [[0, 0], [1, 0], [0, 1]]);
assertEquals(new Set(assigned.index(mx.Slice(0, 20)).tolist()).size, 1);
