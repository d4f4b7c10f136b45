/**
 * The common part of `vkmx convert` and `vkmx quantize`: source and target, the widths, progress, and the last lines.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { QUANTIZATION_MODES } from "../graph/quantization.ts";
import { useDevice } from "./device.ts";
import { checkOneOf, type Flags, UsageError, type Values } from "./flags.ts";
import { onInterrupt } from "./loading.ts";
import { DEVICE_FLAG } from "./model_flags.ts";
import { print, printJson } from "./output.ts";
import { JSON_FLAG } from "./program.ts";
import { BYTES, Progress } from "./progress.ts";

const RECIPES = ["mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"] as const satisfies readonly mx.lm.QuantRecipe[];
const DTYPES = ["float16", "bfloat16", "float32"] as const;
const MODES = Object.keys(QUANTIZATION_MODES) as mx.QuantizationMode[];

/** Help of the flag that names a mode. */
export const MODE_HELP = `how codes are read: ${MODES.join(", ")} (affine)`;

/** Where mlx-lm writes to where nothing is said. */
const DEFAULT_OUT = "mlx_model";

/** The flags of both commands. */
export const CONVERSION_FLAGS = {
  "hf-path": { value: "MODEL", help: "the model, in place of the operand", aliases: ["model"] },
  "mlx-path": { value: "OUT", help: "the output, in place of the operand", meant: ["output", "out", "outfile", "o"] },
  "revision": { value: "NAME", help: "branch, tag or commit of a model of the hub (main)" },
  "quant-predicate": {
    value: "RECIPE",
    help: `more bits for some matrices: ${RECIPES.join(", ")}`,
  },
  "dtype": {
    value: "NAME",
    help: `what is not quantized: ${DTYPES.join(", ")} (default: as config.json says)`,
    meant: ["outtype"],
  },
  ...DEVICE_FLAG,
  ...JSON_FLAG,
} as const satisfies Flags;

/** Widths as they are typed. */
export interface Widths {
  readonly bits: string | undefined;
  readonly groupSize: string | undefined;
  readonly mode: string | undefined;
}

/** Options of a quantization. `names` are their flags, for messages. */
export function quantization(
  values: Values<typeof CONVERSION_FLAGS>,
  { bits, groupSize, mode }: Widths,
  names: { readonly [K in keyof Widths]: string },
): mx.lm.ConvertOptions {
  const { "quant-predicate": recipe } = values;
  const qMode = mode === undefined ? "affine" : checkOneOf(names.mode, mode, MODES);
  const known = QUANTIZATION_MODES[qMode];
  if (recipe !== undefined && qMode !== "affine") {
    throw new UsageError(`--quant-predicate is for mode affine: ${names.mode} is ${qMode}`);
  }
  return {
    quantize: true,
    qMode,
    ...(bits !== undefined && { qBits: checkWidth(names.bits, bits, known.bits) }),
    ...(groupSize !== undefined && { qGroupSize: checkWidth(names.groupSize, groupSize, known.groupSizes) }),
    ...(recipe !== undefined && { quantPredicate: checkOneOf("--quant-predicate", recipe, RECIPES) }),
  };
}

function checkWidth(flag: string, text: string, known: readonly number[]): number {
  const found = known.find((width) => text.trim() !== "" && width === Number(text));
  if (found !== undefined) return found;
  const all = [known.slice(0, -1).join(", "), known.at(-1)].filter((part) => part !== "").join(" or ");
  throw new UsageError(`${flag} is ${JSON.stringify(text)}, expected ${all}`);
}

/** The model and the output that a command line names. */
function places(values: Values<typeof CONVERSION_FLAGS>, operands: readonly string[]): readonly [string, string] {
  const rest = [...operands];
  const model = values["hf-path"] ?? rest.shift();
  if (model === undefined || model === "") {
    throw new UsageError("Expected a model: a folder, or a name of the Hugging Face Hub such as Qwen/Qwen3-0.6B");
  }
  const out = values["mlx-path"] ?? rest.shift() ?? DEFAULT_OUT;
  if (out === "") throw new UsageError("The output folder is an empty text");
  if (rest.length > 0) {
    throw new UsageError(`Expected a model and an output folder, found also ${JSON.stringify(rest[0])}`);
  }
  return [model, out];
}

/** Converts, with progress on stderr, and prints the result. `label` names the work. */
export async function runConversion(
  label: string,
  values: Values<typeof CONVERSION_FLAGS>,
  operands: readonly string[],
  options: mx.lm.ConvertOptions,
): Promise<number> {
  const [model, out] = places(values, operands);
  const dtype = values.dtype === undefined ? undefined : mx[checkOneOf("--dtype", values.dtype, DTYPES)];
  await useDevice(values.device, { json: values.json });
  const download = new Progress("Downloading", { unit: BYTES });
  const progress = new Progress(label, { unit: BYTES });
  const start = performance.now();
  const done = await mx.lm.convert(model, out, {
    ...options,
    ...(dtype && { dtype }),
    ...(values.device !== undefined && { device: values.device }),
    ...(values.revision !== undefined && { revision: values.revision }),
    onDownload: (at) => download.update(at.bytesDone, at.bytesTotal, at),
    onProgress: (bytes, total) => progress.update(bytes, total),
    signal: onInterrupt(),
  });
  const { path, files, bytes, parameters, bitsPerWeight } = done;
  if (values.json) {
    const seconds = Number(((performance.now() - start) / 1000).toFixed(3));
    printJson({ path, files, bytes, parameters, bits_per_weight: bitsPerWeight, seconds });
  } else {
    print(`${path}: ${(bytes / 1e6).toFixed(1)} MB, ${bitsPerWeight.toFixed(3)} bits per weight\n`);
  }
  return 0;
}
