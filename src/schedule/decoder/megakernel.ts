/**
 * Decoding beyond what Vulkan promises: all layers in one dispatch, whose workgroups wait for each other.
 *
 * That ends only where all workgroups run at the same time. So it is tried only in loops, on devices that are likely to do so,
 * and after a test (`megakernel_check.ts`), which runs while decoding already goes on with barriers. The result is kept on disk for
 * device, driver, build and sizes. Every wait is bounded besides; one that runs out is seen when the loop's steps are awaited,
 * with {@link MegakernelFailure}, and from then on decoders of that device wait by barriers. `VKMX_FAST=0` switches all this off,
 * `VKMX_FAST=1` tests every device. What is known also decides which kernels serve a few sequences (`emit_batched.ts`).
 *
 * @module
 */

import { type DecoderForm, walkOf, workgroupsOf } from "./emission.ts";
import type { Backend } from "../../backend/backend.ts";
import { recall, remember } from "../../backend/devices.ts";
import { accumulatorsOf, type DecoderSpec, sequencesOf } from "./spec.ts";
import { MOST_LAYERS, MOST_WORKGROUPS } from "./emit_decode.ts";
import type { ReadyDecoder } from "./weights.ts";
import { batchUnsupportedReason, isOneRound } from "./emit_batched.ts";
import { explain } from "../../backend/explain.ts";
import type { Lowering } from "../plan/context.ts";
import { options } from "../plan/options.ts";
import { type Leaf, sameBits } from "./megakernel_check.ts";

/** Tests that were begun and not ended, after which no more is begun: each may have taken the program or the device with it. */
const MOST_ATTEMPTS = 3;

/** Thrown where the steps of a loop are awaited that did not end well; their results are void. */
export class MegakernelFailure extends Error {
  override name = "MegakernelFailure";
}

/** What a status word says. */
const WAITED = 1;
const REASONS: Readonly<Record<number, string>> = {
  [WAITED]: "a workgroup waited for too long",
  2: "scores are too large for 29 bits",
};

/** Verdicts of this process, by what was asked; promises while a test runs. */
const probeResults = new WeakMap<Backend, Map<string, boolean | Promise<boolean>>>();
/** Devices where a loop failed. */
const failed = new WeakSet<Backend>();

/** How a decoder waits, by itself or, as a `batch`, in the kernels of several sequences; undefined where only a test can tell. */
export function knownForm(l: Lowering, decoder: DecoderSpec, batch: boolean): DecoderForm | undefined {
  const { sizes, layers, x } = decoder;
  const { backend } = l;
  const single = (): boolean =>
    backend.has("decode_layers") && accumulatorsOf(backend) === "u64" && "table" in x && sequencesOf(decoder) === 1 &&
    workgroupsOf(sizes) <= MOST_WORKGROUPS;
  const fits = layers.length <= MOST_LAYERS && (batch || single());
  if (!l.repeats || !fits || failed.has(backend)) return "barriers";
  if (options.fast !== "auto" && options.fast !== "try") return options.fast;
  if (options.fast === "auto" && !backend.limits.concurrent) return "barriers";
  const table = probeResultsOf(backend);
  const key = probeKey(backend, decoder, batch);
  const result = table.get(key) ?? recalled(backend, key);
  if (typeof result !== "boolean") return undefined;
  table.set(key, result);
  return result ? "whole" : "barriers";
}

/** How a decoder waits. Where only a test can tell, it is by barriers for now, and the lowering gets a {@link Trial}. */
export function decoderForm(l: Lowering, ready: ReadyDecoder, leaf: Leaf): DecoderForm {
  const { decoder, batch } = ready;
  const known = knownForm(l, decoder, batch);
  if (known) return known;
  const { backend } = l;
  const table = probeResultsOf(backend);
  const key = probeKey(backend, decoder, batch);
  l.trial = async () => {
    const result = table.get(key) ?? runCheck(l, ready, leaf, key, table);
    table.set(key, result);
    if (await result) return "now";
    return batch && batchUnsupportedReason(backend, decoder, "barriers") !== undefined ? "next" : undefined;
  };
  return "barriers";
}

function probeResultsOf(backend: Backend): Map<string, boolean | Promise<boolean>> {
  const table = probeResults.get(backend) ?? new Map<string, boolean | Promise<boolean>>();
  probeResults.set(backend, table);
  return table;
}

/** What a process before found; undefined where none ended a test, unless too many began one. */
function recalled(backend: Backend, key: string): boolean | undefined {
  const answer = recall(backend.description, key);
  const attempts = attemptsIn(answer);
  if (answer !== "works" && answer !== "fails" && attempts < MOST_ATTEMPTS) return undefined;
  const what = attempts > 0 ? `was tested ${attempts} times without an end` : `${answer} (known)`;
  explain(`one dispatch for all layers ${what}`);
  return answer === "works";
}

/** Tests that were begun and not ended. */
function attemptsIn(answer: string | undefined): number {
  return Number(/^trying (\d+)$/.exec(answer ?? "")?.[1] ?? 0);
}

/** Tests, and keeps the result in `table` and on disk. Where no test can be made, nothing is kept on disk. */
async function runCheck(
  l: Lowering,
  ready: ReadyDecoder,
  leaf: Leaf,
  key: string,
  table: Map<string, boolean | Promise<boolean>>,
): Promise<boolean> {
  const { backend } = l;
  const before = attemptsIn(recall(backend.description, key));
  const note = (answer: string): void => remember(backend.description, key, answer);
  // A program that ends by itself while it tests was not taken with the test.
  const ends = (): void => note(`trying ${before}`);
  globalThis.addEventListener("unload", ends);
  let works = false;
  try {
    works = await sameBits(l, ready, leaf, () => note(`trying ${before + 1}`));
    if (works) await backend.saveAsync(); // whoever knows the result finds the pipelines
    note(works ? "works" : "fails");
    explain(`one dispatch for all layers ${works ? "works" : "fails"} (tested)`);
  } catch (error) {
    note(`trying ${before}`);
    explain(`one dispatch for all layers cannot be tested: ${error instanceof Error ? error.message : error}`);
  } finally {
    globalThis.removeEventListener("unload", ends);
  }
  table.set(key, works);
  return works;
}

/** Throws where the status word of a loop's steps is not 0, and lets decoders of the device wait by barriers from now on. */
export function checkStatus(backend: Backend, status: number): void {
  if (status === 0) return;
  const reason = REASONS[status] ?? `status ${status}`;
  if (!failed.has(backend)) {
    console.error(`vkmx: ${backend.name}: decoding in one dispatch failed (${reason}); it goes on with barriers`);
  }
  failed.add(backend);
  if (status === WAITED) {
    for (const key of probeResults.get(backend)?.keys() ?? []) remember(backend.description, key, "fails");
  }
  throw new MegakernelFailure(`decoding in one dispatch failed on ${backend.name}: ${reason}`);
}

/** Forgets that a loop failed on a device: for tests. */
export function forgive(backend: Backend): void {
  failed.delete(backend);
  probeResults.delete(backend);
}

/** What the result depends on besides device, driver and build. */
function probeKey(backend: Backend, decoder: DecoderSpec, batch: boolean): string {
  const { sizes, layers, capacity } = decoder;
  const { unroll, rounds } = walkOf(capacity);
  const walk = batch
    ? `${isOneRound(backend, capacity) ? "a round" : "rounds"} of ${sequencesOf(decoder)}`
    : `${unroll} ${rounds}`;
  return `decode ${Object.values(sizes)} ${layers.length} ${layers[0].keys.dtype.name} ${walk}`;
}

/** The status word now. */
export function statusOf(backend: Backend, buffer: number): number {
  const word = new Uint32Array(1);
  backend.peek(buffer, 0, new Uint8Array(word.buffer));
  return word[0];
}
