/**
 * The megakernel: all layers of a decoder in one dispatch, whose workgroups wait for each other. `launch_mode.ts` owns its state
 * for a device. This file says which decoders its kernels serve, what a probe's result depends on, and what a failed wait means.
 *
 * It is tried only in loops, on devices that are likely to run all workgroups at once, after a probe (`megakernel_check.ts`). Every wait is
 * bounded too. A wait that runs out gives a {@link MegakernelFailure} when the loop's steps are awaited; from then on decoders of that
 * device use barriers. `VKMX_FAST=0` switches all this off, `VKMX_FAST=1` probes every device. The state also decides which kernels
 * serve a few sequences (`emit_batched.ts`).
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { onExit, recall, remember } from "../../backend/devices.ts";
import { explain } from "../../backend/explain.ts";
import { MegakernelFailure } from "../../graph/error.ts";
import type { Better, Lowering, Probe } from "../plan/context.ts";
import { options } from "../plan/options.ts";
import { isInHostMemory } from "../plan/storage.ts";
import { walkOf, workgroupsOf } from "./emission.ts";
import { batchedUnsupportedReason, isOneRound } from "./emit_batched.ts";
import { MAX_LAYERS, MAX_WORKGROUPS } from "./emit_decode.ts";
import { gemvCanPersist, gemvUnsupportedReason, gemvWalkOf } from "./emit_gemv.ts";
import { needsHybrid } from "./emit_batched_hybrid.ts";
import { isHybrid, orderedLayers } from "./emit_hybrid.ts";
import { layerFormatWord, routerFormatWord } from "./formats.ts";
import { capacityOf } from "./kv_place.ts";
import { type LaunchMode, LaunchModes } from "./launch_mode.ts";
import { type Leaf, sameBits } from "./megakernel_check.ts";
import { accumulatorsOf, type DecoderSpec, type LayerKernels, sequencesOf, tokensOf } from "./spec.ts";
import type { ReadyDecoder } from "./prepared_weights.ts";

/** Values of the status word; a wait that ran out tells of the device, the others of what a model computes. */
const WAITED = 1;
const REASONS: Readonly<Record<number, string>> = {
  [WAITED]: "a workgroup waited for too long",
  2: "scores are too large for 29 bits",
};

const launchModes = new WeakMap<Backend, LaunchModes>();

function launchModesOf(backend: Backend): LaunchModes {
  const found = launchModes.get(backend) ?? new LaunchModes({
    recall: (key) => recall(backend.description, key),
    remember: (key, answer) => remember(backend.description, key, answer),
    whileRunning: onExit,
    explain,
  });
  launchModes.set(backend, found);
  return found;
}

/** Whether the kernels of all layers serve a decoder. */
function fits(backend: Backend, decoder: DecoderSpec, kernels: LayerKernels): boolean {
  const { sizes } = decoder;
  if (orderedLayers(decoder).length > MAX_LAYERS) return false;
  if (kernels === "batched") return !needsHybrid(decoder);
  if (sequencesOf(decoder) > 1) return false;
  if (kernels === "gemv") {
    const unsupported = gemvUnsupportedReason(backend, decoder, "persistent");
    const kernel = isHybrid(decoder) ? "decode_gemv_hybrid" : "decode_gemv_layers";
    return backend.has(kernel) && gemvCanPersist(decoder) && unsupported === undefined;
  }
  return backend.has("decode_layers") && accumulatorsOf(backend) === "u64" && workgroupsOf(sizes) <= MAX_WORKGROUPS;
}

/**
 * Whether a layer has experts across the bus. It decides how long a workgroup waits for them: on a slow one longer than waits may be.
 * Barriers cost little beside that. In the only memory of a device they are as any others.
 */
function isAcrossBus(backend: Backend, decoder: DecoderSpec): boolean {
  const isThere = orderedLayers(decoder).some(({ layer: { gate } }) => isInHostMemory(gate.codes.stored));
  return isThere && backend.memory().hostTotal > 0;
}

/** The launch mode of a decoder in certain kernels; undefined if only a probe can tell. */
export function knownLaunchMode(l: Lowering, decoder: DecoderSpec, kernels: LayerKernels): LaunchMode | undefined {
  const { backend } = l;
  const { concurrent } = backend.limits;
  const question = {
    loops: l.repeats,
    fits: fits(backend, decoder, kernels),
    // Each workgroup would wait for a whole row before each norm. On an H200 a Gemma 3 of 4B decodes 395 tokens a second so, else 647.
    slower: decoder.features.postNorm || isAcrossBus(backend, decoder),
    mode: options.launchMode,
    concurrent,
  };
  return launchModesOf(backend).modeOf(question, () => probeKey(backend, decoder, kernels));
}

/** The launch mode of a decoder. Where only a probe can tell, it is barriers for now, and the lowering gets a {@link MegakernelProbe}. */
export function chooseLaunchMode(l: Lowering, ready: ReadyDecoder, leaf: Leaf): LaunchMode {
  const known = knownLaunchMode(l, ready.decoder, ready.kernels);
  if (known) return known;
  l.probe = new MegakernelProbe(l, ready, leaf);
  return "barriers";
}

/** The comparison of a lowered decoder's layers in both launch modes. */
class MegakernelProbe implements Probe {
  readonly #l: Lowering;
  readonly #ready: ReadyDecoder;
  readonly #leaf: Leaf;

  constructor(l: Lowering, ready: ReadyDecoder, leaf: Leaf) {
    this.#l = l;
    this.#ready = ready;
    this.#leaf = leaf;
  }

  async run(): Promise<Better> {
    const { backend } = this.#l;
    const { decoder, kernels } = this.#ready;
    const works = await launchModesOf(backend).probe(
      probeKey(backend, decoder, kernels),
      (begins) => this.#check(begins),
    );
    if (works) return "now";
    const reasons = { batched: batchedUnsupportedReason, gemv: gemvUnsupportedReason };
    const others = kernels !== "split_k" && reasons[kernels](backend, decoder, "barriers") !== undefined;
    return others ? "next" : undefined;
  }

  async #check(begins: () => void): Promise<boolean> {
    const same = await sameBits(this.#l, this.#ready, this.#leaf, begins);
    if (same) await this.#l.backend.saveAsync(); // later programs that know the result find the pipelines
    return same;
  }
}

/** Throws a {@link MegakernelFailure} if the status word of a loop's steps is not 0; decoders of the device take barriers from now on. */
export function checkStatus(backend: Backend, status: number): void {
  if (status === 0) return;
  launchModesOf(backend).fail(status === WAITED);
  throw new MegakernelFailure(
    `${backend.name}: decoding in one dispatch failed (${REASONS[status] ?? `status ${status}`})`,
  );
}

/** The status word now. */
export function statusOf(backend: Backend, buffer: number): number {
  const word = new Uint32Array(1);
  backend.readMapped(buffer, 0, new Uint8Array(word.buffer));
  return word[0];
}

/** Forgets what this process knows of a device: for tests. */
export function forgetLaunchModes(backend: Backend): void {
  launchModes.delete(backend);
}

/** The key of a probe's result, besides device, driver and build. */
function probeKey(backend: Backend, decoder: DecoderSpec, kernels: LayerKernels): string {
  const { sizes, features, layers, recurrent, cache } = decoder;
  const capacity = capacityOf(cache);
  const { unroll, rounds } = walkOf(capacity);
  const walk = {
    batched: () => {
      const rows = `${tokensOf(decoder)}${decoder.chunk ? " tokens" : ""}`;
      return `${isOneRound(backend, capacity) ? "a round" : "rounds"} of ${rows}`;
    },
    gemv: () => `gemv ${Object.values(gemvWalkOf(backend, decoder, capacity)).join(" ")}`,
    split_k: () => `${unroll} ${rounds}`,
  }[kernels]();
  const formats = [...layers, ...recurrent?.layers ?? []].map(({ formats }) => formats);
  const words = [...new Set(formats.map(layerFormatWord))];
  const { experts, ...others } = features;
  const choice = experts ? ` experts ${Object.values(experts)} ${[...new Set(formats.map(routerFormatWord))]}` : "";
  const order = orderedLayers(decoder).map(({ kind }) => kind === "net" ? "n" : "a").join("");
  const nets = recurrent
    ? ` nets ${Object.values(recurrent.net)} ${recurrent.dtype.name} ${[
      ...new Set(recurrent.layers.map(({ formats }) => Object.values(formats.rates).join())),
    ]} ${recurrent.layers[0].slot ? "in slots " : ""}${order}`
    : "";
  return `decode ${Object.values(sizes)} ${words} ${Object.values(others)}${choice}${nets} ${layers.length} ${
    layers[0].keys.dtype.name
  } ${walk}${cache.kind === "paged" ? ` in pages of ${cache.page}` : ""}`;
}
