/**
 * Heads that draft tokens for the checkpoints of mlx_lm_families.ts, and their logits in float64: golden/models/draft_heads.json.gz, which
 * draft_heads.py beside it writes.
 */

import { gunzipSync } from "node:zlib";
import * as mx from "../../../mod.ts";
import { namedLeaves } from "../../../src/nn/tree.ts";
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

/** What adds to the residual stream: with 0 of it tokens depend on the last one alone. */
const ADDING = /(out_proj|o_proj|down_proj)\.(weight|bias)$/;

/**
 * The model of a folder of {@link writeWithHead}, with layers of which `share` counts. The head takes the vector of the token and no hidden state,
 * and its layer counts as much. So with 0 it gives the model's logits.
 */
export async function loadWithHead(dir: string, share: number, device: string): Promise<mx.lm.Loaded> {
  const loaded = await mx.lm.load(dir, { device, dtype: mx.float32, draftHead: true });
  const { model } = loaded;
  const changed: [string, mx.Tensor][] = [];
  for (const [name, leaf] of namedLeaves(model.parameters())) {
    const weight = leaf as mx.Tensor;
    if (ADDING.test(name)) changed.push([name, mx.multiply(weight, share)]);
    if (name === "mtp.fc.weight") {
      const [H] = weight.shape;
      changed.push([
        name,
        mx.concatenate([mx.eye(H), mx.multiply(weight.index(mx.Slice(null), mx.Slice(H, 2 * H)), share)], 1),
      ]);
    }
    if (name === "mtp.pre_fc_norm_embedding.weight") changed.push([name, mx.onesLike(weight)]);
    if (name === "model.norm.weight") changed.push(["mtp.norm.weight", mx.add(weight, 0)]);
  }
  model.loadWeights(changed, false);
  return loaded;
}

/** What a head drafts after some of all tokens, most probable ones, by `model.draft` over all and without a cache. */
export class HeadOracle {
  readonly #model: mx.lm.LanguageModel;
  readonly #tokens: readonly number[];
  readonly #most: number;
  readonly #hidden: mx.Tensor;

  /** Over the tokens of a prompt and its answer; a draft has `most` tokens at most. In mx.tidy(). */
  constructor({ model }: Pick<mx.lm.Loaded, "model">, tokens: readonly number[], most: number) {
    this.#model = model;
    this.#tokens = tokens;
    this.#most = most;
    this.#hidden = model.hidden(ints(tokens));
  }

  /** The `count` tokens after token number `at`. */
  draft(at: number, count: number): number[] {
    let hidden = this.#hidden.index(mx.Slice(null), mx.Slice(0, at));
    const guesses: number[] = [];
    while (guesses.length < count) {
      // Padding, which no token before it sees, so that one shape serves all.
      const fed = [...this.#tokens.slice(1, at + 1), ...guesses];
      const missing = this.#tokens.length + this.#most - fed.length;
      const padded = mx.pad(hidden, [[0, 0], [0, missing], [0, 0]]);
      const made = this.#model.draft(padded, ints([...fed, ...Array<number>(missing).fill(0)]));
      const last = made.hidden.index(mx.Slice(null), mx.Slice(fed.length - 1, fed.length));
      guesses.push(Number(mx.argmax(this.#model.logits(last).reshape([-1])).item()));
      hidden = mx.concatenate([hidden, last], 1);
    }
    return guesses;
  }
}

function ints(values: readonly number[]): mx.Tensor {
  return mx.array([[...values]], mx.int32);
}

/** How many tokens are drafted and accepted for an answer by a {@link HeadOracle}. */
export function expectedDrafts(
  loaded: mx.lm.Loaded,
  prompt: readonly number[],
  answer: readonly number[],
  { most, maxTokens }: { readonly most: number; readonly maxTokens: number },
): { readonly drafted: number; readonly accepted: number } {
  const tokens = [...prompt, ...answer];
  return mx.tidy(() => {
    const oracle = new HeadOracle(loaded, tokens, most);
    let [drafted, accepted] = [0, 0];
    for (let at = prompt.length; at < tokens.length - 1;) {
      const guesses = oracle.draft(at, Math.min(most, prompt.length + maxTokens - at - 2));
      const end = guesses.findIndex((token) => loaded.tokenizer.eosTokenIds.has(token));
      if (end >= 0) guesses.splice(end);
      const wrong = guesses.findIndex((token, i) => token !== tokens[at + 1 + i]);
      const right = wrong < 0 ? guesses.length : wrong;
      drafted += guesses.length;
      accepted += right;
      at += right + 1;
    }
    return { drafted, accepted };
  });
}
