/**
 * Linear algebra, `mlx.linalg`. Factorizations take float32 or float64, some complex64, and compute in float64 on the CPU, also those of
 * arrays on a GPU.
 *
 * @module
 */

export * from "./eigen.ts";
export { cholesky, lu, luFactor, qr, svd } from "./factors.ts";
export * from "./norm.ts";
export * from "./solve.ts";
