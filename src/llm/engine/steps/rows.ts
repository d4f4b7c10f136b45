/**
 * What the device has of sequences that decode together, a row for each: the token to feed, its position, pages and settings.
 *
 * The host writes a row when a sequence takes it. From then on steps advance it, and the host only adds pages. Rows that no sequence has
 * write to page 0, and to slot 0 of recurrent states.
 *
 * @module
 */

import * as mx from "../../../array/mod.ts";
import { enqueue } from "../../../array/compile/evaluate.ts";
import { hostVisible, writeState } from "../../../array/compile/loop.ts";
import type { Tensor } from "../../../array/mod.ts";
import type { Key } from "../../../array/random/keys.ts";
import { maskWords } from "../../../graph/token_mask.ts";
import { type DecodeScalars, detach, fromLog, logprobsIn, logprobsLog, tokenLog } from "../../decode/state.ts";
import { ring } from "../../decode/rings.ts";
import type { Logprobs } from "../../sampling/logprobs_log.ts";
import { type ChoiceArrays, type ChoiceKind, type ChoiceSettings, penaltiesRow, settingsRow } from "./choice.ts";

/** What a sequence brings along when it takes a row. */
export interface RowContent {
  /** Its tokens up to the one to feed, or more. */
  readonly tokens: readonly number[];
  /** Position of the token to feed. */
  readonly position: number;
  /** Its page tables; none where the row is not fed. */
  readonly tables: readonly (readonly number[])[];
  /** Its slot of recurrent states. */
  readonly slot: number;
  /** State of its random numbers, where it draws. */
  readonly key: Key | undefined;
  readonly settings: ChoiceSettings;
}

/** The bits of a mask that allows all tokens. */
const ANY = 2 ** 32 - 1;

/** Sizes of rows. */
export interface RowSizes {
  readonly rows: number;
  /** Pages that a sequence may have, and its tables of them. */
  readonly columns: number;
  readonly tables: number;
  readonly kind: ChoiceKind;
  /** The vocabulary, where tokens are chosen by masks in a step of their own. */
  readonly masked: number | undefined;
  /** Of logits. */
  readonly dtype: mx.Dtype;
  /** Whether the host copies tokens, positions and tables to other devices at each step: then it sees their memory. */
  readonly isCopied: boolean;
}

/** What steps over rows read and write, but for the pool. */
export interface RowState extends DecodeScalars, ChoiceArrays {
  /** int32 (B, P): the pages of each row, for each group of layers. */
  readonly tables: readonly Tensor[];
  /** int32 (B,): the slot of recurrent states of each row. */
  readonly slots: Tensor;
  /** (B, V) and uint32 (B, V / 32, rounded up): where tokens are chosen by masks. */
  readonly logits: Tensor | undefined;
  readonly mask: Tensor | undefined;
}

/** What steps over B sequences of T columns read and write, but for the pool: B * T rows, and B page tables and slots. */
export interface VerifyState extends RowState {
  /** int32 (B,): the position of the first column of each sequence. */
  readonly starts: Tensor;
  /** int32 (B,): how many tokens of each are drafted; further columns are filled. */
  readonly drafted: Tensor;
  /** (B, 1, H): what the head made of the token before, in a loop of a head that drafts. */
  readonly hidden?: Tensor;
}

/** Rows on the device. */
export class DeviceRows implements Disposable {
  /** Their sizes. */
  readonly sizes: RowSizes;
  /** The arrays. */
  readonly state: RowState;
  /** Pages of each row that the tables have. */
  readonly #pages: number[];
  /** Whether the mask of each row allows all tokens. */
  readonly #free: boolean[];

  /** Rows that no sequence has. Their memory is made by {@link DeviceRows.begin}. */
  constructor(sizes: RowSizes) {
    this.sizes = sizes;
    const { rows, columns, tables, kind, masked, dtype, isCopied } = sizes;
    const { penalties, recent, bias, logprobs } = kind;
    const ints = (shape: number[]): Tensor => {
      const count = shape.reduce((product, size) => product * size, 1);
      return detach(isCopied ? hostVisible(new Int32Array(count), shape) : mx.zeros(shape, mx.int32));
    };
    const floats = (shape: number[]): Tensor => detach(mx.zeros(shape, mx.float32));
    const words = (shape: number[]): Tensor => detach(mx.zeros(shape, mx.uint32));
    this.#pages = new Array(rows).fill(0);
    this.#free = new Array(rows).fill(false);
    this.state = {
      token: ints([rows, 1]),
      position: ints([rows]),
      key: kind.draws ? words([rows, 2]) : undefined,
      recent: recent > 0 ? ints([rows, recent]) : undefined,
      weights: undefined,
      log: tokenLog(rows),
      logprobs: logprobsLog(logprobs < 0 ? undefined : logprobs, rows),
      settings: kind.draws ? floats([rows, 4]) : undefined,
      penalties: penalties ? floats([rows, 4]) : undefined,
      biasIds: bias > 0 ? ints([rows, bias]) : undefined,
      biasValues: bias > 0 ? floats([rows, bias]) : undefined,
      tables: Array.from({ length: tables }, () => ints([rows, columns])),
      slots: ints([rows]),
      logits: masked === undefined ? undefined : detach(mx.zeros([rows, masked], dtype)),
      mask: masked === undefined ? undefined : words([rows, maskWords(masked)]),
    };
  }

  /** Makes the arrays, which waits for no step on its way. Returns the rows. */
  begin(): this {
    enqueue(this.state);
    return this;
  }

  /** Writes a sequence into a row. */
  place(row: number, { tokens, position, tables, slot, key, settings }: RowContent): void {
    const { state, sizes: { kind } } = this;
    writeState(state.token, Int32Array.of(tokens[position]), row);
    writeState(state.position, Int32Array.of(position), row);
    if (state.key && key) writeState(state.key, Uint32Array.from(key), 2 * row);
    if (state.settings) writeState(state.settings, settingsRow(settings), 4 * row);
    if (state.penalties) writeState(state.penalties, penaltiesRow(settings), 4 * row);
    if (state.recent) this.see(row, tokens.slice(Math.max(0, position + 1 - kind.recent), position + 1), position);
    if (state.biasIds && state.biasValues) {
      const [ids, values] = [new Int32Array(kind.bias), new Float32Array(kind.bias)];
      settings.bias.forEach(([id, value], i) => [ids[i], values[i]] = [id, value]);
      writeState(state.biasIds, ids, row * kind.bias);
      writeState(state.biasValues, values, row * kind.bias);
    }
    writeState(state.slots, Int32Array.of(slot), row);
    this.#name(row, tables);
  }

  /** Writes the tokens that penalties of a row look at, the last of which is at a position. */
  see(row: number, tokens: readonly number[], position: number): void {
    const { recent } = this.sizes.kind;
    writeState(this.state.recent!, Int32Array.from(ring(tokens, position, recent)), row * recent);
  }

  /** Adds the pages that a sequence got since. */
  grow(row: number, tables: readonly (readonly number[])[]): void {
    const known = this.#pages[row];
    if (tables[0].length === known) return;
    for (const [i, table] of this.state.tables.entries()) {
      writeState(table, Int32Array.from(tables[i].slice(known)), row * this.sizes.columns + known);
    }
    this.#pages[row] = tables[0].length;
  }

  /** Writes the whole tables of a row. */
  #name(row: number, tables: readonly (readonly number[])[]): void {
    const { columns } = this.sizes;
    for (const [i, table] of this.state.tables.entries()) {
      const all = new Int32Array(columns);
      all.set(tables[i] ?? []);
      writeState(table, all, row * columns);
    }
    this.#pages[row] = tables[0]?.length ?? 0;
  }

  /** Lets a row write to page 0 and to slot 0. */
  clear(row: number): void {
    writeState(this.state.slots, Int32Array.of(0), row);
    this.#name(row, []);
    this.rewind(row);
  }

  /** Has a row that no sequence has begin again at position 0, where attention is short. */
  rewind(row: number): void {
    writeState(this.state.position, Int32Array.of(0), row);
  }

  /** Writes which tokens a row may choose next; default all. */
  allow(row: number, mask?: Int32Array): void {
    if (!mask && this.#free[row]) return;
    this.#free[row] = mask === undefined;
    const words = this.state.mask!.shape[1];
    const bits = mask ? new Uint32Array(mask) : new Uint32Array(words).fill(ANY); // a copy: the mask is in shared memory
    writeState(this.state.mask!, bits, row * words);
  }

  /** The tokens that finished steps chose for a row at `count` positions from `position` on; -1 where logits had none. */
  tokens(row: number, position: number, count: number): Int32Array {
    return fromLog(this.state.log, row, position, count);
  }

  /** The log probabilities of the token at a position, `top` of them. */
  logprobs(row: number, position: number, top: number): Logprobs {
    const { logprob, top: all } = logprobsIn(this.state.logprobs!, row, position);
    return { logprob, top: all.slice(0, top) };
  }

  /** Frees the arrays. */
  [Symbol.dispose](): void {
    mx.dispose(this.state);
  }
}
