/**
 * Fourier transforms, `mlx.fft`.
 *
 * @module
 */

export * from "./fft.ts";
export * from "./stft.ts";
