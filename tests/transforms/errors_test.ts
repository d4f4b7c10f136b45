/** Mistakes with transforms: an error of one line that names the function, the argument and the shapes. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { generator } from "../support/oracles/oracle.ts";

type T = mx.Tensor;

Deno.test("what cannot be transformed is refused where it is asked for", () => {
  mx.withDevice("wasm", () => {
    const x = mx.array([1, 2, 3]);
    const sum = (v: T): T => mx.sum(v);
    assertThrows(
      () => mx.grad((v: T) => v)(x),
      mx.ShapeError,
      "grad() expected the function to return a scalar array: found shape (3,)",
    );
    assertThrows(() => mx.grad(() => 3)(), mx.ValueError, "argument 0: the function was called with 0");
    assertThrows(() => mx.grad((_: T) => 3)(x), mx.ValueError, "found number");
    assertThrows(() => mx.grad((v: T) => [sum(v), v])(x), mx.ValueError, "valueAndGrad() also takes a list");
    assertThrows(() => mx.grad((v: string) => v)("text"), mx.ValueError, "argument 0 to be arrays");
    assertThrows(() => mx.grad(sum, -1), mx.ValueError, "not negative: found -1");
    assertThrows(() => mx.grad(sum, [0, 0]), mx.ValueError, "distinct");
    assertThrows(() => mx.grad((v: T) => Promise.resolve(sum(v)))(x), mx.ValueError, "synchronous");
    assertThrows(() => mx.grad(3 as never), mx.ValueError, "grad() expected a function: found number");
    assertThrows(
      () => mx.vjp(sum, [x], [x]),
      mx.ShapeError,
      "vjp() expected cotangents in the shapes of results: found (3,) for ()",
    );
    assertThrows(() => mx.jvp(sum, [x], []), mx.ValueError, "as many tangents as primals: found 0 and 1");
    assertThrows(() => mx.vmap(mx.add)(x, mx.ones([2])), mx.ShapeError, "batches of one size: found 3 and 2");
    assertThrows(() => mx.vmap(sum, 1)(x), mx.IndexError, "vmap() input axis 1 is out of range");
    assertThrows(() => mx.vmap(sum, 0, 3)(mx.ones([2, 2])), mx.IndexError, "vmap() output axis 3");
    assertThrows(() => mx.vmap(sum, null)(x), mx.ValueError, "at least one array");
    assertThrows(
      () => mx.vmap((v: T) => mx.multiply(v, Number(v.item())))(x),
      mx.ValueError,
      "cannot evaluate or read",
    );
    assertThrows(
      () => mx.vjp((v: T) => mx.take(v, mx.argsort(v)), [x], [x]),
      mx.ValueError,
      "mx.stopGradient(indices)",
    );
    assertThrows(
      () => mx.grad((v: T) => mx.sum(mx.abs(mx.linalg.eigvals(v))))(mx.eye(2)),
      mx.ValueError,
      "no derivative of eig() and eigvals()",
    );
    const hermitian = (v: T): T => mx.sum(mx.linalg.eigvalsh(mx.add(v, mx.complex(0, 0)) as T));
    assertThrows(() => mx.grad(hermitian)(mx.eye(2)), mx.ValueError, "of complex matrices");
    assertThrows(() => mx.grad((v: T) => mx.sum(mx.quantize(v, 32)[1]))(mx.ones([1, 32])), mx.ValueError, "quantize");
  });
});

Deno.test("arguments of transforms that do not fit are named with their shapes and dtypes", () => {
  mx.withDevice("wasm", () => {
    const x = mx.array([1, 2, 3]);
    const i = mx.array([1, 2], mx.int32);
    const sum = (v: T): T => mx.sum(v);
    const double = (v: T): T => mx.multiply(v, 2);
    const own = mx.customFunction(double);
    const refused: readonly (readonly [() => unknown, typeof mx.ArrayError, string])[] = [
      [() => mx.grad(sum)(i), mx.DtypeError, "argument 0, which has no floating-point array: found int32 (2,)"],
      [() => mx.valueAndGrad((_: T, v: T[]) => sum(v[0]), 1)(x, [i]), mx.DtypeError, "argument 1"],
      [() => mx.grad(sum, 1 as never)(x), mx.ValueError, "argument 1: the function was called with 1"],
      [() => mx.grad(sum, "a" as never), mx.ValueError, "argnums to be a number or a list of numbers"],
      [() => mx.grad(sum, [] as never), mx.ValueError, "argnums"],
      [() => mx.grad(sum, 0.5), mx.ValueError, "found 0.5"],
      [() => mx.vjp(double, [x], [x, x]), mx.ValueError, "as many cotangents as results: found 2 and 1"],
      [() => mx.vjp(double, [x], [mx.ones([3, 1])]), mx.ShapeError, "found (3, 1) for (3,)"],
      [() => mx.vjp(double, [x], [x.astype(mx.complex64)]), mx.DtypeError, "complex64 for float32 at 0"],
      [() => mx.vjp(double, [x], null as never), mx.ValueError, "cotangents to be a list of arrays"],
      [() => mx.vjp(double, [1] as never, [x]), mx.ValueError, "primals to be a list of arrays"],
      [() => mx.vjp(() => 3, [x], [x]), mx.ValueError, "return arrays: found number"],
      [
        () => mx.jvp(double, [x], [mx.ones([2])]),
        mx.ShapeError,
        "tangents in the shapes of primals: found (2,) for (3,)",
      ],
      [() => mx.jvp(double, [x], [x.astype(mx.complex64)]), mx.DtypeError, "real tangents"],
      [
        () => mx.vmap(mx.add, [0, 1])(mx.ones([3, 2]), mx.ones([3, 2])),
        mx.ShapeError,
        "one size: found 3 and 2, axis 0 of (3, 2), axis 1 of (3, 2)",
      ],
      [() => mx.vmap(mx.add, [0])(x, x), mx.ValueError, "inAxes"],
      [() => mx.vmap(sum, "a" as never)(x), mx.ValueError, "found string"],
      [() => mx.vmap(sum, 0.5)(x), mx.ValueError, "found 0.5 for shape (3,)"],
      [() => mx.vmap(sum, 0, [0, 1])(x), mx.ValueError, "outAxes"],
      [() => mx.vmap(double, 0, null)(x), mx.ValueError, "depends on it"],
      [() => mx.vmap(double)(mx.array(1)), mx.IndexError, "input axis 0 is out of range for an array of shape ()"],
      [() => mx.customFunction(double).vjp(3 as never), mx.ValueError, "expected a function"],
      [() => mx.grad((v: T) => sum(own.vjp(() => mx.ones([5]))(v)))(x), mx.ShapeError, "found (5,) for (3,)"],
      [() => mx.jvp((v: T) => own.jvp(() => mx.ones([5]))(v), [x], [x]), mx.ShapeError, "found (5,) for (3,)"],
      [() => mx.jvp((v: T) => own.jvp(() => [])(v), [x], [x]), mx.ValueError, "1 arrays, one for each of the results"],
      [() => mx.vmap((v: T) => own.vmap((a: T) => a)(v))(mx.ones([3, 2])), mx.ValueError, "[results, axes]"],
      [
        () => mx.vmap((v: T) => own.vmap((a: T) => [a, 4])(v))(mx.ones([3, 2])),
        mx.ShapeError,
        "axis 4 of shape (3, 2)",
      ],
      [() => mx.vmap((v: T) => own.vmap(() => [x, 0])(v))(mx.ones([5, 2])), mx.ShapeError, "batch of 5"],
      [() => mx.nn.valueAndGrad({} as never, sum), mx.ValueError, "module"],
    ];
    for (const [call, error, part] of refused) assertThrows(call, error, part);
    assertEquals(mx.grad(sum)(x).tolist(), [1, 1, 1]);
  });
});

Deno.test("drawn arguments of transforms give values or errors of the library, and leave nothing open", () => {
  mx.withDevice("wasm", () => {
    const next = generator(7);
    const pick = <V>(list: readonly V[]): V => list[Math.floor(next() * list.length)];
    const f = (...arrays: T[]): unknown => mx.sum(arrays.reduce((a, b) => mx.add(a, b) as T, mx.array(0)));
    const functions: readonly unknown[] = [f, f, f, mx.add, mx.sin, () => 3, () => null, (x: T) => [x, x], 4, null];
    const arrays = (): readonly unknown[] => [
      mx.ones([3]),
      mx.ones([2, 3]),
      mx.zeros([0, 2]),
      mx.array(1),
      mx.array([1, 2, 3], mx.int32),
      mx.ones([3], mx.complex64),
      [mx.ones([3])],
      { a: mx.ones([3]) },
      null,
      "x",
    ];
    const axes: readonly unknown[] = [0, 1, -1, 5, null, [0], [0, 1], [0, null], {}, "a", NaN, 0.5, undefined];
    const transforms = mx as unknown as Record<string, (...args: unknown[]) => unknown>;
    let values = 0;
    for (let i = 0; i < 600; i++) {
      const args = Array.from({ length: Math.floor(next() * 3) }, () => pick(arrays()));
      const name = pick(["grad", "valueAndGrad", "vmap", "vjp", "jvp", "checkpoint", "customFunction"]);
      const call = (): unknown => {
        if (name === "vjp" || name === "jvp") {
          return transforms[name](pick(functions), args, pick([args, [pick(arrays())], null]));
        }
        const own = name === "vmap" ? [pick(axes), pick(axes)] : name.endsWith("rad") ? [pick(axes)] : [];
        return (transforms[name](pick(functions), ...own) as (...args: unknown[]) => unknown)(...args);
      };
      mx.tidy(() => {
        try {
          mx.eval(call() as T);
          values++;
        } catch (error) {
          assert(error instanceof mx.ArrayError, `${name}: ${error}`);
          assert(!error.message.includes("\n") && error.message.length < 300, error.message);
        }
      });
    }
    assert(values > 50, `${values}`);
    assertEquals(mx.grad((x: T) => mx.square(x))(mx.array(3)).item(), 6);
  });
});

Deno.test("an error inside of a transformed function is its own, and leaves nothing open", () => {
  mx.withDevice("wasm", () => {
    const fails = mx.grad((_: T): T => {
      throw new RangeError("mine");
    });
    for (let i = 0; i < 3; i++) assertThrows(() => fails(mx.ones([2])), RangeError, "mine");
    assertEquals(mx.grad((x: T) => mx.square(x))(mx.array(3)).item(), 6);
    const y = mx.add(mx.ones([2]), 1);
    assert(mx.all(mx.equal(y, 2)).item());
  });
});

Deno.test("functions may look at their values, and values of gradients are computed with what was looked at", () => {
  mx.withDevice("wasm", () => {
    const grad = mx.grad((x: T) => {
      const y = mx.multiply(x, 3);
      mx.eval(y);
      return Number(y.item()) > 2 ? mx.square(y) : y;
    });
    assertEquals([grad(mx.array(2)).item(), grad(mx.array(0.5)).item()], [36, 3]);
  });
});

Deno.test("trees of arguments give trees of gradients; one array in two places is two arguments", () => {
  mx.withDevice("wasm", () => {
    const x = mx.array(3);
    const loss = (p: { a: T; b: [T, T | null] }): T => mx.multiply(p.a, mx.square(p.b[0]));
    const [value, grads] = mx.valueAndGrad(loss)({ a: x, b: [x, null] });
    assertEquals([value.item(), grads.a.item(), grads.b[0].item(), grads.b[1]], [27, 9, 18, null]);
    const [da, db] = mx.grad((a: T, b: T) => mx.multiply(a, mx.square(b)), [0, 1])(x, x);
    assertEquals([da.item(), db.item()], [9, 18]);
  });
});

Deno.test("custom functions bring their own rules; checkpoints compute the same gradient again", () => {
  mx.withDevice("wasm", () => {
    const straight = mx.customFunction((x: T) => mx.round(x)).vjp((_: T, c: T) => mx.multiply(c, 2))
      .jvp((_: T, t: T) => mx.multiply(t, 3)).vmap((x: T, axis: number) => [mx.multiply(x, 5), axis]);
    const x = mx.array([0.4, 1.6]);
    assertEquals(mx.grad((v: T) => mx.sum(straight(v)))(x).tolist(), [2, 2]);
    assertEquals(mx.jvp((v: T) => straight(v), [x], [mx.ones([2])])[1][0].tolist(), [3, 3]);
    assertEquals(mx.vmap((v: T) => straight(v))(mx.array([1, 2])).tolist(), [5, 10]);
    assertEquals(straight(x).tolist(), [0, 2]);
    let runs = 0;
    const block = (v: T): T => {
      runs++;
      return mx.sin(mx.exp(v));
    };
    const plain = mx.grad((v: T) => mx.sum(block(v)))(x).tolist();
    runs = 0;
    assertEquals(mx.grad((v: T) => mx.sum(mx.checkpoint(block)(v)))(x).tolist(), plain);
    assertEquals(runs, 2);
  });
});
