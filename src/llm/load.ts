/**
 * Loads a model directory: configuration, tokenizer and weights, each checked before anything large is allocated.
 *
 * @module
 */

import { fileURLToPath } from "node:url";
import * as mx from "../array/mod.ts";
import type { Dtype, Tensor } from "../array/mod.ts";
import { packQuantized } from "../array/quantized/packed.ts";
import { host, interruptible } from "./host.ts";
import { checkSignal } from "./abort.ts";
import { checkNumber, checkOptions, type OptionKind } from "./arguments.ts";
import { Fields } from "./config/fields.ts";
import type { GenerationConfig, ModelConfig } from "./config/model.ts";
import { activationDtype, maxBufferBytes, wishedDtype } from "./checkpoint/activation_dtype.ts";
import { checkDraftHead } from "./checkpoint/draft_file.ts";
import { arrayLimits } from "./checkpoint/row_parts.ts";
import { openCheckpoint } from "./checkpoint/open.ts";
import { isEmbedded, provideEmbedded } from "./checkpoint/embedded.ts";
import { LlmError } from "./error.ts";
import { modelDirectory, type OnDownload } from "./hub.ts";
import { type Architecture, describeModel, type LanguageModel } from "./models/mod.ts";
import {
  bytesText,
  checkDeviceNames,
  checkDevices,
  deviceOfTensors,
  hostBytesOf,
  inHostMemory,
  type ModelPart,
  partsOf,
  placeModel,
  placeWeights,
} from "./placement/place.ts";
import { Tokenizer } from "./tokenizer/tokenizer.ts";
import { loadAdapters } from "./tuner/adapters.ts";
import type { Checksums, Verify } from "./checkpoint/verify.ts";
import { openWeights, type Weights } from "./checkpoint/weights.ts";
import { readModelFile } from "./checkpoint/model_files.ts";
import { yieldToEventLoop } from "../../ffi/turn.ts";

/** Options of {@link load}. */
export interface LoadOptions {
  /** Device to load to: "gpu", "cpu" or a name such as "vulkan:0"; default the default device. */
  readonly device?: string;
  /**
   * Devices that share the layers, in their order: each has a contiguous part, by bytes in proportion to its free memory. A model that
   * does not fit on one device fits so. Tokens come as from one device, one part after the other. Excludes `device`.
   */
  readonly devices?: readonly string[];
  /** How `devices` share the layers: how many layers each has, or shares in any unit, as llama.cpp's `--tensor-split`. */
  readonly split?: readonly number[];
  /**
   * Dtype of activations, keys and values. The default is that of the checkpoint's floats if they are float16 or bfloat16 and the device
   * has matrix units for it, else float32. VKMX_DTYPE sets another default. Weights keep the dtype that they are stored in, except for
   * dense matrices, which get this one if it has 16 bits. float32 also keeps all digits of a GGUF file, in more memory. Scales and
   * values that are made of its blocks are float32 then, else float16.
   */
  readonly dtype?: Dtype;
  /** Called as bytes of the weights arrive on the device. Without it, a cell of a notebook shows a progress bar. */
  readonly onProgress?: (bytesDone: number, bytesTotal: number) => void;
  /**
   * Called with a line about weights of a GGUF file that have no products as they are stored: what became of them, and the error. Another
   * one says which weights stay in host memory for want of room.
   */
  readonly onNote?: (line: string) => void;
  /** A folder with adapters, or with fully fine-tuned weights, which are put into the model: see `mx.lm.tuner.loadAdapters`. */
  readonly adapterPath?: string;
  /** Branch, tag or commit of a model of the hub; default that of "org/name@revision", else "main". */
  readonly revision?: string;
  /** Called about ten times a second while a model of the hub is downloaded, which is before its weights are read. */
  readonly onDownload?: OnDownload;
  /**
   * Compares files with their published checksums before they are read. `true` takes checksums from a SHA256SUMS file of the
   * directory or from the notes of `hf download` beside it; an object gives the SHA-256 by name. Each file of weights must have a
   * checksum; other files are compared if they have one. About a gigabyte a second.
   */
  readonly verify?: Verify;
  /**
   * Loads the head that drafts tokens (multi-token prediction) of a checkpoint that has one, for `model.draft`. It takes the memory of a
   * layer and more: `draftHeadBytes` of {@link inspect}. Default false, which leaves it in the file.
   */
  readonly draftHead?: boolean;
  /** Most bytes of the device for the weights and a short context, where other models are to fit too. Default what is free. */
  readonly memoryBytes?: number;
  /**
   * Most bytes of weights in the memory of each device. Experts of the last layers are beyond them, as many whole layers as needed. They stay in
   * host memory, where a GPU reads the few that a token needs. Answers are the same. By default all weights are on the device if they fit.
   * Else they get three quarters of what is free, if the device is a GPU with memory of its own. Experts get as much of the host's. `Infinity`
   * keeps all on the device. On the CPU it has no effect: all memory is the host's.
   *
   * @example
   * ```ts ignore
   * import * as mx from "@vkmx/vkmx";
   *
   * const { model, hostBytes } = await mx.lm.load("mlx-community/Qwen3-30B-A3B-4bit", { weightBytes: 6e9 });
   * ```
   */
  readonly weightBytes?: number;
  /** Most bytes of host memory for experts, where other programs are to leave experts there too. Default what is free. */
  readonly hostMemoryBytes?: number;
  /** Ends loading. */
  readonly signal?: AbortSignal;
}

const LOAD_OPTIONS = {
  adapterPath: true,
  device: true,
  devices: true,
  draftHead: "boolean",
  dtype: true,
  hostMemoryBytes: "number",
  memoryBytes: "number",
  onDownload: true,
  onNote: true,
  onProgress: true,
  revision: true,
  signal: true,
  split: true,
  verify: true,
  weightBytes: "number",
} as const satisfies Record<keyof LoadOptions, OptionKind>;

/** Options of {@link shardedLoad}. Adapters and draft heads are of whole models, and experts too. */
export interface ShardedLoadOptions
  extends Omit<LoadOptions, "adapterPath" | "devices" | "draftHead" | "hostMemoryBytes" | "split" | "weightBytes"> {
  /** The processes that each have a part. Default all processes. */
  readonly tensorGroup?: mx.distributed.Group;
}

const {
  adapterPath: _adapter,
  devices: _devices,
  draftHead: _head,
  hostMemoryBytes: _host,
  split: _split,
  weightBytes: _bytes,
  ...SHARED_OPTIONS
} = LOAD_OPTIONS;
const SHARDED_LOAD_OPTIONS = { ...SHARED_OPTIONS, tensorGroup: true } as const satisfies Record<
  keyof ShardedLoadOptions,
  OptionKind
>;

/** A loaded model directory. */
export interface Loaded {
  /** The model; free it with `model[Symbol.dispose]()` or `using`. */
  readonly model: LanguageModel;
  /** Its tokenizer. */
  readonly tokenizer: Tokenizer;
  /** The fields of config.json. */
  readonly config: ModelConfig;
  /** The defaults of generation_config.json. */
  readonly generationConfig: GenerationConfig;
  /** Name of the device that holds it; of several the last one, which chooses tokens. */
  readonly device: string;
  /** The layers of each device, where they are on several; else empty. */
  readonly parts: readonly ModelPart[];
  /** Bytes of its weights that are in host memory: see {@link LoadOptions.weightBytes}. */
  readonly hostBytes: number;
  /** Dtype of its activations. */
  readonly dtype: Dtype;
}

/** Tensors are read in batches of this size; progress is reported and the event loop runs between batches. */
const BATCH_BYTES = 64 * 2 ** 20;

/** Context that must fit beside the weights. */
const MIN_CONTEXT = 256;

/**
 * Loads a model directory as mlx-lm lays it out: config.json, generation_config.json, tokenizer.json (or tekken.json or
 * tokenizer.model), tokenizer_config.json and every model*.safetensors, or those that model.safetensors.index.json names.
 *
 * Where there is no folder of that name, "org/name" or "org/name@revision" is a model of the Hugging Face Hub. It is downloaded
 * once, into the cache that Python's tools share; a model that is whole there is loaded without any connection.
 * {@link EMBEDDED_MODEL} is the one that is part of the package.
 *
 * Throws an {@link LlmError} that names the file and what is wrong with it, or the memory needed if it does not fit. With `verify`,
 * a file that is not the published one has code "checksum".
 *
 * @example
 * ```ts ignore
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.load("models/Qwen3-0.6B-MLX-4bit");
 * console.log(await mx.lm.generate(model, tokenizer, [{ role: "user", content: "Hi" }]));
 * ```
 */
export async function load(model: string | URL, options: LoadOptions = {}): Promise<Loaded> {
  checkOptions("load", options, LOAD_OPTIONS);
  return await interruptible(options, (heeding) => loadModel(model, withBars(heeding)));
}

/**
 * Loads this process's part of a model directory: some heads and a part of the feed-forward features of every layer, as `model.shard` leaves it.
 * All processes of the group call it. Rows of matrices are read alone; those whose columns are divided are read whole, one after another.
 *
 * Throws an {@link LlmError} as {@link load} does, and if processes cannot divide the model.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const { model, tokenizer } = await mx.lm.shardedLoad(mx.lm.EMBEDDED_MODEL); // mpirun -n 2 deno run -A program.ts
 * const text = await mx.lm.generate(model, tokenizer, "Once upon a time", { maxTokens: 5 }); // the same on all processes
 * ```
 */
export async function shardedLoad(model: string | URL, options: ShardedLoadOptions = {}): Promise<Loaded> {
  checkOptions("shardedLoad", options, SHARDED_LOAD_OPTIONS);
  const { tensorGroup: group = mx.distributed.init(), ...others } = options;
  const loaded = await interruptible(others, (heeding) => loadModel(model, withBars(heeding), group));
  mx.eval(mx.distributed.allSum(mx.array(1), { group })); // all are ready: the first exchange does not wait for a slow reader
  return loaded;
}

/** With the progress bars of a notebook, if the caller shows no progress. */
function withBars(options: LoadOptions): LoadOptions {
  const bar = host().progress("Downloading");
  const onDownload: OnDownload | undefined = bar && (({ bytesDone, bytesTotal }) => bar(bytesDone, bytesTotal));
  return {
    ...options,
    onProgress: options.onProgress ?? host().progress("Loading"),
    onDownload: options.onDownload ?? onDownload,
  };
}

async function loadModel(model: string | URL, options: LoadOptions, group?: mx.distributed.Group): Promise<Loaded> {
  const { dtype } = options;
  if (dtype && dtype.kind !== "float") {
    throw new LlmError("option", `load() expected a dtype such as mx.float16: found ${dtype.name ?? dtype}`);
  }
  checkPlacement(options);
  checkSignal(options.signal);
  using embedded = isEmbedded(model) ? await provideEmbedded(options.signal) : undefined;
  const given = embedded?.path ?? (model instanceof URL && model.protocol === "file:" ? fileURLToPath(model) : model);
  if (typeof given !== "string") throw new LlmError("option", `load() expected a model directory: found ${given}`);
  const path = await modelDirectory(given, {
    revision: options.revision,
    onProgress: options.onDownload,
    onSmallFiles: (folder) => describeFolder(folder, undefined), // says before the weights come that a model cannot be read
    signal: options.signal,
  });
  const opening = openDevices(options);
  try {
    return await loadFrom(path, options, opening, group);
  } finally {
    await opening;
  }
}

/** Throws an {@link LlmError} for options that exclude `devices`, or that need some, and for a limit that is none. */
function checkPlacement(
  { device, devices, split, weightBytes = 0, hostMemoryBytes = 0, adapterPath, draftHead }: LoadOptions,
): void {
  checkNumber("weightBytes", weightBytes, weightBytes >= 0, "a number of bytes, or Infinity");
  checkNumber("hostMemoryBytes", hostMemoryBytes, hostMemoryBytes >= 0, "a number of bytes, or Infinity");
  const refuse = (what: string): never => {
    throw new LlmError("option", `load() takes ${what}`);
  };
  if (devices === undefined) return split === undefined ? undefined : refuse("split with devices");
  if (device !== undefined) refuse("device or devices, not both");
  checkDeviceNames(devices);
  if (devices.length > 1 && adapterPath !== undefined) refuse("adapterPath with one device");
  if (devices.length > 1 && draftHead) refuse("draftHead with one device");
}

/** Opens the devices of a model ahead. */
async function openDevices({ device, devices = [] }: LoadOptions): Promise<void> {
  if (devices.length === 0) return await mx.openAhead(device);
  for (const name of devices) await mx.openAhead(name);
}

/** The architecture that a folder's config.json describes. */
export function describeFolder(path: string, sums: Checksums | undefined): Architecture {
  const file = `${path}/config.json`;
  const text = readModelFile(path, "config.json", sums);
  if (text !== undefined) return describeModel(Fields.parse(text, file), file);
  throw new LlmError("config", `${file} does not exist: ${path} is not a model directory`);
}

/** Loads a checkpoint, or this process's part of it; the tokenizer is read while the device opens. */
async function loadFrom(
  path: string,
  options: LoadOptions,
  opening: Promise<void>,
  group?: mx.distributed.Group,
): Promise<Loaded> {
  const checkpoint = openCheckpoint(path, options.verify, options.draftHead);
  const { fields, file } = checkpoint.readConfig();
  const architecture = describeModel(fields, file);
  const { config } = architecture;
  const generationConfig = checkpoint.readGenerationConfig();
  await checkpoint.checkFiles(options.signal);
  const tokenizer = await Tokenizer.load({
    ...checkpoint.readTokenizer(config.vocabSize),
    dir: checkpoint.path,
    vocabSize: config.vocabSize,
    eosTokenIds: generationConfig.eosTokenIds.length > 0 ? generationConfig.eosTokenIds : config.eosTokenIds,
  });
  await opening;
  const devices = options.devices && checkDevices(options.devices, options.split);
  const device = devices ? devices.at(-1) : options.device;
  const wished = wishedDtype(options.dtype);
  const exact = wished === mx.float32;
  const dtypeOf = (stored: Dtype): Dtype => wished ?? mx.withDevice(device, () => activationDtype(stored, devices));
  const most = arrayLimits(mx.withDevice(device, () => maxBufferBytes(devices)));
  const tensors = checkpoint.tensors(exact, most);
  const weights = openWeights(checkpoint.path, tensors, architecture, dtypeOf, checkpoint.terms);
  try {
    if (options.draftHead) checkDraftHead(checkpoint.path, weights, architecture);
    const model = architecture.build(weights, options.draftHead);
    weights.finish();
    if (group) model.shard(group);
    const { memoryBytes, weightBytes, hostMemoryBytes, split } = options;
    const limits = { split, memoryBytes, weightBytes, hostMemoryBytes, context: MIN_CONTEXT };
    const inHost = devices && devices.length > 1
      ? placeModel(checkpoint.path, model, devices, limits)
      : mx.withDevice(device, () => {
        const cacheBytes = shortContextBytes(model, options);
        return placeWeights(checkpoint.path, model, { all: weights.tensors, cacheBytes }, limits);
      });
    checkSizes(checkpoint.path, weights, most.bytes);
    for (const note of [checkpoint.note(exact), inHost.note]) if (note !== undefined) options.onNote?.(note);
    for (const part of readingParts(model, weights, device)) {
      await read(part, inHost.tensors, weights.byteLength, options);
    }
    checkpoint.finish();
    options.signal?.throwIfAborted();
    model.eval(); // as mlx-lm loads it: the dropout of adapters is for training
    if (options.adapterPath !== undefined) {
      mx.withDevice(device, () => adapt(model, options.adapterPath!, inHost.tensors));
    }
    return {
      model,
      tokenizer,
      config: model.config,
      generationConfig,
      device: mx.withDevice(device, mx.defaultDevice),
      parts: partsOf(model),
      hostBytes: hostBytesOf(Object.values(parametersOf(model))),
      dtype: weights.dtype,
    };
  } catch (cause) {
    weights[Symbol.dispose]();
    // A file that changed since its header was read.
    if (cause instanceof mx.ArrayError && cause.code === "file") {
      throw new LlmError("weights", cause.message);
    }
    throw cause;
  }
}

/** Puts adapters into a model. What replaces arrays in host memory is read there, after those were freed. */
function adapt(model: LanguageModel, folder: string, inHost: ReadonlySet<Tensor>): void {
  const before = parametersOf(model);
  loadAdapters(model, folder);
  const after = parametersOf(model);
  const kept = new Set(Object.values(after));
  const replaced = Object.entries(before).filter(([name, tensor]) => Object.hasOwn(after, name) && !kept.has(tensor));
  const hosted = replaced.filter(([, tensor]) => inHost.has(tensor)).map(([name]) => after[name]);
  for (const [, tensor] of replaced) tensor[Symbol.dispose]();
  for (const batch of batches(hosted)) inHostMemory(() => mx.eval(batch));
}

/** The parameters of a model by their names. */
function parametersOf(model: LanguageModel): Readonly<Record<string, Tensor>> {
  return mx.utils.treeFlatten(model.parameters(), "", null, {}) as Record<string, Tensor>;
}

/** Weights that are read onto one device, after those of `done` bytes. */
interface ReadingPart extends Pick<Weights, "matrices" | "tensors"> {
  readonly device: string | undefined;
  readonly done: number;
}

/** The weights of each device of a model. */
function readingParts(model: LanguageModel, { matrices, tensors }: Weights, device: string | undefined): ReadingPart[] {
  const deviceOf = deviceOfTensors(model);
  if (!deviceOf) return [{ device, done: 0, matrices, tensors }];
  let next = 0;
  return [...new Set(deviceOf.values())].map((name) => {
    const own = tensors.filter((tensor) => (deviceOf.get(tensor) ?? device) === name);
    const done = next;
    next += own.reduce((sum, tensor) => sum + tensor.nbytes, 0);
    return {
      device: name,
      done,
      matrices: matrices.filter(({ weight }) => deviceOf.get(weight) === name),
      tensors: own,
    };
  });
}

async function read(
  { device, done: before, matrices, tensors }: ReadingPart,
  inHost: ReadonlySet<Tensor>,
  total: number,
  { onProgress, signal }: LoadOptions,
): Promise<void> {
  let done = before;
  onProgress?.(done, total);
  for (const { weight, scales, biases, groupSize, bits } of matrices) {
    signal?.throwIfAborted();
    await mx.withDevice(device, () => packQuantized(weight, scales, biases, groupSize, bits));
  }
  const [onDevice, onHost] = [false, true].map((isHost) => tensors.filter((tensor) => inHost.has(tensor) === isHost));
  for (const batch of [...batches(onDevice), ...batches(onHost)]) {
    signal?.throwIfAborted();
    const evaluate = (): Promise<void> => mx.asyncEval(batch);
    await mx.withDevice(device, () => inHost.has(batch[0]) ? inHostMemory(evaluate) : evaluate());
    await yieldToEventLoop();
    done += batch.reduce((sum, tensor) => sum + tensor.nbytes, 0);
    onProgress?.(done, total);
  }
}

function* batches(tensors: readonly Tensor[]): Generator<Tensor[]> {
  let batch: Tensor[] = [];
  let bytes = 0;
  for (const tensor of tensors) {
    batch.push(tensor);
    bytes += tensor.nbytes;
    if (bytes < BATCH_BYTES) continue;
    yield batch;
    batch = [];
    bytes = 0;
  }
  if (batch.length > 0) yield batch;
}

/** Bytes of the caches of a short context. */
function shortContextBytes(model: LanguageModel, { draftHead }: LoadOptions): number {
  const caches = [model.makeCache(), ...(draftHead ? [model.makeDraftCache()] : [])];
  return caches.reduce((sum, cache) => sum + cache.byteLength(MIN_CONTEXT), 0);
}

/** Refuses arrays that are made of stored ones and are larger than the device takes. */
function checkSizes(dir: string, { tensors }: Weights, most: number): void {
  const large = tensors.find(({ nbytes }) => nbytes > most);
  if (large === undefined) return;
  throw new LlmError(
    "memory",
    `${dir} has an array of shape (${large.shape.join(", ")}) that takes ${
      bytesText(large.nbytes)
    }. The device has at most ${bytesText(most)} in one array: take a more strongly quantized model, or another device`,
  );
}
