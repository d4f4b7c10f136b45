/**
 * Recurrent layers. Sequences are (…, T, inputSize); a state that is not given is 0.
 *
 * @module
 */

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import { scoped } from "../array/tensor/scope.ts";
import { Module } from "./module.ts";
import { pythonBool } from "./print.ts";

const { Slice } = mx;

/** Weights drawn uniformly within 1 / sqrt(hiddenSize). */
function drawn(hiddenSize: number, shape: readonly number[]): Tensor {
  const scale = 1 / Math.sqrt(hiddenSize);
  return mx.random.uniform(-scale, scale, shape);
}

/** x @ weight.T + bias */
function project(x: Tensor, weight: Tensor, bias: Tensor | undefined): Tensor {
  return bias ? mx.addmm(bias, x, weight.T) : mx.matmul(x, weight.T);
}

/** The rows of a sequence (…, T, size), each (…, size). */
function stepsOf(x: Tensor): Tensor[] {
  return Array.from({ length: x.shape[x.shape.length - 2] }, (_, t) => x.index("...", t, Slice()));
}

/**
 * Elman's recurrent layer: hidden = nonlinearity(x @ Wxh.T + hidden @ Whh.T + bias).
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * new mx.nn.RNN(4, 8).forward(mx.ones([2, 5, 4])).shape; // [2, 5, 8]
 * ```
 */
export class RNN extends Module {
  /** (hiddenSize, inputSize) */
  Wxh: Tensor;
  /** (hiddenSize, hiddenSize) */
  Whh: Tensor;
  /** (hiddenSize,); not there without a bias. */
  bias?: Tensor;
  /** Size of the state. */
  readonly hiddenSize: number;
  /** The nonlinearity of the new state. */
  readonly nonlinearity: (x: Tensor) => Tensor;

  /** Takes the sizes of elements and of the state, whether there is a bias, and the nonlinearity; default tanh. */
  constructor(
    inputSize: number,
    hiddenSize: number,
    bias: boolean = true,
    nonlinearity: ((x: Tensor) => Tensor) | null = null,
  ) {
    super();
    if (nonlinearity !== null && typeof nonlinearity !== "function") {
      throw new mx.ValueError(`RNN expected nonlinearity to be a function: found ${typeof nonlinearity}`);
    }
    this.nonlinearity = nonlinearity ?? mx.tanh;
    this.hiddenSize = hiddenSize;
    this.Wxh = drawn(hiddenSize, [hiddenSize, inputSize]);
    this.Whh = drawn(hiddenSize, [hiddenSize, hiddenSize]);
    if (bias) this.bias = drawn(hiddenSize, [hiddenSize]);
  }

  /** x (…, T, inputSize) and the state before it (…, hiddenSize) → all states (…, T, hiddenSize) */
  override forward(x: Tensor, hidden: Tensor | null = null): Tensor {
    return scoped((): Tensor => {
      const across = this.Whh.T;
      let state = hidden;
      const states = stepsOf(project(x, this.Wxh, this.bias)).map((input) =>
        state = this.nonlinearity(state === null ? input : mx.addmm(input, state, across))
      );
      return mx.stack(states, -2);
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    return `input_dims=${
      this.Wxh.shape[1]
    }, hidden_size=${this.hiddenSize}, nonlinearity=${this.nonlinearity.name}, bias=${
      pythonBool(this.bias !== undefined)
    }`;
  }
}

/** Gated recurrent units: a reset and an update gate between the state and its candidate. */
export class GRU extends Module {
  /** (3 * hiddenSize, inputSize): reset, update, new. */
  Wx: Tensor;
  /** (3 * hiddenSize, hiddenSize) */
  Wh: Tensor;
  /** (3 * hiddenSize,); not there without a bias. */
  b?: Tensor;
  /** (hiddenSize,), of the state in the candidate; not there without a bias. */
  bhn?: Tensor;
  /** Size of the state. */
  readonly hiddenSize: number;

  /** Takes the sizes of elements and of the state, and whether there is a bias. */
  constructor(inputSize: number, hiddenSize: number, bias: boolean = true) {
    super();
    this.hiddenSize = hiddenSize;
    this.Wx = drawn(hiddenSize, [3 * hiddenSize, inputSize]);
    this.Wh = drawn(hiddenSize, [3 * hiddenSize, hiddenSize]);
    if (bias) {
      this.b = drawn(hiddenSize, [3 * hiddenSize]);
      this.bhn = drawn(hiddenSize, [hiddenSize]);
    }
  }

  /** x (…, T, inputSize) and the state before it (…, hiddenSize) → all states (…, T, hiddenSize) */
  override forward(x: Tensor, hidden: Tensor | null = null): Tensor {
    return scoped((): Tensor => {
      const across = this.Wh.T;
      let state = hidden;
      const states = stepsOf(project(x, this.Wx, this.b)).map((input) =>
        state = this.#step(input, state, state && mx.matmul(state, across))
      );
      return mx.stack(states, -2);
    });
  }

  /** The state after a projected element, with the projection of the state before it. */
  #step(input: Tensor, state: Tensor | null, projected: Tensor | null): Tensor {
    const [inputReset, inputUpdate, inputNew] = mx.split(input, 3, -1);
    const [stateReset, stateUpdate, stateNew] = projected ? mx.split(projected, 3, -1) : [];
    const gate = (a: Tensor, b: Tensor | undefined): Tensor => mx.sigmoid(b ? mx.add(a, b) : a);
    const reset = gate(inputReset, stateReset);
    const update = gate(inputUpdate, stateUpdate);
    const own = stateNew && this.bhn ? mx.add(stateNew, this.bhn) : stateNew ?? this.bhn;
    const proposed = mx.tanh(own ? mx.add(inputNew, mx.multiply(reset, own)) : inputNew);
    const moved = mx.multiply(mx.subtract(1, update), proposed);
    return state ? mx.add(moved, mx.multiply(update, state)) : moved;
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const sizes = `input_dims=${this.Wx.shape[1]}, hidden_size=${this.hiddenSize}`;
    return `${sizes}, bias=${pythonBool(this.b !== undefined)}`;
  }
}

/** Long short-term memory: a cell with input, forget and output gates. */
export class LSTM extends Module {
  /** (4 * hiddenSize, inputSize): input, forget, cell, output. */
  Wx: Tensor;
  /** (4 * hiddenSize, hiddenSize) */
  Wh: Tensor;
  /** (4 * hiddenSize,); not there without a bias. */
  bias?: Tensor;
  /** Size of the state and of the cell. */
  readonly hiddenSize: number;

  /** Takes the sizes of elements and of the state, and whether there is a bias. */
  constructor(inputSize: number, hiddenSize: number, bias: boolean = true) {
    super();
    this.hiddenSize = hiddenSize;
    this.Wx = drawn(hiddenSize, [4 * hiddenSize, inputSize]);
    this.Wh = drawn(hiddenSize, [4 * hiddenSize, hiddenSize]);
    if (bias) this.bias = drawn(hiddenSize, [4 * hiddenSize]);
  }

  /** x (…, T, inputSize), the state and the cell before it (…, hiddenSize) → all states and all cells, each (…, T, hiddenSize) */
  override forward(
    x: Tensor,
    hidden: Tensor | null = null,
    cell: Tensor | null = null,
  ): [hidden: Tensor, cell: Tensor] {
    return scoped((): [Tensor, Tensor] => {
      const across = this.Wh.T;
      const [states, cells]: [Tensor[], Tensor[]] = [[], []];
      let [state, memory] = [hidden, cell];
      for (const input of stepsOf(project(x, this.Wx, this.bias))) {
        const gates = mx.split(state ? mx.addmm(input, state, across) : input, 4, -1);
        const [enter, forget, output] = [gates[0], gates[1], gates[3]].map((gate) => mx.sigmoid(gate));
        const entering = mx.multiply(enter, mx.tanh(gates[2]));
        memory = memory ? mx.add(mx.multiply(forget, memory), entering) : entering;
        state = mx.multiply(output, mx.tanh(memory));
        states.push(state);
        cells.push(memory);
      }
      return [mx.stack(states, -2), mx.stack(cells, -2)];
    });
  }

  /** As MLX prints it. */
  protected override extraRepr(): string {
    const sizes = `input_dims=${this.Wx.shape[1]}, hidden_size=${this.hiddenSize}`;
    return `${sizes}, bias=${pythonBool(this.bias !== undefined)}`;
  }
}
