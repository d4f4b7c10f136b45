/**
 * Layers and losses against MLX: drawn weights, and with the same weights results, gradients with respect to parameters
 * and inputs, printed text, and running statistics. Gradients are taken on the CPU; on other devices those of a few
 * cases, as each has kernels to compile.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { anyDevice, testDevices } from "../support/devices/devices.ts";
import { fill, filled, GOLDEN_CASES, type GoldenCase, named } from "./golden_cases.ts";

mx.devices(); // opens the Vulkan library outside of any test

type T = mx.Tensor;

interface Numbers {
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

interface Golden {
  readonly print?: string;
  /** Mean magnitudes of parameters as they are drawn after `mx.random.seed(9)`. */
  readonly fresh: readonly (readonly [string, Numbers])[];
  readonly out: readonly Numbers[];
  readonly state?: readonly (readonly [string, Numbers])[];
  readonly parameters?: readonly (readonly [string, Numbers])[];
  readonly inputs?: readonly Numbers[];
}

const GOLDEN: Readonly<Record<string, Golden>> = JSON.parse(
  await Deno.readTextFile(new URL("../golden/arrays/nn.json", import.meta.url)),
);

/** Rounding of float32 over some hundred sums, as a part of the largest element. */
const TOLERANCE = 2e-5;

const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/** The fault of an array, or nothing. */
function wrong(what: string, x: T, expected: Numbers): string[] {
  if (String(x.shape) !== String(expected.shape)) return [`${what}: shape (${x.shape}), not (${expected.shape})`];
  const values = Array.from(x.astype(mx.float32).toTypedArray() as Float32Array);
  const bound = TOLERANCE * Math.max(0.05, ...expected.values.map(Math.abs));
  const at = values.findIndex((v, i) => !(Math.abs(v - expected.values[i]) <= bound));
  return at < 0 ? [] : [`${what}: ${values[at]} at ${at}, not ${expected.values[at]}`];
}

function wrongByName(
  what: string,
  found: readonly (readonly [string, T])[],
  expected: readonly (readonly [string, Numbers])[],
): string[] {
  const names = expected.map(([name]) => camel(name));
  const own = new Map(found);
  if (String([...own.keys()].sort()) !== String(names.toSorted())) return [`${what}: ${[...own.keys()]}, not ${names}`];
  return expected.flatMap(([name, numbers]) => wrong(`${what} of ${name}`, own.get(camel(name))!, numbers));
}

function inputsOf({ shapes, whole = {} }: GoldenCase): T[] {
  return shapes.map((shape, i) => {
    if (whole[i] === undefined) return fill(i + 1, shape);
    const size = shape.reduce((product, n) => product * n, 1);
    return mx.remainder(mx.multiply(mx.arange(size), 7), whole[i]).reshape([...shape]).astype(mx.int32) as T;
  });
}

/** Cases whose gradients are taken on every device. */
const EVERYWHERE = ["Linear", "Conv2d", "ConvTranspose1d", "BatchNorm", "MaxPool2d", "LSTM with state"].concat(
  ["MultiHeadAttention", "TransformerEncoder checkpointed", "QuantizedLinear", "crossEntropy mean"],
);

function check(name: string, golden: Golden, gradients: boolean): string[] {
  const c = GOLDEN_CASES[name];
  const made = c.make();
  const module = (name.startsWith("Quantized") || name.startsWith("QQ") && c.evaluated ? made : filled(made)).train(
    !c.evaluated,
  );
  const inputs = inputsOf(c);
  const call = c.call ?? ((m: mx.nn.Module, ...xs: T[]) => m.forward(...xs));
  const run = (...xs: T[]): readonly T[] => [call(module, ...xs)].flat() as T[];
  const before = module.parameters();
  const failed = run(...inputs).flatMap((y, i) => wrong(`result ${i}`, y, golden.out[i]));
  if (golden.state) {
    const running = named(module.parameters()).filter(([key]) => key.includes("running"));
    failed.push(...wrongByName("state", running, golden.state));
  }
  module.update(before);
  if (gradients && golden.parameters && golden.inputs) {
    const loss = (...xs: T[]): T =>
      run(...xs).map((y, i): T => mx.sum(mx.multiply(y, fill(50 + i, y.shape)))).reduce((a, b) => mx.add(a, b));
    const [, parameters] = mx.nn.valueAndGrad(module, loss)(...inputs);
    failed.push(...wrongByName("gradient", named(parameters), golden.parameters));
    const own = inputs.map((_, i) => i).filter((i) => c.whole?.[i] === undefined);
    const grads = own.length === 0 ? [] : mx.grad(loss, own)(...inputs) as unknown as T[];
    failed.push(...grads.flatMap((g, i) => wrong(`gradient of input ${own[i]}`, g, golden.inputs![i])));
  }
  return failed.map((text) => `${name}: ${text}`);
}

for (const device of testDevices()) {
  Deno.test(`layers and losses give what MLX does, and the same gradients, on ${device}`, () => {
    const failed = mx.withDevice(
      device,
      () =>
        Object.entries(GOLDEN).flatMap(([name, golden]) =>
          mx.tidy(() => check(name, golden, device === anyDevice() || EVERYWHERE.includes(name)))
        ),
    );
    assertEquals(failed, []);
  });
}

Deno.test("the golden file has the cases of the table", () => {
  assertEquals(Object.keys(GOLDEN).sort(), Object.keys(GOLDEN_CASES).sort());
});

Deno.test("new modules draw the weights that MLX's do", () => {
  const failed = mx.withDevice(anyDevice(), () =>
    Object.entries(GOLDEN).flatMap(([name, { fresh }]) => {
      mx.random.seed(9);
      const drawn = named(GOLDEN_CASES[name].make().parameters())
        .map(([key, x]): [string, T] => [key, mx.mean(mx.abs(x.astype(mx.float32)))]);
      return wrongByName(name, drawn, fresh);
    }));
  assertEquals(failed, []);
});

Deno.test("modules print as in MLX, but for camelCase names of modules below", () => {
  for (const [name, { print }] of Object.entries(GOLDEN)) {
    if (print === undefined || name.startsWith("RNN")) continue; // MLX prints where its function lies in memory
    const names = print.replaceAll(/^(\s*)\(([\w.]+)\):/gm, (_, space, key) => `${space}(${camel(key)}):`);
    assertEquals(String(GOLDEN_CASES[name].make()), names, name);
  }
});

Deno.test("every layer, loss and initialiser of MLX is there", () => {
  const classes =
    "Bilinear Identity Linear BatchNorm GroupNorm InstanceNorm LayerNorm RMSNorm ALiBi RoPE GRU LSTM RNN " +
    "SinusoidalPositionalEncoding QuantizedEmbedding QuantizedLinear QQLinear MultiHeadAttention Transformer TransformerDecoder " +
    "TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer Upsample Embedding Dropout Dropout2d Dropout3d " +
    "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d MaxPool1d MaxPool2d MaxPool3d AvgPool1d " +
    "AvgPool2d AvgPool3d Sequential Module CELU ELU GELU GLU SELU HardShrink Hardswish HardTanh LeakyReLU LogSigmoid " +
    "LogSoftmax Mish PReLU ReLU ReLU2 ReLU6 Sigmoid SiLU Softmax Softmin Softplus Softshrink Softsign Step Tanh";
  const functions = "celu elu gelu geluApprox geluFastApprox glu hardShrink hardTanh hardswish leakyRelu logSigmoid " +
    "logSoftmax mish prelu relu relu2 relu6 selu sigmoid silu softmax softmin softplus softshrink softsign step tanh " +
    "quantize valueAndGrad checkpoint";
  const missing = `${classes} ${functions}`.split(" ").filter((name) => !(name in mx.nn));
  assertEquals(missing, []);
  assert(Object.keys(mx.nn.losses).length === 14 && Object.keys(mx.nn.init).length === 10);
});
