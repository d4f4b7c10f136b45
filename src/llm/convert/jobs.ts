/**
 * Jobs of a conversion, one for each tensor: copied, given another dtype, quantized, or dequantized. A job's tensors are
 * cut into runs of rows, which need nothing of each other, so that memory does not grow with the model.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype, Tensor } from "../../array/mod.ts";
import type { StoredTensor } from "../../array/files/stored.ts";
import type { CodeMode } from "../../graph/quantization.ts";
import type { Quantization } from "../config/model.ts";
import type { Stack } from "../checkpoint/expert_stacks.ts";
import type { Change } from "../checkpoint/weights.ts";
import type { WeightModule } from "../layers/modules.ts";

/** A tensor of the new model. */
export interface Output {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
}

/** A tensor that is stored whole, or in parts that follow each other along its first axis. */
export interface Source extends StoredTensor {
  readonly parts?: readonly StoredTensor[];
  /** Makes mlx-lm's form of rows, where it is stored in another one. */
  readonly change?: Change["make"];
}

/** Tensors that are made together. All inputs and outputs have equally many rows. */
export interface Job {
  readonly inputs: readonly StoredTensor[];
  /** The place of the inputs along the first axis of the outputs, where they are parts; their rows are those of the next axis then. */
  readonly part?: number;
  readonly outputs: readonly Output[];
  /** Makes rows of the outputs of rows of the inputs; if there is none, bytes are copied. */
  readonly compute?: (...inputs: Tensor[]) => readonly Tensor[];
}

/** The settings of a conversion. */
export interface Wish {
  /** Dtype of what is not codes in a module; as it is stored where undefined. */
  readonly dtype: (path: string) => Dtype | undefined;
  /** How a matrix is quantized; undefined leaves it as it is. */
  readonly quantize: (path: string) => Quantization | undefined;
  /** How a matrix is quantized that is to be dense; undefined leaves it as it is. */
  readonly dequantize: (module: WeightModule) => Quantization<CodeMode> | undefined;
}

/** Bytes of a tensor, or of `rows` of it. */
export function bytesOf({ dtype, shape }: Pick<Output, "dtype" | "shape">, rows: number = shape[0]): number {
  return shape.slice(1).reduce((product, size) => product * size, rows * dtype.bytes);
}

/** Makes one source of stored parts, if the first of them is there. The parts are known to be alike. */
export function stackSources(stored: Map<string, Source>, { from, to }: Stack): void {
  const first = stored.get(from[0]);
  if (first === undefined) return;
  const parts = from.map((name) => stored.get(name)!);
  stored.set(to, { ...first, name: to, shape: [parts.length, ...first.shape], parts });
}

/** The jobs of a module, in the order in which its tensors are stored; one for each part where those are stored. */
export function jobsOf(module: WeightModule, stored: ReadonlyMap<string, Source>, wish: Wish): Job[] {
  return wholeJobs(module, stored, wish).flatMap((job) => {
    const parts = (job.inputs as readonly Source[]).map((input) => input.parts);
    if (parts[0] === undefined) return [job];
    return parts[0].map((_, part) => ({ ...job, inputs: parts.map((of) => of![part]), part }));
  });
}

function wholeJobs(module: WeightModule, stored: ReadonlyMap<string, Source>, wish: Wish): Job[] {
  const { path } = module;
  const floats = wish.dtype(path);
  if (module.isArray) return [plain(stored.get(path)!, floats)];
  const parts = ["weight", "scales", "biases"].flatMap((part) => stored.get(`${path}.${part}`) ?? []);
  const [weight, scales, biases] = parts;
  const bias = module.bias > 0 ? [stored.get(`${path}.bias`)!] : [];
  const name = `${path}.weight`;
  const quantized = wish.quantize(path);
  const packed = wish.dequantize(module);
  const cast = (tensor: Tensor): Tensor => floats === undefined ? tensor : tensor.astype(floats);
  const rest = bias.map((tensor) => plain(tensor, floats));
  if (quantized !== undefined) {
    const { bits, groupSize, mode = "affine" } = quantized;
    const rows = weight.shape.slice(0, -1);
    const cols = weight.shape.at(-1)!;
    const dtype = mode === "affine" ? floats ?? weight.dtype : mx.uint8;
    const shape = [...rows, cols / groupSize];
    const outputs: Output[] = [
      { name, dtype: mx.uint32, shape: [...rows, cols * bits / 32] },
      { name: `${path}.scales`, dtype, shape },
      ...(mode === "affine" ? [{ name: `${path}.biases`, dtype, shape }] : []),
    ];
    return [{ inputs: [weight], outputs, compute: (w) => mx.quantize(cast(w), groupSize, bits, mode) }, ...rest];
  }
  if (packed !== undefined) {
    const { bits, groupSize, mode = "affine" } = packed;
    if (mode !== "affine") {
      // As mlx-lm has it, whatever the dtype of the rest.
      const outputs: Output[] = [{ name, dtype: mx.bfloat16, shape: module.shape }];
      const compute = (w: Tensor, s: Tensor): Tensor[] => [mx.dequantize(w, s, null, groupSize, bits, mode)];
      return [{ inputs: [weight, scales], outputs, compute: compute as Job["compute"] }, ...rest];
    }
    const outputs: Output[] = [{ name, dtype: floats ?? scales.dtype, shape: module.shape }];
    const compute = (w: Tensor, s: Tensor, b: Tensor): Tensor[] => [
      mx.dequantize(w, cast(s), cast(b), groupSize, bits),
    ];
    return [{ inputs: [weight, scales, biases], outputs, compute: compute as Job["compute"] }, ...rest];
  }
  const shape = parts.length === 1 ? module.shape : undefined; // that of a dense weight, which may be stored in another form
  return [...parts.map((tensor) => plain(tensor, floats, shape)), ...rest];
}

/** A tensor that keeps its values but for its own change, and its shape if no other is given. */
function plain(input: Source, dtype: Dtype | undefined, shape: readonly number[] = input.shape): Job {
  const { name, change } = input;
  const isKept = dtype === undefined || dtype === input.dtype || input.dtype.kind !== "float";
  const to = isKept ? input.dtype : dtype;
  const outputs = [{ name, dtype: to, shape }];
  if (change) return { inputs: [input], outputs, compute: (x) => [change(x).astype(to)] };
  return { inputs: [input], outputs, ...(!isKept && { compute: (x: Tensor) => [x.astype(to)] }) };
}
