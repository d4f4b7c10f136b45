/**
 * Transforms of functions over drawn arguments, compared with MLX's results. They are derivatives in both directions,
 * second ones, batches, batches of derivatives and derivatives of batches, also compiled. The calls are those of
 * tests/reference/mlx_calls.py; MLX's values are held to differences in float64 and to loops where the file is made
 * (tests/reference/mlx_derivatives.py).
 *
 * A software GPU compiles kernels for each dtype: it gets one case of every fourth function. VKMX_CASES=100 gives it up to that many of
 * all, and VKMX_CASES_OP=cumsum takes one function only.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { testDevices } from "../support/devices/devices.ts";
import { drawSome } from "../support/draw_cases.ts";
import type { OpRules } from "../../src/array/transforms/rule.ts";
import { TABLE } from "../../src/array/transforms/table.ts";
import { OPS } from "../ops/cases.ts";
import { camel, describe, functionsWithCases, wrong } from "../support/oracles/mlx_cases.ts";
import { Call, type DerivativeCase, type DerivativeKind, readDerivatives } from "../support/oracles/mlx_derivatives.ts";

mx.devices(); // opens the Vulkan library outside of any test

const { cases, elements } = readDerivatives();
const only = Deno.env.get("VKMX_CASES_OP");
const most = Number(Deno.env.get("VKMX_CASES") ?? 0);
const FUNCTIONS = [...Map.groupBy(cases, (c) => c.f).values()].filter(([{ f }]) => !only || f === only);

/** Differences on purpose (also in docs/mlx.md), by the text of a failure. */
const DIFFERENT: readonly (readonly [failure: RegExp, why: string])[] = [
  [/^floor_divide\(complex64/, "complex numbers have no floor"],
  [/ of quantize\(.*there is no derivative/, "MLX has one of scales and biases"],
];

/** Functions of arrays without cases here, and why. */
const WITHOUT: ReadonlyMap<string, string> = new Map(
  ([
    ["takes no arrays", [
      ...["full", "arange", "linspace", "eye", "tri", "identity", "zeros", "ones", "empty", "broadcastShapes", "array"],
      ...["bartlett", "hanning", "hamming", "blackman", "fft.fftfreq", "fft.rfftfreq", "random.key"],
    ]],
    ["the name of another one that has cases", [
      ...["variance", "at.add", "Tensor.at", "Tensor.index", "Tensor.indexPut_", "Tensor.mT", "Tensor.T"],
      ...["add", "subtract", "multiply", "divide", "maximum", "minimum"].map((name) => `At.${name}`),
    ]],
    [
      "gradients beside MLX's modules: nn/golden_test.ts",
      [
        ...["relu", "leakyRelu", "elu", "silu", "gelu", "geluApprox", "softplus", "relu2", "relu6", "celu", "selu"],
        ...["softsign", "softshrink", "hardShrink", "hardTanh", "hardswish", "mish", "geluFastApprox", "logSigmoid"],
        "logSoftmax",
      ].map((name) => `nn.${name}`),
    ],
    ["gradients of QQLinear: nn/golden_test.ts", ["qqmm"]],
    ["differences: cases.ts", ["gatherQmm", "silu"]],
    ["for language models that answer, which are not trained through it", ["fast.sample", "fast.logprobs"]],
    ["both factors are rounded", ["gatherQqmm"]],
    ["bits", ["random.bits"]],
    ["several elementwise functions of the table", ["chain"]],
  ] as const).flatMap(([why, names]) => names.map((name) => [name, why] as const)),
);

/** Rules that no case goes through, and why. */
const UNUSED: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ["stopGradient vjp", "stopGradient jvp", "argsort vjp", "randomBits vjp", "randomBits jvp"]
      .map((rule) => [rule, "constant: no floating result depends on it"]),
  ),
  ...Object.fromEntries(
    ["depends vjp", "depends jvp", "depends vmap", "gatherQuantizedMatmul vjp", "gatherQuantizedMatmul vmap"]
      .map((rule) => [rule, "differences: cases.ts"]),
  ),
  ...Object.fromEntries(
    ["collective vjp", "collective jvp", "collective vmap"].map((rule) => [rule, "several processes: distributed/"]),
  ),
};

/** Notes which rules are gone through; undone by what it gives. */
function watched(used: Set<string>): () => void {
  const undo: (() => void)[] = [];
  for (const [op, rules] of Object.entries(TABLE as Readonly<Record<string, OpRules>>)) {
    for (const [name, rule] of Object.entries(rules)) {
      if (typeof rule !== "function") continue;
      const set = (value: unknown): void => void Object.assign(rules, { [name]: value });
      undo.push(() => set(rule));
      set((...args: never[]) => {
        used.add(`${op} ${name}`);
        return (rule as (...args: never[]) => unknown)(...args);
      });
    }
  }
  return () => undo.forEach((back) => back());
}

/** The cases of a function for a device; other ones from function to function. */
function chosen(list: readonly DerivativeCase[], device: string, turn: number): readonly DerivativeCase[] {
  if (device === "wasm") return list;
  if (most === 0) return turn % 4 === 0 ? [list[turn % list.length]] : [];
  const step = Math.max(1, list.length / most);
  return Array.from(
    { length: Math.min(most, list.length) },
    (_, i) => list[(Math.floor(i * step) + turn) % list.length],
  );
}

/** The faults of a case. Every fourth transform is compiled as well, if that is asked for. */
function failuresOf(c: DerivativeCase, number: number, compiled: boolean): string[] {
  const failures: string[] = [];
  const asked: { kind: DerivativeKind; way: string; results: mx.Tensor[] }[] = [];
  const say = (kind: DerivativeKind, way: string, text: unknown): void => {
    failures.push(`${kind}${way} of ${describe(c)}: ${`${text}`.split("\n")[0]}`);
  };
  let call: Call;
  try {
    call = new Call(c, elements);
  } catch (error) {
    return [`${describe(c)}: ${error}`];
  }
  (Object.keys(c.r) as DerivativeKind[]).forEach((kind, k) => {
    const ways = call.transforms(kind).flatMap(([fn, arrays], i) => {
      const way = i === 0 ? "" : " (reverse twice)";
      const plain = [way, fn, arrays] as const;
      return compiled && (number + k) % 4 === 0
        ? [plain, [`${way} (compiled)`, mx.compile(fn), arrays] as const]
        : [plain];
    });
    for (const [way, fn, arrays] of ways) {
      try {
        asked.push({ kind, way, results: fn(...arrays) });
      } catch (error) {
        say(kind, way, `throws ${error}`);
      }
    }
  });
  try {
    mx.eval(asked.flatMap((a) => a.results));
  } catch {
    // One of them is at fault: found below.
  }
  for (const { kind, way, results } of asked) {
    const given = c.r[kind]!;
    try {
      // Derivatives of 16-bit arrays are rounded at each of their steps.
      const as = { ...c, o: given.o, as: given.as, product: c.product || kind !== "vmap", nearZero: true };
      const found = results.length === given.o.length
        ? results.map((result, i) => wrong(as, i, result, elements)).find((text) => text !== undefined)
        : `${results.length} results, ${given.o.length} are expected`;
      if (found) say(kind, way, given.by ? `${found} (by ${given.by})` : found);
    } catch (error) {
      say(kind, way, `throws ${error}`);
    }
  }
  return failures;
}

for (const device of testDevices()) {
  mx.withDevice(device, () => mx.eval(mx.zeros([1])));
  Deno.test(`transforms give what MLX's give on ${device}`, () => {
    mx.setDefaultDevice(device);
    const failures: string[] = [];
    const used = new Set<string>();
    const undo = watched(used);
    const turns = FUNCTIONS.map((list, turn) => ({ list, turn }));
    drawSome(device, "MLX's derivatives", turns, Math.ceil(turns.length / 2)).forEach(({ list, turn }) => {
      chosen(list, device, turn).forEach((c, i) =>
        mx.tidy(() => void failures.push(...failuresOf(c, turn + i, device === "wasm")))
      );
    });
    undo();
    const unexpected = failures.filter((text) => !DIFFERENT.some(([pattern]) => pattern.test(text)));
    assert(unexpected.length === 0, `${unexpected.length} failures:\n${unexpected.join("\n")}`);
    if (device !== "wasm" || only) return;
    const stale = DIFFERENT.filter(([pattern]) => !failures.some((text) => pattern.test(text)));
    assertEquals(stale.map(([, why]) => why), [], "what is listed as different is not");
    const rules = Object.entries(TABLE as Readonly<Record<string, OpRules>>).flatMap(([op, own]) =>
      Object.entries(own).flatMap(([name, rule]) => typeof rule === "function" ? [`${op} ${name}`] : [])
    );
    assertEquals(rules.filter((rule) => used.has(rule) === Object.hasOwn(UNUSED, rule)), [], "rules without cases");
  });
}

Deno.test("every function of arrays has cases of derivatives and batches, or a reason", () => {
  const there = new Set(cases.map(({ f }) => camel(f)));
  const all = new Set([...OPS, ...[...functionsWithCases()].map(camel)]);
  assertEquals([...all].filter((name) => there.has(name) === WITHOUT.has(name)), []);
  assertEquals([...WITHOUT.keys()].filter((name) => !all.has(name)), []);
});
