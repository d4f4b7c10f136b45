/**
 * Nodes of the lazy graph: an op, its inputs, the shape and dtype of the result. The vocabulary that `array` and
 * `schedule` share.
 *
 * A node is pending until the scheduler realizes it. Then its op becomes "stored", its inputs are released and `stored` says where the
 * elements lie. Nodes are counted: one reference per Tensor that shows the node and one per pending node that reads it. The storage is
 * freed with the last reference, so explicit disposal does not wait for the garbage collector.
 *
 * @module
 */

import { checkDtype, type Complex, type Dtype } from "./dtype.ts";
import type { Collective } from "./collective.ts";
import type { CustomCall } from "./custom_kernel.ts";
import { ArrayError, ShapeError } from "./error.ts";
import type { ExpertChoice, ExpertFormat, ExpertUnit } from "./experts.ts";
import type { CodeFormat, QuantizedFormat } from "./quantization.ts";
import { formatShape, type Shape, sizeOf } from "./shape.ts";
import { type NodeStream, scopeStream } from "./stream.ts";

/** Device memory that stored nodes share; counted. */
export interface StorageRef {
  /** Name of the device that holds it. */
  readonly device: string;
  readonly bytes: number;
  retain(): void;
  release(): void;
}

/** Where the elements of a stored node lie. Offsets and strides count elements. */
export interface Stored {
  readonly storage: StorageRef;
  readonly offset: number;
  readonly strides: readonly number[];
  /** Where the storage holds another layout than offset and strides describe. */
  readonly packing?: Packing;
}

/**
 * A quantized matrix (rows, columns) whose codes, scales and biases lie in one storage. Their order is that in which a device's
 * matrix products read them. Each of the three arrays is a part of the storage.
 */
export interface Packing extends CodeFormat {
  readonly rows: number;
  readonly columns: number;
  /** Dtype of scales and biases. */
  readonly scales: Dtype;
  readonly part: "codes" | "scales" | "biases";
}

/** Attributes of every op; the key is the op's name. Ops without attributes have an empty object. */
export interface OpAttrs {
  /** A leaf with device storage. */
  stored: Record<never, never>;
  /**
   * A contiguous leaf with host bytes, uploaded to the device of the first realize that needs it. With `visible` its memory can be read
   * by the host at any time. A leaf without bytes has the content of its memory.
   */
  data: { readonly bytes?: Uint8Array; readonly hostVisible?: boolean };
  /**
   * A leaf in a file: `byteOffset` of its first byte, contiguous, little-endian; `version` is that of its header. `deflated`: so
   * many bytes of a deflate stream lie there, and the values begin `skip` bytes into what it holds, whose CRC-32 is `crc`.
   */
  file: {
    readonly path: string;
    readonly byteOffset: number;
    readonly version: string;
    readonly deflated?: { readonly bytes: number; readonly skip: number; readonly crc: number };
  };
  /** A placeholder of compile(): bound to storage when the compiled Plan runs. */
  parameter: { readonly index: number };
  /** One value everywhere; `derived` says that a function made it of the shapes of its arguments. */
  full: { readonly value: number | bigint | Complex; readonly derived?: true };
  /** start + i * step, one dimension. */
  arange: { readonly start: number | bigint; readonly step: number | bigint };
  /**
   * A row of shaders/include/elementwise.h over 1 to 3 inputs that broadcast to `shape`. `domain` is what the function computes in;
   * inputs are of that kind already except where the row says otherwise (select's condition, cast's input).
   */
  elementwise: { readonly fn: string };
  /** The input; no derivative flows through it. */
  stopGradient: Record<never, never>;
  // Views: no work unless the strides cannot express them.
  /** `asked` are the sizes that a program gave, one of which may be -1. `inserted` says that only these axes of size 1 are new. */
  reshape: { readonly asked?: readonly number[]; readonly inserted?: readonly number[] };
  /** Output axis i is input axis axes[i]. */
  transpose: { readonly axes: readonly number[] };
  /** Element i of axis a is input element starts[a] + i * steps[a]; steps may be negative. */
  slice: { readonly starts: readonly number[]; readonly steps: readonly number[] };
  broadcast: Record<never, never>;
  /** inputs (x, …): x, once the others are computed. */
  depends: Record<never, never>;
  /** The bytes of the input as elements of the node's dtype: the last axis grows or shrinks. */
  bitcast: Record<never, never>;
  /** Any view of a contiguous input. Offset and strides in elements; checked against the input's size by the caller. */
  asStrided: { readonly strides: readonly number[]; readonly offset: number };
  // Data movement.
  contiguous: Record<never, never>;
  concatenate: { readonly axis: number };
  /**
   * inputs (base, update): base with update written at starts/steps. `donate` lets the result take over the storage of base,
   * which must not be used again.
   */
  sliceUpdate: { readonly starts: readonly number[]; readonly steps: readonly number[]; readonly donate: boolean };
  /**
   * inputs (base, update, start): start is int32 of length axes.length (at most 3), clamped so that the update fits. It may also be
   * (rows, axes.length): then each row along the first axis begins at its own start. `kvBlock` is set if base is a buffer of a
   * key/value cache in blocks of so many features: see kv_layout.ts.
   */
  dynamicSliceUpdate: { readonly axes: readonly number[]; readonly donate: boolean; readonly kvBlock?: number };
  /** inputs (x, start): a slice of the output's shape beginning at start along axes. */
  dynamicSlice: { readonly axes: readonly number[] };
  /** inputs (x, indices) with integer indices of any shape: x.shape[:axis] + indices.shape + x.shape[axis+1:]. */
  gather: { readonly axis: number };
  /** inputs (x, indices) of equal rank, equal sizes except along axis. */
  gatherAlong: { readonly axis: number };
  /** inputs (base, indices (n,), updates base.shape with axis replaced by n). */
  scatter: { readonly axis: number; readonly fn: ScatterFn; readonly donate: boolean };
  /** inputs (base, indices, updates), the latter two of one shape, equal to base's except along axis. */
  scatterAlong: { readonly axis: number; readonly fn: ScatterFn; readonly donate: boolean };
  // Reductions and rows.
  /** Over `axes` (sorted, normalised), dropped from or kept in the shape as the node's shape says. */
  reduce: { readonly fn: ReduceFn; readonly axes: readonly number[] };
  /** Over the last axis. */
  softmax: Record<never, never>;
  /** Over the last axis. */
  scan: {
    readonly fn: "sum" | "prod" | "min" | "max" | "logsumexp";
    readonly reverse: boolean;
    readonly exclusive: boolean;
  };
  /** Ascending along the last axis, stable, NaN last. */
  sort: Record<never, never>;
  /** Indices (uint32) of that order. */
  argsort: Record<never, never>;
  // Products.
  /** inputs (a (…, m, k), b (…, k, n)) with equal ranks ≥ 2 and broadcast batch dimensions. */
  matmul: Record<never, never>;
  /**
   * inputs (a (…, m, k), b (…, k, n)[, left][, right][, ranges]). Product i is that of matrices left[i] of a and right[i] of b: uint32
   * indices of their flattened batches. Without indices there is a single matrix. With `ranges`, product i sums only over the depths
   * of the pair ranges[i] (uint32).
   */
  gatherMatmul: { readonly left: boolean; readonly right: boolean; readonly ranges: boolean };
  /** inputs (x (N, …, C), weight (O, …, C / groups)) of one dtype, channels last; a number for each spatial axis. */
  conv: {
    readonly stride: readonly number[];
    readonly paddingLow: readonly number[];
    readonly paddingHigh: readonly number[];
    readonly kernelDilation: readonly number[];
    readonly inputDilation: readonly number[];
    readonly groups: number;
    readonly flip: boolean;
  };
  /** inputs (w[, global scale]); results (codes, scales[, biases of affine codes]), read through `part`. */
  quantize: QuantizedFormat;
  part: { readonly index: number };
  /** inputs (codes, scales[, biases of affine codes][, global scale]). */
  dequantize: QuantizedFormat;
  /** inputs (x, w, scales[, biases of affine codes]); transpose: x @ w.T */
  quantizedMatmul: QuantizedFormat & { readonly transpose: boolean };
  /**
   * The same, then left and right: product i is of matrices left[i] of x and right[i] of w, uint32 indices of their flattened batches.
   * sorted: right ascends
   */
  gatherQuantizedMatmul: QuantizedFormat & { readonly transpose: boolean; readonly sorted: boolean };
  // Fused ops; `composite` of the node is their definition.
  /** inputs (x[, weight]). */
  rmsNorm: { readonly eps: number };
  /** inputs (x[, weight][, bias]). */
  layerNorm: { readonly eps: number; readonly hasWeight: boolean; readonly hasBias: boolean };
  /** inputs (x[, weight], cotangent): the gradient of x through layerNorm (`centered`) or rmsNorm. */
  normVjp: { readonly eps: number; readonly centered: boolean; readonly hasWeight: boolean };
  /** inputs (x, cotangent): that of the weight, shape x.shape[-1:]. */
  normWeightVjp: { readonly eps: number; readonly centered: boolean };
  /** inputs (x (B, H, T, D)[, offset][, freqs]). */
  rope: {
    readonly dims: number;
    readonly traditional: boolean;
    readonly base: number;
    readonly scale: number;
    readonly offset: number;
    readonly offsetInput: "none" | "scalar" | "batch";
    readonly hasFreqs: boolean;
  };
  /**
   * inputs (q, k, v[, mask][, lengths]); mask broadcast to (B, H, Tq, Tk) by the caller. With `window`, and no mask or a causal one, a query
   * sees the last `window` of its keys only.
   */
  attention: {
    readonly scale: number;
    readonly mask: "none" | "causal" | "bool" | "add";
    readonly hasLengths: boolean;
    readonly window?: number;
  };
  /**
   * inputs (pool, update (B, H, T, D), table int32 (B, P), start int32 (B,)). The result is the pool of pages with position start[b] + t of
   * each sequence written where its table says. Positions outside of the table are left out. See kv_layout.ts. A pool of uint8 gets the codes
   * of kv_codes.ts, and the update has floats. `donate` as of `sliceUpdate`.
   */
  appendPages: { readonly donate: boolean };
  /** inputs (pool, from int32 (n,), to int32 (n,)): the pool of pages with page from[i] copied to page to[i]. `donate` as of `sliceUpdate`. */
  copyPages: { readonly donate: boolean };
  /** inputs (pool, table int32 (B, P)): the positions of the pages of each sequence, (B, H, P * PAGE, D), floats out of codes. */
  gatherPages: Record<never, never>;
  /** The inputs of attention, then sinks (Hq,): one more score for each head, which has no value. */
  sinkAttention: OpAttrs["attention"];
  /**
   * inputs (q, k, y, cotangent[, mask][, lengths]) of an attention whose result is y; the result is float32 (B, Hq, Tq, 2). The first
   * number is the log of the sum of each row's exponentials, Infinity if the row sees no key. The second is the dot product of y and
   * its cotangent.
   */
  attentionStats: OpAttrs["attention"];
  /** inputs (q, k, v, cotangent, stats[, mask][, lengths]): the gradient of q. */
  attentionQueryVjp: OpAttrs["attention"];
  /** The same inputs: the gradients of k and v, one after the other in one dimension. */
  attentionKeyVjp: OpAttrs["attention"];
  /**
   * inputs (logits (rows, cols)[, settings float32 (rows, 4), uniforms (rows,)][, mask uint32 (rows, cols / 32, rounded up)]): uint32
   * (rows,). Settings are temperature, topP, minP and topK of each row. Only with `draws` are there any: else all rows take their
   * largest logit. `topK` is that of all rows, 0 if none has one, and -1 if it is unknown. `topP` says whether a row may have one.
   */
  sample: { readonly draws: boolean; readonly topK: number; readonly topP: boolean; readonly masked?: boolean };
  /** inputs (logits (rows, cols), tokens int32 (rows,)[, mask, as of `sample`]): float32 (rows, 1 + 2 top). */
  logprobs: { readonly top: number };
  /** inputs (scores (rows, experts)[, bias (experts,)][, scale (experts,)]): float32 (rows, 2 * chosen), numbers of experts and weights. */
  expertChoice: ExpertChoice;
  /**
   * inputs (x (rows, features), choice, the arrays of gate (experts, outputs, …), those of up[, biases of both (experts, outputs)]): (rows,
   * chosen, outputs). The arrays of a stack are codes, scales[, biases of affine codes], or numbers.
   */
  expertUnits: ExpertFormat & { readonly unit: ExpertUnit; readonly hasBias: boolean };
  /** inputs (x (rows, chosen, features), choice, the arrays of down[, bias (experts, outputs)]): (rows, outputs). */
  expertSum: ExpertFormat & { readonly hasBias: boolean };
  /** inputs (x (rows, features), choice, the arrays of gate, up and down[, biases of the three]): (rows, features), for many rows. */
  expertMixture: ExpertFormat & { readonly unit: ExpertUnit; readonly hasBias: boolean };
  /**
   * inputs (q, k (B, T, Hk, K), v (B, T, H, V), gamma, beta (B, T, H), state (B, H, V, K)). A mask, bool (B, T), may follow. Where gated, a bias and the logarithm of a rate (H,) come last, and the gates follow from gamma and beta. The result (length,) has the outputs (B, T, H, V) and then the last state. decays: gamma is between 0 and 1. Where normEps is not 0, q and k are divided by their
   * lengths first.
   */
  gatedDelta: {
    readonly decays: boolean;
    readonly normEps: number;
    readonly hasMask: boolean;
    readonly gated: boolean;
  };
  /**
   * inputs (before (B, W - 1, F), x (B, T, F), weight (F, W, 1)[, bias (F,)][, counted int32 (1,) or (B,)]). The result (length,) has the outputs
   * (B, T, F) and then the last inputs (B, W - 1, F).
   */
  causalConv: { readonly silu: boolean; readonly hasBias: boolean; readonly hasCounted: boolean };
  /**
   * Discrete Fourier transform along the last axis, times `scale`. With `real` it takes real numbers to the first half of their
   * spectrum; with `inverse` it is the inverse. The input is float32 or complex64, of the size that the output needs.
   */
  fft: { readonly inverse: boolean; readonly real: boolean; readonly scale: number };
  /**
   * inputs (a (…, m, n)[, b (…, n, k)] of the same batch): (…, length), the results one after the other, which slices and reshapes
   * split. In float64 inside, on the CPU: see factorization.ts.
   */
  factorization: Factorization;
  /** inputs: those of the program's kernel. The result is its only output, or the words of all outputs, which views split. */
  customKernel: CustomCall;
  /** inputs (x), of "receive" without elements: what processes compute together, on the host. */
  collective: Collective;
  // Random.
  /** inputs (key (2,) or (n, 2) uint32): uint32 words, threefry 2x32 in MLX's layout. */
  randomBits: Record<never, never>;
  /** inputs (key (2,) or (n, 2) uint32): float32 normal numbers of those words. */
  randomNormal: Record<never, never>;
}

/** Functions of `reduce`. */
export type ReduceFn = "sum" | "prod" | "min" | "max" | "all" | "any" | "argmin" | "argmax" | "logsumexp";
/** How scatter combines an update with the old value. */
export type ScatterFn = "assign" | "sum" | "prod" | "min" | "max";
/** The kind of a factorization, and the parts that it omits or reads. */
export interface Factorization {
  readonly fn: "lu" | "solve" | "solve_triangular" | "cholesky" | "qr" | "eig" | "eigh" | "svd";
  /** Of solve_triangular and cholesky that the factor is upper; of eig, eigh and svd that values alone are asked for. */
  readonly flag?: boolean;
  /** Of eigh: that the upper triangle is read. */
  readonly upper?: boolean;
}

/** Names of ops. */
export type OpName = keyof OpAttrs;

/** A node's op and inputs, in every state of the node. */
export interface Definition {
  readonly op: OpName;
  readonly inputs: readonly Node[];
  readonly shape: Shape;
  readonly dtype: Dtype;
  readonly attrs: OpAttrs[OpName];
}

/** A node; `attrs` is typed by `op` (see {@link attrsOf}). */
export class Node {
  /** Unique, ascending in the order in which nodes are made. */
  readonly id: number = nextId++;
  readonly shape: Shape;
  readonly dtype: Dtype;
  /**
   * Definition in primitives, for fused ops: what the inputs and attributes of a node give. Used where a backend lacks the kernel
   * and when fusion is off.
   */
  composite: ((node: Definition) => Node) | undefined;
  op: OpName;
  inputs: readonly Node[];
  attrs: OpAttrs[OpName];
  /** Set once op is "stored". */
  stored: Stored | undefined;
  /** Why the node may no longer be read, when it may not. */
  gone: string | undefined;
  /** The stream in whose scope it was made, if any. */
  stream: NodeStream | undefined = scopeStream();
  /** Tensors that show it. */
  holders = 0;
  /** Nodes that are evaluated with it where Tensors show them: the value beside its gradients. It does not hold them. */
  beside: readonly Node[] | undefined;
  #refs = 0;
  /** Whether it holds its inputs: from its first reference on, so that what a call makes before it throws holds nothing. */
  #holds = false;

  constructor(op: OpName, inputs: readonly Node[], shape: Shape, dtype: Dtype, attrs: OpAttrs[OpName]) {
    this.op = op;
    this.inputs = inputs;
    this.shape = shape;
    this.dtype = dtype;
    this.attrs = attrs;
  }

  /** Throws an {@link ArrayError} when the node may no longer be read. */
  check(): void {
    if (this.gone === undefined) return;
    throw new ArrayError("disposed", `an array of shape ${formatShape(this.shape)} cannot be used: ${this.gone}`);
  }

  /** References held by Tensors and pending nodes. */
  get refs(): number {
    return this.#refs;
  }

  retain(): void {
    if (this.#refs++ > 0 || this.#holds) return;
    const fresh: Node[] = [this];
    for (let node = fresh.pop(); node; node = fresh.pop()) {
      node.#holds = true;
      for (const input of node.inputs) if (input.#refs++ === 0 && !input.#holds) fresh.push(input);
    }
  }

  /** Lets one reference go; the last one lets go of storage and inputs. */
  release(): void {
    // A loop and not recursion: graphs can be deeper than the stack.
    const dead: Node[] = [];
    if (--this.#refs === 0) dead.push(this);
    for (let node = dead.pop(); node; node = dead.pop()) {
      node.gone = "it was disposed";
      node.stored?.storage.release();
      node.stored = undefined;
      if (node.#holds) { for (const input of node.inputs) if (--input.#refs === 0) dead.push(input); }
      node.inputs = [];
      node.composite = undefined;
    }
  }

  /** Drops one reference and keeps the node, even without any: its maker passes it on to the next owner. */
  handOn(): void {
    this.#refs--;
  }

  /** Turns the pending node into a pending `other` of the same shape, dtype and values: another way to compute it. */
  become(other: Pick<Node, "op" | "inputs" | "attrs" | "composite">): void {
    const inputs = this.#holds ? this.inputs : [];
    if (this.#holds) { for (const input of other.inputs) input.retain(); }
    this.op = other.op;
    this.inputs = other.inputs;
    this.attrs = other.attrs;
    this.composite = other.composite;
    for (const input of inputs) input.release();
  }

  /** Turns the pending node into a stored leaf that owns one reference of `stored.storage`. */
  settle(stored: Stored): void {
    // Between two updates in place: the last one was settled before and has let go of it.
    if (this.gone !== undefined) return stored.storage.release();
    const inputs = this.#holds ? this.inputs : [];
    this.op = "stored";
    this.attrs = {};
    this.stored = stored;
    this.beside = undefined;
    this.inputs = [];
    this.composite = undefined;
    for (const input of inputs) input.release();
  }
}

let nextId = 1;

/** The id of the newest node. */
export function newestNode(): number {
  return nextId - 1;
}

/** Told of every node that is made, while a function is being transformed. */
let recorder: ((node: Node) => void) | undefined;

/** Sets the callback that gets every node of {@link makeNode}; returns the previous one. */
export function setRecorder(record: ((node: Node) => void) | undefined): typeof recorder {
  const before = recorder;
  recorder = record;
  return before;
}

/** Most elements of an array: kernels count them in int32. */
export const MAX_SIZE = 2 ** 31 - 1;

/** Makes a node; the only constructor that `array` uses. Throws where an array would be too large. */
export function makeNode<K extends OpName>(
  op: K,
  inputs: readonly Node[],
  shape: Shape,
  dtype: Dtype,
  attrs: OpAttrs[K],
  composite?: (node: Definition) => Node,
): Node {
  if (sizeOf(shape) > MAX_SIZE) {
    const size = shape.every(Number.isInteger) ? shape.reduce((n, d) => n * BigInt(d), 1n) : sizeOf(shape);
    throw new ShapeError(
      `cannot make an array of shape ${formatShape(shape)}: it has more than 2^31 - 1 elements: ${size}`,
    );
  }
  checkDtype(dtype);
  const node = new Node(op, inputs, shape, dtype, attrs);
  node.composite = composite;
  recorder?.(node);
  return node;
}

/** The attributes of a node whose op is known. */
export function attrsOf<K extends OpName>(node: Pick<Definition, "attrs">, _op: K): OpAttrs[K] {
  return node.attrs as OpAttrs[K];
}
