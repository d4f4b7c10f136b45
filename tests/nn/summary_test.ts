/** How consoles show modules: on one screen, with counts that are computed by hand here. */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../mod.ts";
import { anyDevice } from "../support/devices/devices.ts";

mx.setDefaultDevice(anyDevice());

const { Linear, ReLU, Sequential } = mx.nn;

Deno.test("a module is shown with its layers, equal neighbours once, and the number of its parameters", () => {
  const layers = [new Linear(2, 3), new ReLU(), new Linear(3, 3), new Linear(3, 3), new Linear(3, 3), new Linear(3, 1)];
  assertEquals(
    Deno.inspect(new Sequential(...layers)),
    `Sequential(
  (layers.0): Linear(input_dims=2, output_dims=3, bias=True)
  (layers.1): ReLU()
  (layers.2-4): 3 × Linear(input_dims=3, output_dims=3, bias=True)
  (layers.5): Linear(input_dims=3, output_dims=1, bias=True)
)
${2 * 3 + 3 + 3 * (3 * 3 + 3) + 3 + 1} parameters`,
  );
  assertEquals(Deno.inspect(new Linear(2, 3)), String(new Linear(2, 3)));
});

Deno.test("only neighbours of a list are shown once, and frozen parameters are told apart", () => {
  const model = new Sequential(new Linear(2, 2, false), mx.nn.relu, new Linear(2, 2, false));
  model.layers.slice(0, 1).forEach((layer) => layer instanceof mx.nn.Module && layer.freeze());
  assertEquals(
    Deno.inspect(model),
    `Sequential(
  (layers.0): Linear(input_dims=2, output_dims=2, bias=False)
  (layers.2): Linear(input_dims=2, output_dims=2, bias=False)
)
8 parameters, 4 trained`,
  );
});

Deno.test("whatever its size, a model fits on a screen of 24 lines of 80 columns", async () => {
  const many = Array.from({ length: 100 }, (_, i) => new Linear(i + 1, i + 2));
  const { model } = await mx.lm.load(new URL("../../examples/models/tiny-qwen3", import.meta.url).pathname);
  for (const module of [model, new mx.nn.Transformer(16, 2, 8, 8, 32), new Sequential(...many)]) {
    const lines = Deno.inspect(module).split("\n").map((line) => Math.ceil(line.length / 80));
    assert(lines.reduce((sum, count) => sum + count, 0) <= 24, `${module.constructor.name}: ${lines}`);
  }
});

Deno.test("the counts of a quantized model are those of the numbers that its codes stand for", async () => {
  const { model } = await mx.lm.load(new URL("../../examples/models/tiny-qwen3", import.meta.url).pathname);
  const attention = 2 * 256 * 512 + 2 * 256 * 256 + 2 * 128, mlp = 3 * 256 * 768, norm = 256;
  const total = 4096 * 256 + 8 * (attention + mlp + 2 * norm) + norm;
  const shown = Deno.inspect(model);
  assert(shown.includes(`(self_attn): Attention(…) ${attention.toLocaleString("en")} parameters`), shown);
  assert(shown.includes("(layers.0-7): 8 × Block("), shown);
  assert(shown.includes(`\n${total.toLocaleString("en")} parameters, `), shown);
});
