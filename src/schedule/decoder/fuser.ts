/**
 * The fuser of decoders. It finds a step, which may be the end of a prompt, a step that only chooses tokens, and the layers of a prompt.
 *
 * @module
 */

import { explain, explainFallback } from "../../backend/explain.ts";
import type { Fuser, Fusion, FusionContext } from "../plan/fusion.ts";
import { batchedUnsupportedReason } from "./emit_batched.ts";
import { headOf, tableOf } from "./ends.ts";
import type { DecoderSpec } from "./spec.ts";
import { REGION } from "./emit_prefill.ts";
import { emitDecoder } from "./emit_decode.ts";
import { emitChoiceStep } from "./emit_sampling_tail.ts";
import { openPrompt, stepUnsupportedReason } from "./open_prompt.ts";
import { type DecoderRegion, findDecoder, findLastAttention, type LastAttention } from "./match/decode_step.ts";
import { findChoiceStep } from "./match/sampling_tail.ts";
import { gemvUnsupportedReason } from "./emit_gemv.ts";
import { chooseLaunchMode, knownLaunchMode } from "./megakernel.ts";
import { type ReadyDecoder, readyDecoder } from "./prepared_weights.ts";
import { hasSampleKernel } from "../ops/sampling.ts";
import { Walk } from "../plan/pattern.ts";

/** Steps and prompts of decoders. */
export const decoderFuser: Fuser = {
  ops: ["attention", "rope", "sample"],
  enabled: ({ fuse, regions }) => fuse && regions !== "off",
  match(context) {
    const step = fuseStep(context);
    const choice = fuseChoice(context, step?.fusion);
    const isAll = choice !== undefined || (step !== undefined && !step.endsPrompt);
    const layers = isAll ? undefined : fusePrompt(context);
    // The end of a prompt has its nodes before the layers.
    return [layers, choice, step?.fusion].filter((fusion) => fusion !== undefined);
  },
};

/** A decoder, and its weights in place. */
interface ReadyRegion {
  readonly region: DecoderRegion;
  readonly ready: ReadyDecoder;
}

/**
 * One token of each sequence, or a chunk of one sequence, through all layers. Or the last layer of a prompt, for the row that chooses its
 * token.
 */
function fuseStep(
  context: FusionContext,
): { readonly fusion: Fusion; readonly endsPrompt: boolean } | undefined {
  const { l, state, leaf, value, done } = context;
  const found = findReady(context);
  if (!found) return undefined;
  const { region: { decoder, runsLast, inside, last }, ready } = found;
  const { sizes, chunk } = decoder;
  const head = headOf(decoder);
  const layers = [...decoder.layers, ...decoder.recurrent?.layers ?? []];
  const name = runsLast && !chunk ? "prompt end" : "decoder step";
  // One layer, which ends a prompt, has little to wait for.
  const mode = runsLast && !chunk
    ? "barriers"
    : chooseLaunchMode(l, ready, (node) => ready.codes.get(node) ?? leaf(node));
  const sums = ready.kernels === "split_k" ? ready.accumulators : "float32";
  const which = `${chunk ? `, ${chunk.count} tokens` : ""}${runsLast ? "" : partOf(decoder)}`;
  explain(`${name}: ${layers.length} layers of ${sizes.hidden} features fused${which}, ${sums} sums, ${mode}`);
  if (state.length > 0 && head && !head.end) {
    explain(`${name}: the token is chosen op by op, because more is read than its kernels know`);
  }
  const emitAll = (): void => {
    l.from("region", name);
    emitDecoder(l, ready, mode, (node) => ready.codes.get(node) ?? value(node), done);
  };
  const fusion: Fusion = {
    inside,
    emit: (node) => !runsLast && node === last && emitAll(),
    finish: () => runsLast && emitAll(),
  };
  return { fusion, endsPrompt: runsLast && chunk === undefined };
}

/** What a part of a model begins or ends with. */
function partOf(decoder: DecoderSpec): string {
  const from = tableOf(decoder) ? "" : ", from hidden states";
  return headOf(decoder) ? from : `${from}, to hidden states`;
}

/** The decoder of a chunk in a graph, else of a token. Says why there is none if something looks like it. */
function findReady(context: FusionContext): ReadyRegion | undefined {
  const at = findLastAttention(context.graph);
  const chunk = prepareStep(context, true, at);
  if (typeof chunk === "object") return chunk;
  if (chunk !== undefined) explain(`tokens of a sequence: as a prompt, because ${chunk}`);
  const token = prepareStep(context, false, at);
  if (typeof token === "object") return token;
  if (token !== undefined) explainFallback(`decoder step: op by op, because ${token}`);
  return undefined;
}

/** A decoder with its weights in place; the reason where something looks like one. */
function prepareStep(
  { l, graph, wanted, state, leaf }: FusionContext,
  chunks: boolean,
  at: LastAttention,
): ReadyRegion | string | undefined {
  const region = findDecoder(graph, wanted, state, chunks, at);
  if (region === undefined || typeof region === "string") return region;
  const ready = readyDecoder(l, region.decoder, leaf, {
    batched(decoder) {
      const mode = knownLaunchMode(l, decoder, "batched");
      return batchedUnsupportedReason(l.backend, decoder, mode === "barriers" ? "barriers" : "persistent");
    },
    products: (decoder) => stepUnsupportedReason(l.backend, decoder),
    gemv(decoder) {
      const persistent = gemvUnsupportedReason(l.backend, decoder, "persistent") === undefined;
      if (persistent && knownLaunchMode(l, decoder, "gemv") !== "barriers") return undefined;
      return gemvUnsupportedReason(l.backend, decoder, "barriers");
    },
  });
  return typeof ready === "string" ? ready : { region, ready };
}

/** A step that only chooses tokens: from logits that another step left, which a mask may have come to meanwhile. */
function fuseChoice(
  { l, graph, wanted, state, value, done }: FusionContext,
  step: Fusion | undefined,
): Fusion | undefined {
  const found = state.length > 0 ? findChoiceStep(new Walk(graph, wanted), state) : undefined;
  if (!found || step?.inside.has(found.token)) return undefined;
  const { end, inside, token, logits } = found;
  if (!hasSampleKernel(l.backend, logits.shape[1])) return undefined;
  explain(`choice: fused${end.mask ? ", of the tokens that a mask allows" : ""}`);
  const emitAll = (): void => {
    l.from("region", "choice");
    emitChoiceStep(l, end, l.contiguous(value(logits), true), value, done);
  };
  return { inside, emit: (node) => node === token && emitAll() };
}

/** Many rows through the layers of a decoder. */
function fusePrompt({ l, graph, wanted, leaf, value, done }: FusionContext): Fusion | undefined {
  const from = (): void => l.from("region", REGION);
  const back = (node: Parameters<typeof value>[0]): ReturnType<typeof value> => {
    const found = value(node);
    from(); // lowering of another node may have changed it
    return found;
  };
  const found = openPrompt(l, graph, wanted, leaf, back, done);
  if (typeof found === "string") explainFallback(`prompt: op by op, because ${found}`);
  if (found === undefined || typeof found === "string") return undefined;
  explain(found.explanation);
  return {
    inside: found.inside,
    emit(node) {
      from();
      found.emit(node);
    },
  };
}
