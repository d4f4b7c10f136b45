/**
 * Compiled functions that read and write state beside their arguments; their switch, what they refuse; and order between arrays.
 */

import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";

const int = (value: number | number[]): mx.AnyTensor => mx.array(value as number[], mx.int32);

for (const device of testDevices()) {
  const backend = mx.withDevice(device, getBackend);
  const test = (name: string, body: () => void): void =>
    Deno.test(`${name} on ${device}`, () => {
      mx.setDefaultDevice(device);
      const before = backend.liveObjects();
      mx.tidy(body);
      assertEquals(backend.liveObjects(), before, "buffers or Plans leaked");
    });

  test("compile() reads state where it lies at each call", () => {
    const state: Record<string, mx.AnyTensor> = { y: int(2) };
    using add = mx.compile((x: mx.AnyTensor) => mx.add(x, state.y), state);
    assertEquals(add(int(1)).item(), 3);
    assertEquals(state.y.item(), 2);
    state.y = int(3);
    assertEquals(add(int(1)).item(), 4);
    state.y = int([1, 2]); // another shape traces again
    assertEquals(add(int(1)).tolist(), [2, 3]);

    const nested: [mx.AnyTensor[]] = [[int(2)]];
    using deep = mx.compile((x: mx.AnyTensor) => mx.add(x, nested[0][0]), nested);
    assertEquals(deep(int(1)).item(), 3);
    nested[0][0] = int(3);
    assertEquals(deep(int(1)).item(), 4);
    const map = new Map([["w", int(5)]]);
    using mapped = mx.compile((x: mx.AnyTensor) => mx.add(x, map.get("w")!), map);
    assertEquals(mapped(int(1)).item(), 6);
    map.set("w", int(7));
    assertEquals(mapped(int(1)).item(), 8);
  });

  test("compile() writes state after each call", () => {
    const out: Record<string, mx.AnyTensor> = {};
    let runs = 0;
    using write = mx.compile(
      (x: mx.AnyTensor) => {
        runs++;
        out.y = mx.add(x, 3);
        return mx.abs(x);
      },
      null,
      out,
    );
    assertEquals([write(int(-1)).item(), out.y.item()], [1, 2]);
    out.y.dispose(); // the caller disposes the result of a call
    assertEquals([write(int(-5)).item(), out.y.item(), runs], [5, -2, 1]);
    out.y.dispose();

    const state: Record<string, mx.AnyTensor> = {};
    using both = mx.compile(
      (x: mx.AnyTensor) => {
        const y = state.y ?? int(0);
        state.y = mx.add(x, y);
        return mx.add(x, mx.multiply(y, 2));
      },
      state,
      state,
    );
    const found = [1, 1, 1].map((x) => {
      const before = state.y;
      const result = both(int(x)).item();
      before?.dispose();
      return [result, state.y.item()];
    });
    assertEquals(found, [[1, 1], [3, 2], [5, 3]]);
    state.y.dispose();
  });

  test("state outlives scopes, may be shared with the result, and stays where the function throws", () => {
    const state: Record<string, mx.AnyTensor> = { w: mx.array([1, 2]), kept: mx.array([9]) };
    using step = mx.compile(
      (x: mx.AnyTensor, fail: boolean) => {
        state.w = mx.add(state.w, x);
        if (fail) throw new Error("stopped");
        return [state.w, state.kept];
      },
      state,
      state,
    );
    const past = Object.values(state);
    mx.tidy(() => void step(mx.array([1, 1]), false));
    past.push(...Object.values(state));
    assertEquals(state.w.tolist(), [2, 3]);
    assertThrows(() => step(mx.array([1, 1]), true), Error, "stopped");
    assertEquals(state.w.tolist(), [2, 3]);
    const [w, kept] = step(mx.array([1, 1]), false);
    assertEquals([w.tolist(), kept.tolist(), state.w.tolist(), state.kept.tolist()], [[3, 4], [9], [3, 4], [9]]);
    w.dispose();
    assertEquals(state.w.tolist(), [3, 4]);
    mx.dispose(state, past);
  });

  test("a compiled function with the random state draws what a plain one does", () => {
    const draw = (): mx.AnyTensor => mx.add(mx.random.uniform(0, 1, [5]), mx.random.bits([5]));
    mx.random.seed(7);
    const plain = [draw().tolist(), draw().tolist(), mx.random.uniform().item()];
    using compiled = mx.compile(draw, mx.random.state, mx.random.state);
    mx.random.seed(7);
    assertEquals([compiled().tolist(), compiled().tolist(), mx.random.uniform().item()], plain);
    mx.random.seed(7);
    const counter: Record<string, mx.AnyTensor> = { n: mx.array(0) }, counts = [counter.n];
    const state = [counter, mx.random.state];
    using nested = mx.compile(
      () => {
        counter.n = mx.add(counter.n, 1);
        return draw();
      },
      state,
      state,
    );
    const count = (): unknown => {
      const drawn = nested().tolist();
      counts.push(counter.n);
      return drawn;
    };
    assertEquals([count(), count(), mx.random.uniform().item()], plain);
    assertEquals(counter.n.item(), 2);
    mx.dispose(counter, counts);
    const kept = mx.random.state[0];
    const next = compiled().tolist();
    mx.random.state[0] = kept;
    assertEquals(compiled().tolist(), next);
    using frozen = mx.compile(draw);
    assertEquals(frozen().tolist(), frozen().tolist()); // not captured: the same key each time, as in MLX
    assertNotEquals(compiled().tolist(), next);
    mx.random.seed(0);
  });

  test("disableCompile() runs functions as they are written", () => {
    let runs = 0;
    using f = mx.compile((x: mx.AnyTensor) => {
      runs++;
      return mx.add(mx.add(x, 1), mx.add(x, 1));
    });
    const count = (x: mx.AnyTensor): number => {
      let text = "";
      mx.exportToDot({ write: (part) => text += part }, x);
      return text.split("label").length - 1;
    };
    const x = mx.array(1);
    const compiled = count(f(x));
    mx.disableCompile();
    try {
      assert(count(f(x)) > compiled);
      assertEquals([f(x).item(), runs], [4, 3]);
    } finally {
      mx.enableCompile();
    }
    assertEquals([count(f(x)), runs], [compiled, 3]);
  });

  test("depends() is the array itself, behind others", () => {
    const x = mx.array([1, 2, 3]), y = mx.exp(x);
    const z = mx.depends(x, y);
    assertEquals(mx.add(z, 1).tolist(), [2, 3, 4]);
    assertEquals(mx.depends(mx.add(x, 1), [y, x]).tolist(), [2, 3, 4]);
    const [a, b] = mx.depends([mx.add(x, 1), mx.transpose(mx.ones([2, 3]))], [y]);
    assertEquals([mx.multiply(a, a).tolist(), a.tolist(), b.shape], [[4, 9, 16], [2, 3, 4], [3, 2]]);
    assertEquals(mx.depends([1, 2], 3).tolist(), [1, 2]);
    let text = "";
    mx.exportToDot({ write: (part) => text += part }, mx.depends(x, y));
    assert(text.includes("depends") && text.includes("elementwise exp"));
  });

  test("compile() with shapeless keeps its trace for other sizes", () => {
    let runs = 0, y = 1;
    using add = mx.compile(
      (x: mx.AnyTensor) => {
        runs++;
        return mx.add(x, y);
      },
      null,
      null,
      true,
    );
    assertEquals(add(int([1, 2])).tolist(), [2, 3]);
    y = 2;
    assertEquals(add(int([1, 2, 3])).tolist(), [2, 3, 4]);
    assertEquals([add(int([])).tolist(), add(int([5])).tolist(), runs], [[], [6], 1]);
    assertEquals([add(mx.array([1, 2])).tolist(), runs], [[3, 4], 2]); // another dtype
    assertEquals([add(int([1]).reshape(1, 1)).tolist(), runs], [[[3]], 3]); // more axes

    const f = (x: mx.AnyTensor, w: mx.AnyTensor): mx.AnyTensor => {
      runs++;
      const z = mx.matmul(mx.softmax(x, -1), mx.exp(w));
      const moved = mx.subtract(mx.transpose(z), mx.max(z, 1));
      return mx.sum(moved, 0, true).reshape(-1);
    };
    using whole = mx.compile(f, null, null, true);
    using each = mx.compile(f);
    runs = 0;
    for (const [m, k, n] of [[2, 3, 2], [4, 2, 4], [1, 5, 1]]) {
      const [x, w] = [mx.random.normal([m, k]), mx.random.normal([k, n])];
      assertEquals(whole(x, w).tolist(), each(x, w).tolist(), `${m} ${k} ${n}`);
    }
    assertEquals(runs, 4); // three of them for comparison
  });

  test("reshapes of a shapeless function fit, or are an error", () => {
    let runs = 0;
    using f = mx.compile(
      (x: mx.AnyTensor) => {
        runs++;
        return mx.multiply(x.reshape(x.shape[0] * x.shape[1], -1), 2);
      },
      null,
      null,
      true,
    );
    assertEquals(f(mx.ones([2, 3, 4])).shape, [6, 4]);
    assertEquals(f(mx.ones([2, 3, 8])).shape, [6, 8]);
    assertEquals(f(mx.ones([3, 2, 1])).tolist(), new Array(6).fill([2]));
    assertThrows(() => f(mx.ones([5, 5, 5])), mx.ShapeError, "shapeless reshapes to (6, -1): found (5, 5, 5)");
    assertEquals(runs, 1);
  });

  test("what hangs on shapes is traced again by a shapeless function", () => {
    const functions: Record<string, (x: mx.AnyTensor, y: mx.AnyTensor) => unknown> = {
      mean: (x) => mx.mean(x, null, true),
      variance: (x) => mx.variance(x, 0),
      argmax: (x) => mx.argmax(x),
      zerosLike: (x) => mx.add(mx.zerosLike(x), 1),
      arange: (x) => mx.add(x, mx.arange(x.shape[1])),
      arrayEqual: (x, y) => mx.arrayEqual(x, y),
      broadcast: (x, y) => mx.add(x, y),
      expandDims: (x) => mx.multiply(mx.expandDims(x, 0), mx.expandDims(x, 1)),
      slice: (x) => x.index("...", -1),
      cumsum: (x) => mx.cumsum(x, 1, { reverse: true }),
      logsumexp: (x) => mx.logsumexp(x, 0),
      where: (x, y) => mx.where(mx.greater(x, y), x, mx.minimum(x, 0)),
    };
    const shapes = [[[1, 1], [1, 1]], [[2, 3], [2, 3]], [[2, 3], [1, 3]], [[2, 3], [2, 1]], [[1, 3], [4, 3]], [[3, 1], [
      3,
      1,
    ]]];
    for (const [name, fn] of Object.entries(functions)) {
      for (const order of [shapes, shapes.toReversed()]) {
        using compiled = mx.compile(fn, null, null, true);
        for (const [a, b] of order) {
          const [x, y] = [a, b].map((shape, i) => mx.add(mx.arange(shape[0] * shape[1]).reshape(shape), 3 * i));
          const told = (result: unknown): unknown => (result as mx.AnyTensor).tolist();
          assertEquals(told(compiled(x, y)), told(fn(x, y)), `${name} of ${a} and ${b}`);
        }
      }
    }
  });

  test("what a compiled function leaves in containers that it only reads", () => {
    // Arrays that depend on no argument are arrays as others, as the first state of an optimizer is.
    const state: Record<string, mx.AnyTensor> = { a: int(1) };
    using grows = mx.compile((x: mx.AnyTensor) => {
      state.b ??= int([4, 5]);
      return mx.add(mx.add(x, state.a), state.b);
    }, state);
    assertEquals(mx.tidy(() => grows(int(1)).tolist()), [6, 7]);
    assertEquals(state.b.tolist(), [4, 5]); // it outlives the scope
    const first = state.b;
    state.b = int([0, 1]); // and is read where it lies
    assertEquals([grows(int(1)).tolist(), state.a.item()], [[2, 3], 1]);
    first.dispose();

    const held: Record<string, mx.AnyTensor> = { a: int(1) };
    using loses = mx.compile((x: mx.AnyTensor) => held.b = mx.add(held.a, x), held);
    assertEquals(loses(int(1)).item(), 2);
    assertThrows(() => loses(int(1)), mx.ValueError, "name what holds them in `outputs` too");
  });

  test("a container keeps its arrays where a traced function puts another in its place", () => {
    const parameters = { w: int(3) };
    const model = { held: parameters };
    using step = mx.compile(
      (x: mx.AnyTensor) => {
        model.held = { w: mx.add(model.held.w, x) };
        return mx.multiply(model.held.w, 2);
      },
      model,
      model,
    );
    assertEquals([step(int(1)).item(), model.held.w.item(), parameters.w.item()], [8, 4, 3]);
    model.held.w.dispose();
  });

  test("compile() refuses arguments that it cannot tell apart, and arrays that are no container", () => {
    class Hidden {
      value = 1;
    }
    using f = mx.compile((x: mx.AnyTensor, y: { value: number }) => mx.add(x, y.value));
    assertThrows(() => f(mx.array(0), new Hidden()), mx.ValueError, "found a Hidden");
    assertEquals(f(mx.array(0), { value: 2 }).item(), 2);
    const x = mx.add(mx.array([1, 2, 3]), 2);
    using outside = mx.compile((a: mx.AnyTensor) => mx.add(a, mx.add(x, 1)));
    assertThrows(() => outside(x), mx.ValueError, "was not evaluated and that the function also reads from outside");
    mx.eval(x);
    // Read from outside it is what it was, also where it is the argument.
    assertEquals(outside(x).tolist(), [7, 9, 11]);
    assertEquals(outside(mx.array([1, 1, 1])).tolist(), [5, 6, 7]);
    using alone = mx.compile(() => x, x);
    assertThrows(() => alone(), mx.ValueError, "cannot be replaced");
  });
}

Deno.test("exportToDot() names arrays by the keys of objects, and says what it writes to", () => {
  const x = mx.array([1, 2]);
  let text = "";
  mx.exportToDot({ write: (part) => text += part }, { x, 'a "y"': mx.exp(x) }, [x]);
  assert(text.includes('label="x: ') && text.includes('label="a \\"y\\": elementwise exp\\nfloat32 (2,)"'), text);
  assertThrows(
    () => mx.exportToDot(3 as unknown as string, x),
    mx.ValueError,
    "a path or an object with a method write",
  );
});
