/** Parameters as trees: counted, cast, averaged, saved by name, and put back. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const { treeFlatten, treeMap, treeMapWithPath, treeReduce, treeUnflatten } = mx.utils;

const parameters = {
  embedding: mx.ones([10, 4]),
  layers: [{ weight: mx.ones([4, 4]), bias: mx.zeros([4]) }, { weight: mx.ones([2, 4]), bias: mx.zeros([2]) }],
};

let count = 0;
for (const [, array] of treeFlatten(parameters)) count += array.size;
assertEquals(count, 40 + 20 + 10);
assertEquals(treeReduce((sum, array) => sum + array.nbytes, parameters, 0), 4 * count);

const half = treeMap((array) => array.astype(mx.float16), parameters);
assertEquals(half.layers[1].weight.dtype, mx.float16);
const shapes = treeMap((array) => array.shape, parameters);
assertEquals(shapes.layers[0].bias, [4]);

let average = parameters;
average = treeMap((a, b) => a.multiply(0.9).add(b.multiply(0.1)), average, [treeMap(mx.zerosLike, parameters)]);
const total: number = mx.sum(average.layers[1].bias).item();
assertEquals(total, 0);

const decayed = treeMapWithPath((path, a) => path.endsWith("bias") ? a : a.multiply(0.5), parameters);
assertEquals(decayed.embedding.index(0, 0).item(), 0.5);

const model = new mx.nn.Sequential(new mx.nn.Linear(2, 3), mx.nn.relu, new mx.nn.Linear(3, 1));
const flat = treeFlatten(model.parameters());
const zeros = flat.map(([name, array]) => [name, mx.zeros(array.shape)] as const);
model.update(treeUnflatten(zeros));
assertEquals(model.forward(mx.ones([1, 2])).tolist(), [[0]]);
