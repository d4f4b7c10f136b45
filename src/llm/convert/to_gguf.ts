/**
 * Writes a model as a GGUF file, one tensor after another.
 *
 * The metadata are read back before the first tensor is written: a file that would describe another model is refused.
 *
 * @module
 */

import { OutputFolder } from "../../../ffi/output_folder.ts";
import { yieldToEventLoop } from "../../../ffi/turn.ts";
import { ggufLayout, type SavedTensor } from "../../array/files/gguf_file.ts";
import { quantizeBlocks, type QuantizedGgufType } from "../../array/files/gguf_quantize.ts";
import { GGUF_TYPES, type GgufType } from "../../array/files/gguf_types.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { storedBytes } from "../../array/files/stored.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { sizeOf } from "../../graph/shape.ts";
import { namedLeaves } from "../../nn/tree.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import type { GgufFamily } from "../checkpoint/gguf/family.ts";
import { storedName } from "../checkpoint/gguf/names.ts";
import { openWeights } from "../checkpoint/weights.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { formatOfStored } from "../config/stored_format.ts";
import { LlmError } from "../error.ts";
import { countParameters } from "../layers/modules.ts";
import { wavelengthFactors } from "../layers/rope.ts";
import { describeModel } from "../models/mod.ts";
import type { Converted } from "./files.ts";
import { ggufForm, hasFactors } from "./gguf_form.ts";
import { type GgufOutput, matrixTypes } from "./gguf_outputs.ts";
import { configMetadata, tokenizerMetadata } from "./gguf_metadata.ts";
import type { ConvertOptions } from "./options.ts";

/** Elements that are computed and written at once. */
const PIECE = 2 ** 20;
/** Matrices that stay float32: they are small, and choose experts. */
const ROUTERS = /(\.gate|\.router|\.router\.layer|_gate)\.weight$/;
const QUERIES_KEYS = /\.self_attn\.([qk])_proj\./;

/** A tensor of the file, and its values. */
interface Output extends SavedTensor {
  readonly type: GgufType;
  /** Makes the values, float32 of the shape. */
  readonly values: () => Tensor;
}

/** Writes OUT/model-TYPE.gguf. Throws an {@link LlmError} that says why a model has no form in GGUF; nothing is written then. */
export async function convertToGguf(
  checkpoint: Checkpoint,
  out: string,
  type: GgufOutput,
  options: ConvertOptions,
  opening: Promise<void>,
): Promise<Converted> {
  const path = shownPath(checkpoint.path);
  const { fields, file } = checkpoint.readConfig();
  const architecture = describeModel(fields, file);
  const config = architecture.config as DecoderConfig; // of families with an architecture of GGUF
  const metadata = {
    ...configMetadata(config, path),
    ...tokenizerMetadata(checkpoint.readTokenizer(config.vocabSize), config.vocabSize, path),
  };
  await checkpoint.checkFiles(options.signal);
  using weights = openWeights(checkpoint.path, checkpoint.tensors(true), architecture, mx.float32, checkpoint.terms);
  using model = architecture.build(weights);
  weights.finish();

  const leaves = new Map(namedLeaves(model.parameters()) as [string, Tensor][]);
  const modules = architecture.modules({ head: leaves.has("lm_head.weight"), draftHead: false });
  const columns = new Map(modules.map(({ path, shape }) => [path, shape.at(-1)!]));
  const form = ggufForm(config, metadata, path);
  const outputs = [...factorsOf(config), ...outputsOf(leaves, columns, config, form.family, type, path)];
  form.check(outputs);
  const { header, offsets, size } = ggufLayout(metadata, outputs);
  const name = `model-${type}.gguf`;
  const bytes = outputs.reduce((sum, output) => sum + output.bytes, 0);
  const parameters = countParameters(modules);
  await opening;
  using folder = OutputFolder.make(out, size);
  {
    using target = folder.file(name);
    target.write(header, 0);
    let done = 0;
    options.onProgress?.(done, bytes);
    for (const [i, output] of outputs.entries()) {
      for (const [piece, at] of piecesOf(output, options.device)) {
        options.signal?.throwIfAborted();
        target.write(piece, offsets[i] + at);
        done += piece.length;
        options.onProgress?.(done, bytes);
        await yieldToEventLoop();
      }
    }
    if (offsets.at(-1)! + outputs.at(-1)!.bytes < size) target.write(new Uint8Array(1), size - 1); // zeros up to the end
    target.sync();
  }
  folder.finish();
  return { path: out, files: [name], bytes, parameters, bitsPerWeight: bytes * 8 / parameters };
}

/** The code and the description of a type. */
function typeOf(name: string): readonly [code: number, type: GgufType] {
  return [...GGUF_TYPES].find(([, { name: other }]) => other === name)!;
}

function output(name: string, shape: readonly number[], of: string, values: () => Tensor): Output {
  const [code, type] = typeOf(of);
  return { name, shape, code, type, bytes: sizeOf(shape) / type.block * type.bytes, values };
}

/** The factors of wavelengths that llama.cpp takes from a tensor. */
function factorsOf(config: DecoderConfig): Output[] {
  if (!hasFactors(config)) return [];
  const factors = wavelengthFactors(config.headDim, config);
  return [output("rope_freqs.weight", [factors.length], "F32", () => mx.array(factors, mx.float32))];
}

/** The tensors of a model in the forms of a family. */
function outputsOf(
  leaves: ReadonlyMap<string, Tensor>,
  columns: ReadonlyMap<string, number>,
  { heads, kvHeads, layers, experts }: DecoderConfig,
  { names = {}, paired = false, normOffset = 0 }: GgufFamily,
  type: GgufOutput,
  path: string,
): Output[] {
  const found = Array.from(leaves).flatMap(([name, leaf]) => {
    if (/\.(scales|biases)$/.test(name)) return [];
    const stored = storedName(name, names);
    if (stored === undefined) {
      throw new LlmError("option", `${path} has the tensor ${quoted(name)}, for which GGUF has no name here`);
    }
    const module = name.replace(/\.weight$/, "");
    const [scales, biases] = ["scales", "biases"].map((part) => leaves.get(`${module}.${part}`));
    const format = scales && formatOfStored(columns.get(module)!, leaf, scales)!;
    const shape = format ? [...leaf.shape.slice(0, -1), columns.get(module)!] : leaf.shape;
    const [, which] = QUERIES_KEYS.exec(name) ?? [];
    const values = (): Tensor => {
      const { groupSize, bits, mode = "affine" } = format ?? { groupSize: 0, bits: 0 };
      const dense = format
        ? mx.dequantize(leaf, scales!, biases ?? null, groupSize, bits, { mode, dtype: mx.float32 })
        : leaf.astype(mx.float32);
      if (paired && which) return pairedRows(dense, which === "q" ? heads : kvHeads);
      return normOffset !== 0 && name.endsWith("norm.weight") ? mx.add(dense, normOffset) : dense;
    };
    const isMatrix = shape.length > 1 && name.endsWith(".weight") && !ROUTERS.test(name);
    return [{ name: stored, shape, isMatrix, values }];
  });
  const matrices = found.filter(({ isMatrix }) => isMatrix)
    .map(({ name, shape }) => ({ name, columns: shape.at(-1)! }));
  const types = matrixTypes(type, matrices, layers, experts?.count ?? 0);
  return found.map(({ name, shape, values }) => output(name, shape, types.get(name) ?? "F32", values));
}

/** Rows of heads (heads * D, …) with those of their halves in turn. */
function pairedRows(x: Tensor, heads: number): Tensor {
  const [rows, ...rest] = x.shape;
  return x.reshape(heads, 2, rows / heads / 2, ...rest).swapaxes(1, 2).reshape(rows, ...rest);
}

/** The bytes of a tensor in pieces, and where each begins. */
function* piecesOf({ shape, type, values }: Output, device: string | undefined): Generator<[Uint8Array, number]> {
  const width = shape.at(-1)!;
  const rows = sizeOf(shape) / width;
  const step = Math.max(1, Math.floor(PIECE / width));
  const on = <T>(fn: () => T): T => mx.withDevice(device, () => mx.tidy(fn));
  using whole = on(() => {
    const computed = values().reshape(rows, width);
    mx.eval(computed);
    return computed;
  });
  let at = 0;
  for (let first = 0; first < rows; first += step) {
    const bytes = on(() => {
      const piece = whole.index(mx.Slice(first, Math.min(rows, first + step)));
      if (type.dtype) return storedBytes(piece.astype(type.dtype));
      return quantizeBlocks(type.name as QuantizedGgufType, piece.flatten().toTypedArray() as Float32Array);
    });
    yield [bytes, at];
    at += bytes.length;
  }
}
