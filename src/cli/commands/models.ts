/**
 * `vkmx models`: the models of the cache, which is the one of Python's `huggingface_hub`, and what a model directory is.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { find } from "../../../ffi/store.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { checkOneOf, type Flags, UsageError, type Values } from "../flags.ts";
import { expectedName, jsonOf, modelName, oneOperand, revisionOf } from "../hub.ts";
import { onInterrupt } from "../loading.ts";
import { note, print, printJson } from "../output.ts";
import { type Command, command, JSON_FLAG } from "../program.ts";
import { BYTES, Progress } from "../progress.ts";
import { describeBytes, describeCount, describeTime, table } from "../table.ts";

const FLAGS = {
  "yes": { help: "remove: do not ask" },
  "remove-damaged": { help: "verify: remove files that are damaged, so that vkmx pull fetches them again" },
  ...JSON_FLAG,
} as const satisfies Flags;

type Given = Values<typeof FLAGS>;

/** An action: its arguments and its function. */
interface Action {
  /** Flags of its own. */
  readonly flags: readonly (keyof typeof FLAGS)[];
  readonly run: (values: Given, operands: readonly string[]) => number | Promise<number>;
}

const ACTIONS: Readonly<Record<string, Action>> = {
  list: { flags: [], run: list },
  show: { flags: [], run: show },
  remove: { flags: ["yes"], run: remove },
  verify: { flags: ["remove-damaged"], run: verify },
};

const PROGRAM = {
  name: "vkmx models",
  operand: "[list | show MODEL | remove NAME | verify MODEL]",
  about: `Lists the models of the cache (list, also without an action), or describes one (show). remove deletes one,
or one revision of it as NAME@REV. verify compares every file of one with its published hash.
NAME is a model of the Hugging Face Hub, MODEL such a name or a model directory.`,
  flags: FLAGS,
  examples: ["", "show Qwen/Qwen3-0.6B-MLX-4bit", "remove Qwen/Qwen3-0.6B@main --yes"],
};

const models: Command = command(PROGRAM, async (values, [name = "list", ...operands]) => {
  const action = ACTIONS[checkOneOf("The action", name, Object.keys(ACTIONS))];
  for (const flag of ["yes", "remove-damaged"] as const) {
    if (values[flag] && !action.flags.includes(flag)) throw new UsageError(`models ${name} takes no --${flag}`);
  }
  return await action.run(values, operands);
});

export default models;

function list({ json }: Given, operands: readonly string[]): number {
  if (operands.length > 0) throw new UsageError(`models list takes no operand, found ${quoted(operands[0])}`);
  const found = mx.lm.hub.list();
  if (json) printJson(found.map(jsonOf));
  else if (found.length === 0) {
    note(`There are no models in ${shownPath(mx.lm.hub.cacheFolder())}: vkmx pull NAME downloads one\n`);
  } else {
    const rows = found.map((model) => [
      shownPath(model.name),
      revisionOf(model),
      describeBytes(model.size),
      describeTime(model.lastUsed),
      model.missing.length > 0 ? "in part" : "",
    ]);
    print(table([["NAME", "REVISION", "SIZE", "LAST USED"], ...rows], [2]));
  }
  return 0;
}

/** Whether a text names a GGUF file. */
function isGgufFile(text: string): boolean {
  return find(text)?.kind === "file" && text.endsWith(".gguf");
}

/** The folder that a text names; undefined if it names a model of the hub. */
function folderOf(text: string): string | undefined {
  if (find(text)?.kind === "folder") return text;
  if (isGgufFile(text)) throw new UsageError(`${quoted(text)} is a GGUF file, expected a folder with a SHA256SUMS`);
  if (mx.lm.hub.isName(text)) return undefined;
  throw new UsageError(`${quoted(text)} is no folder and no model of the hub${expectedName(text)}`);
}

async function show({ json }: Given, operands: readonly string[]): Promise<number> {
  const given = oneOperand("vkmx models show", operands);
  const folder = isGgufFile(given) ? given : folderOf(given);
  const cached = folder === undefined ? mx.lm.hub.show(given)[0] : undefined;
  const path = folder ?? cached!.path;
  let info: mx.lm.ModelInfo | undefined;
  let reason: string | undefined;
  try {
    info = await mx.lm.inspect(path);
  } catch (error) {
    if (cached === undefined || !(error instanceof mx.lm.LlmError)) throw error;
    reason = error.message; // its cached files are shown all the same
  }
  if (json) printJson({ ...(info ? jsonInfo(info) : { reason }), ...(cached ? jsonOf(cached) : { path }) });
  else {
    const place = cached ? describeCached(cached) : [["path", shownPath(path)]];
    const files = describeFiles((cached ?? info)?.files ?? []);
    print(table([...place, ...describe(info, reason), ...files]));
  }
  return 0;
}

function describeCached(model: mx.lm.hub.CachedModel): string[][] {
  return [
    ["name", shownPath(model.name)],
    ["revision", revisionOf(model)],
    ["commit", model.commit],
    ["path", shownPath(model.path)],
    ["size", describeBytes(model.size)],
    ["last used", describeTime(model.lastUsed)],
    ...(model.missing.length > 0 ? [["missing", model.missing.map(shownPath).join(", ")]] : []),
  ];
}

function describeFiles(files: readonly { readonly name: string; readonly size: number }[]): string[][] {
  return files.map(({ name, size }, i) => [i === 0 ? "files" : "", `${shownPath(name)} (${describeBytes(size)})`]);
}

function describe(info: mx.lm.ModelInfo | undefined, reason: string | undefined): string[][] {
  if (info === undefined) return [["cannot be loaded", reason!]];
  const { config, parameters, weightBytes, draftHeadBytes, dtypes, hasChatTemplate } = info;
  return [
    ["architecture", shownPath(config.modelType)],
    ["parameters", describeCount(parameters)],
    ...(isOfGguf(info) ? [] : [["quantization", quantizationOf(info)]]),
    ["weights", `${describeBytes(weightBytes)} (${dtypes.join(", ")})`],
    ...(draftHeadBytes > 0 ? [["draft head", `${describeBytes(draftHeadBytes)}, left out by default`]] : []),
    ["context", `${config.maxPositionEmbeddings} tokens`],
    ["vocabulary", `${config.vocabSize} tokens`],
    ["chat template", hasChatTemplate ? "yes" : "no"],
  ];
}

/** Whether a model is in GGUF files, whose types say how each matrix is quantized. */
function isOfGguf({ files }: mx.lm.ModelInfo): boolean {
  return files.every(({ name }) => name.endsWith(".gguf"));
}

function quantizationOf({ config: { quantization } }: mx.lm.ModelInfo): string {
  if (quantization === undefined) return "none";
  const { base, overrides } = quantization;
  const rest = overrides.size > 0 ? `, ${overrides.size} modules differ` : "";
  return `${base.bits} bits, groups of ${base.groupSize}${rest}`;
}

function jsonInfo(info: mx.lm.ModelInfo): Record<string, unknown> {
  const { config, parameters, weightBytes, draftHeadBytes, dtypes, hasChatTemplate, files } = info;
  const { modelType, maxPositionEmbeddings, vocabSize, quantization } = config;
  return {
    model_type: modelType,
    parameters,
    quantization: quantization && !isOfGguf(info)
      ? { bits: quantization.base.bits, group_size: quantization.base.groupSize }
      : null,
    weight_bytes: weightBytes,
    draft_head_bytes: draftHeadBytes,
    dtypes,
    context: maxPositionEmbeddings,
    vocabulary: vocabSize,
    has_chat_template: hasChatTemplate,
    files: files.map(({ name, size }) => ({ name, size_bytes: size })),
  };
}

function remove({ yes, json }: Given, operands: readonly string[]): number {
  const name = modelName("vkmx models remove", operands);
  const found = mx.lm.hub.show(name);
  const bytes = found.reduce((sum, { size }) => sum + size, 0);
  if (!yes) {
    if (!Deno.stdin.isTerminal()) {
      throw new UsageError(`There is no terminal to ask on: vkmx models remove ${name} --yes`);
    }
    note(`Remove ${name} (${describeBytes(bytes)}) from ${shownPath(mx.lm.hub.cacheFolder())}? [y/N] `);
    if (!/^y(es)?$/i.test(readLine().trim())) {
      note("Nothing was removed\n");
      return 1;
    }
  }
  const freed = mx.lm.hub.remove(name);
  if (json) printJson({ name, freed_bytes: freed });
  else print(`Removed ${name}: ${describeBytes(freed)}\n`);
  return 0;
}

/** A line of the terminal, which gives whole ones. Nothing is left open that would keep the program alive. */
function readLine(): string {
  const bytes = new Uint8Array(1024);
  return new TextDecoder().decode(bytes.subarray(0, Deno.stdin.readSync(bytes) ?? 0));
}

async function verify(values: Given, operands: readonly string[]): Promise<number> {
  const given = oneOperand("vkmx models verify", operands);
  const folder = folderOf(given);
  if (folder !== undefined) return await verifyFolder(folder, values);
  const progress = new Progress("Verifying", { unit: BYTES });
  const removeDamaged = values["remove-damaged"] ?? false;
  const found = await mx.lm.hub.verify(given, {
    removeDamaged,
    signal: onInterrupt(),
    onProgress: (done, total) => progress.update(done, total),
  });
  const files = found.flatMap((model) => model.verified.map((file) => ({ ...file, model })));
  const damaged = files.filter(({ state }) => state === "damaged").map(({ name }) => shownPath(name));
  if (values.json) {
    printJson(found.map(({ name, commit, verified }) => ({ name, commit, files: verified })));
  } else {
    print(table(files.map(({ state, name, model }) => [
      state,
      shownPath(name),
      found.length > 1 ? revisionOf(model) : "",
    ])));
  }
  if (damaged.length === 0) return 0;
  const [name] = given.split("@");
  const fix = removeDamaged
    ? `they were removed: vkmx pull ${name} fetches them again`
    : `vkmx models verify ${given} --remove-damaged removes them, then vkmx pull ${name} fetches them again`;
  throw new Error(`${damaged.join(", ")} of ${given} are not what was published; ${fix}`);
}

/** Compares a model directory with the sums that lie beside it. */
async function verifyFolder(folder: string, values: Given): Promise<number> {
  if (values["remove-damaged"]) throw new UsageError("--remove-damaged is for models of the hub only");
  await mx.lm.inspect(folder, { verify: true, signal: onInterrupt() });
  if (values.json) printJson({ path: folder, good: true });
  else print(`good  ${shownPath(folder)}\n`);
  return 0;
}
