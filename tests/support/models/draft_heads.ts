/**
 * Heads that draft tokens for the checkpoints of mlx_lm_families.ts, and their logits in float64: golden/models/draft_heads.json.gz, which
 * draft_heads.py beside it writes.
 */

import { gunzipSync } from "node:zlib";
import * as mx from "../../../mod.ts";
import { CHECKPOINTS, type FamilyCheckpoint, tensorOf, type TensorRow, writeCheckpoint } from "./mlx_lm_families.ts";

/** A head of a model, and the logits of two drafts. */
export interface DraftCase {
  /** The name of the model. */
  readonly model: string;
  readonly tensors: readonly TensorRow[];
  readonly logits: readonly [first: readonly number[], again: readonly number[]];
}

interface Golden {
  readonly first: number;
  readonly every: number;
  readonly tokens: readonly number[];
  readonly next: readonly number[];
  readonly cases: readonly DraftCase[];
}

const FILE = new URL("../../golden/models/draft_heads.json.gz", import.meta.url);
const golden: Golden = JSON.parse(new TextDecoder().decode(gunzipSync(Deno.readFileSync(FILE))));

/** The heads. */
export const DRAFT_CASES: readonly DraftCase[] = golden.cases;
/** The tokens of the first draft and of the second one. */
export const DRAFT_TOKENS: readonly (readonly number[])[] = [golden.tokens, golden.next];

/** The model of a head. */
export function modelOf({ model }: DraftCase): FamilyCheckpoint {
  return CHECKPOINTS.find(({ name }) => name === model)!;
}

/** The hidden states that the first draft takes, (1, T, H). */
export function draftedHidden(size: number): mx.Tensor {
  const row: TensorRow = ["hidden", "bfloat16", [1, golden.tokens.length, size], -2, 2];
  return tensorOf(row, golden.first - 1).astype(mx.float32);
}

/** The logits that are kept of all. */
export function keptDrafts(logits: Float32Array): Float32Array {
  return logits.filter((_, i) => i % golden.every === 0);
}

/** The tensors of a head, by names that begin with `prefix`. */
export function headTensors({ tensors }: DraftCase, prefix: string = ""): Record<string, mx.Tensor> {
  return Object.fromEntries(tensors.map((row, i) => [prefix + row[0], tensorOf(row, golden.first + i)]));
}

/** Writes the model of a head with the head in a file of its own. */
export async function writeWithHead(dir: string, one: DraftCase): Promise<void> {
  const model = modelOf(one);
  await writeCheckpoint(dir, model);
  const [first] = model.tensors[0];
  const prefix = first.startsWith("language_model.") ? "language_model." : "";
  mx.tidy(() => mx.saveSafetensors(`${dir}/mtp.safetensors`, headTensors(one, prefix), { format: "mlx" }));
}
