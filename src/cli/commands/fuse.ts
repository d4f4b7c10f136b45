/**
 * `vkmx fuse`: a model with adapters fused into its layers, as `mlx_lm.fuse` writes it.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { useDevice } from "../device.ts";
import type { Flags } from "../flags.ts";
import { loadOptions, onInterrupt } from "../loading.ts";
import { ADAPTER_FLAG, DEVICE_FLAG, MODEL_FLAG } from "../model_flags.ts";
import { print, printJson } from "../output.ts";
import { type Command, command, JSON_FLAG } from "../program.ts";

const FLAGS = {
  ...MODEL_FLAG,
  "adapter-path": { ...ADAPTER_FLAG["adapter-path"], help: `${ADAPTER_FLAG["adapter-path"].help} (adapters)` },
  "save-path": { value: "DIR", help: "the output (fused_model)", meant: ["output", "out", "o", "mlx-path"] },
  "dequantize": { help: "write a dense model" },
  ...DEVICE_FLAG,
  ...JSON_FLAG,
} as const satisfies Flags;

const fuse: Command = command(
  {
    name: "vkmx fuse",
    about:
      "Writes a model with adapters of vkmx train or mlx-lm fused into its layers to a folder that does not exist yet.",
    flags: FLAGS,
    examples: ["", "--model Qwen/Qwen3-0.6B-MLX-4bit --adapter-path adapters --save-path my_model"],
  },
  async (values) => {
    await useDevice(values.device, { json: values.json });
    const { device, onDownload, onProgress, signal } = loadOptions(values.device, onInterrupt());
    const { path, fused, bytes } = await mx.lm.tuner.fuse(
      values.model ?? mx.lm.EMBEDDED_MODEL,
      values["adapter-path"] ?? "adapters",
      values["save-path"] ?? "fused_model",
      {
        dequantize: values.dequantize ?? false,
        onDownload,
        onProgress,
        signal,
        ...(device !== undefined && { device }),
      },
    );
    if (values.json) printJson({ path, fused, bytes });
    else print(`${path}: ${(bytes / 1e6).toFixed(1)} MB, ${fused} layers fused\n`);
    return 0;
  },
);

export default fuse;
