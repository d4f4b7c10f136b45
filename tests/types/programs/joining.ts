/** Arrays put together and cut up; how many axes there are is known all along. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const a = mx.arange(6).reshape(2, 3);
const rows: number[][] = mx.concatenate([a, mx.ones([1, 3])]).tolist();
assertEquals(rows, [[0, 1, 2], [3, 4, 5], [1, 1, 1]]);
const flat: number[] = mx.concatenate([a, a], null).tolist();
assertEquals(flat.length, 12);

const cube: number[][][] = mx.stack([a, a.multiply(2)], -1).tolist();
assertEquals(cube[1][2], [5, 10]);

const [left, right] = mx.split(a, [1], 1);
const widths: number[] = [left.shape[1], right.shape[1]];
assertEquals(widths, [1, 2]);
let total = mx.zeros([2, 1]);
for (const part of a.split(3, 1)) total = total.add(part);
assertEquals(total.tolist(), [[3], [12]]);

const [first, second] = mx.unstack(a);
assertEquals(first.add(second).tolist(), [3, 5, 7]);

const padded: number[][] = mx.pad(a, 1).tolist();
assertEquals(padded.length, 4);
const rolled: number[][] = mx.roll(a, 1, 1).tolist();
assertEquals(rolled[0], [2, 0, 1]);
const repeated: number[] = mx.repeat(mx.array([1, 2]), 2).tolist();
assertEquals(repeated, [1, 1, 2, 2]);

let tokens = mx.array([[1, 2]], mx.int32);
for (let i = 3; i < 6; i++) tokens = mx.concatenate([tokens, mx.array([[i]], mx.int32)], 1);
assertEquals(tokens.tolist(), [[1, 2, 3, 4, 5]]);
const list: number[] = tokens.flatten().tolist();
assertEquals(list.at(-1), 5);
