/**
 * Rules of the fused ops of recurrent layers: the gated delta rule, and a convolution over the last tokens.
 *
 * @module
 */

import {
  COUNTED_ALL,
  COUNTED_EACH,
  COUNTED_ONCE,
  type KernelName,
  SLOTS_NONE,
  SLOTS_READ,
  SLOTS_REPLACED,
} from "../../backend/kernels.ts";
import { float32 } from "../../graph/dtype.ts";
import { attrsOf, type Node } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import type { Inputs } from "./rule.ts";

/** Threads of a workgroup of gated_delta, and the rows of a state that they have. */
const DELTA_THREADS = 128;
const DELTA_ROWS = DELTA_THREADS / 8;
/** Tokens of a block of gated_delta_blocks, the floats of its record of each, and the rows of a state of a workgroup. */
const BLOCK = 8;
const RECORD = 24;
const BLOCK_ROWS = DELTA_THREADS / 4;
/** Tokens of a sequence from which on they go by blocks: of fewer the last block costs more than it saves. */
const MIN_BLOCKED = 32;
/** Features of keys: a thread has four of each so many, and no more than registers hold. */
const KEY_STEP = 32;
const MAX_KEYS = 256;
/** Tokens that a convolution sees at most. */
const MAX_WINDOW = 8;
/** Tokens that a thread of causal_conv has. */
const CONV_RUN = 4;
/** Numbers that kernels load at once. */
const QUAD = 4;

/** States of a pass that are among those of other sequences. */
export interface SlotStates {
  /** The states of all slots (n, …). */
  readonly states: Value;
  /** The slot of each sequence, int32 (B,). */
  readonly index: Value;
  /** Its position, int32 (B,): at 0 its state is zeros. */
  readonly position: Value;
  /** Whether the last states replace those before. Else they follow the outputs. */
  readonly replaced: boolean;
}

/** The buffers of the slots and positions of sequences, the constant and the push word: of states in slots, or of operands. */
function slotsOf(l: Lowering, slots: SlotStates | undefined): {
  readonly buffers: readonly (Value | undefined)[];
  readonly spec: { readonly SLOTS: number };
  readonly push: { readonly slots: number };
} {
  if (!slots) return { buffers: [undefined, undefined], spec: { SLOTS: SLOTS_NONE }, push: { slots: 0 } };
  return {
    buffers: [slots.index, slots.position].map((value) => l.contiguous(value)),
    spec: { SLOTS: slots.replaced ? SLOTS_REPLACED : SLOTS_READ },
    push: { slots: slots.states.shape[0] },
  };
}

/** The kernel of the gated delta rule, if it knows the sizes. */
export function deltaKernel(node: Node): KernelName | undefined {
  const { inputs: [q, , v, ...floats], dtype } = node;
  const { gated } = attrsOf(node, "gatedDelta");
  const [keys, values] = [q.shape[3], v.shape[3]];
  const fits = keys % KEY_STEP === 0 && keys <= MAX_KEYS && values % DELTA_ROWS === 0;
  const exact = floats.slice(gated ? 2 : 0, 3).every((input) => input.dtype === float32) && dtype === float32;
  return fits && exact && keys > 0 && values > 0 && q.shape[0] > 0 ? "gated_delta" : undefined;
}

/** Values (B, T, H, D) whose features can be read four at a time and whose heads are contiguous, with equal strides. */
function inQuads(l: Lowering, values: readonly Value[]): readonly Value[] {
  const [{ strides: first }] = values;
  const isReadable = ({ offset, strides, shape: [, , heads, size] }: Value): boolean =>
    strides[3] === 1 && (heads === 1 || strides[2] === size) &&
    [offset, strides[0], strides[1]].every((n) => n % QUAD === 0) &&
    strides[0] === first[0] && strides[1] === first[1];
  return values.every(isReadable) ? values : values.map((value) => l.contiguous(value, true));
}

/** Outputs of the gated delta rule, and the last state after them or in its slots. */
export function gatedDelta(
  l: Lowering,
  node: Node,
  [q, k, v, gamma, beta, state, ...rest]: Inputs,
  slots?: SlotStates,
): Value {
  const { normEps, hasMask, gated } = attrsOf(node, "gatedDelta");
  const [batch, tokens, keyHeads, keys] = q.shape;
  const [heads, values] = v.shape.slice(2);
  const out = l.temporary(slots?.replaced ? [sizeOf(v.shape)] : node.shape, node.dtype);
  const pair = inQuads(l, [q, k]);
  const [ofValues] = inQuads(l, [v]);
  const before = slots?.states ?? l.contiguous(state, true);
  const gates = [gamma, beta].map((value) => l.contiguous(value, true));
  const live = hasMask ? l.contiguous(rest[0]) : undefined;
  const [bias, logRate] = (gated ? rest.slice(-2) : []).map((value) => l.contiguous(value));
  const { buffers, spec: places, push: count } = slotsOf(l, slots);
  const sizes = { KEY_DIM: keys, KEY_HEADS: keyHeads, HEADS: heads, DTYPE_Q: q.dtype.code, DTYPE_K: k.dtype.code };
  const ofTokens = {
    NORMALIZED: normEps > 0 ? 1 : 0,
    HAS_MASK: hasMask ? 1 : 0,
    GATED: gated ? 1 : 0,
    DTYPE_GAMMA: gamma.dtype.code,
    DTYPE_BETA: beta.dtype.code,
    DTYPE_BIAS: (bias?.dtype ?? float32).code,
    DTYPE_LOG_RATE: (logRate?.dtype ?? float32).code,
  };
  const ofRows = { ...sizes, VALUE_DIM: values, DTYPE_V: v.dtype.code, ...places };
  const push = {
    batch,
    tokens,
    ...count,
    eps: normEps,
    qk_strides: pair[0].strides.slice(0, 2),
    v_strides: ofValues.strides.slice(0, 2),
  };
  const threads = DELTA_THREADS;
  if (goesByBlocks(l, tokens, keys, values)) {
    const blocks = batch * heads * Math.ceil(tokens / BLOCK);
    const systems = l.temporary([blocks, BLOCK, RECORD], float32);
    l.emit("delta_systems", [...pair, ...gates, live, systems, bias, logRate], {
      threads: BLOCK ** 2,
      spec: { ...sizes, ...ofTokens },
      push,
      workgroups: blocks,
    });
    l.emit("gated_delta_blocks", [...pair, ofValues, systems, before, out, ...buffers], {
      threads,
      spec: { ...ofRows, SUBGROUP: l.backend.limits.subgroup },
      push,
      workgroups: batch * heads * values / BLOCK_ROWS,
    });
  } else {
    l.emit("gated_delta", [...pair, ofValues, ...gates, before, live, out, ...buffers, bias, logRate], {
      threads,
      spec: { ...ofRows, ...ofTokens },
      push,
      workgroups: batch * heads * values / DELTA_ROWS,
    });
  }
  return out;
}

/** Whether tokens go by blocks: there are enough of them, and a workgroup has room for the keys and queries of two blocks. */
function goesByBlocks({ backend }: Lowering, tokens: number, keys: number, values: number): boolean {
  const { subgroup, sharedBytes } = backend.limits;
  const bytes = 2 * 2 * BLOCK * keys * float32.bytes + 2 * BLOCK_ROWS * BLOCK * float32.bytes;
  return tokens >= MIN_BLOCKED && values % BLOCK_ROWS === 0 && backend.has("gated_delta_blocks") &&
    subgroup >= BLOCK && DELTA_THREADS % subgroup === 0 && bytes <= sharedBytes;
}

/** The kernel of a convolution over tokens, if it knows the sizes. */
export function causalConvKernel({ inputs: [, x, weight] }: Node): KernelName | undefined {
  return x.shape[2] % QUAD === 0 && weight.shape[1] <= MAX_WINDOW && sizeOf(x.shape) > 0 ? "causal_conv" : undefined;
}

/** A convolution over tokens, and its last inputs after the results or in their slots. */
export function causalConv(
  l: Lowering,
  node: Node,
  [before, x, weight, ...rest]: Inputs,
  slots?: SlotStates,
): Value {
  const { silu, hasBias, hasCounted } = attrsOf(node, "causalConv");
  const [bias, counted] = [hasBias ? rest[0] : undefined, hasCounted ? rest.at(-1) : undefined];
  const [batch, tokens, features] = x.shape;
  const window = weight.shape[1];
  const past = slots?.states ?? l.contiguous(before, true);
  const out = l.temporary(slots?.replaced ? [sizeOf(x.shape)] : node.shape, node.dtype);
  const operands = [x, weight].map((value) => l.contiguous(value, true));
  const { buffers, spec, push } = slotsOf(l, slots);
  const given = [bias, counted].map((value) => value && l.contiguous(value));
  l.emit("causal_conv", [past, ...operands, ...given, out, ...buffers], {
    spec: {
      DTYPE_X: x.dtype.code,
      DTYPE_BEFORE: past.dtype.code,
      DTYPE_WEIGHT: weight.dtype.code,
      DTYPE_BIAS: (bias?.dtype ?? float32).code,
      SILU: silu ? 1 : 0,
      HAS_BIAS: hasBias ? 1 : 0,
      HAS_COUNTED: counted ? sizeOf(counted.shape) > 1 ? COUNTED_EACH : COUNTED_ONCE : COUNTED_ALL,
      ...spec,
    },
    push: { batch, tokens, features, window, ...push },
    workgroups: l.groups(batch * (1 + Math.ceil(Math.max(0, tokens - window + 1) / CONV_RUN)) * features / QUAD),
  });
  return out;
}
