/**
 * The state of one lowering: slots, values, and the helpers that every rule uses.
 *
 * A {@link Value} says where a node's elements lie: a slot, an offset and strides. Views only change offset and strides;
 * kernels that need contiguous input ask for it with {@link Lowering.contiguous}, which copies when it must.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { type KernelName, KERNELS } from "../../backend/kernels.ts";
import { type Dtype, float64, isWide, uint32 } from "../../graph/dtype.ts";
import { DtypeError } from "../../graph/error.ts";
import { CODED_FEATURES, isCoded } from "../../graph/kv_codes.ts";
import type { Node, OpName, Packing } from "../../graph/node.ts";
import {
  broadcastStrides,
  collapse,
  contiguousStrides,
  isContiguous,
  overlaps,
  type Shape,
  sizeOf,
} from "../../graph/shape.ts";
import { type Binding, type Dispatch, PlanBuilder } from "./builder.ts";
import type { DispatchSource } from "./profile.ts";
import { Storage } from "./storage.ts";
import { type Blocks, type Pages, type Value, view } from "./value.ts";

/** Kernels that take dtypes of 8 bytes, and in which buffers: indices and starts are 32 bits. */
const WIDE_BUFFERS: Partial<Record<KernelName, readonly number[]>> = {
  arange: [0],
  copy: [0, 2],
  copy_transposed: [0, 2],
  gather: [0, 2],
  scatter: [0, 2],
  matmul: [0, 1, 2],
  matvec: [0, 1, 2],
  gathered_matmul: [0, 1, 2],
  conv_direct: [0, 1, 2],
  elementwise_wide: [0, 1, 2, 3],
  elementwise_complex: [0, 1, 2, 3],
  elementwise_complex_math: [0, 1, 2, 3],
  lu: [0, 3],
  solve: [0, 1, 3],
  solve_triangular: [0, 1, 3],
  cholesky: [0, 3],
  qr: [0, 3],
  eig: [0, 3],
  eigh: [0, 3],
  svd: [0, 3],
  radix_sort: [0, 2],
  sort_words: [0],
};

/**
 * The faster form that lowering again gives. "now" has the same bits, so a loop may change over to it; "next" rounds in another way and is
 * for the next loop. Undefined if there is none.
 */
export type Better = "now" | "next" | undefined;

/** Tells whether lowering again gives a faster form, beside other work. */
export interface Probe {
  /** The weights must be there until it resolves. */
  run(): Promise<Better>;
}

/** The arrays that a packed matrix consists of, in the order of PART in the kernels. */
export const PARTS = ["codes", "scales", "biases"] as const;

/** Shape of a part of a packed matrix before it was packed. */
export function partShape({ rows, columns, bits, groupSize, part }: Packing): Shape {
  return [rows, part === "codes" ? columns * bits / 32 : columns / groupSize];
}

/** The binding of a slot when the Plan runs. */
export type SlotSource =
  | { readonly kind: "storage"; readonly storage: Storage }
  | { readonly kind: "parameter"; readonly index: number }
  | { readonly kind: "result"; readonly bytes: number }
  | { readonly kind: "temporary"; readonly bytes: number };

/** Ops whose result never shares memory with another node. */
const OWN_MEMORY: ReadonlySet<OpName> = new Set<OpName>([
  "stored",
  "parameter",
  "full",
  "arange",
  "concatenate",
  "sliceUpdate",
  "dynamicSliceUpdate",
  "appendPages",
  "copyPages",
  "scatter",
  "scatterAlong",
]);

/** Bytes that the copy kernel moves at most at once. */
const WIDE_BYTES = 16;

/**
 * Elements that a copy can move at once: 1, or as many as fill WIDE_BYTES. The latter needs contiguous elements along the last dimension on
 * both sides. It also needs every other stride and offset, counted in elements, to be a multiple of that number.
 */
function wideness(
  bytes: number,
  shape: readonly number[],
  strides: readonly (readonly number[])[],
  offsets: readonly number[],
): number {
  const last = shape.length - 1;
  const wide = WIDE_BYTES / bytes;
  const fits = last >= 0 && shape[last] % wide === 0 && offsets.every((n) => n % wide === 0) &&
    strides.every((side) => side.every((n, d) => d === last ? n === 1 : n % wide === 0));
  return fits ? wide : 1;
}

/** Dimensions that one copy walks over. */
export const COPY_RANK = 5;
/** Side of a tile of copy_transposed by the bytes of an element. */
const TRANSPOSED_TILES: Readonly<Record<number, number>> = { 1: 32, 2: 32, 4: 64, 8: 32 };
/** Elements along both sides from which on a transposed copy is worth tiles. */
const MIN_TRANSPOSED = 16;

/**
 * The order of dimensions in which copy_transposed takes a copy. The dimension along which the input is contiguous comes before the last
 * one, along which the output is. Undefined if they are the same, or too short.
 */
function transposedOrder(
  shape: readonly number[],
  inStrides: readonly number[],
  outStrides: readonly number[],
): readonly number[] | undefined {
  const last = shape.length - 1;
  const run = inStrides.indexOf(1);
  if (run < 0 || run === last || inStrides[last] === 1 || outStrides[last] !== 1) return undefined;
  if (Math.min(shape[run], shape[last]) < MIN_TRANSPOSED) return undefined;
  return [...shape.keys()].filter((d) => d !== run && d !== last).concat(run, last);
}

/** Where a dispatch finds a value. */
function bindingOf({ slot, offset, dtype }: Value): Binding {
  return { slot, byteOffset: offset * dtype.bytes };
}

/** Lowers nodes into one Plan for one backend. */
export class Lowering {
  readonly backend: Backend;
  readonly builder: PlanBuilder;
  readonly slots: SlotSource[] = [];
  /** Storage that only this Plan uses; the Lowering holds a reference of each. */
  readonly kept: Storage[] = [];
  /** Of {@link Lowering.kept}: a word in visible memory that is not 0 once a dispatch has failed. */
  status: Storage | undefined;
  /** A test that would tell whether lowering again gives a faster Plan. */
  probe: Probe | undefined;
  /** Nodes written in place, with the leaf whose storage they take over. */
  readonly donated: { readonly base: Node; readonly node: Node }[] = [];
  /** Storages of leaves that intermediates or results lie in: nothing else reads those. */
  readonly overwritten: Storage[] = [];
  /** Where each dispatch comes from. */
  readonly sources: DispatchSource[] = [];
  #op: DispatchSource["op"] = "layout";
  #region: string | undefined;
  /** Nodes that their only reader takes in float16, whatever their dtype: a rule may leave them so. */
  readonly asHalf: Set<Node> = new Set();
  #storageSlots = new Map<Storage, number>();
  #parameterSlots = new Map<number, number>();
  /** Unpacked parts of packed matrices. */
  readonly #unpacked = new Map<string, number>();
  readonly #isReadLast: (node: Node, writer?: Node) => boolean;
  readonly #capturesStorage: boolean;

  /**
   * `isReadLast` says whether nothing reads a node after its writer. With `capturesStorage` the Plan will run more than
   * once, so storage that is no parameter must not be written.
   */
  constructor(backend: Backend, isReadLast: (node: Node, writer?: Node) => boolean, capturesStorage: boolean) {
    this.backend = backend;
    this.#isReadLast = isReadLast;
    this.#capturesStorage = capturesStorage;
    this.builder = new PlanBuilder(backend.limits.maxGrid);
  }

  /** Says what the next dispatches are for: an op, and the region that it belongs to. */
  from(op: DispatchSource["op"], region?: string): void {
    this.#op = op;
    this.#region = region;
  }

  /** Whether the Plan will run more than once, by an owner that looks at its status. */
  get repeats(): boolean {
    return this.#capturesStorage;
  }

  /** A fresh intermediate, contiguous. */
  temporary(shape: Shape, dtype: Dtype): Value {
    const slot = this.#newSlot({ kind: "temporary", bytes: Math.max(4, sizeOf(shape) * dtype.bytes) });
    return { slot, offset: 0, strides: contiguousStrides(shape), shape, dtype };
  }

  /** Memory that keeps its content from run to run, by default zero at first; the host can read it if `hostVisible`. */
  keep(bytes: number, hostVisible = false, content: Uint8Array = new Uint8Array(bytes)): Value {
    const storage = new Storage(this.backend, bytes, hostVisible ? "visible" : undefined);
    this.kept.push(storage);
    this.backend.write(storage.buffer, 0, content);
    const shape = [bytes / 4];
    return { slot: this.storageSlot(storage), offset: 0, strides: [1], shape, dtype: uint32 };
  }

  /** Memory of a status word, see {@link Lowering.status}, and of one that nothing reads. */
  keepStatus(): Value {
    const value = this.keep(8, true);
    this.status = this.kept[this.kept.length - 1];
    return value;
  }

  /** The slot of device memory that exists already; one slot per storage. */
  storageSlot(storage: Storage): number {
    let slot = this.#storageSlots.get(storage);
    if (slot === undefined) this.#storageSlots.set(storage, slot = this.#newSlot({ kind: "storage", storage }));
    return slot;
  }

  /** The slot of parameter `index` of a compiled function. */
  parameterSlot(index: number): number {
    let slot = this.#parameterSlots.get(index);
    if (slot === undefined) this.#parameterSlots.set(index, slot = this.#newSlot({ kind: "parameter", index }));
    return slot;
  }

  #newSlot(source: SlotSource): number {
    this.slots.push(source);
    return this.slots.length - 1;
  }

  /**
   * Whether an op that was asked to write in place may. The base must be memory of its own (not a view) that holds each element once (an
   * evaluated broadcast does not). No other node may read it after `writer`, and no other array may share its storage: a slice of it must
   * keep its old values.
   */
  mayDonate(base: Node, value: Value, writer?: Node): boolean {
    const source = this.slots[value.slot];
    if (value.packing || overlaps(value.shape, value.strides)) return false;
    if (!OWN_MEMORY.has(base.op) || !this.#isReadLast(base, writer)) return false;
    return source.kind !== "storage" || (!this.#capturesStorage && source.storage.refs === 1);
  }

  /** Writes a dispatch. Grids of no workgroups are left out. */
  emit(
    kernel: KernelName,
    buffers: readonly (Value | undefined)[],
    d: Omit<Dispatch, "kernel" | "buffers" | "spec" | "table"> & {
      readonly spec: Readonly<Record<string, number>>;
      readonly threads?: number;
      readonly table?: readonly (readonly Value[])[];
    },
  ): void {
    if (d.workgroups === 0) return;
    const plain = KERNELS[kernel].buffers.map((_, i) => buffers[i] && this.plain(buffers[i]));
    this.#checkWide(kernel, plain);
    const rows = d.table?.map((row) => row.map((value) => this.plain(value)));
    const bindings = plain.map((value) => value && bindingOf(value));
    const spec = { THREADS: d.threads ?? this.backend.limits.threads, ...d.spec };
    const { push, workgroups, disjoint = false, preamble = false } = d;
    this.builder.add({
      kernel,
      buffers: bindings,
      spec,
      push,
      table: rows?.map((row) => row.map(bindingOf)),
      workgroups,
      disjoint,
      preamble,
    });
    const values = [...plain, ...(rows?.flat() ?? [])];
    this.sources.push({ kernel, op: this.#op, region: this.#region, preamble, disjoint, spec, values });
  }

  /** Writes a dispatch of a kernel made at run time; see {@link PlanBuilder.addShader}. */
  emitShader(
    name: string,
    buffers: readonly (Value | undefined)[],
    d: Omit<Parameters<PlanBuilder["addShader"]>[0], "buffers">,
  ): void {
    this.builder.addShader({ ...d, buffers: buffers.map((value) => value && bindingOf(value)) });
    const [op, region] = [this.#op, this.#region];
    this.sources.push({ kernel: name, op, region, preamble: false, disjoint: false, spec: {}, values: buffers });
  }

  /** Throws where a kernel would take elements of 8 bytes for others. */
  #checkWide(kernel: KernelName, values: readonly (Value | undefined)[]): void {
    values.forEach((value, i) => {
      if (!value || !isWide(value.dtype)) return;
      if (value.dtype === float64 && !this.backend.limits.float64) {
        throw new DtypeError(`float64 is there on the CPU only: use float32, or x.to("wasm") on ${this.backend.name}`);
      }
      if (!WIDE_BUFFERS[kernel]?.includes(i)) throw new DtypeError(`${this.#op} does not take ${value.dtype.name}`);
    });
  }

  /** The same value in memory as its offset and strides say: pages and blocks are joined, whole parts of packed matrices unpacked, once. */
  plain(value: Value): Value {
    const { packing, blocks, pages, ...rest } = value;
    if (pages) return this.#joinPages(value.shape, pages);
    if (blocks) return this.#join(rest, blocks);
    if (!packing) return value;
    const key = `${value.slot} ${packing.part}`;
    let slot = this.#unpacked.get(key);
    if (slot === undefined) {
      const out = this.unpack(value, packing);
      this.#unpacked.set(key, slot = out.slot);
    }
    return { ...rest, slot };
  }

  /** Rows of a part of a packed matrix as they were before it was packed: those that contiguous `indices` name, or all. */
  unpack({ packing: _, ...bytes }: Value, packing: Packing, indices?: Value, shape?: Shape): Value {
    const { rows, columns, bits, groupSize, scales, part } = packing;
    const out = this.temporary(shape ?? partShape(packing), bytes.dtype);
    const count = indices ? sizeOf(indices.shape) : rows;
    this.emit("packed_rows", [{ ...bytes, offset: 0 }, indices, out], {
      spec: {
        BITS: bits,
        GROUP: groupSize,
        DTYPE_SCALES: scales.code,
        PART: PARTS.indexOf(part),
        DTYPE_INDEX: indices?.dtype.code ?? 0,
      },
      push: { rows, columns, count },
      workgroups: count,
    });
    return out;
  }

  #join(value: Value, { size, stride }: Blocks): Value {
    const out = this.temporary(value.shape, value.dtype);
    const lead = value.shape.slice(0, -1);
    const shape = [...lead, value.shape[lead.length] / size, size];
    const strides = [...value.strides.slice(0, -1), stride, 1];
    this.copy({ ...value, shape, strides }, { ...out, shape, strides: contiguousStrides(shape) });
    return out;
  }

  /** Positions (B, H, P * size, D) out of their pages. */
  #joinPages(shape: Shape, all: Pages): Value {
    const { size, table, pool } = all;
    if (isCoded(pool.dtype)) return this.#decodePages(shape, all);
    const [batch, columns] = table.shape;
    const [pages, heads, blocks, , block] = pool.shape;
    const inner = sizeOf(pool.shape.slice(1));
    const gathered = this.temporary([batch, columns, heads, blocks, size, block], pool.dtype);
    const wide = inner * pool.dtype.bytes % 4 === 0 ? 4 : pool.dtype.bytes;
    this.emit("gather", [this.contiguous(pool), this.contiguous(table), gathered], {
      spec: { ELEMENT_BYTES: wide, DTYPE_INDEX: table.dtype.code, ALONG: 0, FOURS: 0 },
      push: { outer: 1, axis: pages, inner: inner * pool.dtype.bytes / wide, n: batch * columns },
      workgroups: this.groups(batch * columns * inner * pool.dtype.bytes / wide),
    });
    const out = this.temporary(shape, pool.dtype);
    const order = [0, 2, 1, 4, 3, 5]; // (B, H, P, size, D / block, block)
    const turned = order.map((axis) => gathered.shape[axis]);
    const from = view(gathered, turned, order.map((axis) => gathered.strides[axis]));
    this.copy(from, view(out, turned, contiguousStrides(turned)));
    return out;
  }

  /** The same of pages that have codes. */
  #decodePages(shape: Shape, { size, table, pool, dtype }: Pages): Value {
    const [batch, heads, count, headDim] = shape;
    const [pages, , , , block] = pool.shape;
    const out = this.temporary(shape, dtype);
    this.emit("gather_codes", [this.contiguous(pool), this.contiguous(table), out], {
      spec: { DTYPE: dtype.code, PAGE: size },
      push: {
        batch,
        heads,
        count,
        units: headDim / CODED_FEATURES,
        block: block / CODED_FEATURES,
        pages,
        columns: table.shape[1],
        strides: out.strides.slice(0, 3),
      },
      workgroups: this.groups(sizeOf(shape) / CODED_FEATURES),
    });
    return out;
  }

  /** Workgroups for one thread per item. */
  groups(items: number): number {
    return Math.ceil(items / this.backend.limits.threads);
  }

  /** The same value, row-major and without gaps; begins at a multiple of 16 bytes when `aligned`. */
  contiguous(source: Value, aligned = false): Value {
    const value = this.plain(source);
    const misaligned = aligned && (value.offset * value.dtype.bytes) % 16 !== 0;
    if (!misaligned && isContiguous(value.shape, value.strides)) return value;
    const out = this.temporary(value.shape, value.dtype);
    this.copy(value, out);
    return out;
  }

  /** The same value with a last stride of 1, as kernels that read rows through strides need. */
  rows(value: Value): Value {
    const last = value.shape.length - 1;
    return value.shape[last] === 1 || value.strides[last] === 1 ? value : this.contiguous(value);
  }

  /** A view of the value with the shape it broadcasts to. */
  broadcast(value: Value, shape: Shape): Value {
    return { ...value, shape, strides: broadcastStrides(value.shape, value.strides, shape) };
  }

  /**
   * Copies `from` to `to`, which have equal shapes and dtypes, in at most {@link COPY_RANK} dimensions where there are `rows`. `dynamic`
   * shifts one side at run time by int32 start indices, each clamped to its limit. With `rows`, each of that many parts along the first
   * axis has its own row of starts. A copy of the `preamble` comes before all else, once for several runs.
   */
  copy(
    from: Value,
    to: Value,
    options: {
      readonly disjoint?: boolean;
      readonly preamble?: boolean;
      readonly dynamic?: {
        readonly side: "in" | "out";
        readonly start: Value;
        readonly strides: readonly number[];
        readonly limits: readonly number[];
        readonly rows?: number;
      };
    } = {},
  ): void {
    const { dynamic } = options;
    const { shape, strides: [inStrides, outStrides] } = collapse(from.shape, [from.strides, to.strides]);
    if (shape.length > COPY_RANK) {
      // Peel the slowest dimension until the kernel can walk the rest.
      for (let i = 0; i < shape[0]; i++) {
        const view = (v: Value, s: readonly number[]): Value => ({
          ...v,
          offset: v.offset + i * s[0],
          shape: shape.slice(1),
          strides: s.slice(1),
        });
        this.copy(view(from, inStrides), view(to, outStrides), { ...options, disjoint: options.disjoint || i > 0 });
      }
      return;
    }
    const order = transposedOrder(shape, inStrides, outStrides);
    if (order && !dynamic && this.backend.has("copy_transposed")) {
      return this.#copyTransposed(from, to, order, { shape, strides: [inStrides, outStrides] }, options);
    }
    const starts = dynamic?.strides ?? [];
    const wide = wideness(from.dtype.bytes, shape, [inStrides, outStrides], [from.offset, to.offset, ...starts]);
    const last = shape.length - 1;
    const units = shape.map((size, d) => d === last ? size / wide : size);
    const steps = (strides: readonly number[]): number[] => strides.map((s, d) => d === last ? s : s / wide);
    const count = sizeOf(units);
    this.emit("copy", [from, dynamic?.start, to], {
      spec: { ELEMENT_BYTES: from.dtype.bytes * wide, DYNAMIC: dynamic ? (dynamic.side === "out" ? 1 : 2) : 0 },
      push: {
        count,
        shape: units,
        in_strides: steps(inStrides),
        out_strides: steps(outStrides),
        start_strides: starts.map((s) => s / wide),
        start_limits: dynamic?.limits ?? [],
        starts: starts.length,
        start_rows: dynamic?.rows ?? 1,
      },
      workgroups: this.groups(count),
      ...(options.disjoint && { disjoint: true }),
      ...(options.preamble && { preamble: true }),
    });
  }

  #copyTransposed(
    from: Value,
    to: Value,
    order: readonly number[],
    { shape, strides }: ReturnType<typeof collapse>,
    { disjoint = false, preamble = false }: { readonly disjoint?: boolean; readonly preamble?: boolean },
  ): void {
    const { bytes } = from.dtype;
    const tile = TRANSPOSED_TILES[bytes];
    const front = new Array<number>(COPY_RANK - order.length);
    const [sizes, inStrides, outStrides] = [shape, ...strides].map((list, i) => [
      ...front.fill(i === 0 ? 1 : 0),
      ...order.map((d) => list[d]),
    ]);
    const tiles = sizes.map((size, d) => d < COPY_RANK - 2 ? size : Math.ceil(size / tile));
    this.emit("copy_transposed", [from, undefined, to], {
      spec: { ELEMENT_BYTES: bytes, TILE: tile },
      push: {
        count: sizeOf(sizes),
        shape: sizes,
        in_strides: inStrides,
        out_strides: outStrides,
        start_strides: [],
        start_limits: [],
        starts: 0,
        start_rows: 1,
      },
      workgroups: sizeOf(tiles),
      disjoint,
      preamble,
    });
  }
}
