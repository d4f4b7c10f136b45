/**
 * Factorizations: batches are leading axes; derivatives are those of the factors, if they are unique.
 *
 * MLX has none of them (it throws). The formulas are those of jax.lax.linalg (jax/_src/lax/linalg.py), which names their sources: for
 * Cholesky I. Murray, "Differentiation of the Cholesky decomposition" (2016); for QR S. Walter and L. Lehmann, "Algorithmic differentiation
 * of linear algebra functions with application in optimum experimental design" (2010); for eigenvectors and singular vectors M. Giles, "An
 * extended collection of matrix derivative results for forward and reverse mode algorithmic differentiation" (2008). Equal eigenvalues or
 * singular values have no derivative of their vectors: their pairs count as 0, as in jax. Where a factorization reads one triangle of a
 * matrix, the other one has no derivative.
 *
 * @module
 */

import { int32 } from "../../graph/dtype.ts";
import { ValueError } from "../../graph/error.ts";
import { attrsOf, type Factorization, makeNode } from "../../graph/node.ts";
import { type Shape, sizeOf } from "../../graph/shape.ts";
import { add, divide, equal, greaterEqual, multiply, subtract, where } from "../ops/binary.ts";
import { castNode, fullNode } from "../tensor/convert.ts";
import { eye, tril, triu } from "../ops/creation.ts";
import { factorize } from "../linalg/factorize.ts";
import { broadcastNode, expandDims, reshapeNode, sliceNode, swapaxes } from "../ops/movement.ts";
import { matmul } from "../linalg/products.ts";
import { type AnyTensor, nodeOf, wrap } from "../tensor/tensor.ts";
import { negative, square } from "../ops/unary.ts";
import { batchOf, type OpRules, type Step } from "./rule.ts";

// ---- matrices -------------------------------------------------------------------------------------------------------

const across = (x: AnyTensor): AnyTensor => swapaxes(x, -1, -2) as AnyTensor;
const times = (...all: readonly AnyTensor[]): AnyTensor => all.reduce((a, b) => matmul(a, b) as AnyTensor);
const plus = (...all: readonly AnyTensor[]): AnyTensor => all.reduce((a, b) => add(a, b) as AnyTensor);
const minus = (a: AnyTensor, b: AnyTensor): AnyTensor => subtract(a, b) as AnyTensor;
const lower = (x: AnyTensor, k = 0): AnyTensor => tril(x, k) as AnyTensor;
const upper = (x: AnyTensor, k = 0): AnyTensor => triu(x, k) as AnyTensor;
const triangle = (x: AnyTensor, isUpper: boolean): AnyTensor => isUpper ? upper(x) : lower(x);
const identity = (n: number, like: AnyTensor): AnyTensor => eye(n, n, 0, like.dtype) as AnyTensor;
/** x diag(values) */
const scaled = (x: AnyTensor, values: AnyTensor): AnyTensor => multiply(x, expandDims(values, -2)) as AnyTensor;
/** diag(values) x */
const scaledRows = (values: AnyTensor, x: AnyTensor): AnyTensor => multiply(expandDims(values, -1), x) as AnyTensor;

/** The diagonal alone, the rest 0. */
const onDiagonal = (x: AnyTensor): AnyTensor => multiply(x, identity(x.shape[x.shape.length - 1], x)) as AnyTensor;

function corner(x: AnyTensor, rows: readonly [number, number], cols: readonly [number, number]): AnyTensor {
  const lead = x.shape.slice(0, -2);
  const starts = [...lead.map(() => 0), rows[0], cols[0]];
  return wrap(sliceNode(nodeOf(x), starts, starts.map(() => 1), [...lead, rows[1] - rows[0], cols[1] - cols[0]]));
}

/** Matrices beside each other, or over each other. */
function concatMatrices(parts: readonly AnyTensor[], axis: -1 | -2): AnyTensor {
  const at = parts[0].shape.length + axis;
  const shape = parts[0].shape.with(at, parts.reduce((n, part) => n + part.shape[at], 0));
  return wrap(makeNode("concatenate", parts.map((part) => nodeOf(part)), shape, parts[0].dtype, { axis: at }));
}

/** a⁻¹ b of triangular matrices. */
function solveTriangular(a: AnyTensor, b: AnyTensor, isUpper: boolean): AnyTensor {
  const inputs = [a, b].map((x) => nodeOf(x));
  return factorize({ fn: "solve_triangular", flag: isUpper }, inputs, [b.shape.slice(-2)])[0];
}

/** b a⁻¹ of triangular matrices. */
const solveTriangularRight = (b: AnyTensor, a: AnyTensor, isUpper: boolean): AnyTensor =>
  across(solveTriangular(across(a), across(b), !isUpper));

/** The cotangent of one triangle from a symmetric one: each element off the diagonal stands for two of the matrix. */
function foldTriangle(s: AnyTensor, isUpper: boolean): AnyTensor {
  return triangle(minus(plus(s, across(s)), onDiagonal(s)), isUpper);
}

/** 1 / (values[j] - values[i]) at (i, j), 0 if they are equal. */
function gaps(values: AnyTensor): AnyTensor {
  const found = minus(expandDims(values, -2) as AnyTensor, expandDims(values, -1) as AnyTensor);
  const none = equal(found, 0);
  return where(none, 0, divide(1, where(none, 1, found))) as AnyTensor;
}

// ---- rules ----------------------------------------------------------------------------------------------------------

/** Results of a factorization that lie one after the other, for each matrix of the batch. */
function splitResults(all: AnyTensor, shapes: readonly Shape[]): AnyTensor[] {
  const node = nodeOf(all);
  const batch = node.shape.slice(0, -1);
  let at = 0;
  return shapes.map((shape) => {
    const starts = [...batch.map(() => 0), at];
    const size = sizeOf(shape);
    at += size;
    const part = sliceNode(node, starts, starts.map(() => 1), [...batch, size]);
    return wrap(reshapeNode(part, [...batch, ...shape]));
  });
}

type Back = (step: Step, attrs: Factorization, c: AnyTensor) => readonly (AnyTensor | undefined)[];

/** Of a⁻¹ or a⁻¹ b. */
const solveBack: Back = (step, { fn, flag = false }, c) => {
  const [a, b] = step.entry.inputs;
  const triangular = fn === "solve_triangular";
  const part = (x: AnyTensor): AnyTensor => negative(triangular ? triangle(x, flag) : x) as AnyTensor;
  const shape = (b ?? a).shape.slice(-2);
  const [[y], [back]] = [step.y, c].map((all) => splitResults(all, [shape]));
  if (!b) return [part(times(across(y), back, across(y)))];
  const transposed = nodeOf(across(step.x(0)));
  const [right] = factorize(triangular ? { fn, flag: !flag } : { fn }, [transposed, nodeOf(back)], [shape]);
  return [step.wants(0) ? part(times(right, across(y))) : undefined, right];
};

const choleskyBack: Back = (step, { flag = false }, c) => {
  const shape = step.entry.inputs[0].shape.slice(-2);
  const turned = (x: AnyTensor): AnyTensor => flag ? across(x) : x;
  const [l, back] = [step.y, c].map((all) => turned(splitResults(all, [shape])[0]));
  const inner = times(across(l), lower(back));
  const half = minus(lower(inner), multiply(onDiagonal(inner), 0.5) as AnyTensor);
  const s = solveTriangularRight(solveTriangular(across(l), half, true), l, false);
  return [turned(foldTriangle(multiply(plus(s, across(s)), 0.5) as AnyTensor, false))];
};

/** Of Q (m, n) and R (n, n) where m >= n. */
function tallBack(q: AnyTensor, r: AnyTensor, cq: AnyTensor, cr: AnyTensor): AnyTensor {
  const m = minus(times(r, across(cr)), times(across(cq), q));
  const symmetric = plus(lower(m), across(lower(m, -1)));
  return solveTriangularRight(plus(cq, times(q, symmetric)), across(r), false);
}

const qrBack: Back = (step, _, c) => {
  const [m, n] = step.entry.inputs[0].shape.slice(-2);
  const k = Math.min(m, n);
  const [[q, r], [cq, cr]] = [step.y, c].map((all) => splitResults(all, [[m, k], [k, n]]));
  if (m >= n) return [tallBack(q, r, cq, upper(cr))];
  // a = [x | y] = Q [U | V] with square x, and V = Qᵀ y.
  const y = corner(step.x(0), [0, m], [m, n]);
  const [u, cu, cv] = [corner(r, [0, m], [0, m]), corner(cr, [0, m], [0, m]), corner(cr, [0, m], [m, n])];
  return [concatMatrices([tallBack(q, u, plus(cq, times(y, across(cv))), upper(cu)), times(q, cv)], -1)];
};

/** Ones on the diagonal of an n by n matrix from row `k` on. */
function onesFrom(k: number, n: number, like: AnyTensor): AnyTensor {
  const line = wrap(makeNode("arange", [], [n], int32, { start: 0, step: 1 }));
  return where(greaterEqual(line, k), identity(n, like), 0) as AnyTensor;
}

/** With both factors made square by ones on the diagonal, as jax does, one formula serves all shapes. */
const luBack: Back = (step, _, c) => {
  const [m, n] = step.entry.inputs[0].shape.slice(-2);
  const k = Math.min(m, n);
  const shapes = [[m, n], [k], [m]];
  const [factors, , order] = splitResults(step.y, shapes);
  const [back] = splitResults(c, shapes);
  const batch = factors.shape.slice(0, -2);
  const zeros = (rows: number, cols: number): AnyTensor => wrap(fullNode(0, [...batch, rows, cols], factors.dtype));
  const l = plus(
    lower(concatMatrices([corner(factors, [0, m], [0, k]), zeros(m, m - k)], -1), -1),
    identity(m, factors),
  );
  const u = plus(
    upper(concatMatrices([corner(factors, [0, k], [0, n]), zeros(n - k, n)], -2)),
    onesFrom(k, n, factors),
  );
  const inner = plus(lower(times(across(l), back), -1), upper(times(back, across(u))));
  const moved = solveTriangularRight(solveTriangular(across(l), inner, true), across(u), false);
  const rows = nodeOf(expandDims(wrap(castNode(nodeOf(order), int32)), -1));
  const at = makeNode("stopGradient", [rows], rows.shape, int32, {});
  const axis = batch.length;
  const shape = [...batch, m, n];
  const wide = broadcastNode(at, shape);
  return [wrap(makeNode("gatherAlong", [nodeOf(moved), wide], shape, moved.dtype, { axis }))];
};

const eighBack: Back = (step, { flag = false, upper: isUpper = false }, c) => {
  const [a] = step.entry.inputs;
  const n = a.shape[a.shape.length - 1];
  const shapes = [[n], [n, n]];
  const [values, vectors] = flag
    ? factorize({ fn: "eigh", flag: false, upper: isUpper }, [a], shapes)
    : splitResults(step.y, shapes);
  const [cValues, cVectors] = splitResults(c, flag ? [[n]] : shapes);
  let inner = scaled(identity(n, values), cValues);
  if (cVectors) inner = plus(inner, multiply(gaps(values), times(across(vectors), cVectors)) as AnyTensor);
  const s = times(vectors, inner, across(vectors));
  return [foldTriangle(multiply(plus(s, across(s)), 0.5) as AnyTensor, isUpper)];
};

const svdBack: Back = (step, { flag = false }, c) => {
  const [a] = step.entry.inputs;
  const [m, n] = a.shape.slice(-2);
  const k = Math.min(m, n);
  const shapes = [[k], [m, m], [n, n]];
  const [s, u, vt] = flag ? factorize({ fn: "svd" }, [a], shapes) : splitResults(step.y, shapes);
  const [cs, cu, cvt] = splitResults(c, flag ? [[k]] : shapes);
  const [u1, v1] = [corner(u, [0, m], [0, k]), across(corner(vt, [0, k], [0, n]))];
  if (flag) return [times(scaled(u1, cs), across(v1))];
  // Vectors after the first k move so that they stay orthogonal to those.
  const effective = (all: AnyTensor, c: AnyTensor, size: number): AnyTensor => {
    const [own, mine] = [all, c].map((x) => corner(x, [0, size], [0, k]));
    if (size === k) return mine;
    const [rest, theirs] = [all, c].map((x) => corner(x, [0, size], [k, size]));
    return minus(mine, times(rest, across(theirs), own));
  };
  const [c1, d1] = [effective(u, cu, m), effective(across(vt), across(cvt), n)];
  const f = gaps(square(s) as AnyTensor);
  const skew = (x: AnyTensor, c: AnyTensor): AnyTensor => {
    const inner = times(across(x), c);
    return multiply(f, minus(inner, across(inner))) as AnyTensor;
  };
  const inverse = divide(1, s) as AnyTensor;
  const inner = plus(scaled(skew(u1, c1), s), scaledRows(s, skew(v1, d1)), scaled(identity(k, s), cs));
  const out = (x: AnyTensor, c: AnyTensor): AnyTensor => minus(c, times(x, across(x), c));
  const parts = [times(u1, inner, across(v1))];
  if (m > k) parts.push(times(scaled(out(u1, c1), inverse), across(v1)));
  if (n > k) parts.push(times(scaled(u1, inverse), across(out(v1, d1))));
  return [plus(...parts)];
};

const BACK: Readonly<Record<Exclude<Factorization["fn"], "eig">, Back>> = {
  solve: solveBack,
  solve_triangular: solveBack,
  cholesky: choleskyBack,
  qr: qrBack,
  lu: luBack,
  eigh: eighBack,
  svd: svdBack,
};

/** The rules of `factorization`. */
export const FACTORIZATION: OpRules = {
  vjp(step, c) {
    const attrs = attrsOf(step.entry, "factorization");
    if (attrs.fn === "eig") throw new ValueError("there is no derivative of eig() and eigvals(): MLX has none either");
    if (step.entry.inputs[0].dtype.kind === "complex") {
      throw new ValueError(`there is no derivative of ${attrs.fn}() of complex matrices: MLX has none either`);
    }
    if (step.entry.inputs.some((node) => node.shape.includes(0))) return [];
    return BACK[attrs.fn](step, attrs, c);
  },
  vmap(entry, inputs, batched, size) {
    const parts = inputs.map((node, i) => batchOf(node, batched[i], size));
    return makeNode("factorization", parts, [size, ...entry.shape], entry.dtype, attrsOf(entry, "factorization"));
  },
};
