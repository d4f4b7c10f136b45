/** Modules and their fields: parameters, children, freezing, training, weights in files, gradients, and errors. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../mod.ts";
import { anyDevice } from "../support/devices/devices.ts";
import { named } from "./golden_cases.ts";

mx.devices(); // opens the Vulkan library outside of any test

const { nn } = mx;
type T = mx.Tensor;

/** A model with every kind of field. */
class Model extends nn.Module {
  scale: T = mx.ones([2]);
  layers: mx.nn.Module[] = [new nn.Linear(2, 2), new nn.BatchNorm(2)];
  parts: { head: mx.nn.Linear; table: T[] } = {
    head: new nn.Linear(2, 1, false),
    table: [mx.zeros([3]), mx.ones([1])],
  };
  sizes: number[] = [2, 2];
  label = "a model";
  _cache: T = mx.zeros([5]);
  _hidden: mx.nn.Module = new nn.Dropout(0.5);
  readonly #secret: T = mx.zeros([7]);

  override forward(x: T): T {
    const y = this.layers.reduce((at: T, layer) => layer.forward(at), mx.multiply(x, this.scale));
    return this.parts.head.forward(y);
  }

  get secret(): T {
    return this.#secret;
  }
}

const names = (tree: unknown): string[] => named(tree).map(([name]) => name);
const ALL = [
  ...["scale", "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "layers.1.runningMean"],
  ...["layers.1.runningVar", "parts.head.weight", "parts.table.0", "parts.table.1"],
];

function test(name: string, fn: () => void): void {
  Deno.test(name, () => mx.withDevice(anyDevice(), fn));
}

test("parameters are the arrays of fields, lists, objects and modules below, but for names with _", () => {
  const model = new Model();
  assertEquals(names(model.parameters()), ALL);
  assert(model.parameters().layers[0].weight === (model.layers[0] as mx.nn.Linear).weight);
  assertEquals(Object.keys(model.parameters()), ["scale", "layers", "parts"]); // a list of sizes has none
  assertEquals(names(model.trainableParameters()), ALL.filter((name) => !name.includes("running")));
});

test("children, leaf modules and names of modules", () => {
  const model = new Model();
  const { layers, parts, _hidden } = model;
  assertEquals(model.children(), { layers, parts: { head: parts.head, table: {} }, _hidden } as never);
  const nested = new nn.Sequential(new nn.Sequential(new nn.Linear(1, 1)), nn.relu);
  const inner = nested.layers[0] as mx.nn.Sequential;
  assert(nested.children().layers[0] === inner);
  assert(nested.leafModules().layers[0].layers[0] === inner.layers[0]);
  assertEquals(nested.namedModules().map(([name]) => name), ["", "layers.0", "layers.0.layers.0"]);
  assertEquals(model.modules().length, 5);
  assertEquals(model.modules()[0], model);
});

test("update puts arrays in their places, and says where there is none", () => {
  const model = new Model();
  const [a, b] = [mx.zeros([2]), mx.ones([3])];
  model.update({ scale: a, parts: { table: [b] } });
  assert(model.scale === a && model.parts.table[0] === b);
  assertThrows(() => model.update({ layers: [{ weigth: a }] }), mx.ValueError, '"layers.0.weigth"');
  assertThrows(() => model.update({ scale: 3 }), mx.ValueError, '"scale": found a number');
  assertThrows(() => model.update({ layers: [{}, {}, { weight: a }] }), mx.ValueError, '"layers.2"');
  assertThrows(() => model.update({ layers: { 0: { weight: a } } }), mx.ValueError, '"layers.0"');
  assertThrows(() => model.update({ scale: undefined } as never), mx.ValueError, '"scale"');
  model.update({ nowhere: a, layers: [{}, {}, {}, { weight: a }] }, false);
  assertEquals(names(model.parameters()), ALL);
});

test("updateModules puts modules in the places of modules", () => {
  const model = new Model();
  const head = new nn.Linear(2, 5);
  model.updateModules({ parts: { head } });
  assert(model.parts.head === head);
  assertThrows(() => model.updateModules({ tail: head }), mx.ValueError, '"tail"');
  assertThrows(() => model.updateModules({ parts: { head: 4 } }), mx.ValueError, '"parts.head"');
});

test("apply, setDtype and filterAndMap", () => {
  const model = new Model();
  model.layers[0].setDtype(mx.float16);
  assertEquals((model.layers[0] as mx.nn.Linear).weight.dtype, mx.float16);
  assertEquals(model.scale.dtype, mx.float32);
  const whole = new (class extends nn.Module {
    index: T = mx.arange(3);
  })();
  assertEquals(whole.setDtype(mx.float16).index.dtype, mx.int32);
  assertEquals(whole.setDtype(mx.float16, null).index.dtype, mx.float16);
  model.apply((x) => mx.zeros(x.shape), (_, key) => key === "scale");
  assertEquals(model.scale.tolist(), [0, 0]);
  assertEquals(model.filterAndMap((_, key) => key === "label", (value) => `${value}!`), { label: "a model!" });
});

test("codes of quantized matrices are never trained", () => {
  const model = new nn.Sequential(new nn.Linear(64, 64), new nn.QQLinear(64, 32).eval());
  nn.quantize(model, 64, 4, { classPredicate: (_, module) => module instanceof nn.Linear });
  model.layers.push(new nn.Linear(32, 2));
  const dense = ["layers.2.weight", "layers.2.bias"];
  model.freeze().unfreeze();
  assertEquals(names(model.trainableParameters()), ["layers.0.bias", ...dense]);
  const loss = (x: T): T => mx.sum(model.forward(x));
  const [, gradients] = nn.valueAndGrad(model, loss)(mx.ones([1, 64]));
  assertEquals(names(gradients), ["layers.0.bias", ...dense]);
  assertEquals((gradients.layers[2].bias as T).tolist(), [1, 1]);
  // Scales and biases that are named are trained, as in MLX.
  model.freeze().unfreeze({ keys: ["weight", "scales"] });
  assertEquals(names(model.trainableParameters()), ["layers.0.scales", "layers.2.weight"]);
  const own = new (class extends nn.Module {
    index: T = mx.arange(3);
    scale: T = mx.ones([3]);
  })();
  assertEquals(names(own.trainableParameters()), ["scale"]);
});

test("frozen parameters are not trained; running statistics never are", () => {
  const model = new Model();
  assertEquals(names(model.freeze().trainableParameters()), []);
  model.unfreeze({ keys: "weight" });
  assertEquals(names(model.trainableParameters()), ["layers.0.weight", "layers.1.weight", "parts.head.weight"]);
  model.unfreeze();
  assertEquals(names(model.trainableParameters()), ALL.filter((name) => !name.includes("running")));
  model.freeze({ recurse: false });
  assertEquals(names(model.trainableParameters()), [
    ...["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "parts.head.weight"],
  ]);
  model.unfreeze().freeze({ keys: ["bias", "scale"], strict: true });
  assert(!names(model.trainableParameters()).some((name) => /bias|scale/.test(name)));
  assertThrows(() => model.freeze({ keys: "biass", strict: true }), mx.ValueError, '"biass"');
  assertThrows(() => model.freeze({ key: "bias" } as never), mx.ValueError, '"keys"');
});

test("train and eval reach all modules; dropout and batch normalization look at it", () => {
  const model = new Model();
  assert(model.training);
  model.eval();
  assert(model.modules().every((module) => !module.training));
  const norm = model.layers[1] as mx.nn.BatchNorm;
  const { runningMean } = norm;
  model.forward(mx.ones([4, 2]));
  assert(norm.runningMean === runningMean);
  model.train();
  const drop = model._hidden as mx.nn.Dropout;
  const y = drop.forward(mx.ones([1000])).tolist() as number[];
  const kept = y.filter((v) => v === 2).length;
  assert(kept > 400 && kept < 600 && y.every((v) => v === 0 || v === 2));
  const channels = new nn.Dropout2d(0.5).forward(mx.ones([8, 3, 3, 16]));
  const sums = mx.sum(channels, [1, 2]).tolist() as number[][];
  assert(sums.flat().every((v) => v === 0 || v === 18) && new Set(sums.flat()).size === 2);
});

for (const ending of ["safetensors", "npz"]) {
  test(`weights come back from .${ending}, and what does not fit is named`, () => {
    const path = `${Deno.makeTempDirSync()}/weights.${ending}`;
    const [from, to] = [new Model(), new Model()];
    from.saveWeights(path);
    to.loadWeights(path);
    const own = new Map(named(from.parameters()));
    for (const [name, array] of named(to.parameters())) assert(mx.arrayEqual(array, own.get(name)!).item(), name);
    to.saveWeights(path); // while its values may still lie in the file
    assertThrows(() => new nn.Linear(2, 2).loadWeights(path), mx.ValueError, "does not have");
    Deno.removeSync(path);
  });
}

test("weights that do not match a module are named with their shapes", () => {
  const model = new nn.Sequential(new nn.Linear(2, 3), nn.relu, new nn.Linear(3, 1, false));
  const weights = (): [string, T][] => [
    ["layers.0.weight", mx.ones([3, 2])],
    ["layers.0.bias", mx.ones([3])],
    ["layers.2.weight", mx.ones([1, 3])],
  ];
  model.loadWeights(weights());
  const load = (list: readonly unknown[]) => () => model.loadWeights(list as [string, T][]);
  assertThrows(load(weights().slice(1)), mx.ValueError, 'misses 1 parameters of the model: "layers.0.weight"');
  assertThrows(load([...weights(), ["more", mx.ones([1])]]), mx.ValueError, '"more"');
  const turned = weights().with(2, ["layers.2.weight", mx.ones([3, 1])]);
  const error = assertThrows(load(turned), mx.ShapeError);
  for (const part of ["(1, 3)", "(3, 1)", '"layers.2.weight"']) assert(error.message.includes(part), error.message);
  assertThrows(load(weights().with(1, ["layers.0.bias", [1, 2, 3] as never])), mx.ValueError, "found a list");
  model.loadWeights([["layers.2.weight", mx.zeros([1, 3])], ["__proto__.x", mx.ones([1])]], false);
  assertEquals((model.layers[2] as mx.nn.Linear).weight.tolist(), [[0, 0, 0]]);
  assertThrows(() => model.saveWeights("weights.gguf"), mx.ValueError, "weights.gguf");
});

test("names of Python's files are found", () => {
  const attention = new nn.MultiHeadAttention(2, 1);
  const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  attention.loadWeights(named(attention.parameters()).map(([name, { shape }]) => [snake(name), mx.ones(shape)]));
  assertEquals(attention.outProj.weight.tolist(), [[1, 1], [1, 1]]);
  new nn.LSTM(1, 1).loadWeights([["Wx", mx.ones([4, 1])], ["Wh", mx.ones([4, 1])], ["bias", mx.ones([4])]]);
});

test("valueAndGrad gives gradients of what is trained and leaves the model's own arrays", () => {
  const model = new Model();
  const before = model.parameters();
  const x = mx.array([[1, 2], [3, -4], [0, 5]]);
  model.layers[0].freeze();
  const loss = (input: T, factor: number): [T, string] => [mx.multiply(mx.mean(model.forward(input)), factor), "more"];
  const [[value, more], grads] = nn.valueAndGrad(model, loss)(x, 2);
  assertEquals([value.shape, more], [[], "more"]);
  assertEquals(names(grads), names(model.trainableParameters()));
  const after = new Map(named(model.parameters()));
  for (const [name, array] of named(before)) {
    assertEquals(after.get(name) === array, !name.includes("running"), name);
  }
  mx.eval(value, grads, model.parameters());
  assertThrows(
    () =>
      nn.valueAndGrad(model, () => {
        throw new Error("in the middle");
      })(),
    Error,
    "in the middle",
  );
  assert(model.scale === before.scale);
  assertThrows(() => nn.valueAndGrad(model, (input: T) => model.forward(input))(x), mx.ShapeError, "scalar");
  assert(model.scale === before.scale);
});

test("a checkpointed module drops the same elements again, and its gradients are those without", () => {
  const model = new nn.Sequential(new nn.Linear(4, 16), new nn.Dropout(0.5), new nn.Linear(16, 1));
  const x = mx.random.normal([8, 4]);
  const gradients = (forward: (x: T) => T): [T[], number] => {
    mx.random.seed(11);
    const [loss, grads] = nn.valueAndGrad(model, () => mx.sum(mx.square(forward(x))))();
    mx.eval(loss, grads);
    return [[loss, ...named(grads).map(([, g]) => g)], mx.random.uniform(0, 1, []).item() as number];
  };
  const [plain, next] = gradients((x) => model.forward(x));
  const [again, same] = gradients(nn.checkpoint(model));
  assertEquals(again.length, 5);
  again.forEach((g, i) => assert(mx.allclose(g, plain[i], 1e-5, 1e-6).item(), `${i}: ${g}, not ${plain[i]}`));
  assertEquals(same, next); // and what is drawn later is the same too
});

test("a network learns", () => {
  mx.random.seed(3);
  const model = new nn.Sequential(new nn.Linear(2, 8), new nn.Tanh(), new nn.Linear(8, 1));
  const [x, y] = [mx.array([[0, 0], [0, 1], [1, 0], [1, 1]]), mx.array([[0], [1], [1], [0]])];
  const step = nn.valueAndGrad(model, () => nn.losses.mseLoss(model.forward(x), y));
  let value = Infinity;
  for (let i = 0; i < 400; i++) {
    const [loss, grads] = step();
    const moved = named(grads).map(([name, g]) => [name, mx.multiply(g, -0.1)] as const);
    const own = new Map(named(model.parameters()));
    model.loadWeights(moved.map(([name, by]): [string, T] => [name, mx.add(own.get(name)!, by)]));
    mx.eval(loss, model.parameters());
    value = loss.item() as number;
  }
  assert(value < 0.01, `${value}`);
});

test("quantize replaces what can be quantized, and says what cannot", () => {
  const model = new nn.Sequential(new nn.Linear(64, 64), nn.relu, new nn.Linear(64, 2), new nn.LayerNorm(2));
  const x = mx.random.normal([3, 64]);
  const exact = model.forward(x);
  nn.quantize(model, 32, 8, { classPredicate: (name) => name === "layers.0" });
  assert(model.layers[0] instanceof nn.QuantizedLinear && model.layers[2] instanceof nn.Linear);
  assert(mx.allclose(model.forward(x), exact, 0.05, 0.05).item());
  assertEquals(names(model.layers[0].trainableParameters()), ["bias"]); // as in MLX, the bias is trained on
  assertEquals(names(new nn.QuantizedLinear(64, 2).trainableParameters()), []);
  nn.quantize(model, 64, 4, { classPredicate: (_, m) => m instanceof nn.Linear && { bits: 2, groupSize: 32 } });
  assertEquals((model.layers[2] as mx.nn.Module as mx.nn.QuantizedLinear).bits, 2);
  assertThrows(() => nn.quantize(model, 64, 4, { classPredicate: () => true }), mx.ValueError, "layers.");
  assertThrows(() => nn.quantize(new nn.Sequential(new nn.Linear(33, 2))), mx.ShapeError, "33");
});

test("quantized layers compute with what their matrix stands for, in every mode and with given arrays", () => {
  const [x, ids] = [mx.random.normal([3, 64]), mx.array([1, 0, 3], mx.int32)];
  for (const mode of ["affine", "mxfp4", "mxfp8", "nvfp4"] as const) {
    const [linear, table] = [new nn.Linear(64, 32), new nn.Embedding(32, 64)];
    const layer = linear.toQuantized(undefined, undefined, mode);
    assertEquals([layer.mode, Object.keys(layer.parameters())], [
      mode,
      mode === "affine" ? ["weight", "scales", "biases", "bias"] : ["weight", "scales", "bias"],
    ]);
    const matrix = (m: mx.nn.QuantizedMatrix): T =>
      mx.dequantize(m.weight, m.scales, m.biases, m.groupSize, m.bits, { mode: m.mode, dtype: mx.float32 });
    const expected = mx.addmm(linear.bias!, x, matrix(layer).T);
    assert(mx.allclose(layer.forward(x), expected, 1e-4, 1e-4).item(), mode);
    assertEquals(new nn.QuantizedLinear(layer).forward(x).tolist(), layer.forward(x).tolist());

    const rows = table.toQuantized(undefined, undefined, mode);
    const found = rows.forward(ids, mx.float32);
    assertEquals(found.dtype, mx.float32);
    assert(mx.allclose(found, mx.take(matrix(rows), ids, 0), 1e-5, 1e-5).item(), mode);
    assertEquals([rows.numEmbeddings, rows.dims, rows.asLinear(x).shape], [32, 64, [3, 32]]);
  }
  assertThrows(() => new nn.Linear(64, 2).toQuantized(64, 4, "int4" as never), mx.ValueError, "affine, mxfp4");
});

test("layers of given arrays hold those, and draw nothing", () => {
  const key = mx.random.state[0].tolist();
  const [weight, bias] = [mx.array([[1, 2], [3, 4]]), mx.array([10, 20])];
  const linear = new nn.Linear({ weight, bias });
  assert(linear.weight === weight && linear.bias === bias && new nn.RMSNorm({ weight: bias }).weight === bias);
  assertEquals(linear.forward(mx.array([1, 1])).tolist(), [13, 27]);
  assertEquals(Object.keys(new nn.Linear({ weight }).parameters()), ["weight"]);
  const table = new nn.Embedding({ weight });
  assertEquals(table.forward(mx.array([1], mx.int32), mx.float16).dtype, mx.float16);
  assertEquals(mx.random.state[0].tolist(), key);
});

test("layers are quantized in modes of small floats, with what they are given where asked, and stored", () => {
  const build = (): mx.nn.Sequential => new nn.Sequential(new nn.Linear(64, 64), nn.relu, new nn.Linear(64, 32, false));
  const model = build();
  nn.quantize(model, undefined, undefined, { mode: "mxfp4" });
  assertEquals(names((model.layers[0] as mx.nn.Module).parameters()).sort(), ["bias", "scales", "weight"]);
  const onlyLast = {
    mode: "nvfp4",
    quantizeInput: true,
    classPredicate: (name: string) => name === "layers.2",
  } as const;
  const mixed = build();
  nn.quantize(mixed, undefined, undefined, onlyLast);
  const last = mixed.layers[2] as mx.nn.Module as mx.nn.QQLinear;
  assert(last instanceof nn.QQLinear && last.weight.dtype === mx.float32 && last.training);
  const x = mx.random.normal([3, 64], mx.float32, 0, 1, mx.random.key(4));
  const trained = mixed.forward(x);
  const grads = nn.valueAndGrad(mixed, (x: T) => mx.sum(mixed.forward(x)))(x)[1];
  assertEquals(names(grads.layers[2]), ["weight"]);
  mixed.eval();
  assertEquals([last.weight.dtype, last.weight.shape, last.scales!.dtype], [mx.uint32, [32, 8], mx.uint8]);
  assert(mx.allclose(mixed.forward(x), trained, 1e-5, 1e-5).item());
  const weights = named(mixed.parameters()).map(([name, v]) => [name, v] as [string, T]);
  const again = build();
  nn.quantize(again, undefined, undefined, onlyLast);
  assertThrows(() => again.loadWeights(weights), mx.ArrayError, "layers.2.scales");
  assertEquals(again.eval().loadWeights(weights).forward(x).tolist(), mixed.forward(x).tolist());
  const rounded = mx.dequantize(last.weight, last.scales!, null, 16, 4, "nvfp4");
  mixed.train();
  assert(last.scales === undefined);
  assertEquals(last.weight.tolist(), rounded.tolist());
  const embedding = new nn.Sequential(new nn.Embedding(5, 64));
  assertThrows(
    () => nn.quantize(embedding, undefined, undefined, { mode: "mxfp8", quantizeInput: true }),
    mx.ValueError,
    "integers",
  );
  assertThrows(() => new nn.Linear(64, 2).toQuantized(undefined, undefined, "mxfp8", true), mx.ValueError, "bias");
  assertThrows(() => new nn.QQLinear(64, 2, undefined, undefined, "mxfp4"), mx.ValueError, "nvfp4 or mxfp8");
  assertThrows(
    () => new nn.Linear(64, 2, false).toQuantized(undefined, undefined, undefined, true),
    mx.ValueError,
    "found affine",
  );
});

test("initialisers draw what they say", () => {
  mx.random.seed(5);
  const a = mx.zeros([64, 100]);
  const std = (x: T): number => mx.std(x).item() as number;
  const near = (found: number, expected: number): void => {
    assert(Math.abs(found - expected) < 0.05 * expected, `${found}, not ${expected}`);
  };
  assertEquals(nn.init.constant(2.5)(mx.zeros([2])).tolist(), [2.5, 2.5]);
  near(std(nn.init.normal(1, 0.5)(a)), 0.5);
  near(mx.mean(nn.init.normal(1, 0.5)(a)).item() as number, 1);
  near(std(nn.init.uniform(-1, 1)(a)), Math.sqrt(1 / 3));
  assertEquals(nn.init.identity()(mx.zeros([2, 2])).tolist(), [[1, 0], [0, 1]]);
  near(std(nn.init.glorotNormal()(a)), Math.sqrt(2 / 164));
  near(std(nn.init.glorotUniform()(a, 2)), 2 * Math.sqrt(2 / 164));
  near(std(nn.init.heNormal()(a)), 0.1);
  near(std(nn.init.heUniform()(a, "fanOut", 3)), 3 / 8);
  near(std(nn.init.heNormal()(mx.zeros([30, 3, 3, 20]))), Math.sqrt(1 / 180));
  const zeros = mx.sum(mx.equal(nn.init.sparse(0.25)(a), 0), 1).tolist() as number[];
  assertEquals(zeros, new Array(64).fill(25));
  const q = nn.init.orthogonal(2)(mx.zeros([3, 5]));
  assert(mx.allclose(mx.matmul(q, q.T), mx.multiply(mx.eye(3), 4), 1e-4, 1e-4).item());
  assertEquals(nn.init.normal(0, 1, mx.float16)(a).dtype, mx.float16);
  assertThrows(() => nn.init.identity()(a), mx.ShapeError, "(64, 100)");
  assertThrows(() => nn.init.heNormal()(mx.zeros([3])), mx.ShapeError, "(3,)");
  assertThrows(() => nn.init.heNormal()(a, "fan" as never), mx.ValueError, "fanIn");
});

test("settings and shapes that do not fit are refused where the layer is made or called", () => {
  const refused: readonly (readonly [() => unknown, string])[] = [
    [() => new nn.Dropout(1), "p"],
    [() => new nn.LayerNorm(3, 0), "eps"],
    [() => new nn.GroupNorm(2, 3), "3 and 2"],
    [() => new nn.BatchNorm(2).forward(mx.ones([1, 2])), "(1, 2)"],
    [() => new nn.BatchNorm(2).forward(mx.ones([2])), "(2)"],
    [() => new nn.InstanceNorm(2).forward(mx.ones([2, 2])), "(2, 2)"],
    [() => new nn.Conv2d(3, 4, 3, 1, 1, 1, 2), "3 and 2"],
    [() => new nn.Conv2d(3, 4, [3]), "kernelSize"],
    [() => new nn.MaxPool2d(0), "kernelSize"],
    [() => new nn.AvgPool1d(4).forward(mx.ones([1, 3, 1])), "(1, 3, 1)"],
    [() => new nn.Upsample(2, "fast" as never), "fast"],
    [() => new nn.Upsample([2, 2]).forward(mx.ones([1, 3, 1])), "(1, 3, 1)"],
    [() => new nn.MultiHeadAttention(5, 2), "5 and 2"],
    [() => new nn.SinusoidalPositionalEncoding(3), "3"],
    [() => new nn.GELU("slow" as never), "slow"],
    [() => new nn.QuantizedLinear(64, 2, true, 64, 4, "mxfp4" as never), "mxfp4"],
    [() => new nn.Module().forward(mx.ones([1])), "forward"],
    [() => nn.losses.crossEntropy(mx.ones([2, 3]), mx.ones([3])), "(3,)"],
    [() => nn.losses.mseLoss(mx.ones([2]), mx.ones([3])), "(3,)"],
    [() => nn.losses.mseLoss([1], [1], "avg" as never), "avg"],
    [() => nn.losses.crossEntropy(mx.ones([2, 3]), [0, 1], null, -1, 1), "labelSmoothing"],
  ];
  for (const [call, part] of refused) assertThrows(call, mx.ArrayError, part);
});
