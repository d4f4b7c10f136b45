/**
 * Compiled steps of training: MLX's tests of optimizers in compiled functions, pure ones and such with state, and their memory.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { getBackend } from "../../src/backend/devices.ts";
import { collect } from "../../src/schedule/plan/garbage.ts";
import { testDevices } from "../support/devices/devices.ts";
import { whenReleased } from "../support/devices/released.ts";

type Parameters = Record<string, mx.AnyTensor>;

function close(a: unknown, b: unknown): boolean {
  return mx.allclose(a as mx.AnyTensor, b as mx.AnyTensor).item() as boolean;
}

for (const device of testDevices()) {
  const backend = mx.withDevice(device, getBackend);
  const test = (name: string, body: () => void): void =>
    Deno.test(`${name} on ${device}`, async () => {
      mx.setDefaultDevice(device);
      collect();
      const before = backend.liveObjects();
      mx.tidy(body);
      await whenReleased(() => backend.liveObjects().buffers, before.buffers);
      assertEquals(backend.liveObjects(), before, "buffers or Plans leaked");
    });

  // MLX's test_compiled_optimizer.
  test("a compiled step is what a plain one is, with parameters and state as arguments or as state", () => {
    const model = new mx.nn.Linear(10, 10);
    const x = mx.random.uniform(0, 1, [2, 10]);
    const optimizerOf = () => new mx.optimizers.SGD({ learningRate: 1e-2, momentum: 0.9 });
    let optimizer = optimizerOf();
    const original = model.parameters() as Parameters;
    const loss = (x: mx.AnyTensor): mx.AnyTensor => mx.sum(model.forward(x));
    const step = (x: mx.AnyTensor): void => {
      const [, gradients] = mx.nn.valueAndGrad(model, loss)(x);
      optimizer.update(model, gradients);
    };

    step(x);
    const plain = model.parameters() as Parameters;

    model.update(original);
    optimizer = optimizerOf();
    using pure = mx.compile((parameters: Parameters, state: mx.optimizers.OptimizerState, x: mx.AnyTensor) => {
      const gradients = mx.grad((p: Parameters, x: mx.AnyTensor) => {
        model.update(p);
        return loss(x);
      })(parameters, x);
      optimizer.state = state;
      return [optimizer.applyGradients(gradients, parameters), optimizer.state];
    });
    optimizer.init(model.parameters());
    const [updated] = pure(model.parameters() as Parameters, optimizer.state, x) as [Parameters, unknown];
    assert(close(updated.weight, plain.weight) && close(updated.bias, plain.bias));

    model.update(original);
    optimizer = optimizerOf();
    const state = [model.state, optimizer.state]; // the first call makes the rest of it
    using impure = mx.compile(step, state, state);
    impure(x);
    const left = model.parameters() as Parameters;
    assert(close(left.weight, plain.weight) && close(left.bias, plain.bias));
    assert(!close(left.weight, original.weight));
    optimizer[Symbol.dispose]();
    mx.dispose(left);
  });

  // MLX's test_update_lr_compiled.
  test("a compiled update reads the learning rate of its optimizer at each call", () => {
    const parameters = { w: mx.ones([5, 5]) };
    const gradients = mx.utils.treeMap((x: mx.AnyTensor) => mx.onesLike(x), parameters);
    const optimizer = new mx.optimizers.SGD(-1);
    using update = mx.compile(
      (gradients: Parameters) => optimizer.applyGradients(gradients, parameters),
      optimizer.state,
    );
    assertEquals(update(gradients).w.tolist(), mx.full([5, 5], 2).tolist());
    optimizer.learningRate = mx.array(-2);
    assertEquals(update(gradients).w.tolist(), mx.full([5, 5], 3).tolist());
    assertEquals(Number(optimizer.step.item()), 0); // the state is no output
    optimizer[Symbol.dispose]();
  });

  test("compiled steps hold no more at each step, and a kept loss holds its own bytes", () => {
    const size = 128;
    const held: { parameters: Parameters } = {
      parameters: { w: mx.multiply(mx.random.normal([size, size]), 0.05), b: mx.zeros([size]) },
    };
    const optimizer = new mx.optimizers.Adam(1e-3);
    optimizer.init(held.parameters);
    const state = [held, optimizer.state];
    using step = mx.compile(
      (x: mx.AnyTensor) => {
        const [loss, gradients] = mx.valueAndGrad((p: Parameters) =>
          mx.mean(mx.square(mx.add(mx.matmul(x, p.w), p.b)))
        )(held.parameters);
        held.parameters = optimizer.applyGradients(gradients, held.parameters);
        return loss;
      },
      state,
      state,
    );
    const losses: mx.AnyTensor[] = [];
    let early = 0;
    for (let i = 0; i < 100; i++) {
      losses.push(mx.tidy(() => step(mx.random.normal([32, size], mx.float32, 0, 1, mx.random.key(i)))));
      mx.eval(losses.at(-1)); // nothing waits to be freed
      if (i === 20) early = mx.getActiveMemory();
    }
    assert(mx.getActiveMemory() - early <= 80 * 256, `${mx.getActiveMemory() - early} bytes in 80 steps`);
    assert((losses.at(-1)!.item() as number) < (losses[0].item() as number));
    optimizer[Symbol.dispose]();
    mx.dispose(held);
  });
}
