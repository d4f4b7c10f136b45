/**
 * Steps over keys and values in pages, beside the same steps over caches in which positions follow each other. Where the same kernels run,
 * logits and all rows are the same bits, and unused pages stay as they are.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import * as mx from "../../../mod.ts";
import { DeviceLoop } from "../../../src/array/compile/loop.ts";
import { decodeKv, encodeKv } from "../../../src/array/fast/kv_codes.ts";
import { isCoded } from "../../../src/graph/kv_codes.ts";
import { bufferShape, type KvLayout, PAGE } from "../../../src/graph/kv_layout.ts";
import type { DecoderConfig } from "../../../src/llm/config/decoder.ts";
import { StepCache } from "../../../src/llm/kv/step_cache.ts";
import { PagedCache } from "../../../src/llm/kv/paged.ts";
import type { LanguageModel } from "../../../src/llm/models/mod.ts";
import { nmse } from "../oracles/oracle.ts";

/** Sequences whose pages lie in a pool. */
export interface PagedBatch {
  readonly dtype: mx.Dtype;
  readonly layout: KvLayout;
  /** Pages of a sequence. */
  readonly columns: number;
  /** Of each sequence. */
  readonly positions: readonly number[];
  /** Tokens of each sequence that a step feeds; default 1. */
  readonly tokens?: number;
  /** The token whose logits are asked for, of one sequence; default all. */
  readonly row?: number;
  /** Pages that all sequences begin with. */
  readonly shared?: number;
  readonly steps: number;
}

/** Pages that no sequence has. */
const FREE = 3;
const VOCAB = 4099;

/** Numbers from 0 on in an order that depends on nothing but their count. */
function shuffled(count: number): number[] {
  const order = Array.from({ length: count }, (_, i) => i);
  let seed = 12345;
  for (let i = count - 1; i > 0; i--) {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    const j = seed % (i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** The pages of each sequence, and the unused ones. */
function tablesOf(
  { positions, columns, shared = 0 }: PagedBatch,
): { tables: number[][]; free: number[]; pages: number } {
  const pages = shared + positions.length * (columns - shared) + FREE;
  const numbers = shuffled(pages);
  const common = numbers.splice(0, shared);
  const tables = positions.map(() => [...common, ...numbers.splice(0, columns - shared)]);
  return { tables, free: numbers, pages };
}

/** The positions (B, H, D / block, columns * PAGE, block) of pages. */
function inARow(pool: mx.Tensor, table: mx.Tensor): mx.Tensor {
  const [, heads, blocks, page, block] = pool.shape;
  const [batch, columns] = table.shape;
  return mx.take(pool, table.reshape(-1), 0).reshape(batch, columns, heads, blocks, page, block)
    .transpose(0, 2, 3, 1, 4, 5).reshape(batch, heads, blocks, columns * page, block);
}

const bits = (t: mx.Tensor): Float32Array =>
  mx.tidy(() => Float32Array.from(t.astype(mx.float32).toTypedArray() as Float32Array));

/** A batch's pools of random numbers, a layer after the other, and the state of a loop over them. */
function pagedState(model: LanguageModel, batch: PagedBatch) {
  const { layers, kvHeads: heads, headDim } = model.config as DecoderConfig;
  const { tables, free, pages } = tablesOf(batch);
  const pool = (side: keyof KvLayout, layer: number): mx.Tensor => {
    const shape = bufferShape({ batch: pages, heads, positions: PAGE, headDim, block: batch.layout[side] });
    const key = mx.random.key(2 * layer + (side === "keys" ? 0 : 1));
    const numbers = mx.random.normal(shape, mx.float32, 0, 1, key);
    return isCoded(batch.dtype) ? encodeKv(numbers) : numbers.astype(batch.dtype);
  };
  const of = (side: keyof KvLayout): mx.Tensor[] => Array.from({ length: layers }, (_, layer) => pool(side, layer));
  const state = { ...stateOf(batch), table: mx.array(tables, mx.int32), keys: of("keys"), values: of("values") };
  mx.eval(state.table, ...state.keys, ...state.values);
  return { tables, free, pages, state };
}

/** Rows of logits that a step gives. */
function logitsOf({ positions, tokens = 1, row }: PagedBatch): number {
  return positions.length * (row === undefined ? tokens : 1);
}

function stateOf(batch: PagedBatch) {
  const { positions, tokens = 1, row } = batch;
  const token = (i: number): number[] => Array.from({ length: tokens }, (_, t) => (100 * i + 5 + 311 * t) % VOCAB);
  return {
    token: mx.array(positions.map((_, i) => token(i)), mx.int32),
    row: row === undefined ? undefined : mx.array([row], mx.uint32),
    position: mx.array([...positions], mx.int32),
    logits: mx.zeros([logitsOf(batch), VOCAB]),
  };
}

type State = ReturnType<typeof stateOf> & { keys: mx.Tensor[]; values: mx.Tensor[] };

/** A loop whose step feeds the next tokens of a batch. */
function loopOf<S extends State>(
  model: LanguageModel,
  batch: PagedBatch,
  state: S,
  cacheOf: (now: S) => StepCache | PagedCache,
): DeviceLoop<S> {
  return new DeviceLoop(state, (now) => {
    const cache = cacheOf(now);
    const logits = model.forward(now.token, cache, now.row).reshape([logitsOf(batch), -1]).astype(mx.float32);
    const [token, position] = [mx.add(now.token, 7), mx.add(now.position, batch.tokens ?? 1)];
    return { ...now, token, position, logits, keys: cache.keys, values: cache.values };
  });
}

/**
 * Runs a batch both ways and compares all bits, or their distance where that may be up to `apart` (NMSE). Gives the logits of each
 * step.
 */
export async function comparePaged(
  model: LanguageModel,
  batch: PagedBatch,
  apart: number = 0,
): Promise<readonly Float32Array[]> {
  const assertAlike = (found: Float32Array, expected: Float32Array, what: string): void => {
    if (apart === 0) return assertSameBits(found, expected, what);
    const distance = nmse(found, expected);
    assert(distance <= apart, `${what}: ${distance} apart, at most ${apart} expected`);
  };
  const { free, pages, state } = pagedState(model, batch);
  const { table } = state;
  const [keys, values] = [state.keys, state.values].map((side) =>
    side.map((pool) => mx.contiguous(inARow(pool, table)))
  );
  mx.eval(...keys, ...values);
  const before = [...state.keys, ...state.values].map(bits);
  const inRow = { ...stateOf(batch), keys, values };
  using paged = loopOf(model, batch, state, (now) => new PagedCache(now, now.position, now.table));
  using row = loopOf(model, batch, inRow, (now) => new StepCache(now.keys, now.values, now.position));
  const found: Float32Array[] = [];
  for (let step = 0; step < batch.steps; step++) {
    for (const loop of [paged, row]) {
      loop.run();
      await loop.done();
    }
    const logits = bits(state.logits);
    assertAlike(logits, bits(inRow.logits), `logits of step ${step}`);
    found.push(logits);
  }
  [...state.keys, ...state.values].forEach((pool, n) => {
    const expected = [...inRow.keys, ...inRow.values][n];
    assertAlike(mx.tidy(() => bits(mx.contiguous(inARow(pool, table)))), bits(expected), `rows of cache ${n}`);
    const now = bits(pool);
    const size = now.length / pages;
    for (const page of free) {
      const part = (all: Float32Array): Float32Array => all.subarray(page * size, (page + 1) * size);
      assertSameBits(part(now), part(before[n]), `page ${page} of nobody in cache ${n}`);
    }
  });
  return found;
}

/** What steps over pages of codes gave: logits of each step, and the numbers of each pool before and after. */
export interface CodedRun {
  readonly logits: readonly Float32Array[];
  readonly before: readonly Float32Array[];
  readonly after: readonly Float32Array[];
}

/** Runs the steps of a batch over pages of codes. */
export async function codedRun(model: LanguageModel, batch: PagedBatch): Promise<CodedRun> {
  const { state } = pagedState(model, batch);
  const numbers = (): Float32Array[] =>
    [...state.keys, ...state.values].map((pool) => mx.tidy(() => bits(decodeKv(pool, mx.float32))));
  const before = numbers();
  using loop = loopOf(model, batch, state, (now) => new PagedCache(now, now.position, now.table));
  const logits: Float32Array[] = [];
  for (let step = 0; step < batch.steps; step++) {
    loop.run();
    await loop.done();
    logits.push(bits(state.logits));
  }
  return { logits, before, after: numbers() };
}

/** Runs the steps of a batch over pages: the sequences and positions, in order, that were written. */
export async function pagedWrites(model: LanguageModel, batch: PagedBatch): Promise<readonly (readonly number[])[]> {
  const { tables, state } = pagedState(model, batch);
  const pools = [...state.keys, ...state.values];
  const before = pools.map(bits);
  using loop = loopOf(model, batch, state, (now) => new PagedCache(now, now.position, now.table));
  loop.run(batch.steps);
  await loop.done();
  const places = new Set<string>();
  pools.forEach((pool, n) => {
    const [, heads, blocks, page, block] = pool.shape;
    bits(pool).forEach((x, at) => {
      if (Object.is(x, before[n][at])) return;
      const number = Math.floor(at / (heads * blocks * page * block));
      const sequence = tables.findIndex((table) => table.includes(number));
      const place = Math.floor(at / block) % page;
      places.add(`${sequence} ${(tables[sequence]?.indexOf(number) ?? 0) * page + place}`);
    });
  });
  return [...places].map((place) => place.split(" ").map(Number)).sort(([a, b], [c, d]) => a - c || b - d);
}

/** Compares numbers bit by bit. */
export function assertSameBits(found: Float32Array, expected: Float32Array, what: string): void {
  assertEquals(found.length, expected.length, what);
  const first = found.findIndex((x, at) => !Object.is(x, expected[at]));
  assertEquals(first, -1, `${what}: ${found[first]} at ${first}, expected ${expected[first]}`);
}
