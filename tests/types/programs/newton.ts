/** Second derivatives: Newton's method, a Hessian, and products with Jacobians. */

import { assertAlmostEquals, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";

const f = (x: mx.Tensor) => mx.subtract(mx.exp(x), mx.multiply(x, 3));
const slope = mx.grad(f);
const curve = mx.grad(slope);
let x = mx.array(0);
for (let i = 0; i < 8; i++) x = x.subtract(slope(x).divide(curve(x)));
assertAlmostEquals(x.item(), Math.log(3), 1e-5);

const energy = (v: mx.Tensor) => mx.sum(mx.power(v, 3)).add(mx.prod(v));
const row = (v: mx.Tensor, i: number) => mx.grad((u: mx.Tensor) => mx.grad(energy)(u).index(i))(v);
const at = mx.array([1, 2]);
const hessian = mx.stack([row(at, 0), row(at, 1)]);
assertEquals(hessian.tolist(), [[6, 1], [1, 12]]);
const step: number[] = mx.linalg.solve(hessian, mx.grad(energy)(at)).tolist();
assertAlmostEquals(6 * step[0] + step[1], 5, 1e-4);

const polar = (p: mx.Tensor) => {
  const [r, angle] = p;
  return mx.stack([r.multiply(angle.cos()), r.multiply(angle.sin())]);
};
const [[place], [moved]] = mx.jvp(polar, [mx.array([2, 0])], [mx.array([0, 1])]);
assertEquals([place.tolist(), moved.tolist()], [[2, 0], [0, 2]]);
const [, [pulled]] = mx.vjp(polar, [mx.array([2, 0])], [mx.array([1, 0])]);
assertEquals(pulled.tolist(), [1, 0]);
