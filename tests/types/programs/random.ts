/** Random numbers: pi by darts, a coin, samples of a distribution, and keys that repeat. */

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

mx.random.seed(7);
const darts = mx.random.uniform(-1, 1, [20000, 2]);
const inside = darts.square().sum(1).lessEqual(1);
const pi = 4 * inside.mean().item();
assertAlmostEquals(pi, Math.PI, 0.05);

const flips = mx.random.bernoulli(0.3, [1000]);
const heads: number = mx.sum(flips).item();
assert(heads > 250 && heads < 350);

const logits = mx.log(mx.array([0.1, 0.2, 0.7]));
const draws: number[] = mx.random.categorical(logits, -1, { numSamples: 1000 }).tolist();
assert(draws.filter((draw) => draw === 2).length > 600);

let key = mx.random.key(0);
const seen: number[] = [];
for (let i = 0; i < 3; i++) {
  const [next, now] = mx.random.split(key);
  seen.push(mx.random.normal([], mx.float32, 0, 1, now).item());
  key = next;
}
assertEquals(new Set(seen).size, 3);
assertEquals(seen[0], mx.random.normal([], mx.float32, 0, 1, mx.random.split(mx.random.key(0)).index(1)).item());

const dice: number[][] = mx.random.randint(1, 7, [5, 2]).tolist();
assert(dice.flat().every((side) => side >= 1 && side <= 6));
