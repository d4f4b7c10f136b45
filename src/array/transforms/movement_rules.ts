/**
 * Derivatives and batches of what moves elements: cotangents move back.
 *
 * @module
 */

import { attrsOf, makeNode, type Node } from "../../graph/node.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";
import { fullNode } from "../tensor/convert.ts";
import { broadcastNode, reshapeNode, sliceNode, transposeNode } from "../ops/movement.ts";
import { int32 } from "../../graph/dtype.ts";
import { type AnyTensor, nodeOf, wrap } from "../tensor/tensor.ts";
import { afterBatch, batchOf, eachOf, type Jvp, type OpRules, sumTo, zerosOf } from "./rule.ts";
import { remake } from "../tensor/tape.ts";

/** The same op of the tangent. */
export const linear: Jvp = ({ entry }, [t]) => remake(entry, [nodeOf(t!)]);

/** The same op of all tangents at once, zeros if there is none. */
const linearTogether: Jvp = ({ entry }, tangents) =>
  remake(entry, entry.inputs.map((input, i) => nodeOf(tangents[i] ?? zerosOf(input))));

const ones = (shape: Shape): number[] => shape.map(() => 1);

/** `value` in zeros of `shape`, at starts and steps. */
export function placed(value: AnyTensor, shape: Shape, starts: readonly number[], steps: readonly number[]): AnyTensor {
  const node = nodeOf(value);
  const base = fullNode(0, shape, node.dtype);
  return wrap(makeNode("sliceUpdate", [base, node], shape, node.dtype, { starts, steps, donate: false }));
}

/** The positions in a contiguous array of which strides and offset show a shape, as one vector (int32). */
function positionsOf(shape: Shape, strides: readonly number[], offset: number): Node {
  const add = (a: Node, b: Node): Node => makeNode("elementwise", [a, b], shape, int32, { fn: "add" });
  const along = strides.map((step, axis) => {
    const line = makeNode("arange", [], [shape[axis]], int32, { start: 0, step });
    return broadcastNode(reshapeNode(line, shape.map((d, i) => i === axis ? d : 1)), shape);
  });
  return reshapeNode(along.reduce(add, fullNode(offset, shape, int32)), [sizeOf(shape)]);
}

/** Rules of views and copies. */
export const MOVEMENT = {
  stopGradient: {
    vjp: () => [],
    jvp: () => undefined,
    vmap: (_entry, [x]) => makeNode("stopGradient", [x], x.shape, x.dtype, {}),
  },
  depends: {
    vjp: (_step, c) => [c],
    jvp: (_step, [t]) => t,
    vmap(entry, [x, ...others], batched, size) {
      const whole = batchOf(x, batched[0], size);
      return makeNode("depends", [whole, ...others], whole.shape, entry.dtype, {});
    },
  },
  reshape: {
    vjp: ({ entry }, c) => [wrap(reshapeNode(nodeOf(c), entry.inputs[0].shape))],
    jvp: linear,
    vmap: (entry, [x], _, size) => reshapeNode(x, [size, ...entry.shape]),
  },
  transpose: {
    vjp({ entry }, c) {
      const { axes } = attrsOf(entry, "transpose");
      return [wrap(transposeNode(nodeOf(c), axes.map((_, i) => axes.indexOf(i))))];
    },
    jvp: linear,
    vmap: (entry, [x]) => transposeNode(x, [0, ...afterBatch(attrsOf(entry, "transpose").axes)]),
  },
  slice: {
    vjp({ entry }, c) {
      const { starts, steps } = attrsOf(entry, "slice");
      return [placed(c, entry.inputs[0].shape, starts, steps)];
    },
    jvp: linear,
    vmap(entry, [x], _, size) {
      const { starts, steps } = attrsOf(entry, "slice");
      return sliceNode(x, [0, ...starts], [1, ...steps], [size, ...entry.shape]);
    },
  },
  broadcast: {
    vjp: ({ entry }, c) => [sumTo(c, entry.inputs[0].shape)],
    jvp: linear,
    vmap(entry, [x], _, size) {
      const added = entry.shape.length - x.shape.length + 1;
      return broadcastNode(reshapeNode(x, [size, ...new Array(added).fill(1), ...x.shape.slice(1)]), [
        size,
        ...entry.shape,
      ]);
    },
  },
  bitcast: {
    vjp: ({ entry: { inputs: [x] } }, c) => [wrap(makeNode("bitcast", [nodeOf(c)], x.shape, x.dtype, {}))],
    jvp: linear,
    vmap: (entry, [x], _, size) => makeNode("bitcast", [x], [size, ...entry.shape], entry.dtype, {}),
  },
  asStrided: {
    vjp({ entry }, c) {
      const { strides, offset } = attrsOf(entry, "asStrided");
      const [x] = entry.inputs;
      const size = sizeOf(x.shape);
      const values = reshapeNode(nodeOf(c), [sizeOf(entry.shape)]);
      const base = fullNode(0, [size], values.dtype);
      const attrs = { axis: 0, fn: "sum", donate: false } as const;
      const at = positionsOf(entry.shape, strides, offset);
      return [wrap(reshapeNode(makeNode("scatter", [base, at, values], [size], values.dtype, attrs), x.shape))];
    },
    jvp: linear,
    vmap(entry, [x], _, size) {
      const { strides, offset } = attrsOf(entry, "asStrided");
      const attrs = { strides: [eachOf(x), ...strides], offset };
      return makeNode("asStrided", [x], [size, ...entry.shape], entry.dtype, attrs);
    },
  },
  contiguous: {
    vjp: (_step, c) => [c],
    jvp: linear,
    vmap: (entry, [x]) => makeNode("contiguous", [x], x.shape, entry.dtype, {}),
  },
  concatenate: {
    vjp({ entry }, c) {
      const { axis } = attrsOf(entry, "concatenate");
      let at = 0;
      return entry.inputs.map(({ shape }) => {
        const starts = shape.map((_, i) => i === axis ? at : 0);
        at += shape[axis];
        return wrap(sliceNode(nodeOf(c), starts, ones(shape), shape));
      });
    },
    jvp: linearTogether,
    vmap(entry, inputs, batched, size) {
      const parts = inputs.map((node, i) => batchOf(node, batched[i], size));
      return makeNode("concatenate", parts, [size, ...entry.shape], entry.dtype, {
        axis: attrsOf(entry, "concatenate").axis + 1,
      });
    },
  },
  sliceUpdate: {
    vjp(step, c) {
      const { entry: { inputs: [, update], shape } } = step;
      const { starts, steps } = attrsOf(step.entry, "sliceUpdate");
      const empty = fullNode(0, update.shape, c.dtype);
      const attrs = { starts, steps, donate: false };
      return [
        wrap(makeNode("sliceUpdate", [nodeOf(c), empty], shape, c.dtype, attrs)),
        wrap(sliceNode(nodeOf(c), starts, steps, update.shape)),
      ];
    },
    jvp: ({ entry }, tangents) => {
      const inputs = entry.inputs.map((input, i) => nodeOf(tangents[i] ?? zerosOf(input)));
      const attrs = { ...attrsOf(entry, "sliceUpdate"), donate: false };
      return wrap(makeNode("sliceUpdate", inputs, entry.shape, entry.dtype, attrs));
    },
    vmap(entry, inputs, batched, size) {
      const { starts, steps } = attrsOf(entry, "sliceUpdate");
      const parts = inputs.map((node, i) => batchOf(node, batched[i], size));
      const attrs = { starts: [0, ...starts], steps: [1, ...steps], donate: false };
      return makeNode("sliceUpdate", parts, [size, ...entry.shape], entry.dtype, attrs);
    },
  },
} as const satisfies Record<string, OpRules>;
