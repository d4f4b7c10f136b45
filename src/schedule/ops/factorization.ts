/**
 * The rule of factorizations: kernels of matrices that exist on the CPU only.
 *
 * On a GPU such nodes fall back to the CPU (fallback.ts). So this rule runs on the CPU only, or in a graph that is lowered for one device
 * as a whole.
 *
 * @module
 */

import { complex64, uint32 } from "../../graph/dtype.ts";
import { ValueError } from "../../graph/error.ts";
import { attrsOf, type Factorization, type Node } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import type { Inputs } from "./rule.ts";

/** Parameters of a kernel's workspace besides sizes. */
interface WorkspaceKind {
  readonly flag: boolean;
  readonly complex: boolean;
}

/** Doubles of workspace for matrices (m, n), by kernel: what its C file lays out there. */
const WORK: { readonly [K in Factorization["fn"]]: (m: number, n: number, kind: WorkspaceKind) => number } = {
  lu: (m, n) => m * n + 3 * m + 2 * n,
  solve: (m, n) => m * m + m * n + m,
  solve_triangular: (m, n) => m * m + m * n,
  cholesky: (m) => m * m + Math.max(m * m, 48 * m),
  qr(m, n) {
    const k = Math.min(m, n);
    return m * n + 2 * m * k + 32 * (k + 32) + 64 * Math.max(k, n) + m;
  },
  eig: (n, _, { flag }) => 4 * n + (flag ? 2 : 6) * n * n,
  eigh: (n, _, { flag, complex }) => complex ? (flag ? 2 : 5) * n * n + 6 * n : (flag ? 1 : 2) * n * n + 4 * n,
  svd(m, n, { flag, complex }) {
    const [most, least] = [Math.max(m, n), Math.min(m, n)];
    const parts = complex ? 2 : 1;
    const values = parts * m * n + (complex ? 8 : 5) * least + parts * most;
    // A wide input is transposed first.
    if (flag) return values + parts * m * n;
    return values + (complex ? 3 * least ** 2 + 5 * most ** 2 : least ** 2 + 2 * most ** 2 + m * n);
  },
};

/** Name of the kernel that computes a factorization. */
export function kernelOf(node: Node): Factorization["fn"] {
  return attrsOf(node, "factorization").fn;
}

/** Lowers a factorization. */
export function factorization(l: Lowering, node: Node, [a, b]: Inputs): Value {
  const { fn, flag = false, upper = false } = attrsOf(node, "factorization");
  if (!l.backend.has(fn)) {
    throw new ValueError(
      `a loop cannot hold factorizations on ${l.backend.name}, where the CPU computes them: call ${fn} outside of it`,
    );
  }
  const [m, n] = a.shape.slice(-2);
  const cols = b ? b.shape[b.shape.length - 1] : n;
  const batch = sizeOf(node.shape.slice(0, -1));
  const length = node.shape[node.shape.length - 1];
  const out = l.temporary(node.shape, node.dtype);
  const doubles = WORK[fn](m, cols, { flag, complex: a.dtype === complex64 }) + 1;
  const work = sizeOf(node.shape) > 0 ? l.temporary([batch, 2 * doubles], uint32) : undefined;
  if (!work) return out;
  l.emit(fn, [l.contiguous(a), b && l.contiguous(b), work, out], {
    spec: { DTYPE_IN: a.dtype.code, DTYPE_OUT: node.dtype.code },
    push: { rows: m, cols, batch, flag: flag ? 1 : 0, upper: upper ? 1 : 0, work: doubles, results: length },
    workgroups: batch,
  });
  return out;
}
