/**
 * Derivatives and batches of reads and writes at indices: the cotangent of a read is added at its index.
 *
 * There is no derivative with respect to indices. Where one is asked for, as in MLX, it is an error: `mx.stopGradient(indices)` says
 * that none is meant.
 *
 * @module
 */

import { int32 } from "../../graph/dtype.ts";
import { ValueError } from "../../graph/error.ts";
import { attrsOf, makeNode, type Node, type OpAttrs } from "../../graph/node.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";
import { add, divide, equal, less, maximum, minimum, multiply, where } from "../ops/binary.ts";
import { castNode, fullNode } from "../tensor/convert.ts";
import { broadcastNode, reshapeNode, sliceNode, transposeNode } from "../ops/movement.ts";
import { type AnyTensor, nodeOf, wrap } from "../tensor/tensor.ts";
import { afterBatch, batchOf, type OpRules, type Step, type Vjp, zerosOf } from "./rule.ts";

/** Throws if a derivative with respect to indices is asked for: those of input `i`. */
export function refuseIndices(step: Step, name: string, i: number): void {
  if (!step.wants(i)) return;
  throw new ValueError(
    `${name}() has no derivative with respect to its indices: pass mx.stopGradient(indices), as with stop_gradient in MLX`,
  );
}

/** Adds `values` at the indices of a gather to zeros like its input. */
function gatherBack(base: Node, indices: Node, values: Node, axis: number): Node {
  const n = sizeOf(indices.shape);
  const shape = base.shape.with(axis, n);
  const parts = [fullNode(0, base.shape, values.dtype), reshapeNode(indices, [n]), reshapeNode(values, shape)];
  return makeNode("scatter", parts, base.shape, values.dtype, { axis, fn: "sum", donate: false });
}

/** Indices that count from the first of all rows of a batch: those of row i are in [i * n, (i + 1) * n). */
function ofAllRows(indices: Node, n: number): Node {
  const wide: AnyTensor = wrap(castNode(indices, int32));
  const inside = minimum(maximum(where(less(wide, 0), add(wide, n), wide), 0), n - 1) as AnyTensor;
  const line = makeNode("arange", [], [indices.shape[0]], int32, { start: 0, step: n });
  const rows = wrap(reshapeNode(line, indices.shape.map((d, i) => i === 0 ? d : 1)));
  return nodeOf(add(inside, rows) as AnyTensor);
}

/** Axis `axis` of a batch directly after the batch, and the two as one. */
function rowsFirst(node: Node, axis: number): { readonly rows: Node; readonly order: readonly number[] } {
  const order = [0, axis + 1, ...node.shape.map((_, i) => i).filter((i) => i !== 0 && i !== axis + 1)];
  const moved = transposeNode(node, order);
  return { rows: reshapeNode(moved, [moved.shape[0] * moved.shape[1], ...moved.shape.slice(2)]), order };
}

/** Undoes {@link rowsFirst} for an axis of `n`. */
function rowsBack(node: Node, batch: number, n: number, order: readonly number[]): Node {
  const apart = reshapeNode(node, [batch, n, ...node.shape.slice(1)]);
  return transposeNode(apart, order.map((_, i) => order.indexOf(i)));
}

type Scattering = OpAttrs["scatter"]["fn"];

/** Cotangents of base and updates of a scatter; `read` reads at its indices, `write` writes there. */
function scatterBack(
  step: Step,
  c: AnyTensor,
  fn: Scattering,
  read: (from: AnyTensor) => AnyTensor,
  write: (to: AnyTensor, updates: AnyTensor, fn: Scattering) => AnyTensor,
): readonly (AnyTensor | undefined)[] {
  const [base, updates] = [step.x(0), step.x(2)];
  switch (fn) {
    case "assign":
      return [
        step.wants(0) ? write(c, zerosOf({ shape: updates.shape, dtype: c.dtype }), "assign") : undefined,
        undefined,
        read(c),
      ];
    case "sum":
      return [c, undefined, read(c)];
    case "prod":
      // With respect to an update: the rest of the product, which is the result divided by it.
      return [
        step.wants(0) ? multiply(c, write(onesLike(base), updates, "prod")) as AnyTensor : undefined,
        undefined,
        step.wants(2) ? divide(read(multiply(c, step.y) as AnyTensor), updates) as AnyTensor : undefined,
      ];
    case "min":
    case "max":
      return [
        step.wants(0) ? where(equal(base, step.y), c, 0) as AnyTensor : undefined,
        undefined,
        step.wants(2) ? where(equal(updates, read(step.y)), read(c), 0) as AnyTensor : undefined,
      ];
  }
}

function onesLike(x: AnyTensor): AnyTensor {
  return wrap(fullNode(1, x.shape, x.dtype));
}

const scatterVjp: Vjp = (step, c) => {
  refuseIndices(step, "scatter", 1);
  const { inputs: [base, indices], shape } = step.entry;
  const { axis, fn } = attrsOf(step.entry, "scatter");
  const read = (from: AnyTensor): AnyTensor =>
    wrap(makeNode("gather", [nodeOf(from), indices], shape.with(axis, indices.shape[0]), from.dtype, { axis }));
  return scatterBack(step, c, fn, read, (to, updates, by) => {
    const attrs = { axis, fn: by, donate: false };
    return wrap(makeNode("scatter", [nodeOf(to), indices, nodeOf(updates)], base.shape, to.dtype, attrs));
  });
};

const scatterAlongVjp: Vjp = (step, c) => {
  refuseIndices(step, "scatter", 1);
  const { inputs: [base, indices] } = step.entry;
  const { axis, fn } = attrsOf(step.entry, "scatterAlong");
  const read = (from: AnyTensor): AnyTensor =>
    wrap(makeNode("gatherAlong", [nodeOf(from), indices], indices.shape, from.dtype, { axis }));
  return scatterBack(step, c, fn, read, (to, updates, by) => {
    const attrs = { axis, fn: by, donate: false };
    return wrap(makeNode("scatterAlong", [nodeOf(to), indices, nodeOf(updates)], base.shape, to.dtype, attrs));
  });
};

/**
 * Places of parts in a flattened batch of arrays of shape `base`. Parts have shape `part` and begin at `starts` (batch, axes.length) along
 * `axes`; starts are clamped so that parts fit.
 */
function placesOf(base: Shape, part: Shape, axes: readonly number[], starts: Node): Node {
  const [size] = starts.shape;
  const shape = [size, ...part];
  const line = (n: number, at: number, step: number): AnyTensor =>
    wrap(reshapeNode(makeNode("arange", [], [n], int32, { start: 0, step }), shape.map((_, i) => i === at ? n : 1)));
  let places = line(size, 0, sizeOf(base));
  base.forEach((_, axis) => {
    const step = sizeOf(base.slice(axis + 1));
    places = add(places, line(part[axis], axis + 1, step)) as AnyTensor;
    const k = axes.indexOf(axis);
    if (k < 0) return;
    const own = wrap(castNode(sliceNode(starts, [0, k], [1, 1], [size, 1]), int32)) as AnyTensor;
    const inside = minimum(maximum(own, 0), base[axis] - part[axis]) as AnyTensor;
    const first = wrap(reshapeNode(nodeOf(inside), shape.map((d, i) => i === 0 ? d : 1)));
    places = add(places, multiply(first, step)) as AnyTensor;
  });
  return reshapeNode(broadcastNode(nodeOf(places), shape), [sizeOf(shape)]);
}

/** Rules of ops with indices or starts that are arrays. */
export const INDEXING = {
  gather: {
    vjp(step, c) {
      refuseIndices(step, "take", 1);
      const { inputs: [x, indices] } = step.entry;
      return [wrap(gatherBack(x, indices, nodeOf(c), attrsOf(step.entry, "gather").axis)), undefined];
    },
    jvp: ({ entry }, [t]) =>
      t && wrap(makeNode("gather", [nodeOf(t), entry.inputs[1]], entry.shape, t.dtype, attrsOf(entry, "gather"))),
    vmap(entry, [x, indices], [ofX, ofIndices], size) {
      const { axis } = attrsOf(entry, "gather");
      if (!ofIndices) return makeNode("gather", [x, indices], [size, ...entry.shape], entry.dtype, { axis: axis + 1 });
      if (!ofX) {
        const shape = [...x.shape.slice(0, axis), ...indices.shape, ...x.shape.slice(axis + 1)];
        const all = makeNode("gather", [x, indices], shape, entry.dtype, { axis });
        return transposeNode(all, [axis, ...shape.map((_, i) => i).filter((i) => i !== axis)]);
      }
      const { rows } = rowsFirst(x, axis);
      const at = ofAllRows(indices, x.shape[axis + 1]);
      const found = makeNode("gather", [rows, at], [...at.shape, ...rows.shape.slice(1)], entry.dtype, { axis: 0 });
      // (batch, …indices, …front, …rest) to (batch, …front, …indices, …rest)
      const width = indices.shape.length - 1;
      const axes = found.shape.map((_, i) => i);
      const [own, front] = [axes.slice(1, 1 + width), axes.slice(1 + width, 1 + width + axis)];
      return transposeNode(found, [0, ...front, ...own, ...axes.slice(1 + width + axis)]);
    },
  },
  gatherAlong: {
    vjp(step, c) {
      refuseIndices(step, "takeAlongAxis", 1);
      const { inputs: [x, indices] } = step.entry;
      const { axis } = attrsOf(step.entry, "gatherAlong");
      const base = fullNode(0, x.shape, c.dtype);
      const attrs = { axis, fn: "sum", donate: false } as const;
      return [wrap(makeNode("scatterAlong", [base, indices, nodeOf(c)], x.shape, c.dtype, attrs)), undefined];
    },
    jvp: ({ entry }, [t]) =>
      t &&
      wrap(makeNode("gatherAlong", [nodeOf(t), entry.inputs[1]], entry.shape, t.dtype, attrsOf(entry, "gatherAlong"))),
    vmap(entry, inputs, batched, size) {
      const parts = inputs.map((node, i) => batchOf(node, batched[i], size));
      const { axis } = attrsOf(entry, "gatherAlong");
      return makeNode("gatherAlong", parts, [size, ...entry.shape], entry.dtype, { axis: axis + 1 });
    },
  },
  scatter: {
    vjp: scatterVjp,
    vmap(entry, [base, indices, updates], [ofBase, ofIndices, ofUpdates], size) {
      const { axis, fn } = attrsOf(entry, "scatter");
      const [to, from] = [batchOf(base, ofBase, size), batchOf(updates, ofUpdates, size)];
      if (!ofIndices) {
        const attrs = { axis: axis + 1, fn, donate: false };
        return makeNode("scatter", [to, indices, from], [size, ...entry.shape], entry.dtype, attrs);
      }
      const { rows, order } = rowsFirst(to, axis);
      const n = to.shape[axis + 1];
      const at = ofAllRows(indices, n);
      const parts = [rows, reshapeNode(at, [sizeOf(at.shape)]), rowsFirst(from, axis).rows];
      const done = makeNode("scatter", parts, rows.shape, entry.dtype, { axis: 0, fn, donate: false });
      return rowsBack(done, size, n, order);
    },
  },
  scatterAlong: {
    vjp: scatterAlongVjp,
    vmap(entry, inputs, batched, size) {
      const { axis, fn } = attrsOf(entry, "scatterAlong");
      const parts = inputs.map((node, i) => batchOf(node, batched[i], size));
      const attrs = { axis: axis + 1, fn, donate: false };
      return makeNode("scatterAlong", parts, [size, ...entry.shape], entry.dtype, attrs);
    },
  },
  dynamicSlice: {
    vjp(step, c) {
      refuseIndices(step, "slice", 1);
      const { inputs: [x, start] } = step.entry;
      const { axes } = attrsOf(step.entry, "dynamicSlice");
      const base = fullNode(0, x.shape, c.dtype);
      const attrs = { axes, donate: false };
      return [wrap(makeNode("dynamicSliceUpdate", [base, nodeOf(c), start], x.shape, c.dtype, attrs)), undefined];
    },
    jvp: ({ entry }, [t]) =>
      t &&
      wrap(
        makeNode("dynamicSlice", [nodeOf(t), entry.inputs[1]], entry.shape, t.dtype, attrsOf(entry, "dynamicSlice")),
      ),
    vmap(entry, inputs, batched, size) {
      const { axes: own } = attrsOf(entry, "dynamicSlice");
      if (batched[1]) {
        const whole = batchOf(inputs[0], batched[0], size);
        const line = reshapeNode(whole, [sizeOf(whole.shape)]);
        const at = placesOf(whole.shape.slice(1), entry.shape, own, inputs[1]);
        return reshapeNode(makeNode("gather", [line, at], at.shape, entry.dtype, { axis: 0 }), [size, ...entry.shape]);
      }
      const axes = afterBatch(own);
      return makeNode("dynamicSlice", inputs, [size, ...entry.shape], entry.dtype, { axes });
    },
  },
  dynamicSliceUpdate: {
    vjp(step, c) {
      refuseIndices(step, "sliceUpdate", 2);
      const { inputs: [base, update, start] } = step.entry;
      const { axes } = attrsOf(step.entry, "dynamicSliceUpdate");
      const empty = fullNode(0, update.shape, c.dtype);
      return [
        wrap(makeNode("dynamicSliceUpdate", [nodeOf(c), empty, start], base.shape, c.dtype, { axes, donate: false })),
        wrap(makeNode("dynamicSlice", [nodeOf(c), start], update.shape, c.dtype, { axes })),
        undefined,
      ];
    },
    vmap(entry, inputs, batched, size) {
      const { axes } = attrsOf(entry, "dynamicSliceUpdate");
      const parts = [batchOf(inputs[0], batched[0], size), batchOf(inputs[1], batched[1], size), inputs[2]];
      if (batched[2]) {
        const [base, update] = parts.map((node) => reshapeNode(node, [sizeOf(node.shape)]));
        const at = placesOf(entry.shape, parts[1].shape.slice(1), axes, inputs[2]);
        const attrs = { axis: 0, fn: "assign", donate: false } as const;
        const done = makeNode("scatter", [base, at, update], base.shape, entry.dtype, attrs);
        return reshapeNode(done, [size, ...entry.shape]);
      }
      const attrs = { axes: afterBatch(axes), donate: false };
      return makeNode("dynamicSliceUpdate", parts, [size, ...entry.shape], entry.dtype, attrs);
    },
  },
} as const satisfies Record<string, OpRules>;
