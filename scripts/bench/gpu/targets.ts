/**
 * The targets: figures of an H200, Qwen3 shapes in 4 bits with groups of 128, activations and cache float16.
 *
 * @module
 */

/** Bytes of machine code that a multiprocessor keeps near: what the kernels of a layer should stay below together. */
export const NEAR_CODE: number = 128 * 1024;

/** Aims by shape, then by case and, after a comma, a variant that is not the one that is taken. Units are those of the rows. */
export const TARGETS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  "qwen3-0.6b": {
    "decode @128": 3583,
    "decode @1024": 3143,
    "decode @3500": 2376,
    "decode @128, split_k, barriers": 2250,
    "decode @1024, split_k, barriers": 2050,
    "decode @3500, split_k, barriers": 1600,
    "decode @128, sampled": 3191,
    "8 sequences @128": 14_600,
    "32 sequences @128": 28_000,
    "64 sequences @128": 38_000,
    "prompt of 64": 2,
    "prompt of 512": 185_000,
    "prompt of 2048": 230_000,
    "load to first token": 1,
    "host time a token": 20,
  },
  "qwen3-1.7b": {
    "decode @128": 1760,
    "decode @1024": 1640,
    "decode @3500": 1390,
    "8 sequences @128": 8500,
    "prompt of 512": 105_000,
    "prompt of 2048": 130_000,
  },
  "qwen3-4b": {
    "decode @128": 880,
    "decode @1024": 820,
    "decode @3500": 700,
    "decode @128, gemv, barriers": 650,
    "8 sequences @128": 5000,
    "prompt of 512": 45_000,
    "prompt of 2048": 55_000,
  },
  "qwen3-8b": {
    "decode @128": 660,
    "decode @1024": 630,
    "decode @3500": 560,
    "decode @128, gemv, barriers": 500,
    "8 sequences @128": 4000,
    "32 sequences @128": 8000,
    "64 sequences @128": 12_000,
    "prompt of 512": 27_000,
    "prompt of 2048": 32_000,
    "load to first token": 1,
  },
};
