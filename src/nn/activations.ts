/**
 * Activations as modules; the functions are in src/array/fast/nn.ts.
 *
 * @module
 */

// deno-lint-ignore-file no-explicit-any -- the dtype is that of weights

import * as mx from "../array/mod.ts";
import type { Tensor } from "../array/mod.ts";
import * as fn from "../array/fast/nn.ts";
import { Module } from "./module.ts";

/** A module that computes a function of one array and has no parameters. */
export abstract class Activation extends Module {
  /** The function of each element, or along the last axis. */
  abstract override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
}

/** {@link sigmoid} as a module. */
export class Sigmoid extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.sigmoid(x);
  }
}

/** {@link mish} as a module. */
export class Mish extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.mish(x);
  }
}

/** {@link relu} as a module. */
export class ReLU extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.relu(x);
  }
}

/** {@link relu2} as a module. */
export class ReLU2 extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.relu2(x);
  }
}

/** {@link relu6} as a module. */
export class ReLU6 extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.relu6(x);
  }
}

/** {@link softmax} along the last axis, as a module. */
export class Softmax extends Activation {
  /** Along the last axis of x. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.softmax(x, -1);
  }
}

/** {@link softmin} along the last axis, as a module. */
export class Softmin extends Activation {
  /** Along the last axis of x. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.softmin(x);
  }
}

/** {@link logSoftmax} along the last axis, as a module. */
export class LogSoftmax extends Activation {
  /** Along the last axis of x. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.logSoftmax(x);
  }
}

/** {@link logSigmoid} as a module. */
export class LogSigmoid extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.logSigmoid(x);
  }
}

/** {@link softplus} as a module. */
export class Softplus extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.softplus(x);
  }
}

/** {@link softsign} as a module. */
export class Softsign extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.softsign(x);
  }
}

/** {@link silu} as a module. */
export class SiLU extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.silu(x);
  }
}

/** {@link tanh} as a module. */
export class Tanh extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.tanh(x);
  }
}

/** {@link hardswish} as a module. */
export class Hardswish extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.hardswish(x);
  }
}

/** {@link hardTanh} between -1 and 1, as a module. */
export class HardTanh extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.hardTanh(x);
  }
}

/** {@link selu} as a module. */
export class SELU extends Activation {
  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.selu(x);
  }
}

/** {@link leakyRelu} as a module. */
export class LeakyReLU extends Activation {
  readonly #negativeSlope: number;

  /** Takes the slope where x is negative. */
  constructor(negativeSlope: number = 0.01) {
    super();
    this.#negativeSlope = negativeSlope;
  }

  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.leakyRelu(x, this.#negativeSlope);
  }
}

/** {@link elu} as a module. */
export class ELU extends Activation {
  readonly #alpha: number;

  /** Takes the factor where x is negative. */
  constructor(alpha: number = 1) {
    super();
    this.#alpha = alpha;
  }

  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.elu(x, this.#alpha);
  }
}

/** {@link celu} as a module. */
export class CELU extends Activation {
  readonly #alpha: number;

  /** Takes the factor and scale where x is negative. */
  constructor(alpha: number = 1) {
    super();
    this.#alpha = alpha;
  }

  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.celu(x, this.#alpha);
  }
}

/** {@link softshrink} as a module. */
export class Softshrink extends Activation {
  /** How far elements are moved towards 0. */
  readonly lambd: number;

  /** Takes how far elements are moved towards 0. */
  constructor(lambd: number = 0.5) {
    super();
    this.lambd = lambd;
  }

  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.softshrink(x, this.lambd);
  }
}

/** {@link hardShrink} as a module. */
export class HardShrink extends Activation {
  /** Elements no further than this from 0 become 0. */
  readonly lambd: number;

  /** Takes the distance within which elements become 0. */
  constructor(lambd: number = 0.5) {
    super();
    this.lambd = lambd;
  }

  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.hardShrink(x, this.lambd);
  }
}

/** {@link step} as a module. */
export class Step extends Activation {
  /** From here on elements give 1. */
  readonly threshold: number;

  /** Takes the threshold. */
  constructor(threshold: number = 0) {
    super();
    this.threshold = threshold;
  }

  /** Elementwise, of x of any shape; int32. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.step(x, this.threshold);
  }
}

/** {@link glu} as a module. */
export class GLU extends Activation {
  /** The axis that is halved. */
  readonly axis: number;

  /** Takes the axis that is halved. */
  constructor(axis: number = -1) {
    super();
    this.axis = axis;
  }

  /** x, of an even size along the axis, gives half of that. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.glu(x, this.axis);
  }
}

/** {@link prelu} with learned slopes. */
export class PReLU extends Activation {
  /** The slopes (numParameters,), which broadcast to the last axis. */
  weight: Tensor;

  /** Takes the number of slopes, 1 or the size of the last axis, and their first value. */
  constructor(numParameters: number = 1, init: number = 0.25) {
    super();
    this.weight = mx.full([numParameters], init);
  }

  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return fn.prelu(x, this.weight);
  }
}

/** How {@link GELU} is computed: by `erf`, or by an approximation. */
export type GeluApproximation = "none" | "precise" | "tanh" | "fast";

const GELUS: Readonly<Record<GeluApproximation, (x: Tensor) => Tensor>> = {
  none: fn.gelu,
  precise: fn.geluApprox,
  tanh: fn.geluApprox,
  fast: fn.geluFastApprox,
};

/** {@link gelu}, or an approximation of it, as a module. */
export class GELU extends Activation {
  readonly #compute: (x: Tensor) => Tensor;

  /** Takes the approximation: "none", "precise" and "tanh" for {@link geluApprox}, "fast" for {@link geluFastApprox}. */
  constructor(approx: GeluApproximation = "none") {
    super();
    if (!Object.hasOwn(GELUS, approx)) {
      throw new mx.ValueError(`GELU expected approx to be one of ${Object.keys(GELUS).join(", ")}: found ${approx}`);
    }
    this.#compute = GELUS[approx];
  }

  /** Elementwise, of x of any shape. */
  override forward<R extends number>(x: Tensor<any, R>): Tensor<any, R>;
  override forward(x: Tensor): Tensor {
    return this.#compute(x);
  }
}
