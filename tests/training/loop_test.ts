/**
 * Training loops that let nothing go by themselves: no `dispose`, no `tidy`. Device memory stays flat, nothing is left when they are
 * over, and the losses are the same at every run and on every device.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { nodeOf } from "../../src/array/tensor/tensor.ts";
import { collect } from "../../src/schedule/plan/garbage.ts";
import { testDevices } from "../support/devices/devices.ts";
import { whenReleased } from "../support/devices/released.ts";

const WIDTH = 256, CLASSES = 8, ROWS = 32;

type Parameters = Record<"w1" | "b1" | "w2" | "b2", mx.AnyTensor>;

function parametersOf(): Parameters {
  const normal = (shape: number[], seed: number): mx.AnyTensor =>
    mx.random.normal(shape, mx.float32, 0, 0.05, mx.random.key(seed));
  return {
    w1: normal([WIDTH, WIDTH], 1),
    b1: mx.zeros([WIDTH]),
    w2: normal([WIDTH, CLASSES], 2),
    b2: mx.zeros([CLASSES]),
  };
}

const lossAndGradients = mx.valueAndGrad((p: Parameters, x: mx.AnyTensor, y: mx.AnyTensor) => {
  const hidden = mx.tanh(mx.add(mx.matmul(x, p.w1), p.b1));
  return mx.mean(mx.square(mx.subtract(mx.add(mx.matmul(hidden, p.w2), p.b2), y)));
});

/** A batch from the host, another at each step. */
function batches(): () => [x: mx.AnyTensor, y: mx.AnyTensor] {
  let state = 7;
  const next = (): number => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32 - 0.5;
  return () => {
    const x = Float32Array.from({ length: ROWS * WIDTH }, next);
    const y = Float32Array.from({ length: ROWS * CLASSES }, (_, i) => x[Math.floor(i / CLASSES) * WIDTH + i % CLASSES]);
    return [mx.array(x).reshape(ROWS, WIDTH), mx.array(y).reshape(ROWS, CLASSES)];
  };
}

/** The results of an update of parameters and gradients, and all else that it has to evaluate. */
interface Way {
  readonly update: (parameters: Parameters, gradients: Parameters) => Parameters;
  readonly state: unknown;
  readonly end: () => void;
}

/** Ways to update. */
const WAYS: Readonly<Record<string, () => Way>> = {
  "an optimizer": () => {
    const optimizer = new mx.optimizers.Adam(1e-3);
    return {
      update: (parameters, gradients) => optimizer.applyGradients(gradients, parameters),
      get state(): unknown {
        return optimizer.state;
      },
      end: () => optimizer[Symbol.dispose](),
    };
  },
  "steps of its own": () => ({
    update: (parameters, gradients) =>
      mx.utils.treeMap((p, g) => mx.subtract(p, mx.multiply(g, 0.5)), parameters, [gradients]) as Parameters,
    state: [],
    end: () => {},
  }),
};

/** Bytes in use at a step: the least and the most. */
interface Bytes {
  least: number;
  most: number;
}

/** Memory in use over steps `from` to `to`, and all losses. */
interface Found {
  readonly early: Bytes;
  readonly late: Bytes;
  readonly losses: number[];
}

function* training(way: string, steps: number, found: Found): Generator<unknown> {
  const { early, late, losses } = found;
  const batch = batches(), by = WAYS[way]();
  let parameters = parametersOf();
  const kept: mx.AnyTensor[] = [];
  mx.eval(parameters);
  for (let i = 0; i < steps; i++) {
    mx.resetPeakMemory();
    const [loss, gradients] = lossAndGradients(parameters, ...batch());
    parameters = by.update(parameters, gradients);
    yield [parameters, by.state];
    kept.push(loss); // evaluated with the parameters
    const window = i >= 0.1 * steps && i < 0.3 * steps ? early : i >= 0.7 * steps ? late : undefined;
    if (!window) continue;
    window.least = Math.min(window.least, mx.getActiveMemory());
    window.most = Math.max(window.most, mx.getPeakMemory());
  }
  assert(kept.every((loss) => nodeOf(loss).op === "stored"), "the loss was not evaluated with the gradients");
  losses.push(...kept.map((loss) => loss.item() as number));
  mx.dispose(parameters, kept);
  by.end();
}

function nothing(): Found {
  return { early: { least: Infinity, most: 0 }, late: { least: Infinity, most: 0 }, losses: [] };
}

/** Steps in one task, or with an `await` at each. */
const LOOPS: Readonly<Record<string, (way: string, steps: number, found: Found) => void | Promise<void>>> = {
  "inside of one task": (way, steps, found) => {
    for (const trees of training(way, steps, found)) mx.eval(trees);
  },
  "with an await at each step": async (way, steps, found) => {
    for (const trees of training(way, steps, found)) await mx.asyncEval(trees);
  },
};

const curves = new Map<string, number[]>();

for (const device of testDevices()) {
  const backend = mx.withDevice(device, getBackend);
  for (const way of Object.keys(WAYS)) {
    for (const [kind, run] of Object.entries(LOOPS)) {
      Deno.test(`memory of training with ${way} is flat ${kind} on ${device}`, async () => {
        mx.setDefaultDevice(device);
        collect();
        const before = mx.getActiveMemory(), objects = backend.liveObjects();
        const found = nothing();
        await run(way, device === "wasm" ? 400 : 200, found);
        const { early, late, losses } = found;
        const text = JSON.stringify({ before, early, late });
        // A step makes 0.3 to 1.2 MB and holds 0.9 at most. Forgotten arrays may reach the 48 MiB of garbage.ts, and
        // its generations keep up to 12 of them in all steps of a window. A leak would add 0.3 for each of 120 or 240
        // steps.
        assert(early.most - before < 52e6 && late.most - before < 52e6, text);
        assert(late.least - early.least < 16e6, text);
        assert(losses.every(Number.isFinite) && losses.at(-1)! < losses[0] / 2, `${losses[0]} to ${losses.at(-1)}`);
        assertEquals(await whenReleased(mx.getActiveMemory, before), before);
        assertEquals(backend.liveObjects(), objects, "buffers or Plans leaked");
        // The same bits at every run, whatever was collected in between.
        const key = `${way} ${device}`, curve = losses.slice(0, 200);
        if (curves.has(key)) assertEquals(curve, curves.get(key));
        curves.set(key, curve);
      });
    }
  }
}

Deno.test("losses of training are the same on all devices", () => {
  for (const way of Object.keys(WAYS)) {
    const found = testDevices().map((device) => curves.get(`${way} ${device}`)!);
    for (const curve of found) {
      const off = curve.map((loss, i) => Math.abs(loss - found[0][i]) / found[0][i]);
      assert(Math.max(...off) < 1e-3, `${way}: ${Math.max(...off)}`);
    }
  }
});
