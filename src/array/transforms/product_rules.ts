/**
 * Derivatives and batches of products: of matrices, of quantized ones, of chosen ones, and convolutions.
 *
 * @module
 */

import { float32, int32, isHalf, uint32 } from "../../graph/dtype.ts";
import { attrsOf, makeNode, type Node, type OpAttrs } from "../../graph/node.ts";
import { arraysOfMatrix, CODE_MODES, type QuantizedFormat } from "../../graph/quantization.ts";
import { ValueError } from "../../graph/error.ts";
import { sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { add, greaterEqual, less, logicalAnd, multiply, where } from "../ops/binary.ts";
import { castNode, fullNode } from "../tensor/convert.ts";
import { reshapeNode, sliceNode, transposeNode } from "../ops/movement.ts";
import { sum } from "../ops/reduce.ts";
import { type AnyTensor, nodeOf, wrap } from "../tensor/tensor.ts";
import { refuseIndices } from "./indexing_rules.ts";
import { looped } from "./looped.ts";
import { asDtype, batchOf, type Jvp, type OpRules, type Step, sumTo, type Vmap } from "./rule.ts";
import { type Entry, remake } from "../tensor/tape.ts";

/** The sum of the op with one operand at a time in the place of its tangent. */
const multilinear: Jvp = ({ entry }, tangents) =>
  tangents.flatMap((t, i) => t ? [remake(entry, entry.inputs.with(i, nodeOf(t))) as AnyTensor] : [])
    .reduce((a, b) => add(a, b) as AnyTensor);

/** The last two axes exchanged. */
function turned(node: Node): Node {
  const rank = node.shape.length;
  const axes = node.shape.map((_, i) => i);
  return transposeNode(node, [...axes.slice(0, rank - 2), rank - 1, rank - 2]);
}

/** a @ b of nodes of equal ranks, whose batch dimensions broadcast. */
function product(a: Node, b: Node): Node {
  const lead = a.shape.slice(0, -2).map((d, i) => d === 1 ? b.shape[i] : d);
  const shape = [...lead, a.shape[a.shape.length - 2], b.shape[b.shape.length - 1]];
  return makeNode("matmul", [a, b], shape, a.dtype, {});
}

/** Whether all matrices of a batch are multiplied by this one. */
function isShared(node: Node): boolean {
  return node.shape.slice(0, -2).every((d) => d === 1);
}

/** The matrices of a batch below each other, as one in the rank that it has. */
function stacked(node: Node): Node {
  const rank = node.shape.length;
  const columns = node.shape[rank - 1];
  return reshapeNode(node, [...new Array(rank - 2).fill(1), sizeOf(node.shape.slice(0, -1)), columns]);
}

/** A node with ones in front until it has `rank` axes. */
function wide(node: Node, rank: number): Node {
  return reshapeNode(node, [...new Array(rank - node.shape.length).fill(1), ...node.shape]);
}

// ---- quantized matrices ---------------------------------------------------------------------------------------------

/** Codes as numbers: the matrix with scales of 1 and biases of 0. */
function codesOf(format: QuantizedFormat, codes: Node, scales: Node): AnyTensor {
  const columns = scales.shape[scales.shape.length - 1] * format.groupSize;
  const factors = [1, 0].slice(0, arraysOfMatrix(format) - 1); // scales, biases
  const parts = [codes, ...factors.map((value) => fullNode(value, scales.shape, float32))];
  const { bits, groupSize, mode } = format;
  return wrap(
    makeNode("dequantize", parts, [...codes.shape.slice(0, -1), columns], float32, { bits, groupSize, mode }),
  );
}

/** Cotangents of codes, scales and biases, the inputs from `at` on, from that of the matrix: sums over groups. */
function groupsBack(step: Step, at: number, ofMatrix: () => AnyTensor): readonly (AnyTensor | undefined)[] {
  const format = step.entry.attrs as QuantizedFormat;
  const [codes, scales, biases] = step.entry.inputs.slice(at, at + arraysOfMatrix(format));
  if (!CODE_MODES[format.mode].floatScales) {
    if (!step.wants(at + 1)) return [];
    throw new ValueError(
      `there is no derivative with respect to scales of mode "${format.mode}": they are codes of 8 bits`,
    );
  }
  const wantsBiases = biases !== undefined && step.wants(at + 2);
  if (!step.wants(at + 1) && !wantsBiases) return [];
  const grouped = (x: AnyTensor): AnyTensor =>
    sum(wrap(reshapeNode(nodeOf(x), [...scales.shape, format.groupSize])) as AnyTensor, -1) as AnyTensor;
  const c: AnyTensor = wrap(castNode(nodeOf(ofMatrix()), float32));
  return [
    undefined,
    step.wants(at + 1) ? asDtype(grouped(multiply(c, codesOf(format, codes, scales)) as AnyTensor), scales) : undefined,
    wantsBiases ? asDtype(grouped(c), biases) : undefined,
  ];
}

/** Shape of the matrices that codes and scales stand for. */
function matrixShape(codes: Node, scales: Node, { groupSize }: QuantizedFormat): Shape {
  return [...codes.shape.slice(0, -1), scales.shape[scales.shape.length - 1] * groupSize];
}

// ---- convolutions ---------------------------------------------------------------------------------------------------

type ConvAttrs = OpAttrs["conv"];

const dilated = (n: number, by: number): number => n === 0 ? 0 : 1 + (n - 1) * by;

/** A convolution whose paddings may be negative: those cut the input first. */
function convolution(x: Node, w: Node, attrs: ConvAttrs, spatial: Shape): Node {
  return makeNode("conv", [x, w], [x.shape[0], ...spatial, w.shape[0]], x.dtype, attrs);
}

/** (O, …K, C / G) as (C, …K, O / G): the weights of the way back. */
function exchanged(w: Node, groups: number): Node {
  const [filters, ...rest] = w.shape;
  const channels = rest.pop()!;
  const rank = w.shape.length;
  const split = reshapeNode(w, [groups, filters / groups, ...rest, channels]);
  const between = rest.map((_, i) => i + 2);
  const moved = transposeNode(split, [0, rank, ...between, 1]);
  return reshapeNode(moved, [groups * channels, ...rest, filters / groups]);
}

/** The cotangent of the input: a convolution whose strides and input dilations have changed places. */
function inputBack(entry: Entry, c: Node): Node {
  const [x, w] = entry.inputs;
  const attrs = attrsOf(entry, "conv");
  const spatial = x.shape.slice(1, -1);
  const low = spatial.map((_, i) => attrs.kernelDilation[i] * (w.shape[i + 1] - 1) - attrs.paddingLow[i]);
  const high = spatial.map((n, i) =>
    dilated(n, attrs.inputDilation[i]) - dilated(c.shape[i + 1], attrs.stride[i]) + attrs.paddingLow[i]
  );
  return convolution(c, exchanged(w, attrs.groups), {
    ...attrs,
    stride: attrs.inputDilation,
    inputDilation: attrs.stride,
    paddingLow: low,
    paddingHigh: high,
    flip: !attrs.flip,
  }, spatial);
}

/** The cotangent of the weights: a convolution of the input by the cotangent, in which batch and channels have changed places. */
function weightsBack(entry: Entry, c: Node): Node {
  const [x, w] = entry.inputs;
  const attrs = attrsOf(entry, "conv");
  const { groups } = attrs;
  const spatial = w.shape.slice(1, -1);
  const middle = spatial.map((_, i) => i + 1);
  const last = spatial.length + 1;
  const [batch, channels] = [x.shape[0], x.shape[last]];
  const taken = x.shape.slice(1, -1);
  // (N, …, G, C) to (C, …, G N); (N, …, O) to (O, …, N)
  const split = reshapeNode(x, [batch, ...taken, groups, channels / groups]);
  const input = reshapeNode(transposeNode(split, [last + 1, ...middle, last, 0]), [
    channels / groups,
    ...taken,
    groups * batch,
  ]);
  const by = transposeNode(c, [last, ...middle, 0]);
  const high = spatial.map((k, i) =>
    attrs.kernelDilation[i] * (k - 1) + dilated(c.shape[i + 1], attrs.stride[i]) -
    dilated(taken[i], attrs.inputDilation[i]) -
    attrs.paddingLow[i]
  );
  const found = convolution(input, by, {
    ...attrs,
    stride: attrs.kernelDilation,
    kernelDilation: attrs.stride,
    paddingHigh: high,
    flip: false,
  }, spatial);
  const back = transposeNode(found, [last, ...middle, 0]);
  if (!attrs.flip || back.shape.length === 0) return back;
  const turn = back.shape.map((_, i) => middle.includes(i));
  const starts = back.shape.map((d, i) => turn[i] ? Math.max(d - 1, 0) : 0);
  return makeNode("slice", [back], back.shape, back.dtype, { starts, steps: turn.map((t) => t ? -1 : 1) });
}

// ---- products of chosen matrices ------------------------------------------------------------------------------------

/** The matrices of a batch as one list. */
function listed(node: Node): Node {
  return reshapeNode(node, [sizeOf(node.shape.slice(0, -2)), ...node.shape.slice(-2)]);
}

/** Adds products to the matrices that indices name. */
function addedTo(matrices: Node, indices: Node, values: Node): AnyTensor {
  const list = listed(matrices);
  const n = sizeOf(indices.shape);
  const parts = [fullNode(0, list.shape, values.dtype), reshapeNode(indices, [n]), listed(values)];
  const all = makeNode("scatter", parts, list.shape, values.dtype, { axis: 0, fn: "sum", donate: false });
  return wrap(reshapeNode(all, matrices.shape));
}

/** The numbers 0, 1, … as indices of a list of results. */
function everyOne(indices: Node): Node {
  const n = sizeOf(indices.shape);
  return reshapeNode(makeNode("arange", [], [n], uint32, { start: 0, step: 1 }), indices.shape);
}

function chosenProduct(a: Node, b: Node, left: Node, right: Node): Node {
  const shape = [...left.shape, a.shape[a.shape.length - 2], b.shape[b.shape.length - 1]];
  return makeNode("gatherMatmul", [a, b, left, right], shape, a.dtype, { left: true, right: true, ranges: false });
}

/** Cotangents of products over ranges of the depth: each goes to the columns and rows of its range. */
function segmentsBack(step: Step, c: AnyTensor): readonly (AnyTensor | undefined)[] {
  const [a, b, ranges] = step.entry.inputs;
  const k = b.shape[0];
  const list = listed(nodeOf(c));
  const ends = reshapeNode(castNode(ranges, int32), [list.shape[0], 2]);
  const end = (i: number): AnyTensor => wrap(sliceNode(ends, [0, i], [1, 1], [list.shape[0], 1]));
  const line: AnyTensor = wrap(makeNode("arange", [], [k], int32, { start: 0, step: 1 }));
  const inside = logicalAnd(greaterEqual(line, end(0)), less(line, end(1))) as AnyTensor;
  const total = (all: Node, shape: Shape): AnyTensor =>
    sum(where(wrap(reshapeNode(nodeOf(inside), shape)), wrap(all), 0) as AnyTensor, 0) as AnyTensor;
  const count = list.shape[0];
  return [
    step.wants(0) ? total(product(list, turned(wide(b, 3))), [count, 1, k]) : undefined,
    step.wants(1) ? total(product(turned(wide(a, 3)), list), [count, k, 1]) : undefined,
  ];
}

// ---- batches --------------------------------------------------------------------------------------------------------

/** A node of `rank` axes: the batch axis, then ones, then the node's own axes. */
function aligned(node: Node, rank: number): Node {
  const [size, ...own] = node.shape;
  return reshapeNode(node, [size, ...new Array(rank - 1 - own.length).fill(1), ...own]);
}

/** Codes, scales and biases belong together: a batch of one of them is one of all. */
function batchAll(parts: readonly Node[], batched: readonly boolean[], size: number): readonly Node[] {
  return batched.some(Boolean) ? parts.map((node, i) => batchOf(node, batched[i], size)) : parts;
}

/** Leading axes of x and of the matrices broadcast, so a batch is one more of them. */
const quantizedBatch: Vmap = (entry, [x, ...rest], [ofX, ...of], size) => {
  const rank = entry.shape.length + 1;
  const parts = batchAll(rest, of, size);
  const inputs = [ofX ? aligned(x, rank) : x, ...(parts === rest ? rest : parts.map((node) => aligned(node, rank)))];
  return makeNode(entry.op, inputs, [size, ...entry.shape], entry.dtype, entry.attrs);
};

/** The matrices of a batch as one list; those of element i begin at i times `each`. */
function listedBatch(node: Node): { readonly list: Node; readonly each: number } {
  return { list: listed(node), each: sizeOf(node.shape.slice(1, -2)) };
}

/** Indices of a batch of lists of `each` matrices as indices of the one list. */
function indicesOfList(indices: Node, batched: boolean, size: number, each: number | undefined): Node {
  const whole = batchOf(indices, batched, size);
  if (each === undefined) return whole;
  const line = makeNode("arange", [], [size], uint32, { start: 0, step: each });
  const starts = wrap(reshapeNode(line, whole.shape.map((d, i) => i === 0 ? d : 1)));
  return nodeOf(add(wrap(castNode(whole, uint32)), starts) as AnyTensor);
}

/** A batch of matrices is a longer list of them. */
const chosenBatch: Vmap = (entry, inputs, batched, size) => {
  const count = inputs.length;
  const shape = [size, ...entry.shape];
  const parts = batchAll(inputs.slice(1, -2), batched.slice(1, -2), size);
  const left = batched[0] ? listedBatch(inputs[0]) : undefined;
  const right = batched.slice(1, -2).some(Boolean) ? parts.map(listedBatch) : undefined;
  const at = (i: number, each: number | undefined): Node => indicesOfList(inputs[i], batched[i], size, each);
  const all = [
    left?.list ?? inputs[0],
    ...(right?.map(({ list }) => list) ?? parts),
    at(count - 2, left?.each),
    at(count - 1, right?.[0].each),
  ];
  return makeNode(entry.op, all, shape, entry.dtype, entry.attrs);
};

/** Weights of a batch are groups: element s has channels and filters of its own, those of s before those of s + 1. */
const convolutionBatch: Vmap = (entry, inputs, [ofX, ofW], size) => {
  const attrs = attrsOf(entry, "conv");
  const [batch, ...out] = entry.shape;
  const rank = entry.shape.length;
  const [x, w] = inputs;
  if (!ofW) {
    const rows = reshapeNode(x, [size * batch, ...x.shape.slice(2)]);
    return reshapeNode(makeNode("conv", [rows, w], [size * batch, ...out], entry.dtype, attrs), [size, batch, ...out]);
  }
  const shared = !ofX && attrs.groups === 1; // one group that all filters read
  const filters = reshapeNode(w, [size * w.shape[1], ...w.shape.slice(2)]);
  const whole = shared ? undefined : batchOf(x, ofX, size);
  const channels = x.shape[x.shape.length - 1];
  const middle = Array.from({ length: rank - 1 }, (_, i) => i + 1);
  // (S, N, …, C) to (N, …, S C)
  const read = whole
    ? reshapeNode(transposeNode(whole, [...middle, 0, rank]), [...whole.shape.slice(1, -1), size * channels])
    : x;
  const lead = entry.shape.slice(0, -1);
  const [last] = entry.shape.slice(-1);
  const groups = shared ? 1 : size * attrs.groups;
  const all = makeNode("conv", [read, filters], [...lead, size * last], entry.dtype, { ...attrs, groups });
  // (N, …, S O) to (S, N, …, O)
  const apart = reshapeNode(all, [...lead, size, last]);
  return transposeNode(apart, [rank - 1, ...middle.map((i) => i - 1), rank]);
};

/** Rules of products. */
export const PRODUCTS = {
  matmul: {
    vjp(step, c) {
      const [a, b] = step.entry.inputs;
      // Products of halves that were kept in float32 have cotangents of halves, as if they had been rounded: matrix units multiply those.
      if (a.dtype === b.dtype && isHalf(a.dtype)) c = asDtype(c, a);
      // One product of all rows, where the others would be as many matrices that are still to be added.
      const one = isShared(b) && sameShape(a.shape.slice(0, -2), c.shape.slice(0, -2));
      const [left, right] = one ? [a, nodeOf(c)].map(stacked) : [a, nodeOf(c)];
      return [
        // Products of 16-bit arrays may be of float32.
        step.wants(0) ? asDtype(sumTo(wrap(product(nodeOf(c), turned(b))), a.shape), a) : undefined,
        step.wants(1) ? asDtype(sumTo(wrap(product(turned(left), right)), b.shape), b) : undefined,
      ];
    },
    jvp: multilinear,
    vmap(entry, inputs, batched, size) {
      const rank = entry.shape.length + 1;
      const [a, b] = inputs.map((node, i) => batched[i] ? node : wide(node, rank));
      return makeNode("matmul", [a, b], [size, ...entry.shape], entry.dtype, {});
    },
  },
  gatherMatmul: {
    vjp(step, c) {
      const { ranges } = attrsOf(step.entry, "gatherMatmul");
      const { inputs } = step.entry;
      const [a, b] = inputs;
      inputs.slice(2).forEach((_, i) => refuseIndices(step, "gatherMm", i + 2));
      if (ranges) return segmentsBack(step, c);
      const [l, r] = inputs.slice(2);
      const all = everyOne(l);
      return [
        step.wants(0) ? addedTo(a, l, chosenProduct(nodeOf(c), turned(b), all, r)) : undefined,
        step.wants(1) ? addedTo(b, r, chosenProduct(turned(a), nodeOf(c), l, all)) : undefined,
      ];
    },
    jvp: multilinear,
    vmap(entry, inputs, batched, size) {
      const { left, right, ranges } = attrsOf(entry, "gatherMatmul");
      const simple = left && right && !ranges;
      return (simple ? chosenBatch : looped)(entry, inputs, batched, size);
    },
  },
  conv: {
    vjp(step, c) {
      return [
        step.wants(0) ? wrap(inputBack(step.entry, nodeOf(c))) : undefined,
        step.wants(1) ? wrap(weightsBack(step.entry, nodeOf(c))) : undefined,
      ];
    },
    jvp: multilinear,
    vmap: convolutionBatch,
  },
  quantize: {
    vjp: { none: "codes are whole numbers, and scales are rounded so that codes fit" },
    jvp: { none: "codes are whole numbers, and scales are rounded so that codes fit" },
    vmap: (entry, [w], _, size) =>
      makeNode("quantize", [w], [size, ...entry.shape], entry.dtype, entry.attrs as OpAttrs["quantize"]),
  },
  part: {
    vjp: { none: "a part of what quantize() gives" },
    jvp: { none: "a part of what quantize() gives" },
    vmap: (entry, [all], _, size) =>
      makeNode("part", [all], [size, ...entry.shape], entry.dtype, attrsOf(entry, "part")),
  },
  dequantize: {
    vjp: (step, c) => groupsBack(step, 0, () => c),
    vmap(entry, inputs, batched, size) {
      // A global scale belongs to all of a matrix, whatever its shape.
      const single = inputs.length > arraysOfMatrix(attrsOf(entry, "dequantize"));
      if (single) return looped(entry, inputs, batched, size);
      const parts = inputs.map((node, i) => batchOf(node, batched[i], size));
      return makeNode("dequantize", parts, [size, ...entry.shape], entry.dtype, attrsOf(entry, "dequantize"));
    },
  },
  quantizedMatmul: {
    vjp(step, c) {
      const attrs = attrsOf(step.entry, "quantizedMatmul");
      const { inputs: [x, ...parts] } = step.entry;
      const back = (): AnyTensor => {
        const shape = [...c.shape.slice(0, -1), x.shape[x.shape.length - 1]];
        const turnedBack = { ...attrs, transpose: !attrs.transpose };
        // As with products of halves: matrix units multiply those.
        const own = isHalf(x.dtype) && parts[1].dtype !== float32 ? asDtype(c, x) : c;
        return sumTo(wrap(makeNode("quantizedMatmul", [nodeOf(own), ...parts], shape, own.dtype, turnedBack)), x.shape);
      };
      const dx = step.wants(0) ? asDtype(back(), x) : undefined;
      // The cotangent of the matrix itself, summed over the batches that share it.
      const ofMatrix = (): AnyTensor => {
        const own = castNode(x, c.dtype);
        const shape = matrixShape(parts[0], parts[1], attrs);
        const operands = shape.length === 2 ? [nodeOf(c), own].map(stacked) : [nodeOf(c), own];
        const [left, right] = attrs.transpose ? operands : operands.toReversed();
        return sumTo(wrap(product(turned(left), right)), shape);
      };
      return [dx, ...groupsBack(step, 1, ofMatrix)];
    },
    vmap: quantizedBatch,
  },
  gatherQuantizedMatmul: {
    vjp(step, c) {
      const attrs = attrsOf(step.entry, "gatherQuantizedMatmul");
      const { inputs } = step.entry;
      const [x, ...rest] = inputs;
      const [left, right] = rest.slice(-2);
      refuseIndices(step, "gatherQmm", inputs.length - 2);
      refuseIndices(step, "gatherQmm", inputs.length - 1);
      const parts = rest.slice(0, -2);
      const back = (): AnyTensor => {
        const shape = [...c.shape.slice(0, -1), x.shape[x.shape.length - 1]];
        const turnedBack = { ...attrs, transpose: !attrs.transpose };
        const all = [nodeOf(c), ...parts, everyOne(left), right];
        return addedTo(x, left, makeNode("gatherQuantizedMatmul", all, shape, c.dtype, turnedBack));
      };
      const dx = step.wants(0) ? asDtype(back(), x) : undefined;
      const ofMatrix = (): AnyTensor => {
        const matrices = fullNode(0, matrixShape(parts[0], parts[1], attrs), c.dtype);
        const own = castNode(x, c.dtype);
        const all = everyOne(left);
        const products = attrs.transpose
          ? chosenProduct(turned(nodeOf(c)), own, all, left)
          : chosenProduct(turned(own), nodeOf(c), left, all);
        return addedTo(matrices, right, products);
      };
      return [dx, ...groupsBack(step, 1, ofMatrix)];
    },
    vmap(entry, inputs, batched, size) {
      const attrs = { ...attrsOf(entry, "gatherQuantizedMatmul"), sorted: false }; // each element counts its matrices anew
      return chosenBatch({ ...entry, attrs }, inputs, batched, size);
    },
  },
} as const satisfies Record<string, OpRules>;
