/**
 * Finds the regions of a prompt in a graph, and decides which of them are emitted together. `emit_prefill.ts` has their dispatches.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import type { Node } from "../../graph/node.ts";
import type { Lowering } from "../plan/context.ts";
import type { Value } from "../plan/value.ts";
import { isWorthMatrices, productsUnsupportedReason } from "../ops/matmul/coopmat_matmul.ts";
import { options } from "../plan/options.ts";
import { type DecoderSpec, hasPlainNorms, OTHER_EXPERTS, OTHER_GATES, OTHER_NORMS, sequencesOf } from "./spec.ts";
import type { Joint } from "./match/joint.ts";
import { findPrompt, type LayerEpilogue } from "./match/prefill.ts";
import { findPromptNorms } from "./match/prompt_mixer.ts";
import type { GraphView } from "../plan/pattern.ts";
import { fragmentFormat, jointsOf, jointUnsupportedReason, PromptWeights } from "./prompt_weights.ts";
import { tuningOf } from "../tuning/choose.ts";
import { Prompt } from "./emit_prefill.ts";

/** Whether regions alone read what an epilogue gives: then its last sum waits for the norm of the next layer. */
function isLinked(
  { out }: LayerEpilogue,
  graph: GraphView,
  wanted: ReadonlySet<Node>,
  norms: readonly { readonly x: Node }[],
  epilogues: readonly LayerEpilogue[],
  inside: ReadonlySet<Node>,
): boolean {
  const count = (regions: readonly { readonly x: Node }[]): number => regions.filter(({ x }) => x === out).length;
  return !wanted.has(out) && (graph.readers.get(out) ?? []).every((reader) => inside.has(reader)) &&
    count(norms) === 1 && count(epilogues) <= 1;
}

/** Multiplications of a row. */
function workOf({ columns, k }: Joint): number {
  return columns[0] * k;
}

/** Why regions with such a product do not pay, or with none; undefined where they do. */
function productsReason(backend: Backend, largest: Joint | undefined, rows: number): string | undefined {
  if (!largest) return backend.has("add_norm") ? undefined : `${backend.name} has no kernel add_norm`;
  const unsupported = jointUnsupportedReason(backend, largest);
  if (unsupported !== undefined) return unsupported;
  const { columns: [n], k } = largest;
  return options.regions === "auto" && !isWorthMatrices(backend, rows, n, k)
    ? `${rows} rows are too little work`
    : undefined;
}

/**
 * Looks for the regions of a prompt. `leaf` gives values of leaves, `value` and `done` are those of {@link Prompt}. Undefined
 * where there is nothing like them; a reason where nothing of it can be fused.
 */
export function openPrompt(
  l: Lowering,
  graph: GraphView,
  wanted: ReadonlySet<Node>,
  leaf: (node: Node) => Value | undefined,
  value: (node: Node) => Value,
  done: (node: Node, value: Value) => void,
): Prompt | string | undefined {
  const { prologues, epilogues: all, ...found } = findPrompt(graph, wanted);
  const { minHalfRows } = tuningOf(l.backend).quantizedProducts;
  const epilogues = all.filter(({ mixed, rows }) => mixed.isAttention || rows >= minHalfRows);
  const reasons = new Set(found.reasons);
  const few = all.find((region) => !epilogues.includes(region));
  if (few) reasons.add(`${few.rows} rows are too few where a mixer is no attention`);
  const joints = [...prologues.map(({ qkv }) => qkv), ...epilogues.flatMap(jointsOf)];
  if (prologues.length + epilogues.length === 0) return reasons.size > 0 ? [...reasons].join("; ") : undefined;
  const rows = prologues[0] ? prologues[0].batch * prologues[0].rows : epilogues[0].rows;
  const largest = joints.reduce<Joint | undefined>((a, b) => a && workOf(a) >= workOf(b) ? a : b, undefined);
  const unsupported = productsReason(l.backend, largest, rows);
  if (unsupported !== undefined) return unsupported;

  const weights = new PromptWeights(l, leaf, joints, reasons);
  const before = prologues.map((region) => weights.prologue(region)).filter((ready) => ready !== undefined);
  const after = epilogues.map((region) => weights.epilogue(region)).filter((ready) => ready !== undefined);
  const [starts, ends] = [before.map(({ region }) => region), after.map(({ region }) => region)];
  const inside = new Set([...starts, ...after].flatMap((region) => [...region.inside]));
  const norms = findPromptNorms(graph, wanted, new Set(ends.flatMap(({ x, out }) => [x, out])), inside)
    .map((region) => weights.norm(region));
  for (const norm of norms) for (const node of norm.inside) inside.add(node);
  const linked = after.map((ready) => ({
    ...ready,
    linked: isLinked(ready.region, graph, wanted, [...starts, ...norms.map(({ region }) => region)], ends, inside),
  }));
  const explanation =
    `prompt of ${rows} rows: ${before.length} layers fused before attention, ${after.length} after it` +
    (reasons.size > 0 ? `; others op by op, because ${[...reasons].join("; ")}` : "");
  return new Prompt(l, before, norms, linked, explanation, value, done);
}

/**
 * Why a step of several sequences does not use the prefill GEMMs. Undefined if they are faster than a grid of the single-sequence kernels.
 */
export function stepUnsupportedReason(backend: Backend, d: DecoderSpec): string | undefined {
  const few = sequencesOf(d) * d.sizes.hidden < tuningOf(backend).decode.minProductFeatures &&
    options.matrices !== "emulated";
  if (few) return `${sequencesOf(d)} sequences are too little work`;
  if (!hasPlainNorms(d.features)) return `there are ${OTHER_NORMS}`;
  if (d.features.experts) return `there are ${OTHER_EXPERTS}`;
  if (d.features.gated) return `there are ${OTHER_GATES}`;
  const formats = d.layers.flatMap((layer) => Object.values(layer.formats));
  return formats.map(fragmentFormat).map((format) => productsUnsupportedReason(backend, format)).find((reason) =>
    reason !== undefined
  );
}
