/**
 * Generates text with a language model.
 *
 *     deno run -A examples/generate.ts "Once upon a time"
 *     deno run -A examples/generate.ts --model DIR --temp 0 "Why is the sky blue?"
 *
 * Without --model it runs the embedded demonstration model, so it needs neither a network nor a GPU.
 *
 * @module
 */

import * as mx from "../mod.ts";
import {
  type Flags,
  generateOptions,
  MODEL_FLAGS,
  note,
  print,
  ProgressBar,
  readInput,
  runMain,
  tellLimit,
  UsageError,
  type Values,
} from "./cli.ts";
import { useDevice } from "./device.ts";

const FLAGS = {
  ...MODEL_FLAGS,
  "chat": { help: "put the prompt into the model's chat template (default with --model, where there is one)" },
  "raw": { help: "continue the prompt as it is" },
  "profile": { help: "print where the time goes, on stderr; every kernel runs by itself meanwhile" },
  "json": { help: "print one JSON object at the end instead of streaming text" },
} as const satisfies Flags;

const ABOUT = `Streams generated text to stdout and figures to stderr. The prompt "-" reads stdin; without one it is
"Once upon a time".
The embedded model continues the prompt, or answers it where it has nothing to add.`;

const PROGRAM = { name: "generate.ts", operand: "[prompt]", about: ABOUT, flags: FLAGS };

await runMain(PROGRAM, async (values, operands) => {
  const prompt = await readPrompt(operands);
  if (values.chat && values.raw) throw new UsageError("--chat and --raw exclude each other");
  if (values.raw && (values.system !== undefined || values["no-think"])) {
    throw new UsageError("--system and --no-think need the chat template: leave out --raw");
  }
  const interrupt = onInterrupt();

  await useDevice(values.device);
  const started = performance.now();
  const bar = new ProgressBar("Loading");
  const { model, tokenizer, generationConfig, device } = await mx.lm.load(values.model ?? mx.lm.EMBEDDED_MODEL, {
    device: values.device,
    onDownload: ({ bytesDone, bytesTotal }) => bar.update(bytesDone, bytesTotal),
    onProgress: (done, total) => bar.update(done, total),
    signal: interrupt,
  }).finally(() => bar.clear());
  const loadSeconds = (performance.now() - started) / 1000;

  const forced = values.chat || values.system !== undefined || values["no-think"];
  const chat = forced || (!values.raw && values.model !== undefined && tokenizer.hasChatTemplate);
  const options = { ...generateOptions(values, generationConfig), signal: interrupt };
  const messages: mx.lm.ChatMessage[] = [{ role: "user", content: prompt }];
  if (values.system !== undefined) messages.unshift({ role: "system", content: values.system });

  let run!: Run;
  const work = async (): Promise<void> => {
    run = await generate(model, tokenizer, chat ? messages : prompt, options, values);
    const silent = run.text === "" && run.last.finishReason === "stop";
    if (silent && values.model === undefined && !chat && !values.raw) {
      run = await generate(model, tokenizer, messages, options, values);
    }
  };
  const profile = values.profile ? await mx.profile(work, { device }) : await work();
  tellLimit(run.last, options);
  report(run, values, loadSeconds, device);
  if (profile) note(`${mx.describeProfile(profile)}\n`);
  model[Symbol.dispose]();
  return run.last.finishReason === "abort" ? 130 : 0;
});

/** What one generation gave. */
interface Run {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly last: mx.lm.GenerationResponse;
  readonly firstTokenSeconds: number;
}

async function generate(
  model: mx.lm.LanguageModel,
  tokenizer: mx.lm.Tokenizer,
  prompt: mx.lm.Prompt,
  options: mx.lm.GenerateOptions,
  values: Values<typeof FLAGS>,
): Promise<Run> {
  const started = performance.now();
  let firstTokenSeconds = 0;
  let text = "";
  let last: mx.lm.GenerationResponse | undefined;
  const tokens: number[] = [];
  for await (const response of mx.lm.streamGenerate(model, tokenizer, prompt, options)) {
    if (last === undefined) {
      firstTokenSeconds = (performance.now() - started) / 1000;
      // A continuation reads on from its prompt: show it before the text, but keep it out of the output.
      if (typeof prompt === "string" && response.text !== "" && Deno.stderr.isTerminal() && !values.json) note(prompt);
    }
    last = response;
    text += response.text;
    if (!tokenizer.eosTokenIds.has(response.token)) tokens.push(response.token);
    if (!values.json) print(response.text);
  }
  if (!values.json && text !== "" && !text.endsWith("\n")) print("\n");
  return { text, tokens, last: last!, firstTokenSeconds };
}

function report(
  { text, tokens, last, firstTokenSeconds }: Run,
  values: Values<typeof FLAGS>,
  loadSeconds: number,
  device: string,
): void {
  if (values.json) {
    print(
      JSON.stringify({
        text,
        tokens,
        prompt_tokens: last.promptTokens,
        finish_reason: last.finishReason,
        prompt_tps: last.promptTps,
        generation_tps: last.generationTps,
        time_to_first_token_s: firstTokenSeconds,
        load_s: loadSeconds,
        peak_memory_bytes: mx.getPeakMemory(),
        device,
        model: values.model ?? "tiny-qwen3",
      }) + "\n",
    );
  }
  note(
    `${"=".repeat(10)}\n` +
      `Prompt: ${last.promptTokens} tokens, ${last.promptTps.toFixed(3)} tokens-per-sec\n` +
      `Generation: ${last.generationTokens} tokens, ${last.generationTps.toFixed(3)} tokens-per-sec\n` +
      `Peak memory: ${last.peakMemory.toFixed(3)} GB\n` +
      `Device: ${device}\n`,
  );
}

async function readPrompt(operands: readonly string[]): Promise<string> {
  if (operands.length > 1) throw new UsageError(`Expected one prompt, found ${operands.length}: put quotes around it`);
  const [given = "Once upon a time"] = operands;
  const prompt = given === "-" ? await readInput() : given;
  if (prompt === "") throw new UsageError(given === "-" ? "The prompt on stdin is empty" : "The prompt is empty");
  return prompt;
}

/** Aborts on the first Ctrl-C, so that the line and the figures are finished; the second one ends the process. */
function onInterrupt(): AbortSignal {
  const controller = new AbortController();
  Deno.addSignalListener("SIGINT", () => {
    if (controller.signal.aborted) Deno.exit(130);
    controller.abort();
  });
  return controller.signal;
}
