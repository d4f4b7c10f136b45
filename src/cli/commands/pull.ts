/**
 * `vkmx pull`: downloads a model of the Hugging Face Hub.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import type { Flags } from "../flags.ts";
import { jsonOf, modelName } from "../hub.ts";
import { onInterrupt } from "../loading.ts";
import { note, print, printJson } from "../output.ts";
import { type Command, command, JSON_FLAG } from "../program.ts";
import { BYTES, Progress } from "../progress.ts";
import { describeBytes } from "../table.ts";

const FLAGS = {
  "revision": { value: "REV", help: "branch, tag or commit (main), also as NAME@REV" },
  "include": {
    value: "PATTERN",
    help: "files to download, such as *.json; may be repeated (what loading the model needs)",
    many: true,
  },
  "exclude": { value: "PATTERN", help: "files of those to leave out; may be repeated", many: true },
  ...JSON_FLAG,
} as const satisfies Flags;

const PROGRAM = {
  name: "vkmx pull",
  operand: "NAME",
  about: `Downloads a model of the Hugging Face Hub, or what the cache lacks of it, and prints its folder.
A download that was cut goes on from there. In patterns "*" stops at "/", "**" does not.`,
  flags: FLAGS,
  examples: ["Qwen/Qwen3-0.6B-MLX-4bit", "Qwen/Qwen3-0.6B@main --exclude '*.safetensors'"],
};

const pull: Command = command(PROGRAM, async (values, operands) => {
  const { revision, include, exclude } = values;
  const progress = new Progress("Downloading", { unit: BYTES });
  const started = performance.now();
  let came = 0;
  const model = await mx.lm.hub.pull(modelName("vkmx pull", operands), {
    ...(revision !== undefined && { revision }),
    ...(include !== undefined && { files: include }),
    ...(exclude !== undefined && { exclude }),
    signal: onInterrupt(),
    onProgress: (at) => {
      came = at.bytesReceived;
      progress.update(at.bytesDone, at.bytesTotal, at);
    },
  });
  const seconds = (performance.now() - started) / 1000;
  if (came > 0) {
    note(`Downloaded ${describeBytes(came)} in ${seconds.toFixed(1)} s (${describeBytes(came / seconds)}/s)\n`);
  }
  if (values.json) printJson(jsonOf(model));
  else print(`${model.path}\n`);
  return 0;
});

export default pull;
