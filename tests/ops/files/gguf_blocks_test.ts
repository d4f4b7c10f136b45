/**
 * Blocks of quantized GGUF weights have the values of the package gguf, and so have the codes, scales and biases that are made of them.
 * reference/array_files.py writes blocks and values.
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { BLOCK_VALUES } from "../../../src/array/files/gguf_blocks.ts";
import { BLOCK_CODES, type GgufCodes } from "../../../src/array/files/gguf_codes.ts";
import { quantizeBlocks, type QuantizedGgufType } from "../../../src/array/files/gguf_quantize.ts";
import { GGUF_TYPES } from "../../../src/array/files/gguf_types.ts";
import { CODE_MODES } from "../../../src/graph/quantization.ts";
import { testDevices } from "../../support/devices/devices.ts";

mx.devices(); // opens the Vulkan library outside of any test

/** Relative, of scales and minima that are rounded to float16. */
const HALF = 2 ** -11;
const DEVICES = testDevices();
const text = Deno.readTextFileSync(new URL("../../golden/array_files/gguf_blocks.json", import.meta.url));
const golden: Record<string, { readonly blocks: string; readonly values: string }> = JSON.parse(text);
const typeOf = (name: string) => [...GGUF_TYPES.values()].find((type) => type.name === name)!;

/** Blocks of a type, uint8 (blocks, bytes), and the bits of their values. */
function caseOf(name: string): { readonly blocks: mx.Tensor; readonly values: Float32Array } {
  const { blocks, values } = golden[name];
  return {
    blocks: mx.array(Uint8Array.fromBase64(blocks)).reshape(-1, typeOf(name).bytes),
    values: new Float32Array(Uint8Array.fromBase64(values).buffer),
  };
}

/** Throws where two numbers differ, in their signs too. A device other than the CPU may round and take tiny numbers for 0. */
function assertValues(found: Float32Array, expected: Float32Array, device: string): void {
  assertEquals(found.length, expected.length);
  const [near, least] = device === "wasm" ? [0, 0] : [2 ** -22, 2 ** -126];
  expected.forEach((value, i) => {
    const same = device === "wasm"
      ? Object.is(found[i], value)
      : Math.abs(found[i] - value) <= near * Math.abs(value) + least;
    assert(same, `value ${i} is ${found[i]}, expected ${value}`);
  });
}

for (const device of DEVICES) {
  for (const [name, values] of Object.entries(BLOCK_VALUES).filter(([name]) => name in golden)) {
    Deno.test(`blocks of ${name} have the values of the package gguf on ${device}`, () => {
      mx.setDefaultDevice(device);
      mx.tidy(() => {
        const { blocks, values: expected } = caseOf(name);
        assertValues(values(blocks).flatten().toTypedArray() as Float32Array, expected, device);
      });
    });
  }

  for (const [name, { bits, groupSize, mode, ...codec }] of Object.entries<GgufCodes>(BLOCK_CODES)) {
    for (const dtype of CODE_MODES[mode].floatScales ? [mx.float32, mx.float16] : [mx.float32]) {
      Deno.test(`codes of ${name} with ${dtype.name} scales have the values of its blocks on ${device}`, () => {
        mx.setDefaultDevice(device);
        mx.tidy(() => {
          const { blocks, values } = caseOf(name);
          const { codes, scales, biases } = codec.arrays(blocks, dtype);
          const factors = [scales, ...(biases ? [biases] : [])];
          if (CODE_MODES[mode].floatScales) { for (const { dtype: found } of factors) assertEquals(found, dtype); }
          assertEquals(biases !== undefined, CODE_MODES[mode].biases);
          assertEquals(codes.shape, [values.length / 32, bits]);
          const flat = (x: mx.Tensor): mx.Tensor =>
            mode === "mxfp4" ? x.reshape(1, -1) : x.astype(mx.float32).reshape(1, -1);
          const dense = mx.dequantize(
            codes.reshape(1, -1),
            flat(scales),
            biases ? flat(biases) : null,
            groupSize,
            bits,
            mode,
          );
          const found = dense.astype(mx.float32).flatten().toTypedArray() as Float32Array;
          if (!(codec.rounded && dtype === mx.float16)) {
            return assertNear(found, values, () => mode === "mxfp4" ? HALF ** 2 : 0);
          }
          const [scale, bias = scale.map(() => 0)] = factors.map((x) =>
            x.astype(mx.float32).toTypedArray() as Float32Array
          );
          const largest = mode === "symmetric" ? 2 ** (bits - 1) : 2 ** bits - 1;
          assertNear(found, values, (_, i) => {
            const group = Math.floor(i / groupSize);
            // Below the normal numbers of float16 the step is 2^-24.
            return HALF * (largest * Math.abs(scale[group]) + Math.abs(bias[group])) + (largest + 1) * 2 ** -25;
          });
        });
      });
    }
  }
}

for (
  const [name, maker] of [["gguf_quantized", "the package gguf makes"], ["gguf_k_quantized", "ggml's reference makes"]]
) {
  Deno.test(`values become the blocks that ${maker} of them, byte for byte`, () => {
    const text = Deno.readTextFileSync(new URL(`../../golden/array_files/${name}.json`, import.meta.url));
    const { values, ...types }: Record<string, string> = JSON.parse(text);
    const floats = new Float32Array(Uint8Array.fromBase64(values).buffer);
    for (const [type, blocks] of Object.entries(types)) {
      const { bytes } = typeOf(type);
      const [found, expected] = [quantizeBlocks(type as QuantizedGgufType, floats), Uint8Array.fromBase64(blocks)];
      for (let at = 0; at < expected.length; at += bytes) {
        assertEquals(found.slice(at, at + bytes), expected.slice(at, at + bytes), `block ${at / bytes} of ${type}`);
      }
      assertEquals(found.length, expected.length);
    }
  });
}

/** Throws where two numbers are further apart than allowed. */
function assertNear(
  found: Float32Array,
  expected: Float32Array,
  allowed: (value: number, index: number) => number,
): void {
  assertEquals(found.length, expected.length);
  expected.forEach((value, i) => {
    const most = allowed(value, i);
    assert(Math.abs(found[i] - value) <= most, `value ${i} is ${found[i]}, expected ${value} within ${most}`);
  });
}
