/**
 * Decoding beyond what Vulkan promises: all layers in one dispatch, whose workgroups wait for each other.
 *
 * That ends only where all workgroups run at the same time. So it is tried only in loops, on devices that are likely to do so,
 * and after a test: the model's own layers must give the same bits both ways, again and again. The verdict is kept on disk for
 * device, driver, build and sizes. Every wait is bounded besides; one that runs out is seen when the loop's steps are awaited,
 * with {@link FastPathFailure}, and from then on decoders of that device wait by barriers. `VKMX_FAST=0` switches all this off,
 * `VKMX_FAST=1` tests every device.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import { recall, remember } from "../backend/devices.ts";
import type { Node } from "../graph/node.ts";
import { isBatch } from "./batch.ts";
import {
  DecoderEmitter,
  type DecoderForm,
  MOST_LAYERS,
  MOST_WORKGROUPS,
  type ReadyDecoder,
  sequencesOf,
  stateOf,
  workgroupsOf,
} from "./decoder.ts";
import { explain } from "../backend/explain.ts";
import { Lowering, type Value } from "./lowering.ts";
import { options } from "./options.ts";
import { runPrepared } from "./prepared.ts";

/** Submissions of the test, and runs in each. */
const TESTS = 8;
const RUNS = 8;

/** Thrown where the steps of a loop are awaited that did not end well; their results are void. */
export class FastPathFailure extends Error {
  override name = "FastPathFailure";
}

/** What a status word says. */
const WAITED = 1;
const REASONS: Readonly<Record<number, string>> = {
  [WAITED]: "a workgroup waited for too long",
  2: "scores are too large for 29 bits",
};

/** Verdicts of this process, by what was asked. */
const verdicts = new WeakMap<Backend, Map<string, boolean>>();
/** Devices where a loop failed. */
const failed = new WeakSet<Backend>();

/** How a decoder waits. `leaf` gives values of leaves. */
export function decoderForm(l: Lowering, ready: ReadyDecoder, leaf: (node: Node) => Value | undefined): DecoderForm {
  const { decoder, sums } = ready;
  const { sizes, layers, capacity, x } = decoder;
  const { backend } = l;
  if (isBatch(backend, decoder)) return "batch";
  const fits = sums === "u64" && layers.length <= MOST_LAYERS && workgroupsOf(sizes) <= MOST_WORKGROUPS &&
    "table" in x && sequencesOf(decoder) === 1;
  if (!l.repeats || !fits || !backend.has("decode_layers") || failed.has(backend)) return "barriers";
  if (options.fast !== "auto" && options.fast !== "try") return options.fast;
  if (options.fast === "auto" && !backend.limits.concurrent) return "barriers";
  const table = verdicts.get(backend) ?? new Map<string, boolean>();
  verdicts.set(backend, table);
  const question = questionOf(ready);
  let verdict = table.get(question);
  if (verdict === undefined) {
    const known = recall(backend.description, question);
    verdict = known === undefined ? test(l, ready, capacity, leaf) : known === "works";
    if (known === undefined) remember(backend.description, question, verdict ? "works" : "fails");
    explain(`one dispatch for all layers ${verdict ? "works" : "fails"} (${known === undefined ? "tested" : "known"})`);
    table.set(question, verdict);
  }
  return verdict ? "whole" : "barriers";
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
    for (const question of verdicts.get(backend)?.keys() ?? []) remember(backend.description, question, "fails");
  }
  throw new FastPathFailure(`decoding in one dispatch failed on ${backend.name}: ${reason}`);
}

/** Forgets that a loop failed on a device: for tests. */
export function forgive(backend: Backend): void {
  failed.delete(backend);
  verdicts.delete(backend);
}

/** What the verdict depends on besides device, driver and build. */
function questionOf({ decoder: { sizes, layers, capacity } }: ReadyDecoder): string {
  return `decode ${Object.values(sizes)} ${layers.length} ${Math.min(capacity, 2048)} ${layers[0].keys.dtype.name}`;
}

/** Whether the layers give the same bits in one dispatch as with barriers. */
function test(l: Lowering, ready: ReadyDecoder, capacity: number, leaf: (node: Node) => Value | undefined): boolean {
  try {
    runPrepared(l); // the layers' weights, in the layouts that were asked for
    const expected = residuals(l, ready, "barriers", capacity, leaf, 1);
    const found = residuals(l, ready, "whole", capacity, leaf, TESTS);
    return found.length === TESTS && found.every((r) => r.every((sum, i) => sum === expected[0][i]));
  } catch (error) {
    explain(`one dispatch for all layers cannot be tested: ${error instanceof Error ? error.message : error}`);
    return false;
  }
}

/** The residual behind the last layer, after each of a few submissions; fewer where the status says so. */
function residuals(
  l: Lowering,
  ready: ReadyDecoder,
  form: DecoderForm,
  capacity: number,
  leaf: (node: Node) => Value | undefined,
  submissions: number,
): BigInt64Array[] {
  const { decoder: d, sums } = ready;
  const { backend } = l;
  const own = new Lowering(backend, () => false, false);
  const here = (value: Value | undefined): Value => {
    const source = value && l.slots[value.slot];
    if (source?.kind !== "storage") throw new Error("weights are not stored");
    return { ...value!, slot: own.storageSlot(source.storage) };
  };
  try {
    const filled = (bytes: number, fill: (at: number) => number): Value => {
      const value = own.keep(bytes);
      backend.write(own.kept[own.kept.length - 1].buffer, 0, Uint8Array.from({ length: bytes }, (_, at) => fill(at)));
      return value;
    };
    // Numbers of about 1 or 0.01 of either sign, as float16, bfloat16 or float32.
    const { dtype } = d.layers[0].keys;
    const rows = d.sizes.kvHeads * d.sizes.headDim * capacity * dtype.bytes;
    const number = (at: number): number =>
      at % dtype.bytes === dtype.bytes - 1 ? (at & 16 ? 0x3c : 0xbc) : at * 37 & 255;
    const cache = { keys: { ...filled(rows, number), dtype }, values: { ...filled(rows, number), dtype } };
    const [position, token] = [Math.min(capacity - 1, 300), 1].map((n) => filled(4, (at) => n >> (8 * at) & 255));
    const shape = stateOf(d.sizes, capacity, sums, form);
    const state = own.keep(shape.bytes);
    const stateBuffer = own.kept[own.kept.length - 1].buffer;
    const status = form === "barriers" ? undefined : own.keepStatus();
    const value = (node: Node): Value => "ids" in d.x && node === d.x.ids ? token : here(leaf(node));
    const mine = (values: readonly Value[]): readonly Value[] => values.map(here);
    const layers = ready.layers.map(({ qkv, o, gateUp, down }) => ({
      qkv: mine(qkv),
      o: mine(o),
      gateUp: mine(gateUp),
      down: mine(down),
    }));
    const emitter = new DecoderEmitter(
      own,
      { ...ready, layers, norms: here(ready.norms) },
      form,
      capacity,
      value,
      state,
      status,
    );
    emitter.begin(d.x, position, d.freqs && value(d.freqs));
    emitter.layers(d.layers.map(() => cache));
    const slots = own.slots.map((source) => {
      if (source.kind !== "storage") throw new Error("weights are not aligned");
      return { buffer: source.storage.buffer, byteOffset: 0 };
    });
    const plan = backend.compile(own.builder.finish(slots.length, (slot) => slot));
    try {
      const found: BigInt64Array[] = [];
      for (let i = 0; i < submissions; i++) {
        backend.wait(backend.run(plan, slots, form === "barriers" ? 1 : RUNS));
        if (own.status && statusOf(backend, own.status.buffer) !== 0) break;
        const words = new BigInt64Array(shape.residual / 8);
        const at = shape.before + d.layers.length % shape.turns * shape.residual;
        backend.read(stateBuffer, at, new Uint8Array(words.buffer));
        const totals = new BigInt64Array(d.sizes.hidden); // over the copies of each sum
        words.forEach((word, i) => totals[i % d.sizes.hidden] += word);
        found.push(form === "barriers" ? totals : totals.map((sum) => sum >> 8n));
      }
      return found;
    } finally {
      backend.release(plan);
    }
  } finally {
    for (const storage of own.kept) storage.release();
  }
}

/** The status word now. */
export function statusOf(backend: Backend, buffer: number): number {
  const word = new Uint32Array(1);
  backend.peek(buffer, 0, new Uint8Array(word.buffer));
  return word[0];
}
