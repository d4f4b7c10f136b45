/** Mistakes in layers, losses and optimizers: src/nn and src/array/optimizers. */

import type { Mutant } from "./mutant.ts";

const NN_TESTS = ["tests/nn/module_test.ts", "tests/nn/golden_test.ts"] as const;
const OPTIMIZER_TESTS = ["tests/optimizers/optimizers_test.ts"] as const;

export const NN = [
  {
    name: "Adam corrects the bias of the squares by the coefficient of the means",
    file: "src/array/optimizers/adam.ts",
    find: "rsqrt(subtract(1, power(beta2, step)))",
    replace: "rsqrt(subtract(1, power(beta1, step)))",
    tests: OPTIMIZER_TESTS,
  },
  {
    name: "schedules are one step ahead",
    file: "src/array/optimizers/optimizer.ts",
    find: "root[name] = array(schedule(this.step));",
    replace: "root[name] = array(schedule(add(this.step, 1)));",
    tests: OPTIMIZER_TESTS,
  },
  {
    name: "Lion keeps the mean of its direction",
    file: "src/array/optimizers/lion.ts",
    find: "state.m = meanOf(state.m, gradient, beta2);",
    replace: "state.m = meanOf(state.m, gradient, beta1);",
    tests: OPTIMIZER_TESTS,
  },
  {
    name: "the running variance of a batch norm is that of a whole population",
    file: "src/nn/normalization.ts",
    find: "flow(runningVar, mx.variance(x, axes, false, 1)),",
    replace: "flow(runningVar, mx.variance(x, axes)),",
    tests: NN_TESTS,
  },
  {
    name: "zeros beyond the edge win a maximum of negative numbers",
    file: "src/nn/pooling.ts",
    find: "outside: -Infinity",
    replace: "outside: 0",
    tests: NN_TESTS,
  },
  {
    name: "the first step of gated units lacks the bias of the state",
    file: "src/nn/recurrent.ts",
    find: "mx.add(stateNew, this.bhn) : stateNew ?? this.bhn;",
    replace: "mx.add(stateNew, this.bhn) : stateNew;",
    tests: NN_TESTS,
  },
  {
    name: "heads beyond a power of two get the slopes of others",
    file: "src/nn/positional_encoding.ts",
    find: "filter((_, i) => i % 2 === 0)",
    replace: "filter((_, i) => i % 2 === 1)",
    tests: NN_TESTS,
  },
] as const satisfies readonly Mutant[];
