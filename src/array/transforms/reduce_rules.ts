/**
 * Derivatives and batches of reductions, running reductions, softmax and sorts.
 *
 * @module
 */

import { complex64, int32, uint32 } from "../../graph/dtype.ts";
import { attrsOf, makeNode, type Node, type OpAttrs } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import { add, divide, equal, less, logicalAnd, multiply, subtract, where } from "../ops/binary.ts";
import { castNode, fullNode } from "../tensor/convert.ts";
import { broadcastNode, flip, reshapeNode, sliceNode, transposeNode } from "../ops/movement.ts";
import { sum } from "../ops/reduce.ts";
import { type AnyTensor, nodeOf, wrap } from "../tensor/tensor.ts";
import { exp, isneginf, log, negative } from "../ops/unary.ts";
import { afterBatch, asDtype, type OpRules, type Step, THROUGH_REVERSE, type Vmap, zerosOf } from "./rule.ts";
import { linear } from "./movement_rules.ts";

type ScanFn = OpAttrs["scan"]["fn"];

/** A running reduction along the last axis. */
function scanOf(x: AnyTensor, fn: ScanFn, reverse = false, exclusive = false): AnyTensor {
  const node = nodeOf(x);
  return wrap(makeNode("scan", [node], node.shape, node.dtype, { fn, reverse, exclusive }));
}

/** The result of a reduction or its cotangent, repeated over the reduced axes. */
function spread(step: Step, value: AnyTensor): AnyTensor {
  const { axes } = attrsOf(step.entry, "reduce");
  const { shape } = step.entry.inputs[0];
  return wrap(broadcastNode(reshapeNode(nodeOf(value), shape.map((d, i) => axes.includes(i) ? 1 : d)), shape));
}

/** For each element of the axes of a product the product of the others; zeros are no matter. */
function productOfOthers(step: Step): AnyTensor {
  const { axes } = attrsOf(step.entry, "reduce");
  const x = step.entry.inputs[0];
  const rest = x.shape.map((_, i) => i).filter((i) => !axes.includes(i));
  const order = [...rest, ...axes];
  const moved = transposeNode(x, order);
  const flat = wrap(reshapeNode(moved, [...rest.map((i) => x.shape[i]), sizeOf(axes.map((i) => x.shape[i]))]));
  const others = multiply(scanOf(flat, "prod", false, true), scanOf(flat, "prod", true, true)) as AnyTensor;
  return wrap(transposeNode(reshapeNode(nodeOf(others), moved.shape), x.shape.map((_, i) => order.indexOf(i))));
}

/** The derivative of a reduction at every element: those of equal extremes share it. */
function partialOf(step: Step): AnyTensor | undefined {
  const x = step.x(0);
  switch (attrsOf(step.entry, "reduce").fn) {
    case "sum":
      return undefined;
    case "prod":
      return productOfOthers(step);
    case "logsumexp":
      return exp(subtract(x, spread(step, step.y)));
    default: {
      const { axes } = attrsOf(step.entry, "reduce");
      const found: AnyTensor = wrap(castNode(nodeOf(equal(x, spread(step, step.y)) as AnyTensor), x.dtype));
      return divide(found, sum(found, axes, true)) as AnyTensor;
    }
  }
}

/** Whether a reduction has a derivative that is not 0. */
const moves = (step: Step): boolean =>
  ["sum", "prod", "min", "max", "logsumexp"].includes(attrsOf(step.entry, "reduce").fn);

/** Elements one place later along the last axis, `first` in front. */
function shifted(x: AnyTensor, first: number): AnyTensor {
  const { shape, dtype } = x;
  const last = shape.length - 1;
  const n = shape[last];
  if (n === 0) return x;
  const head = fullNode(first, shape.with(last, 1), dtype);
  const tail = sliceNode(nodeOf(x), shape.map(() => 0), shape.map(() => 1), shape.with(last, n - 1));
  return wrap(makeNode("concatenate", [head, tail], shape, dtype, { axis: last }));
}

/** The cotangent of the operand of an inclusive running product. */
function productBack(x: AnyTensor, c: AnyTensor): AnyTensor {
  const zeros: AnyTensor = scanOf(asDtype(equal(x, 0) as AnyTensor, { dtype: int32 }), "sum");
  const first = logicalAnd(equal(x, 0), equal(zeros, 1));
  // Before the first zero: what follows, divided by x. At it: what follows without it. After it: nothing.
  const back = scanOf(multiply(c, scanOf(x, "prod")) as AnyTensor, "sum", true);
  const without = scanOf(where(first, 1, x) as AnyTensor, "prod");
  const at = scanOf(multiply(c, without) as AnyTensor, "sum", true);
  const safe = where(equal(x, 0), 1, x);
  return where(equal(zeros, 0), divide(back, safe), where(first, at, 0)) as AnyTensor;
}

/** The cotangent of the operand of an inclusive running minimum or maximum: each goes to the last element that set it. */
function extremeBack(fn: "min" | "max", x: AnyTensor, c: AnyTensor): AnyTensor {
  const { shape } = x;
  const last = shape.length - 1;
  const line = makeNode("arange", [], [shape[last]], int32, { start: 0, step: 1 });
  const places = where(equal(x, scanOf(x, fn)), wrap(line), 0) as AnyTensor;
  const at = wrap(stopped(nodeOf(scanOf(places, "max"))));
  const attrs = { axis: last, fn: "sum", donate: false } as const;
  return wrap(makeNode("scatterAlong", [nodeOf(zerosOf(c)), nodeOf(at), nodeOf(c)], shape, c.dtype, attrs));
}

/**
 * A linear function of cotangents or tangents that weighs them by exponentials. It uses logarithms of their positive and negative parts,
 * since exponentials of differences alone would overflow.
 */
function byParts(c: AnyTensor, weigh: (logarithm: AnyTensor) => AnyTensor): AnyTensor {
  const part = (values: AnyTensor): AnyTensor => exp(weigh(log(values)));
  const positive = where(less(c, 0), 0, c) as AnyTensor;
  const below = where(less(c, 0), negative(c), 0) as AnyTensor;
  return subtract(part(positive), part(below)) as AnyTensor;
}

/** The cotangent of the operand of an inclusive running logsumexp: of element j the sum of c[i] exp(x[j] - y[i]) over i >= j. */
function logsumexpBack(x: AnyTensor, c: AnyTensor): AnyTensor {
  const sums = scanOf(x, "logsumexp");
  const y = where(isneginf(sums), 0, sums) as AnyTensor; // of nothing but -Infinity, which moves nothing
  return byParts(c, (l) => add(x, scanOf(subtract(l, y) as AnyTensor, "logsumexp", true)) as AnyTensor);
}

/** Indices that follow from the operand, which have no derivative. */
const stopped = (node: Node): Node => makeNode("stopGradient", [node], node.shape, node.dtype, {});

const reversed = (x: AnyTensor): AnyTensor => flip(x, -1) as AnyTensor;

/** A row-wise op of a batch: the batch is one more row axis. */
const rowwise: Vmap = (entry, [x], _, size) =>
  makeNode(entry.op, [x], [size, ...entry.shape], entry.dtype, entry.attrs);

/** Rules of reductions and of ops along the last axis. */
export const REDUCTIONS = {
  reduce: {
    vjp(step, c) {
      if (!moves(step)) return [];
      const partial = partialOf(step);
      const back = spread(step, c);
      return [asDtype(partial ? multiply(back, partial) as AnyTensor : back, step.entry.inputs[0])];
    },
    jvp(step, [t]) {
      if (!moves(step)) return undefined;
      const { axes } = attrsOf(step.entry, "reduce");
      const partial = partialOf(step);
      const total = sum(partial ? multiply(t!, partial) : t!, axes, true) as AnyTensor;
      return asDtype(wrap(reshapeNode(nodeOf(total), step.entry.shape)), step.entry);
    },
    vmap(entry, [x], _, size) {
      const { fn, axes } = attrsOf(entry, "reduce");
      return makeNode("reduce", [x], [size, ...entry.shape], entry.dtype, { fn, axes: afterBatch(axes) });
    },
  },
  softmax: {
    vjp({ y }, c) {
      const weighted = multiply(c, y) as AnyTensor;
      return [subtract(weighted, multiply(y, sum(weighted, -1, true))) as AnyTensor];
    },
    jvp({ y }, [t]) {
      const weighted = multiply(t!, y) as AnyTensor;
      return subtract(weighted, multiply(y, sum(weighted, -1, true))) as AnyTensor;
    },
    vmap: rowwise,
  },
  scan: {
    vjp(step, c) {
      const { fn, reverse, exclusive } = attrsOf(step.entry, "scan");
      if (fn === "sum") return [scanOf(c, "sum", !reverse, exclusive)];
      const turned = (x: AnyTensor): AnyTensor => reverse ? reversed(x) : x;
      const x = turned(step.x(0));
      // The result of an exclusive scan at i is that of the inclusive one at i - 1.
      const own = exclusive ? reversed(shifted(reversed(turned(c)), 0)) : turned(c);
      const back = fn === "prod"
        ? productBack(x, own)
        : fn === "logsumexp"
        ? logsumexpBack(x, own)
        : extremeBack(fn, x, own);
      return [turned(back)];
    },
    jvp(step, [t]) {
      const { fn, reverse, exclusive } = attrsOf(step.entry, "scan");
      if (fn === "sum") return scanOf(t!, fn, reverse, exclusive);
      if (fn !== "logsumexp") return THROUGH_REVERSE;
      return byParts(t!, (l) => {
        const running = scanOf(add(step.x(0), l) as AnyTensor, fn, reverse, exclusive);
        return where(isneginf(running), running, subtract(running, step.y)) as AnyTensor;
      });
    },
    vmap: rowwise,
  },
  sort: {
    vjp({ entry: { inputs: [x] } }, c) {
      const axis = x.shape.length - 1;
      const order = stopped(makeNode("argsort", [x], x.shape, uint32, {}));
      const attrs = { axis, fn: "assign", donate: false } as const;
      return [wrap(makeNode("scatterAlong", [nodeOf(zerosOf(c)), order, nodeOf(c)], x.shape, c.dtype, attrs))];
    },
    jvp({ entry: { inputs: [x] } }, [t]) {
      const order = stopped(makeNode("argsort", [x], x.shape, uint32, {}));
      return wrap(makeNode("gatherAlong", [nodeOf(t!), order], x.shape, t!.dtype, { axis: x.shape.length - 1 }));
    },
    vmap: rowwise,
  },
  argsort: { vjp: () => [], jvp: () => undefined, vmap: rowwise },
  fft: {
    vjp({ entry }, c) {
      const { inverse, real, scale } = attrsOf(entry, "fft");
      const [x] = entry.inputs;
      if (!real) {
        const attrs = { inverse: !inverse, real, scale };
        return [asDtype(wrap(makeNode("fft", [nodeOf(c)], x.shape, complex64, attrs)), x)];
      }
      return [inverse ? spectrumBack(x, c, scale) : realBack(x, c, scale)];
    },
    jvp: linear,
    vmap: rowwise,
  },
} as const satisfies Record<string, OpRules>;

/** Cotangent of n real numbers of which the first half of the spectrum was taken: the real part of the whole one's. */
function realBack(x: Node, c: AnyTensor, scale: number): AnyTensor {
  const n = x.shape[x.shape.length - 1];
  const node = nodeOf(c);
  const whole = x.shape;
  const zeros = fullNode(0, whole, node.dtype);
  const attrs = { starts: whole.map(() => 0), steps: whole.map(() => 1), donate: false };
  const padded = n === node.shape[node.shape.length - 1]
    ? node
    : makeNode("sliceUpdate", [zeros, node], whole, node.dtype, attrs);
  const back = makeNode("fft", [padded], whole, node.dtype, { inverse: true, real: false, scale });
  return wrap(makeNode("elementwise", [back], whole, x.dtype, { fn: "real" }));
}

/** Cotangent of half a spectrum of which n real numbers were made: elements that stand for two count twice. */
function spectrumBack(x: Node, c: AnyTensor, scale: number): AnyTensor {
  const n = c.shape[c.shape.length - 1];
  const half = x.shape[x.shape.length - 1];
  const spectrum = makeNode("fft", [nodeOf(c)], x.shape, x.dtype, { inverse: false, real: true, scale });
  const line = wrap(makeNode("arange", [], [half], int32, { start: 0, step: 1 })) as AnyTensor;
  const single = n % 2 === 0 ? [0, n / 2] : [0];
  const once = single.map((i) => equal(line, i) as AnyTensor).reduce((a, b) => add(a, b) as AnyTensor);
  return multiply(wrap(spectrum), where(once, 1, 2)) as AnyTensor;
}
