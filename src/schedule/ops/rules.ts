/**
 * One lowering rule per op: how a node becomes views and dispatches.
 *
 * Grids and workgroup sizes follow the header comments of the shaders. The record is exhaustive: a new op without a rule
 * does not compile. Families of ops have files of their own: fused_ops.ts, indexing.ts, matmul.ts, reduce.ts.
 *
 * @module
 */

import { elementWords, float32, isWide, uint32, uint8 } from "../../graph/dtype.ts";
import { attrsOf } from "../../graph/node.ts";
import { contiguousStrides, reshapeStrides, sameShape, type Shape, sizeOf } from "../../graph/shape.ts";
import { AT_INDICES } from "./indexing.ts";
import { matrixShape, type Value, view } from "../plan/value.ts";
import { dequantized, matrixOf, MODE_CODES } from "./matmul/dequantize.ts";
import { TRANSFORMS } from "./fft.ts";
import { factorization } from "./factorization.ts";
import { fill } from "./fill.ts";
import { FUSED_RULES } from "./fused_ops.ts";
import { ValueError } from "../../graph/error.ts";
import { conv } from "./conv.ts";
import { customKernel } from "./custom_kernel.ts";
import { gatherMatmul, matmul } from "./matmul/matmul.ts";
import { gatherQuantizedMatmul, quantizedMatmul } from "./matmul/quantized_matmul.ts";
import { randomWords } from "./random.ts";
import { ALONG_AXES } from "./reduce.ts";
import type { Rule, RuleName } from "./rule.ts";

/** x (…, n, size) seen as (…, n * size): its last dimension lies in blocks. Undefined if the shapes are others. */
function joinsBlocks(x: Value, shape: Shape): Value | undefined {
  const at = shape.length - 1;
  const [n, size] = x.shape.slice(at);
  const fits = x.shape.length === shape.length + 1 && n * size === shape[at] && size > 1 && x.strides[at + 1] === 1 &&
    sameShape(x.shape.slice(0, at), shape.slice(0, at));
  return fits
    ? { ...view(x, shape, [...x.strides.slice(0, at), 1]), blocks: { size, stride: x.strides[at] } }
    : undefined;
}

/** All rules. */
export const RULES: { readonly [K in RuleName]: Rule } = {
  collective() {
    throw new ValueError("a loop on the device cannot compute with other processes: do that between its steps");
  },
  full: (l, node) => fill(l, node.shape, node.dtype, attrsOf(node, "full").value),
  arange(l, node) {
    const { start, step } = attrsOf(node, "arange");
    const out = l.temporary(node.shape, node.dtype);
    // 16-bit floats are computed in float32 and rounded when stored.
    const type = isWide(node.dtype) ? node.dtype : node.dtype.kind === "float" ? float32 : uint32;
    const [from, by] = [start, step].map((value) => elementWords(type, value));
    l.emit("arange", [out], {
      spec: { DTYPE_OUT: node.dtype.code },
      push: { count: sizeOf(node.shape), start: from[0], step: by[0], start_high: from[1], step_high: by[1] },
      workgroups: l.groups(sizeOf(node.shape)),
    });
    return out;
  },
  stopGradient: (_l, _node, [x]) => x,
  reshape(l, node, [x]) {
    const strides = reshapeStrides(x.shape, x.strides, node.shape);
    if (strides) return view(x, node.shape, strides);
    const joined = joinsBlocks(x, node.shape);
    if (joined) return joined;
    return view(l.contiguous(x), node.shape, contiguousStrides(node.shape));
  },
  transpose(_l, node, [x]) {
    const { axes } = attrsOf(node, "transpose");
    return view(x, node.shape, axes.map((a) => x.strides[a]));
  },
  slice(_l, node, [x]) {
    const { starts, steps } = attrsOf(node, "slice");
    const offset = sizeOf(node.shape) === 0 ? x.offset : starts.reduce((o, s, i) => o + s * x.strides[i], x.offset);
    return view(x, node.shape, x.strides.map((s, i) => s * steps[i]), offset);
  },
  broadcast: (l, node, [x]) => l.broadcast(x, node.shape),
  depends: (_l, _node, [x]) => x,
  asStrided(l, node, [x]) {
    const { strides, offset } = attrsOf(node, "asStrided");
    const dense = l.contiguous(x);
    return view(dense, node.shape, strides, dense.offset + offset);
  },
  contiguous: (l, _node, [x]) => l.contiguous(x, true),
  bitcast(l, node, [x]) {
    const dense = l.contiguous(x, true);
    const offset = dense.offset * x.dtype.bytes / node.dtype.bytes;
    return { ...view(dense, node.shape, contiguousStrides(node.shape), offset), dtype: node.dtype };
  },
  concatenate(l, node, inputs) {
    const { axis } = attrsOf(node, "concatenate");
    const out = l.temporary(node.shape, node.dtype);
    let at = 0;
    let first = true;
    for (const x of inputs) {
      if (sizeOf(x.shape) > 0) {
        l.copy(x, view(out, x.shape, out.strides, out.offset + at * out.strides[axis]), { disjoint: !first });
        first = false;
      }
      at += x.shape[axis];
    }
    return out;
  },
  ...AT_INDICES,
  ...ALONG_AXES,
  matmul,
  gatherMatmul,
  conv,
  quantize(l, node, [w, global]) {
    const { bits, groupSize, mode } = attrsOf(node, "quantize");
    const dense = l.contiguous(w);
    const { rows, cols } = matrixShape(w.shape);
    const lead = w.shape.slice(0, -1);
    const codes = l.temporary([...lead, cols * bits / 32], uint32);
    const groups = [...lead, cols / groupSize];
    if (mode !== "affine") {
      const scales = l.temporary(groups, uint8);
      l.emit("quantize_small_float", [dense, codes, scales, global && l.contiguous(global)], {
        spec: { MODE: MODE_CODES[mode], DTYPE: w.dtype.code },
        push: { rows, cols },
        workgroups: l.groups(rows * cols / groupSize),
      });
      return [codes, scales];
    }
    const [scales, biases] = [l.temporary(groups, w.dtype), l.temporary(groups, w.dtype)];
    l.emit("quantize", [dense, codes, scales, biases], {
      spec: { BITS: bits, GROUP: groupSize, DTYPE: w.dtype.code },
      push: { rows, cols },
      workgroups: l.groups(rows * cols / groupSize),
    });
    return [codes, scales, biases];
  },
  dequantize(l, node, inputs) {
    const format = attrsOf(node, "dequantize");
    const { rest: [global], ...parts } = matrixOf(format, inputs);
    return dequantized(l, l.temporary(node.shape, node.dtype), parts, {
      ...format,
      rounds: parts.scales.dtype,
      global,
    });
  },
  quantizedMatmul,
  gatherQuantizedMatmul,
  ...FUSED_RULES,
  ...TRANSFORMS,
  factorization,
  customKernel,
  randomBits: (l, node, [key]) => randomWords(l, "random_bits", node, key),
};
