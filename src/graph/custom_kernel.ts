/**
 * A program's own kernels: the description of a kernel and of a call.
 *
 * @module
 */

import type { Dtype, DtypeName, HostArray } from "./dtype.ts";
import type { Shape } from "./shape.ts";

/** Three numbers: along x, y and z. */
export type Triple = readonly [x: number, y: number, z: number];

/** The arguments of a call, by which a program chooses among its own modules. */
export interface KernelVariant {
  /** Dtypes of the inputs. */
  readonly inputs: readonly DtypeName[];
  /** Dtypes of the outputs. */
  readonly outputs: readonly DtypeName[];
  /** Template arguments by name, dtypes by their names. */
  readonly template: Readonly<Record<string, DtypeName | number | boolean>>;
  /** Size of a workgroup. */
  readonly threadgroup: Triple;
}

/** Arguments of a kernel's CPU form besides its arrays. */
export interface HostKernelCall {
  /** Shapes of the inputs. */
  readonly shapes: readonly Shape[];
  /** Strides of the inputs in elements. */
  readonly strides: readonly (readonly number[])[];
  /** Shapes of the outputs. */
  readonly outputShapes: readonly Shape[];
  /** Template arguments by name, dtypes by their names. */
  readonly template: Readonly<Record<string, DtypeName | number | boolean>>;
  /** The grid in threads. */
  readonly grid: Triple;
  /** Size of a workgroup. */
  readonly threadgroup: Triple;
}

/**
 * A kernel's form on the CPU: fills `outputs` from `inputs`, for the whole grid at once. float16 and bfloat16 are their bits in a
 * Uint16Array, bools 0 and 1 in a Uint8Array, complex numbers pairs in a Float32Array.
 */
export type HostKernel = (inputs: HostArray[], outputs: HostArray[], call: HostKernelCall) => void;

/** A kernel, checked. */
export interface CustomKernel {
  readonly name: string;
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  /** Body of main() in GLSL; "" if there is none. */
  readonly source: string;
  /** The source before main(). */
  readonly header: string;
  readonly ensureRowContiguous: boolean;
  readonly atomicOutputs: boolean;
  readonly spirv: Uint8Array | ((variant: KernelVariant) => Uint8Array) | undefined;
  readonly wasm: HostKernel | undefined;
}

/** An argument of a template. */
export type TemplateValue = Dtype | number | boolean;

/** A call of a kernel, checked. */
export interface CustomCall {
  readonly kernel: CustomKernel;
  readonly template: readonly (readonly [name: string, value: TemplateValue])[];
  /** In threads. */
  readonly grid: Triple;
  readonly threadgroup: Triple;
  /** Where each output begins, in bytes from the first one. */
  readonly outputs: readonly { readonly shape: Shape; readonly dtype: Dtype; readonly byteOffset: number }[];
  /** The value of outputs before the kernel runs; undefined: anything. */
  readonly initValue: number | undefined;
  readonly verbose: boolean;
}

/** The dtypes and the template of a call by name. */
export function variantOf({ template, outputs, threadgroup }: CustomCall, inputs: readonly Dtype[]): KernelVariant {
  return {
    inputs: inputs.map(({ name }) => name),
    outputs: outputs.map(({ dtype }) => dtype.name),
    template: Object.fromEntries(
      template.map(([name, value]) => [name, typeof value === "object" ? value.name : value]),
    ),
    threadgroup,
  };
}

/** Whether no thread runs. */
export function isIdle({ grid }: CustomCall): boolean {
  return grid.includes(0);
}
