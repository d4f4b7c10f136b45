/**
 * One token of each of several sequences through a whole decoder: five dispatches a layer that read weights once for eight
 * sequences, as shaders/batch.glsl says. A sequence gets bit for bit what decoder_emit.ts gives it alone.
 *
 * @module
 */

import type { Backend } from "../backend/backend.ts";
import type { KernelName } from "../backend/kernels.ts";
import type { Node } from "../graph/node.ts";
import { uint32 } from "../graph/dtype.ts";
import {
  type Caches,
  type Decoder,
  type DecoderSizes,
  normsOf,
  pushOf,
  sequencesOf,
  specOf,
  workgroupsOf,
} from "./decoder.ts";
import { emitEnd, headResults } from "./decoder_end.ts";
import type { ReadyDecoder } from "./decoder_ready.ts";
import type { Lowering, Value } from "./lowering.ts";
import { matrixMap } from "./matrices.ts";
import { options } from "./options.ts";

/** Threads that share products, and that walk the positions of a sequence. */
const THREADS = 512;
const WIDE = 256;
/** Hidden features that the normalising kernels take. */
const MOST_HIDDEN = 1024;
/** Sequences of a workgroup, and how many the last one of several must have to be worth its way. */
const ROWS = 8;
const WORTH_IT = 4;
/** Positions that a thread of attention has at most. */
const MOST_POSITIONS = 6;
/** Blocks of 8 features of the feed-forward part that a workgroup makes. */
const FEATURE_BLOCKS = 3;
/** Workgroups of the head, and rows that one makes at once. */
const HEAD_WORKGROUPS = 528;
const HEAD_ROWS = 16;
/** Workgroups that open a token of a sequence. */
const BEGIN_WORKGROUPS = 4;
/** Rows of a projection that a workgroup makes. */
const PROJECT_ROWS = 8;

/** Whether so many sequences are served faster than by a grid of the kernels of one: with matrices only, and full workgroups. */
function pays(backend: Backend, sequences: number): boolean {
  return sequences >= ROWS && (sequences - 1) % ROWS + 1 >= WORTH_IT && usesMatrices(backend);
}

/** Whether the kernels of several sequences serve a decoder: sums in 64 bits, and a cache that attention walks at once. */
export function isBatch(backend: Backend, decoder: Decoder): boolean {
  const { maxThreads } = backend.limits;
  const sequences = sequencesOf(decoder);
  return sequences > 1 && (options.regions === "on" || pays(backend, sequences)) &&
    (options.sums ?? "u64") === "u64" && backend.has("batch_attend") && maxThreads >= 2 * THREADS &&
    decoder.capacity <= WIDE * MOST_POSITIONS && decoder.sizes.hidden <= MOST_HIDDEN;
}

/** Whether the kernels with matrices serve a device; they read codes in the layouts of batch_layouts.ts. */
export function usesMatrices(backend: Backend): boolean {
  return backend.has("batch_qkv_matrices") && matrixMap(backend).pairs;
}

/** Bytes of the state of a sequence, in the order of batch.glsl. */
export function sequenceBytes({ hidden, intermediate, heads, kvHeads, headDim }: DecoderSizes): number {
  const slices = headDim / 8;
  const squares = kvHeads + heads;
  const blocks = heads * slices + intermediate / 8;
  const bytes = 256 + headDim * 4 + hidden * 12 + squares * (headDim * 4 + slices * 16) + blocks * 24;
  return Math.ceil(bytes / 256) * 256;
}

/** Emits the dispatches of the decoder of several sequences. `value` and `done` are those of `emitDecoder`. */
export function emitBatch(
  l: Lowering,
  ready: ReadyDecoder,
  caches: Caches,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): void {
  const { decoder: d, layers } = ready;
  const { hidden, intermediate, heads, kvHeads, headDim } = d.sizes;
  const sequences = sequencesOf(d);
  const slices = headDim / 8;
  const parts = slices % 2 === 0 ? 2 : 1;
  const tiles = Math.ceil(sequences / ROWS);
  const plain = (node: Node): Value => l.contiguous(value(node), true);
  const state = l.temporary([sequences, sequenceBytes(d.sizes) / 4], uint32);
  const spec = {
    ...specOf(d, l.backend),
    COPIES: 1,
    UNROLL: Math.ceil(d.capacity / WIDE),
    ROUNDS: 1,
    SEQUENCES: sequences,
  };
  const push = pushOf(d, d.capacity);
  const run = (
    kernel: KernelName,
    buffers: readonly (Value | undefined)[],
    workgroups: number,
    rows: number,
    own: Readonly<Record<string, number>> = {},
    threads = THREADS,
  ): void =>
    l.emit(kernel, [state, ...buffers], {
      threads,
      spec: { ...spec, ...own },
      push,
      workgroups: [workgroups, rows, 1],
    });
  const matrices = usesMatrices(l.backend);
  const product = (phase: "qkv" | "gate_up" | "head"): KernelName =>
    matrices ? `batch_${phase}_matrices` : `batch_${phase}`;

  const { x, freqs } = d;
  const table = "table" in x
    ? [x.ids, x.table.codes, x.table.scales, x.table.biases].map(plain)
    : [undefined, undefined, undefined, undefined];
  const vector = "table" in x ? undefined : plain(x);
  run("batch_begin", [plain(d.position), vector, ...table, freqs && plain(freqs)], BEGIN_WORKGROUPS, sequences, {
    DTYPE_X: x.dtype.code,
  });
  const project = (matrix: Node, affine: Value, words: number, run_: number): void =>
    run("batch_project", [plain(matrix), affine], hidden / PROJECT_ROWS, tiles, { WORDS: words, RUN: run_ });
  d.layers.forEach((layer, i) => {
    const { norm, mlpNorm, qNorm, kNorm } = normsOf(ready.norms, d.sizes, i);
    const [q, k, v, gate, up] = [layer.q, layer.k, layer.v, layer.gate, layer.up].map((m) => plain(m.codes));
    const { qkv, o, gateUp, down } = layers[i];
    const { keys, values } = caches[i];
    const [ofQkv, ofGateUp] = matrices ? [[qkv[1]], [gateUp[1]]] : [[q, k, v], [gate, up]];
    run(product("qkv"), [norm, qkv[0], qNorm, kNorm, values, ...ofQkv], workgroupsOf(d.sizes), tiles);
    run(
      "batch_attend",
      [keys, values],
      kvHeads * parts,
      sequences,
      { HEAD_PARTS: parts },
      d.capacity <= WIDE ? 2 * THREADS : THREADS,
    );
    project(layer.o.codes, o[0], heads * slices, slices);
    const features = Math.ceil(intermediate / 8 / FEATURE_BLOCKS);
    run(product("gate_up"), [mlpNorm, gateUp[0], ...ofGateUp], features, tiles);
    project(layer.down.codes, down[0], intermediate / 8, 1);
  });
  const count = Math.min(HEAD_WORKGROUPS, Math.ceil(d.vocabulary / HEAD_ROWS));
  const results = headResults(l, d.logits, d.keepsLogits, sequences, d.vocabulary, count, d.end, value);
  const { logits, best, scratch, recent } = results;
  const last = normsOf(ready.norms, d.sizes, d.layers.length).norm;
  run(
    product("head"),
    [last, matrices ? ready.head[1] : plain(d.head.codes), ready.head[0], logits, best, scratch, recent],
    count,
    tiles,
    results.spec,
  );
  if (logits) done(d.logits, logits);
  emitEnd(l, results, sequences, d.vocabulary, d.token, d.end, value, done);
}
