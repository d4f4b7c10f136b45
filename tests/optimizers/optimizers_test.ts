/**
 * Optimizers, schedules and clipping against what MLX gave for the same steps (tests/reference/optimizers.py), and against formulas.
 */

import { assert, assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";

const { optimizers: o, utils } = mx;

interface Flat {
  readonly dtype: "float32" | "float16" | "bfloat16" | "uint64";
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

interface Golden {
  readonly steps: number;
  readonly runs: readonly {
    readonly name: string;
    readonly options: Readonly<Record<string, unknown>>;
    readonly dtype: "float32" | "float16" | "bfloat16";
    readonly parameters: Readonly<Record<string, Flat>>;
    readonly state: Readonly<Record<string, Flat>>;
  }[];
  readonly schedules: readonly { name: string; args: number[]; steps: number[]; values: number[] }[];
  readonly clipped: readonly {
    readonly dtype: "float32" | "float16" | "bfloat16";
    readonly maxNorm: number;
    readonly gradients: Readonly<Record<string, Flat>>;
    readonly norm: Flat;
  }[];
}

const golden: Golden = JSON.parse(
  await Deno.readTextFile(new URL("../golden/arrays/optimizers.json", import.meta.url)),
);

const camel = (name: string): string => name.replaceAll(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());

/** Values of the generator that the reference draws from. */
function numbers(count: number, seed: number): number[] {
  let state = BigInt(seed);
  return Array.from({ length: count }, () => {
    state = (state * 1103515245n + 12345n) % (1n << 31n);
    return (Number((state >> 16n) % 257n) - 128) / 128;
  });
}

function treeOf(seed: number, dtype: mx.Dtype): Record<string, unknown> {
  let at = seed;
  const leaf = (...shape: number[]): mx.AnyTensor => {
    const values = numbers(shape.reduce((a, b) => a * b, 1), ++at);
    return mx.reshape(mx.array(values, dtype), shape);
  };
  return { wide: leaf(3, 5), layers: [{ tall: leaf(5, 2) }, { bias: leaf(4) }], scalar: leaf(), conv: leaf(2, 3, 2) };
}

/** Units of a dtype in the last place at 1, times the roundings that a run of steps may differ by. */
const BOUND = { float32: 2e-6, float16: 2 ** -10 * 4, bfloat16: 2 ** -7 * 4, uint64: 0 } as const;

/** Why some arrays of a tree are not those of MLX. */
function differences(found: unknown, expected: Readonly<Record<string, Flat>>, wider = 1): string[] {
  const wrong: string[] = [];
  const leaves = utils.treeFlatten(found) as [string, mx.AnyTensor][];
  assertEquals(leaves.map(([path]) => path).sort(), Object.keys(expected).map(camel).sort());
  for (const [name, { dtype, shape, values }] of Object.entries(expected)) {
    const array = leaves.find(([path]) => path === camel(name))![1];
    assertEquals([array.dtype.name, array.shape], [dtype, shape], name);
    const own = [...mx.astype(array, mx.float32).toTypedArray()] as number[];
    const scale = Math.max(1e-3, ...values.map(Math.abs)), bound = BOUND[dtype] * wider * scale;
    const far = Math.max(...own.map((v, i) => Number.isFinite(v) ? Math.abs(v - values[i]) : Infinity));
    if (!(far <= bound)) wrong.push(`${name} ${dtype}: off by ${far / scale / BOUND[dtype]} bounds`);
  }
  return wrong;
}

for (const device of testDevices()) {
  const test = (name: string, body: () => void): void =>
    Deno.test(`${name} on ${device}`, () => mx.withDevice(device, () => mx.tidy(body)));

  test("steps of every optimizer are MLX's", () => {
    const failed: string[] = [];
    for (const { name, options, dtype, parameters, state } of golden.runs) {
      const given = Object.fromEntries(Object.entries(options).map(([key, value]) => [camel(key), value]));
      // deno-lint-ignore no-explicit-any -- a class by name
      const optimizer: mx.optimizers.Optimizer = new (o as any)[name](given);
      let now: unknown = treeOf(100, mx[dtype]);
      for (let step = 1; step <= golden.steps; step++) {
        now = optimizer.applyGradients(treeOf(1000 * step, mx[dtype]), now);
        mx.eval(now, optimizer.state);
      }
      const wrong = [...differences(now, parameters), ...differences(optimizer.state, state)];
      failed.push(...wrong.map((text) => `${name} ${JSON.stringify(options)} ${dtype}: ${text}`));
    }
    assertEquals(failed, []);
  });

  test("schedules are MLX's and their formulas", () => {
    // deno-lint-ignore no-explicit-any -- a function by name
    const named = o as any;
    for (const { name, args, steps, values } of golden.schedules) {
      const schedule = named[camel(name)](...args) as mx.optimizers.ArraySchedule;
      steps.forEach((step, i) => {
        for (const given of [step, mx.array(step, mx.uint64), mx.array(step, mx.int32)]) {
          const found = schedule(given);
          assertEquals([found.dtype.name, found.shape], ["float32", []]);
          assertAlmostEquals(found.item() as number, values[i], 1e-7, `${name}(${args}) at ${step}`);
        }
      });
    }
    const at = (schedule: mx.optimizers.ArraySchedule, step: number): number => schedule(step).item() as number;
    assertAlmostEquals(at(o.exponentialDecay(2, 0.5), 10), 2 ** -9, 1e-9);
    assertAlmostEquals(at(o.exponentialDecay(1, 2), 3), 8, 1e-6); // whole numbers are no integers
    assertAlmostEquals(at(o.stepDecay(0.1, 0.9, 1000), 2500), 0.1 * 0.81, 1e-7);
    assertAlmostEquals(at(o.cosineDecay(0.1, 10), 4), 0.05 * (1 + Math.cos(0.4 * Math.PI)), 1e-7);
    assertAlmostEquals(at(o.cosineDecay(0.1, 10, 0.05), 20), 0.05, 1e-7);
    assertAlmostEquals(at(o.linearSchedule(0, 10, 10), 7), 7, 1e-6);
    const joined = o.joinSchedules([() => 3, () => mx.array(4), (step) => step], [2, 4]);
    assertEquals([0, 1, 2, 3, 4, 6].map((step) => at(joined, step)), [3, 3, 4, 4, 0, 2]);
    assertEquals([0, 3, 6].map((step) => joined(mx.array(step, mx.uint64)).item()), [3, 4, 2]);
    for (const wrong of [() => o.stepDecay(1, 1, 0), () => o.cosineDecay(1, 0), () => o.linearSchedule(0, 1, 0)]) {
      assertThrows(wrong, mx.ValueError, "at least 1");
    }
    assertThrows(() => o.joinSchedules([], []), mx.ValueError, "needs a schedule");
    assertThrows(() => o.joinSchedules([() => 1], [2]), mx.ValueError, "expected 0 boundaries");
  });

  test("a schedule sets the rate of each step", () => {
    const kinds = [o.SGD, o.RMSprop, o.Adagrad, o.AdaDelta, o.Adam, o.AdamW, o.Adamax, o.Lion, o.Muon, o.Adafactor];
    for (const Kind of kinds) {
      const optimizer = new Kind(o.stepDecay(0.1, 0.9, 1));
      for (let i = 0; i < 5; i++) {
        optimizer.applyGradients({ w: mx.ones([2, 2]) }, { w: mx.ones([2, 2]) });
        assertAlmostEquals(optimizer.learningRate.item() as number, 0.1 * 0.9 ** i, 1e-7, Kind.name);
      }
      assertEquals(optimizer.step.item(), 5);
    }
  });

  test("clipping scales all gradients by one factor", () => {
    for (const { dtype, maxNorm, gradients, norm } of golden.clipped) {
      const [clipped, found] = o.clipGradNorm(treeOf(7, mx[dtype]), maxNorm);
      assertEquals([...differences(clipped, gradients), ...differences({ norm: found }, { norm })], []);
    }
    const [unclipped, none] = o.clipGradNorm({}, 1);
    assertEquals([unclipped, none.item()], [{}, 0]);
    assertEquals(o.clipGradNorm([mx.array([3, 4])], 0)[0][0].tolist(), [0, 0]);
    assertThrows(() => o.clipGradNorm({}, -1), mx.ValueError, "at least 0");
  });

  test("several optimizers step their parts as each alone", () => {
    const start = () => ({ a: { w: mx.ones([2, 3]) }, b: [mx.ones([3]), mx.ones([2])] });
    const gradients = () => ({ a: { w: mx.full([2, 3], 0.5) }, b: [mx.full([3], -1), mx.full([2], 2)] });
    const both = new o.MultiOptimizer([new o.SGD(0.1), new o.Adam(0.2)], [(path) => path.startsWith("a.")]);
    const alone = [new o.SGD(0.1), new o.Adam(0.2)];
    let now: ReturnType<typeof start> = start(), sgd = { a: start().a }, adam = { b: start().b };
    for (let i = 0; i < 3; i++) {
      now = both.applyGradients(gradients(), now);
      sgd = alone[0].applyGradients({ a: gradients().a }, sgd);
      adam = alone[1].applyGradients({ b: gradients().b }, adam);
    }
    assertEquals(JSON.stringify(now), JSON.stringify({ ...sgd, ...adam }));
    assertEquals(Object.keys(both.state.states[1]), ["step", "learningRate", "b"]);
    both.learningRate = 0.5;
    assertEquals(both.optimizers.map(({ learningRate }) => learningRate.item()), [0.5, 0.5]);
    assertEquals(both.learningRate.item(), 0.5);
    assertThrows(() => new o.MultiOptimizer([new o.SGD(1)], [() => true]), mx.ValueError, "expected 0 filters");
    assertThrows(() => both.state = { states: [] }, mx.ValueError, "2 states");
  });

  test("state goes on where it was saved", () => {
    const gradients = { w: mx.array([1, -2, 3]) };
    const one = new o.Adam(0.1, { biasCorrection: true });
    let w = one.applyGradients(gradients, { w: mx.zeros([3]) });
    const saved = Object.fromEntries(utils.treeFlatten(one.state).map(([path, a]) => [path, mx.array(a as mx.Tensor)]));
    const copy = mx.array(w.w);
    w = one.applyGradients(gradients, w);
    const other = new o.Adam({ learningRate: 1, biasCorrection: true });
    other.state = utils.treeUnflatten(saved) as mx.optimizers.OptimizerState;
    assertEquals(other.applyGradients(gradients, { w: copy }).w.tolist(), w.w.tolist());
    assertEquals(other.learningRate.item(), one.learningRate.item());
    // Arrays that the program gave to the state stay.
    assertEquals([copy, saved["w.m"], saved.step].map((a) => a.isDisposed), [false, false, false]);
  });

  test("a compiled step is the step", () => {
    const x = mx.array([[1, 2], [3, -1]]), y = mx.array([[1], [0]]);
    const loss = (p: { w: mx.AnyTensor }, x: mx.AnyTensor) => mx.mean(mx.square(mx.subtract(mx.matmul(x, p.w), y)));
    const train = (compiled: boolean): unknown => {
      const model = learner({ w: mx.array([[0.5], [0.25]]) });
      const optimizer = new o.AdamW(o.linearSchedule(0.1, 0, 10));
      optimizer.init(model.parameters());
      const state = [model.held, optimizer.state];
      const step = (x: mx.AnyTensor): mx.AnyTensor => {
        const [value, gradients] = mx.valueAndGrad(loss)(model.held, x);
        optimizer.update(model, gradients);
        return value;
      };
      using fast = mx.compile(step, state, state);
      const losses = Array.from({ length: 5 }, () => (compiled ? fast : step)(x).item() as number);
      return [losses, model.held.w.tolist(), optimizer.step.item(), optimizer.learningRate.item()].flat(3).map(Number);
    };
    const [found, expected] = [train(true), train(false)] as number[][];
    found.forEach((value, i) => assertAlmostEquals(value, expected[i], 1e-5));
  });

  test("what an update replaces ends, and nothing of the program", () => {
    const first = mx.ones([3]), gradient = mx.ones([3]), frozen = mx.ones([2]);
    const model = learner({ w: first, frozen });
    const optimizer = new o.Adam(0.1);
    const made = mx.tidy(() => {
      optimizer.update(model, { w: gradient });
      return [model.held.w, optimizer.state.w.m, optimizer.step];
    });
    const tied = learner({ w: model.held.w, also: model.held.w });
    optimizer.update(tied, { w: gradient });
    assertEquals(made.map((a) => a.isDisposed), [false, true, true]); // its other place holds it
    optimizer.update(tied, { also: gradient });
    assertEquals([first, gradient, frozen].map((a) => a.isDisposed), [false, false, false]);
    assertEquals(model.held.frozen, frozen);
    mx.tidy(() => optimizer.update(tied, { w: gradient }));
    assertEquals(tied.held.w.shape, [3]); // outlives the scope
    optimizer[Symbol.dispose]();
    assert(optimizer.step.isDisposed && !first.isDisposed);
  });

  test("a step that fails leaves everything as it was", () => {
    class Failing extends o.SGD {
      override applySingle(g: mx.AnyTensor, p: mx.AnyTensor, s: mx.optimizers.LeafState): mx.AnyTensor {
        const next = super.applySingle(g, p, s);
        if (p.ndim === 0) throw new Error("in vain");
        return next;
      }
    }
    const optimizer = new Failing(o.linearSchedule(1, 0, 10), 0.9);
    const now = optimizer.applyGradients({ a: mx.ones([2]) }, { a: mx.ones([2]) });
    const before = JSON.stringify(utils.treeMap((a: mx.AnyTensor) => String(a), optimizer.state));
    assertThrows(
      () => optimizer.applyGradients({ a: mx.ones([2]), b: mx.array(1) }, { ...now, b: mx.array(1) }),
      Error,
      "in vain",
    );
    const { b, ...after } = optimizer.state;
    assertEquals([b, JSON.stringify(utils.treeMap((a: mx.AnyTensor) => String(a), after))], [{}, before]);
    assertEquals(optimizer.applyGradients({ a: mx.ones([2]) }, now).a.shape, [2]);
  });
}

/** The least that an optimizer updates. */
function learner<P extends Record<string, mx.AnyTensor>>(
  held: P,
): { held: P; parameters(): P; update(parameters: P): void } {
  return { held, parameters: () => ({ ...held }), update: (parameters) => void Object.assign(held, parameters) };
}

Deno.test("bytes stay the same over 300 steps, eager in tidy() and compiled", () => {
  mx.withDevice("wasm", () => {
    const x = mx.ones([8, 128]);
    mx.eval(x);
    const loss = (p: { w: mx.AnyTensor }, x: mx.AnyTensor) => mx.mean(mx.square(mx.matmul(x, p.w)));
    for (const compiled of [false, true]) {
      const model = learner({ w: mx.full([128, 128], 0.1) });
      const optimizer = new o.Adam(1e-3);
      optimizer.init(model.parameters());
      const state = [model.held, optimizer.state];
      const step = (x: mx.AnyTensor): mx.AnyTensor => {
        const [value, gradients] = mx.valueAndGrad(loss)(model.held, x);
        optimizer.update(model, gradients);
        return value;
      };
      using fast = mx.compile(step, state, state);
      let settled = 0;
      for (let i = 0; i < 300; i++) {
        mx.tidy(() => {
          const value = (compiled ? fast : step)(x);
          mx.eval(value, model.held, optimizer.state);
        });
        if (i === 2) settled = mx.getActiveMemory(); // the first parameters have gone
        if (i > 2) assertEquals(mx.getActiveMemory(), settled, `${compiled ? "compiled" : "eager"} step ${i}`);
      }
      assertEquals(optimizer.step.item(), 300);
      mx.dispose(model.held, optimizer.state);
    }
    mx.dispose(x);
  });
});

Deno.test("optimizers take options by name, or in order, and refuse others", () => {
  const forms = [
    new o.SGD(0.1, 0.9),
    new o.SGD(0.1, { momentum: 0.9 }),
    new o.SGD({ learningRate: 0.1, momentum: 0.9 }),
  ];
  for (const one of forms) assertEquals([one.momentum, one.weightDecay, one.nesterov], [0.9, 0, false]);
  const defaults = { ...new o.Adam(1), ...new o.AdamW(1) };
  assertEquals(defaults, { betas: [0.9, 0.999], eps: 1e-8, biasCorrection: false, weightDecay: 0.01 });
  assertEquals(new o.SGD(mx.array(0.25)).learningRate.item(), 0.25);
  // deno-lint-ignore no-explicit-any -- calls that TypeScript refuses
  const any = o as any;
  const wrong: [() => unknown, string][] = [
    [() => new any.SGD(), "SGD() needs a learningRate"],
    [() => new any.SGD({ momentum: 1 }), "SGD() needs a learningRate"],
    [() => new any.SGD("fast"), "learningRate to be a number"],
    [() => new any.SGD(0.1, { learning_rate: 1 }), 'did you mean "learningRate"'],
    [() => new any.SGD(0.1, { learningRate: 1 }), "learningRate twice"],
    [() => new any.SGD(1, 2, 3, 4, true, 6), "takes 5 arguments"],
    [() => new any.SGD(1, "0.9"), "momentum to be a number"],
    [() => new o.SGD({ learningRate: 1, nesterov: true }), "nesterov"],
    [() => new o.SGD({ learningRate: 1, momentum: 0.5, dampening: 0.1, nesterov: true }), "nesterov"],
    [() => new o.RMSprop(1, -1), "alpha to be >=0"],
    [() => new o.RMSprop(1, 0.9, 0), "eps to be >0"],
    [() => new o.Adagrad(1, 0), "eps to be >0"],
    [() => new o.AdaDelta(1, -1), "rho to be >=0"],
    [() => new o.AdaDelta(1, 0.9, -1), "eps to be >0"],
    [() => new o.Adam(1, [1, 0.9]), "betas[0] to be in [0, 1)"],
    [() => new o.Adam(1, { eps: -1 }), "eps to be >=0"],
    [() => new o.Lion(1, [0.9, 1]), "betas[1] to be in [0, 1)"],
    [() => new any.Lion(1, [0.9]), "betas to be 2 numbers"],
    [
      () => new o.Adafactor({ relativeStep: false }).applyGradients({ w: mx.ones([1]) }, { w: mx.ones([1]) }),
      "learningRate",
    ],
    [() => new o.SGD(1).applyGradients({ w: mx.ones([1]) }, {}), '"w" is missing'],
    [() => new o.SGD(1).applyGradients({ w: null }, { w: mx.ones([1]) }), "arrays: found null"],
    [() => new o.SGD(1).applyGradients({ w: mx.ones([1]) }, { w: 1 }), 'parameter "w" to be an array'],
    [() => new o.SGD(1).applyGradients({ step: mx.ones([1]) }, { step: mx.ones([1]) }), 'the parameter "step"'],
  ];
  for (const [run, text] of wrong) assertThrows(run, mx.ValueError, text);
  assertThrows(
    () => new o.SGD(1).applyGradients({ w: mx.ones([1]) }, { w: mx.ones([2]) }),
    mx.ShapeError,
    'SGD expected the gradient "w" in the shape of its parameter, (2,): found (1,)',
  );
});

Deno.test("a tree of parameters may be an array or a list", () => {
  mx.withDevice("wasm", () => {
    const alone = new o.Adafactor();
    let x: mx.AnyTensor = mx.zeros([5, 5], mx.float16);
    for (let i = 0; i < 2; i++) x = alone.applyGradients(mx.onesLike(x), x);
    assertEquals([x.dtype.name, x.shape, alone.step.item()], ["float16", [5, 5], 2]);
    const listed = new o.Adam(0.1);
    const [a, b] = listed.applyGradients([mx.ones([2]), mx.ones([1])], [mx.ones([2]), mx.ones([1])]);
    assertEquals([a.shape, b.shape, Object.keys(listed.state)], [[2], [1], ["0", "1", "step", "learningRate"]]);
  });
});
