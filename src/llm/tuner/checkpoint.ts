/**
 * The state of a training in one file, so that it can go on as if it had never ended. The file is replaced as a whole. It has the
 * trained parameters, the optimizer's state, the random states, the place in the data, and the measurements.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { openSafetensors } from "../../array/files/safetensors_file.ts";
import { quoted, shownPath } from "../../graph/error.ts";
import { formatShape, sameShape } from "../../graph/shape.ts";
import type * as nn from "../../nn/mod.ts";
import { LlmError } from "../error.ts";
import { ADAPTER_LEAVES } from "./adapters.ts";
import type { Batches } from "./batches.ts";
import type { NumpyRandom } from "./numpy_random.ts";

/** Losses by iteration. */
export interface History {
  /** Mean loss of the iterations since the one before. */
  readonly train: (readonly [iteration: number, loss: number])[];
  /** Loss of the validation set. */
  readonly valid: (readonly [iteration: number, loss: number])[];
}

/** Numbers of a training. */
export interface Counts {
  /** Iterations that are done. */
  readonly iteration: number;
  /** Tokens that were trained on. */
  readonly trainedTokens: number;
  /** Iterations whose batch had no token that the loss counts. */
  readonly skipped: number;
  /** Batches whose gradients wait for more. */
  readonly gathered: number;
  /** Since the last report: the sum of losses, of tokens, and iterations. */
  readonly since: { readonly loss: number; readonly tokens: number; readonly steps: number };
}

/** The state that a checkpoint saves and restores. */
export interface Training {
  /** The model. */
  readonly model: nn.Module;
  /** Its optimizer. */
  readonly optimizer: mx.optimizers.Optimizer;
  /** The batches that it is trained on. */
  readonly batches: Batches;
  /** The generator of their order. */
  readonly random: NumpyRandom;
  /** Gradients that wait for more, with gradient accumulation. */
  readonly gradients: nn.ModuleTree | null;
  /** Measurements so far. */
  readonly history: History;
  /** Settings that a resumed run must share with this one, by name. */
  readonly settings: Readonly<Record<string, string>>;
}

const FORMAT = "vkmx-training";

type Named = Record<string, Tensor>;

function flat(prefix: string, tree: unknown): Named {
  return mx.utils.treeFlatten(tree, `.${prefix}`, null, {}) as Named;
}

/** Numbers of a list of pairs to the bit, float64 as words. */
function packed(list: History["train"]): Tensor {
  return mx.array(new Uint32Array(Float64Array.from(list.flat()).buffer), mx.uint32);
}

function unpacked(words: Tensor): [iteration: number, loss: number][] {
  const numbers = new Float64Array((words.toTypedArray() as Uint32Array<ArrayBuffer>).slice().buffer);
  return Array.from({ length: numbers.length / 2 }, (_, i) => [numbers[2 * i], numbers[2 * i + 1]]);
}

/** Whether a file is a checkpoint, and not an adapter. Throws an {@link LlmError} if it cannot be read. */
export function isCheckpoint(path: string): boolean {
  return open(path).metadata.training === FORMAT;
}

function open(path: string): ReturnType<typeof openSafetensors> {
  try {
    return openSafetensors(path);
  } catch (cause) {
    if (!(cause instanceof mx.ArrayError)) throw cause;
    throw new LlmError("weights", cause.message);
  }
}

/** Writes a checkpoint; the file appears whole or stays what it was. */
export function saveCheckpoint(path: string, training: Training, counts: Counts): void {
  const { model, optimizer, batches, random, gradients, history, settings } = training;
  const { order, at } = batches.state;
  const arrays: Named = {
    ...flat("model", model.trainableParameters()),
    ...flat("optimizer", optimizer.state),
    ...(gradients === null ? {} : flat("gradients", gradients)),
    "random.mx": mx.random.state[0],
    "random.numpy": mx.array(random.state, mx.uint32),
    "batches.order": mx.array(order, mx.uint32),
    "history.train": packed(history.train),
    "history.valid": packed(history.valid),
  };
  mx.saveSafetensors(path, arrays, {
    training: FORMAT,
    settings: JSON.stringify({ ...settings, optimizer: optimizer.constructor.name }),
    counts: JSON.stringify({ ...counts, at }),
  });
}

/** The parts of the arrays whose names begin with a prefix. */
function part(arrays: Named, prefix: string): Named {
  const begin = `${prefix}.`;
  return Object.fromEntries(
    Object.entries(arrays).filter(([name]) => name.startsWith(begin)).map(([name, x]) => [name.slice(begin.length), x]),
  );
}

function tree(arrays: Named): nn.ModuleTree {
  return mx.utils.treeUnflatten(arrays) as nn.ModuleTree;
}

/**
 * Puts a training where a checkpoint is, and gives its numbers and the gradients that wait. Throws an {@link LlmError} that names what
 * differs if it is one of another training; nothing is changed then.
 */
export function restoreCheckpoint(
  path: string,
  training: Omit<Training, "gradients">,
): Counts & { readonly gradients: nn.ModuleTree | null } {
  const fail = (what: string): never => {
    throw new LlmError("weights", `${shownPath(path)} ${what}`);
  };
  const { metadata } = open(path);
  if (metadata.training !== FORMAT) fail("is no checkpoint of a training");
  const { model, optimizer, batches, random, history } = training;
  const settings = JSON.parse(metadata.settings) as Record<string, string>;
  for (const [name, value] of Object.entries({ ...training.settings, optimizer: optimizer.constructor.name })) {
    if (settings[name] === value) continue;
    fail(`was made with ${name} ${quoted(settings[name] ?? "unknown")}, and this training has ${quoted(value)}`);
  }
  const arrays = mx.loadSafetensors(path) as Named;
  const parameters = part(arrays, "model");
  const own = flat("model", model.trainableParameters());
  for (const [name, { shape }] of Object.entries(part(own, "model"))) {
    const found = parameters[name];
    if (found === undefined) {
      const isAdapter = ADAPTER_LEAVES.has(name.slice(name.lastIndexOf(".") + 1));
      const what = isAdapter ? ": give the layers that it adapted as keys" : ""; // earlier versions adapted no experts
      fail(`has no ${quoted(name)}, which is trained${what}`);
    }
    if (!sameShape(found.shape, shape)) {
      fail(`has ${quoted(name)} of shape ${formatShape(found.shape)}: the model's is ${formatShape(shape)}`);
    }
  }
  const extra = Object.keys(parameters).find((name) => !(`model.${name}` in own));
  if (extra !== undefined) fail(`has ${quoted(extra)}, which is not trained`);
  const gradients = part(arrays, "gradients");
  mx.eval(arrays); // the file may be replaced from now on
  const { at, ...counts } = JSON.parse(metadata.counts) as Counts & { at: number };
  model.update(tree(parameters));
  optimizer.state = tree(part(arrays, "optimizer"));
  mx.random.state[0] = arrays["random.mx"];
  random.state = arrays["random.numpy"].toTypedArray() as Uint32Array;
  batches.state = { order: arrays["batches.order"].toTypedArray() as Uint32Array, at };
  for (const name of ["train", "valid"] as const) {
    history[name].length = 0;
    for (const pair of unpacked(arrays[`history.${name}`])) history[name].push(pair);
  }
  if (Object.keys(gradients).length === 0) return { ...counts, gradients: null };
  // In the form of the parameters, which also has places without any.
  const inPlace = mx.utils.treeMapWithPath((name: string) => gradients[name], model.trainableParameters());
  return { ...counts, gradients: inPlace as nn.ModuleTree };
}
