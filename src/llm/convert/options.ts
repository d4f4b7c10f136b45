/**
 * The options of a conversion, checked, and their effect on a model's config.json and matrices.
 *
 * @module
 */

import { join } from "node:path";
import * as mx from "../../array/mod.ts";
import type { Dtype } from "../../array/mod.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { QUANTIZATION_MODES, type QuantizationMode } from "../../graph/quantization.ts";
import { checkSignal } from "../abort.ts";
import { checkOptions } from "../arguments.ts";
import { Fields } from "../config/fields.ts";
import { isOfDraftHead } from "../config/decoder.ts";
import type { Quantization } from "../config/model.ts";
import { LlmError } from "../error.ts";
import type { OnDownload } from "../hub.ts";
import type { WeightModule } from "../layers/modules.ts";
import type { Architecture } from "../models/mod.ts";
import { readModelFile } from "../checkpoint/model_files.ts";
import type { Description } from "./files.ts";
import { GGUF_OUTPUTS, type GgufOutput } from "./gguf_outputs.ts";
import {
  chosen,
  ofRecipe,
  QUANT_RECIPES,
  type QuantizationRow,
  type QuantPredicate,
  type QuantRecipe,
} from "./recipes.ts";

/** Options of `convert`; those that Python has are called as there. */
export interface ConvertOptions {
  /** Quantizes the model, which must not be quantized yet. */
  readonly quantize?: boolean;
  /** Bits of a weight: 1, 2, 3, 4, 5, 6 or 8, default 4; other modes have theirs. */
  readonly qBits?: number;
  /** Neighbouring weights of a row that share a scale: 32, 64 or 128, default 64; other modes have theirs. */
  readonly qGroupSize?: number;
  /** How codes are read, as in `mx.quantize`: "affine", "mxfp4", "mxfp8" or "nvfp4"; default "affine". */
  readonly qMode?: QuantizationMode;
  /** A mixed recipe, which gives some matrices more bits in mode "affine", or a function that says it of each. */
  readonly quantPredicate?: QuantRecipe | QuantPredicate;
  /** Dtype of tensors that are not quantized: float16, bfloat16 or float32; default the dtype in config.json. */
  readonly dtype?: Dtype;
  /** Makes quantized matrices dense again. */
  readonly dequantize?: boolean;
  /** Writes a GGUF file, with the matrices in this type: "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q4_K", "Q4_0" or the mix "Q4_K_M". */
  readonly gguf?: GgufOutput;
  /** Most bytes of a file's tensors; default 5 · 2³⁰. */
  readonly maxShardBytes?: number;
  /** Device that computes: "gpu", "cpu" or a name such as "vulkan:0"; default the default device. */
  readonly device?: string;
  /** Branch, tag or commit of a model of the hub. */
  readonly revision?: string;
  /** Called as bytes of the model are converted. */
  readonly onProgress?: (bytesDone: number, bytesTotal: number) => void;
  /** Called while a model of the hub is downloaded, which is before it is converted. */
  readonly onDownload?: OnDownload;
  /** Ends the conversion; nothing is left of it then. */
  readonly signal?: AbortSignal;
}

const CONVERT_OPTIONS = {
  dequantize: true,
  device: true,
  dtype: true,
  gguf: true,
  maxShardBytes: true,
  onDownload: true,
  onProgress: true,
  qBits: true,
  qGroupSize: true,
  qMode: true,
  quantPredicate: true,
  quantize: true,
  revision: true,
  signal: true,
} as const satisfies Record<keyof ConvertOptions, true>;

/** How mlx-lm quantizes the matrices that few bits would harm most. */
const WIDE: QuantizationRow = { groupSize: 64, bits: 8, withoutMode: true };

/** The dtypes that a model may be converted to. */
const DTYPES: Readonly<Record<string, Dtype>> = { float16: mx.float16, bfloat16: mx.bfloat16, float32: mx.float32 };

/** Throws an {@link LlmError} unless the options are ones that fit together. */
export function checkConvertOptions(options: ConvertOptions): void {
  checkOptions("convert", options, CONVERT_OPTIONS);
  checkSignal(options.signal);
  const { quantize, dequantize, qBits, qGroupSize, qMode, quantPredicate, dtype, gguf, maxShardBytes } = options;
  const refuse = (what: string): never => {
    throw new LlmError("option", `convert() ${what}`);
  };
  if (gguf !== undefined && !GGUF_OUTPUTS.includes(gguf)) {
    refuse(`expected gguf ${GGUF_OUTPUTS.join(", ")}: found ${quoted(gguf)}`);
  }
  const unused = Object.entries({ quantize, dequantize, dtype, maxShardBytes }).find(([, value]) =>
    value !== undefined
  );
  if (gguf !== undefined && unused !== undefined) refuse(`got ${unused[0]} beside gguf, which says the type`);
  if (quantize && dequantize) refuse("takes quantize or dequantize, not both");
  const wide = { qBits, qGroupSize, qMode, quantPredicate };
  const idle = Object.entries(wide).find(([, value]) => value !== undefined);
  if (!quantize && idle !== undefined) refuse(`got ${idle[0]} without quantize: true`);
  if (qMode !== undefined && !Object.hasOwn(QUANTIZATION_MODES, qMode)) {
    refuse(`expected qMode ${Object.keys(QUANTIZATION_MODES).join(", ")}: found ${quoted(qMode)}`);
  }
  const known = QUANTIZATION_MODES[qMode ?? "affine"];
  const inMode = qMode === undefined || qMode === "affine" ? "" : ` in mode ${qMode}`;
  if (qBits !== undefined && !known.bits.includes(qBits)) {
    refuse(`expected qBits ${known.bits.join(", ")}${inMode}: found ${qBits}`);
  }
  if (qGroupSize !== undefined && !known.groupSizes.includes(qGroupSize)) {
    refuse(`expected qGroupSize ${known.groupSizes.join(", ")}${inMode}: found ${qGroupSize}`);
  }
  if (typeof quantPredicate === "string" && inMode !== "") {
    refuse(`has mixed recipes for mode affine only: found ${qMode}`);
  }
  if (typeof quantPredicate === "string" && !QUANT_RECIPES.includes(quantPredicate)) {
    refuse(`expected quantPredicate ${QUANT_RECIPES.join(", ")} or a function: found ${quoted(quantPredicate)}`);
  }
  if (dtype !== undefined && !Object.values(DTYPES).includes(dtype)) {
    refuse(`expected dtype ${Object.keys(DTYPES).join(", ")}: found ${dtype?.name ?? dtype}`);
  }
  if (maxShardBytes !== undefined && !(maxShardBytes > 0)) {
    refuse(`expected maxShardBytes above 0: found ${maxShardBytes}`);
  }
}

/** Refuses to quantize a quantized model. */
export function checkSource(path: string, { config }: Architecture, { quantize }: ConvertOptions): void {
  if (!quantize || config.quantization === undefined) return;
  const { bits, groupSize } = config.quantization.base;
  throw new LlmError(
    "option",
    `${
      shownPath(path)
    } is quantized already, to ${bits} bits in groups of ${groupSize}. Quantize the dense model that it was made ` +
      "from, or make it dense first, with dequantize (vkmx convert --dequantize)",
  );
}

/** Whether a function gave bits and a group size of a mode. */
function isFormat(said: Quantization | null | undefined): boolean {
  const mode = said?.mode ?? "affine";
  if (!said || !Object.hasOwn(QUANTIZATION_MODES, mode)) return false;
  const { bits, groupSizes } = QUANTIZATION_MODES[mode];
  return bits.includes(said.bits) && groupSizes.includes(said.groupSize);
}

/** The sources of config.json and the requested formats. */
export function describeConversion(
  path: string,
  modules: readonly WeightModule[],
  { widened, prefix, textFields, movedFields }: Pick<Architecture, "widened" | "prefix" | "textFields" | "movedFields">,
  options: ConvertOptions,
): Description {
  const text = readModelFile(path, "config.json")!;
  const { quantize, dequantize, qGroupSize, qBits, qMode = "affine", quantPredicate } = options;
  const fields = Fields.parse(text, join(path, "config.json"));
  const named = fields.values.torch_dtype ?? fields.record("text_config").dtype;
  const { defaults } = QUANTIZATION_MODES[qMode];
  const base = {
    groupSize: qGroupSize ?? defaults.groupSize,
    bits: qBits ?? defaults.bits,
    ...(qMode !== "affine" && { mode: qMode }),
  };
  const layers = new Set(modules.map(({ path }) => /\.layers\.(\d+)\./.exec(path)?.[1])).size - 1;
  const rows = chosen(quantize ? modules : [], base, ({ path, shape }) => {
    if (quantPredicate === undefined) return widened(path) ? WIDE : true;
    if (typeof quantPredicate === "string") return ofRecipe(quantPredicate, path, layers, qGroupSize);
    const said = quantPredicate(path, shape);
    if (typeof said === "boolean" || isFormat(said)) return said;
    throw new LlmError(
      "option",
      `quantPredicate(${quoted(path)}) gave ${quoted(said)}, expected true, false or { groupSize, bits }`,
    );
  });
  for (const [module, { row: { groupSize } }] of rows) {
    const cols = modules.find(({ path }) => path === module)!.shape.at(-1)!;
    if (cols % (groupSize ?? base.groupSize) === 0) continue;
    throw new LlmError(
      "option",
      `quantPredicate gave ${quoted(module)} groups of ${groupSize}, which do not divide its ${cols} columns`,
    );
  }
  return {
    file: join(path, "config.json"),
    text,
    generation: readModelFile(path, "generation_config.json"),
    dtype: options.dtype ?? (typeof named === "string" && Object.hasOwn(DTYPES, named) ? DTYPES[named] : undefined),
    base: quantize ? base : undefined,
    // The stored shapes tell how the draft head is quantized, so config.json stays that of mlx-lm.
    rows: new Map(
      Array.from(
        rows,
        ([module, { row, own }]) => [module, { row, own: own && !isOfDraftHead(module.slice(prefix.length)) }],
      ),
    ),
    dense: dequantize === true,
    textFields,
    movedFields,
  };
}
