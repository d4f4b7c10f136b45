/** Elements read and assigned by position, slices, lists and masks. */

import { assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const grid = mx.arange(12).reshape(3, 4);
const cell: number = grid.index(1, 2).item();
assertEquals(cell, 6);
const row: number[] = grid.index(-1).tolist();
assertEquals(row, [8, 9, 10, 11]);
const column: number[] = grid.index(mx.Slice(), 0).tolist();
assertEquals(column, [0, 4, 8]);
const corner: number[][] = grid.index(mx.Slice(0, 2), mx.Slice(null, null, 2)).tolist();
assertEquals(corner, [[0, 2], [4, 6]]);
const chosen: number[][] = grid.index([2, 0]).tolist();
assertEquals(chosen[0], row);
const picked: number[] = mx.takeAlongAxis(grid, mx.array([[1], [0], [3]], mx.int32), 1).flatten().tolist();
assertEquals(picked, [1, 4, 11]);

const image = mx.zeros([4, 4]);
image.indexPut_([mx.Slice(1, 3), mx.Slice(1, 3)], 1);
image.indexPut_(mx.greater(mx.eye(4), 0), 5);
assertEquals(image.index(1).tolist(), [0, 5, 1, 0]);

let histogram = mx.zeros([4], mx.int32);
for (const ids of [[0, 1, 1], [3, 1, 0]]) histogram = histogram.at(ids).add(1);
assertEquals(histogram.tolist(), [2, 3, 0, 1]);
histogram = histogram.add(1);
const counts: number[] = histogram.tolist();
assertEquals(counts, [3, 4, 1, 2]);

let sum = 0;
for (const line of grid) for (const value of line) sum += Number(value.item());
assertEquals(sum, 66);
