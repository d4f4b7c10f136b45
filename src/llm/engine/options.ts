/**
 * Options of an engine and of its requests, and the sizes that an engine has by them.
 *
 * @module
 */

import * as mx from "../../array/mod.ts";
import type { Dtype } from "../../array/mod.ts";
import { KV_CODES } from "../../graph/kv_codes.ts";
import { PAGE } from "../../graph/kv_layout.ts";
import { checkNumber, type OptionKind } from "../arguments.ts";
import { checkCacheOptions } from "../kv/make_cache.ts";
import { ONE_GROUP, type PageGroups, pagesIn, unitsOfPages } from "../kv/page_groups.ts";
import { deviceShares, maxSlots, maxUnits, pageBytes, slotBytes } from "../kv/paged.ts";
import type { DecodingModel } from "../models/mod.ts";
import { BATCH_OPTIONS } from "../sampling/options.ts";
import type { EngineRequest } from "./request.ts";
import type { EngineSpeculation } from "../speculation/speculation.ts";

/** Options of an engine. */
export interface EngineOptions {
  /** Most requests that are computed at a time. Default 64 on a GPU, 16 on the CPU. */
  readonly maxSequences?: number;
  /** Most requests that wait beside them. Default 512. */
  readonly maxQueue?: number;
  /**
   * Bytes of keys, values and recurrent states, of running requests and of prefixes that are kept for later ones together. Default half of the memory that is
   * free on a GPU and an eighth on the CPU, or what `maxSequences` requests can use at most.
   */
  readonly kvBytes?: number;
  /**
   * Bits of the features of keys and values. 8 takes half of the memory of float16: twice as many tokens fit, and a step of many requests
   * reads half as much. Default those that the model computes in, or 16 on the CPU.
   */
  readonly kvBits?: 8;
  /** Bytes of the device that are free, where other models are to fit too: `kvBytes` has its default by them. Default as the device says. */
  readonly memoryBytes?: number;
  /** Most tokens of a prompt and its answer. Default the model's context, or what `kvBytes` holds. */
  readonly contextSize?: number;
  /**
   * Most prompt tokens of one forward pass, of one prompt or of several: other requests wait so long for their next token. Default 2048 on a
   * GPU, 128 on the CPU.
   */
  readonly prefillStepSize?: number;
  /**
   * Drafts tokens of all requests and verifies several of each in one step; the tokens stay the same. Up to eight sequences have drafts, or 16 with
   * "mtp". A draft model has pages of its own beside `kvBytes`, and the head of the model is one more layer in them. Default none.
   */
  readonly speculation?: EngineSpeculation;
}

/** Kinds of {@link EngineOptions}. */
export const ENGINE_OPTIONS = {
  maxSequences: "number",
  maxQueue: "number",
  kvBytes: "number",
  kvBits: "number",
  memoryBytes: "number",
  contextSize: "number",
  prefillStepSize: "number",
  speculation: true,
} as const satisfies Record<keyof EngineOptions, OptionKind>;

const { logitsProcessors: _processors, prefillStepSize: _size, onPrompt: _onPrompt, ...SHARED } = BATCH_OPTIONS;
/** Kinds of what a request has. */
export const REQUEST_OPTIONS = {
  ...SHARED,
  maxTokens: "number",
  seed: "number",
  prompt: true,
  priority: "number",
  speculation: true,
} as const satisfies Record<keyof EngineRequest, OptionKind>;

/** Defaults by device. */
const DEFAULTS = {
  gpu: { maxSequences: 64, prefillStepSize: 2048, share: 0.5 },
  cpu: { maxSequences: 16, prefillStepSize: 128, share: 0.125 },
} as const;
const MAX_QUEUE = 512;
/** Steps that may be on their way. */
const STEPS = 2;

/** Everything that an engine needs to know of its sizes. */
export interface EngineSizes {
  readonly maxSequences: number;
  readonly maxQueue: number;
  readonly contextSize: number;
  readonly prefillStepSize: number;
  /** Units of memory in all, unit 0 among them. Where layers have no window a unit is a page, see page_groups.ts. */
  readonly pages: number;
  readonly bytesOfPage: number;
  /** Slots for recurrent states, slot 0 among them; 0 where layers have no state. */
  readonly slots: number;
  readonly bytesOfSlots: number;
  /** Of the pool: `KV_CODES` where keys and values have 8 bits. */
  readonly kvDtype: Dtype;
}

/** The dtype of a pool by options and model. */
function kvDtypeOf(sizes: ReturnType<DecodingModel["poolSizes"]>, { kvBits }: EngineOptions): Dtype {
  if (kvBits === undefined) return sizes.dtype;
  checkCacheOptions(sizes, { kvBits });
  return KV_CODES;
}

/** Whether the head of a model drafts, whose keys and values are in the pages then. */
export function draftsByHead({ speculation }: { readonly speculation?: Pick<EngineSpeculation, "drafter"> }): boolean {
  return speculation?.drafter === "mtp";
}

/** Sizes by options, device and model. A draft model, if there is one, gets as many pages beside them. */
export function sizesOf(model: DecodingModel, options: EngineOptions, draft?: DecodingModel): EngineSizes {
  const sizes = model.poolSizes(draftsByHead(options));
  const kvDtype = kvDtypeOf(sizes, options);
  const pool = { ...sizes, dtype: kvDtype };
  const { groups = ONE_GROUP } = pool;
  const bytesOfPage = pageBytes(pool);
  const count = (name: Exclude<keyof EngineOptions, "speculation">, otherwise: number, least = 1): number => {
    const value = options[name] ?? otherwise;
    checkNumber(name, value, Number.isSafeInteger(value) && value >= least, `an integer of at least ${least}`);
    return value;
  };
  const { device, config: { maxPositionEmbeddings } } = model;
  const defaults = defaultsOf(device.concurrent);
  const bytesOfSlot = slotBytes(pool);
  const wanted = count("maxSequences", defaults.maxSequences);
  const context = Math.min(count("contextSize", maxPositionEmbeddings), maxPositionEmbeddings);
  const prefillStepSize = count("prefillStepSize", defaults.prefillStepSize);
  const unitsOfAll = wanted * unitsOfPages(groups, Math.ceil(context / PAGE)) + unitsOfSteps(groups, prefillStepSize);
  const most = unitsOfAll * bytesOfPage + slotsFor(wanted) * bytesOfSlot;
  const leastUnits = unitsOfPages(groups, 1);
  const least = leastUnits * bytesOfPage + MIN_SLOTS * bytesOfSlot;
  const share = draft ? bytesOfPage / (bytesOfPage + pageBytes(draft.poolSizes())) : 1;
  const free = freeBytes(model);
  const memory = share * Math.min(count("memoryBytes", free, 0), model.placement ? free : Infinity);
  const kvBytes = count("kvBytes", Math.max(least, Math.min(most, defaultBytes(model, memory))), least);
  const room = Math.floor((kvBytes - leastUnits * bytesOfPage) / bytesOfSlot); // beside a page
  const slots = bytesOfSlot === 0 ? 0 : Math.min(
    room,
    slotsIn(kvBytes, unitsOfAll * bytesOfPage, bytesOfSlot, wanted),
    maxSlots(pool, device.maxBufferBytes),
  );
  const units = Math.floor((kvBytes - slots * bytesOfSlot) / bytesOfPage);
  const pages = Math.min(units, maxUnits(pool, device.maxBufferBytes) - 1);
  const maxSequences = slots > 0 ? Math.min(wanted, slots - 1) : wanted;
  return {
    maxSequences,
    maxQueue: count("maxQueue", MAX_QUEUE, 0),
    contextSize: Math.min(context, pagesIn(groups, pages) * PAGE),
    prefillStepSize,
    pages: pages + 1,
    bytesOfPage,
    slots,
    bytesOfSlots: slots * bytesOfSlot,
    kvDtype,
  };
}

/** Sizes of a draft model beside an engine of some sizes: as many pages, or the fewest that it needs. */
export function draftSizesOf(draft: DecodingModel, { maxSequences, prefillStepSize, pages }: EngineSizes): EngineSizes {
  const wanted = (pages - 1) * pageBytes(draft.poolSizes());
  const memoryBytes = Math.ceil(wanted / defaultsOf(draft.device.concurrent).share);
  return sizesOf(draft, { maxSequences, prefillStepSize, memoryBytes });
}

/** Units of the steps on their way that read prompts: they write to pages that layers with a window give back later. */
function unitsOfSteps({ windowed }: PageGroups, tokens: number): number {
  return Number.isFinite(tokens) ? windowed * STEPS * Math.ceil(tokens / PAGE) : 0;
}

/** Fewest slots of recurrent states: slot 0 and that of a sequence. */
const MIN_SLOTS = 2;

/** Slots for so many sequences: slot 0, one for each, and as many for states that are kept. */
function slotsFor(sequences: number): number {
  return 1 + 2 * sequences;
}

/** The share of the memory that slots may take, also where all pages could be used: how many a sequence needs is not known before. */
const SLOTS_SHARE = 0.25;

/** Slots of so many sequences in some bytes, of which pages can use so many at most. They have their share of what all would use at least. */
function slotsIn(bytes: number, ofPages: number, ofSlot: number, sequences: number): number {
  const all = slotsFor(sequences);
  const ofSlots = all * ofSlot;
  const most = Math.max(SLOTS_SHARE * bytes, bytes - ofPages, bytes * ofSlots / (ofPages + ofSlots));
  return Math.min(all, Math.max(MIN_SLOTS, Math.floor(most / ofSlot)));
}

/** Most sequences of a batch that advance together. */
const MAX_TOGETHER = 256;

/**
 * Sizes for requests that are all there, of which each needs so many positions at most. Their prompts are read in steps of so many tokens.
 */
export function batchSizesOf(
  model: DecodingModel,
  positions: readonly number[],
  { prefillStepSize, draftHead }: { readonly prefillStepSize: number; readonly draftHead: boolean },
): Pick<EngineSizes, "maxSequences" | "maxQueue" | "pages" | "slots"> {
  const sizes = model.poolSizes(draftHead);
  const { groups = ONE_GROUP } = sizes;
  const [bytesOfPage, bytesOfSlot] = [pageBytes(sizes), slotBytes(sizes)];
  const together = Math.min(positions.length, MAX_TOGETHER);
  const unitsOf = (count: number): number => unitsOfPages(groups, Math.max(1, Math.ceil(count / PAGE)));
  const needs = positions.map(unitsOf).sort((a, b) => b - a);
  const steps = unitsOfSteps(groups, Math.min(prefillStepSize, Math.max(...positions)));
  const all = roundUp(needs.slice(0, together).reduce((sum, pages) => sum + pages, steps));
  const bytes = defaultBytes(model);
  const slots = bytesOfSlot === 0
    ? 0
    : Math.min(slotsIn(bytes, all * bytesOfPage, bytesOfSlot, together), maxSlots(sizes, model.device.maxBufferBytes));
  const maxSequences = slots > 0 ? Math.min(together, slots - 1) : together;
  const room = Math.floor((bytes - slots * bytesOfSlot) / bytesOfPage);
  const pages = Math.max(needs[0], Math.min(all, room, maxUnits(sizes, model.device.maxBufferBytes) - 1));
  return { maxSequences, maxQueue: positions.length, pages: pages + 1, slots };
}

/** The next number of few: batches of about as many pages share traces. */
function roundUp(pages: number): number {
  const step = Math.max(1, 2 ** Math.floor(Math.log2(pages)) / 8);
  return Math.ceil(pages / step) * step;
}

/** Default bytes of keys and values, where so much memory is free. */
function defaultBytes(model: DecodingModel, memory: number = freeBytes(model)): number {
  return Math.floor(defaultsOf(model.device.concurrent).share * memory);
}

/** Free bytes of the device. Where layers are on several, keys and values of so many bytes have room, of which each device has its share. */
function freeBytes(model: DecodingModel): number {
  const free = (name: string): number => mx.deviceMemory(name).available;
  if (!model.placement) return free(model.device.name);
  const shares = [...deviceShares(model.poolSizes())].filter(([, share]) => share > 0);
  return Math.floor(Math.min(...shares.map(([name, share]) => free(name) / share)));
}

function defaultsOf(concurrent: boolean): typeof DEFAULTS["gpu" | "cpu"] {
  return concurrent ? DEFAULTS.gpu : DEFAULTS.cpu;
}
