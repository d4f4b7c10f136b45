/**
 * The fusers of a decoder: its step, with the end of a prompt, and the layers of a prompt.
 *
 * @module
 */

import { explain, explainFallback } from "../../backend/explain.ts";
import type { Fuser, FusionContext } from "../plan/fusion.ts";
import { batchUnsupportedReason } from "./emit_batched.ts";
import { emitDecoder } from "./emit_decode.ts";
import { emitChoiceStep } from "./emit_sampling_tail.ts";
import { openPrompt, stepUnsupportedReason } from "./emit_prefill.ts";
import { type DecoderRegion, findDecoder } from "./match/decode_step.ts";
import { findChoiceStep } from "./match/sampling_tail.ts";
import { rowsUnsupportedReason } from "./emit_rows.ts";
import { decoderForm, knownForm } from "./megakernel.ts";
import { type ReadyDecoder, readyDecoder } from "./prepared_weights.ts";
import { hasSampleKernel } from "../ops/sampling.ts";
import { Walk } from "../plan/pattern.ts";

/** One token of each sequence through all layers, or a chunk of one; or the last layer of a prompt for the row that chooses its token. */
export const decodeFuser: Fuser = {
  enabled: ({ fuse, regions }) => fuse && regions !== "off",
  match(context) {
    const { l, state, leaf, value, done } = context;
    const chunk = findReady(context, true);
    if (typeof chunk === "string") explain(`tokens of a sequence: as a prompt, because ${chunk}`);
    const found = typeof chunk === "object" ? chunk : findReady(context, false);
    if (typeof found === "string") explainFallback(`decoder step: op by op, because ${found}`);
    if (found === undefined || typeof found === "string") return undefined;
    const { region: { decoder, late, inside, last }, ready } = found;
    const { sizes, layers, end } = decoder;
    const [name, which] = decoder.chunk
      ? ["decoder step", `, ${decoder.chunk.count} tokens`]
      : [late ? "prompt end" : "decoder step", ""];
    // One layer, which ends a prompt, has little to wait for.
    const form = late && !decoder.chunk
      ? "barriers"
      : decoderForm(l, ready, (node) => ready.codes.get(node) ?? leaf(node));
    const sums = ready.kernels === "columns" ? ready.accumulators : "float32";
    explain(`${name}: ${layers.length} layers of ${sizes.hidden} features fused${which}, ${sums} sums, ${form}`);
    if (state.length > 0 && !end) {
      explain(`${name}: the token is chosen op by op, because more is read than its kernels know`);
    }
    const emitAll = (): void => {
      l.from("region", name);
      emitDecoder(l, ready, form, (node) => ready.codes.get(node) ?? value(node), done);
    };
    return {
      inside,
      whole: !late || decoder.chunk !== undefined,
      emit: (node) => !late && node === last && emitAll(),
      finish: () => late && emitAll(),
    };
  },
};

/** The decoder of a graph with its weights in place; why there is none where something looks like it. */
function findReady(
  { l, graph, wanted, state, leaf }: FusionContext,
  chunks: boolean,
): { readonly region: DecoderRegion; readonly ready: ReadyDecoder } | string | undefined {
  const region = findDecoder(graph, wanted, state, chunks);
  if (region === undefined || typeof region === "string") return region;
  const ready = readyDecoder(l, region.decoder, leaf, {
    batch(decoder) {
      const form = knownForm(l, decoder, "batch");
      return batchUnsupportedReason(l.backend, decoder, form === "barriers" ? "barriers" : "whole");
    },
    products: (decoder) => stepUnsupportedReason(l.backend, decoder),
    rows(decoder) {
      const whole = rowsUnsupportedReason(l.backend, decoder, "whole") === undefined;
      if (whole && knownForm(l, decoder, "rows") !== "barriers") return undefined;
      return rowsUnsupportedReason(l.backend, decoder, "barriers");
    },
  });
  return typeof ready === "string" ? ready : { region, ready };
}

/** A step that only chooses tokens: from logits that another step left, which a mask may have come to meanwhile. */
export const choiceFuser: Fuser = {
  enabled: decodeFuser.enabled,
  match({ l, graph, wanted, before, state, value, done }) {
    const found = state.length > 0 ? findChoiceStep(new Walk(graph, wanted), state) : undefined;
    if (!found || before.some(({ inside }) => inside.has(found.token))) return undefined;
    const { end, inside, token, logits } = found;
    if (!hasSampleKernel(l.backend, logits.shape[1])) return undefined;
    explain(`choice: fused${end.mask ? ", of the tokens that a mask allows" : ""}`);
    const emitAll = (): void => {
      l.from("region", "choice");
      emitChoiceStep(l, end, l.contiguous(value(logits), true), value, done);
    };
    return { inside, whole: true, emit: (node) => node === token && emitAll() };
  },
};

/** Many rows through the layers of a decoder. */
export const prefillFuser: Fuser = {
  enabled: decodeFuser.enabled,
  match({ l, graph, wanted, before, leaf, value, done }) {
    if (before.some(({ whole }) => whole)) return undefined;
    const from = (): void => l.from("region", "prompt layer");
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
      whole: false,
      emit(node) {
        from();
        found.emit(node);
      },
    };
  },
};
