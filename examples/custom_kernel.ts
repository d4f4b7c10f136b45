/**
 * A kernel of your own with its derivative, in one dispatch: silu(gate) * up, which the models of this library have in their layers.
 *
 *     deno run -A examples/custom_kernel.ts
 *     deno run -A examples/custom_kernel.ts vulkan:0
 *
 * On a GPU the GLSL runs, which the system's glslc compiles once; on the CPU the TypeScript beside it.
 *
 * @module
 */

import * as mx from "../mod.ts";

const [device] = Deno.args;
if (device !== undefined) mx.setDefaultDevice(device);

const forward = mx.fast.vulkanKernel({
  name: "swiglu",
  inputNames: ["gate", "up"],
  outputNames: ["out"],
  header: "float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }",
  source: `
    uint i = thread_position_in_grid.x;
    out[i] = T(gate[i] * sigmoid(gate[i]) * up[i]);
  `,
  wasm([gate, up], [out]) {
    for (let i = 0; i < out.length; i++) out[i] = Number(gate[i]) * sigmoid(Number(gate[i])) * Number(up[i]);
  },
});

const backward = mx.fast.vulkanKernel({
  name: "swiglu_vjp",
  inputNames: ["gate", "up", "cotangent"],
  outputNames: ["gate_cotangent", "up_cotangent"],
  header: "float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }",
  source: `
    uint i = thread_position_in_grid.x;
    float s = sigmoid(gate[i]);
    gate_cotangent[i] = T(cotangent[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s)));
    up_cotangent[i] = T(cotangent[i] * gate[i] * s);
  `,
  wasm([gate, up, cotangent], [gateCotangent, upCotangent]) {
    for (let i = 0; i < gate.length; i++) {
      const [g, u, c] = [gate[i], up[i], cotangent[i]].map(Number);
      const s = sigmoid(g);
      gateCotangent[i] = c * u * s * (1 + g * (1 - s));
      upCotangent[i] = c * g * s;
    }
  },
});

function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x));
}

/** A thread for each element of some arrays of one shape, and so many results like them. */
function elementwise(inputs: mx.Tensor[], outputs: number): Omit<mx.fast.VulkanKernelCall, "inputs"> {
  const [{ shape, dtype, size }] = inputs;
  return {
    template: { T: dtype },
    grid: [size, 1, 1],
    threadgroup: [256, 1, 1],
    outputShapes: Array(outputs).fill(shape),
    outputDtypes: Array(outputs).fill(dtype),
  };
}

const swiglu = mx.customFunction((gate: mx.Tensor, up: mx.Tensor) => {
  const inputs = [gate, up];
  return forward({ inputs, ...elementwise(inputs, 1) })[0] as mx.Tensor;
}).vjp(([gate, up]: mx.Tensor[], cotangent: mx.Tensor) => {
  const inputs = [gate, up, cotangent];
  return backward({ inputs, ...elementwise(inputs, 2) });
});

const inPrimitives = (gate: mx.Tensor, up: mx.Tensor): mx.Tensor =>
  mx.multiply(mx.multiply(gate, mx.sigmoid(gate)), up);

const gate = mx.random.normal([64, 256]);
const up = mx.random.normal([64, 256]);
const difference = (a: mx.Tensor, b: mx.Tensor): number => Number(mx.max(mx.abs(mx.subtract(a, b))).item());
const gradients = (fn: (gate: mx.Tensor, up: mx.Tensor) => mx.Tensor): mx.Tensor[] =>
  mx.grad((gate: mx.Tensor, up: mx.Tensor) => mx.sum(mx.square(fn(gate, up))), [0, 1])(gate, up) as mx.Tensor[];

const value = difference(swiglu(gate, up), inPrimitives(gate, up));
const expected = gradients(inPrimitives);
const derivative = Math.max(...gradients(swiglu).map((gradient, i) => difference(gradient, expected[i])));
console.log(`swiglu on ${mx.defaultDevice()}: differs from primitives by ${value}, its derivative by ${derivative}`);
mx.closeDevices();
