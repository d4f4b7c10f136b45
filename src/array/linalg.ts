/**
 * Linear algebra, `mlx.linalg`. Factorizations take float32 or float64, some complex64, and compute in float64 on the CPU, also those of
 * arrays on a GPU.
 *
 * @module
 */

export * from "./linalg_eigen.ts";
export { cholesky, lu, luFactor, qr, svd } from "./linalg_factors.ts";
export * from "./linalg_norm.ts";
export * from "./linalg_solve.ts";
