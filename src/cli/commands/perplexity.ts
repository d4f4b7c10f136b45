/**
 * `vkmx perplexity`: how well a model predicts a text.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { shownPath } from "../../graph/error.ts";
import { useDevice } from "../device.ts";
import { type Flags, UsageError } from "../flags.ts";
import { loadOptions, onInterrupt } from "../loading.ts";
import { ADAPTER_FLAG, DEVICES_FLAGS, KV_BITS_FLAG, kvBitsOf, MODEL_FLAG, placeOf } from "../model_flags.ts";
import { print, printJson, readInput } from "../output.ts";
import { type Command, command, JSON_FLAG, type Program } from "../program.ts";
import { Progress, TOKENS } from "../progress.ts";

const MOST = Number.MAX_SAFE_INTEGER;

const PROGRAM = {
  name: "vkmx perplexity",
  operand: "FILE",
  about:
    `Scores the tokens of a text: exp of their mean negative log-likelihood, with its standard error. The text is cut into
windows; "-" reads it from stdin.`,
  flags: {
    ...MODEL_FLAG,
    ...ADAPTER_FLAG,
    "context": {
      value: "N",
      help: "tokens of a window (512, or the model's context where that is shorter)",
      range: [2, MOST],
      whole: true,
      aliases: ["sequence-length"],
      meant: ["c", "ctx-size"],
    },
    "stride": {
      value: "N",
      help: "tokens from one window to the next, each of which counts once (default: --context)",
      range: [1, MOST],
      whole: true,
      meant: ["ppl-stride"],
    },
    "drop-last": { help: "leave out a last window that the text does not fill, as mlx-lm does" },
    ...KV_BITS_FLAG,
    ...DEVICES_FLAGS,
    ...JSON_FLAG,
  },
  examples: ["README.md", "--model Qwen/Qwen3-0.6B-MLX-4bit --context 2048 --stride 512 wiki.test.raw"],
} as const satisfies Program<Flags>;

const perplexity: Command = command(PROGRAM, async (values, operands) => {
  const { context, stride, json } = values;
  if (operands.length !== 1 && values.device !== "list") {
    throw new UsageError(`Expected one file with text, found ${operands.length}: "-" reads stdin`);
  }
  if (stride !== undefined && context !== undefined && stride > context) {
    throw new UsageError(`--stride is ${stride}, expected at most --context, which is ${context}`);
  }
  const bits = kvBitsOf(values);
  const place = placeOf(values);
  await useDevice(values.device, { json });
  const text = await readText(operands[0]);
  const signal = onInterrupt();
  const scoring = new Progress("Scoring", { unit: TOKENS, delay: 1000 });
  const { model, tokenizer, device } = await mx.lm.load(
    values.model ?? mx.lm.EMBEDDED_MODEL,
    {
      ...loadOptions(place, signal),
      ...(values["adapter-path"] !== undefined && { adapterPath: values["adapter-path"] }),
    },
  );
  using _ = model;
  const found = await mx.lm.perplexity(model, tokenizer, text, {
    ...(context !== undefined && { context }),
    ...(stride !== undefined && { stride }),
    dropLast: values["drop-last"] ?? false,
    ...bits,
    signal,
    onProgress: (done, total) => scoring.update(done, total),
  }).finally(() => scoring.clear());
  const { perplexity, standardError, nll, tokens, seconds } = found;
  const rate = tokens / seconds;
  if (json) {
    const error = Number.isFinite(standardError) ? standardError : null; // none of a single token
    printJson({ perplexity, standard_error: error, nll, tokens, seconds, tokens_per_second: rate, device });
  } else {
    print(`Perplexity: ${perplexity.toFixed(4)} ± ${standardError.toFixed(4)}\n`);
    print(`Tokens:     ${tokens}, ${rate.toFixed(1)} tokens-per-sec\n`);
  }
  return 0;
});

/** The text of a file, or of stdin. */
async function readText(path: string): Promise<string> {
  if (path === "-") return await readInput();
  try {
    return await Deno.readTextFile(path);
  } catch (cause) {
    const why = cause instanceof Deno.errors.NotFound ? "does not exist" : (cause as Error).message.split("\n")[0];
    throw new Error(`${shownPath(path)} cannot be read: ${why}`, { cause });
  }
}

export default perplexity;
