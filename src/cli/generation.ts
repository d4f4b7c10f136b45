/**
 * One run of `generate` around the calls of the library: which prompt, what it is told, where the answer goes.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { useDevice } from "./device.ts";
import { type Flags, UsageError, type Values } from "./flags.ts";
import { EMBEDDED_MODEL, loadOptions, onInterrupt } from "./loading.ts";
import { generateOptions, MODEL_FLAGS, tellLimit } from "./model_flags.ts";
import { note, print, printJson, readInput } from "./output.ts";
import type { Program } from "./program.ts";

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

/** The help text of `generate`. */
export const GENERATE = {
  name: "vkmx generate",
  operand: "[prompt]",
  about: ABOUT,
  flags: FLAGS,
  examples: ['"Once upon a time"', '--model Qwen/Qwen3-0.6B-MLX-4bit --temp 0 "Why is the sky blue?"'],
} as const satisfies Program<Flags>;

/** A prompt on its way to an answer on stdout. */
export class Generation {
  /** The model directory or its name. */
  readonly model: string | URL;
  /** What `mx.lm.load` is told. */
  readonly loading: mx.lm.LoadOptions;
  readonly #values: Values<typeof FLAGS>;
  readonly #prompt: string;
  readonly #opened: number = performance.now();
  #asked = 0;
  #loadSeconds = 0;
  #firstTokenSeconds = 0;
  #options: mx.lm.GenerateOptions = {};
  #continues = false;
  #text = "";
  #tokens: number[] = [];
  #last: mx.lm.GenerationResponse | undefined;
  #eos: ReadonlySet<number> = new Set();

  private constructor(values: Values<typeof FLAGS>, prompt: string) {
    this.#values = values;
    this.#prompt = prompt;
    this.model = values.model ?? EMBEDDED_MODEL;
    this.loading = loadOptions(values.device, onInterrupt());
  }

  /** Checks the command line, reads the prompt and readies the device. */
  static async open(values: Values<typeof FLAGS>, operands: readonly string[]): Promise<Generation> {
    const prompt = await readPrompt(operands);
    if (values.chat && values.raw) throw new UsageError("--chat and --raw exclude each other");
    if (values.raw && (values.system !== undefined || values["no-think"])) {
      throw new UsageError("--system and --no-think need the chat template: leave out --raw");
    }
    await useDevice(values.device);
    return new Generation(values, prompt);
  }

  /** What the generation is told: the flags, and where they say nothing, what the model wishes. */
  options(wishes: mx.lm.GenerationConfig): mx.lm.GenerateOptions {
    this.#options = { ...generateOptions(this.#values, wishes), signal: this.loading.signal };
    return this.#options;
  }

  /** What the model is asked: the prompt as text or as a message; both, one behind the other, where the first got no answer. */
  *prompts(tokenizer: mx.lm.Tokenizer): Generator<mx.lm.Prompt, void, void> {
    const { chat, raw, system, model, "no-think": noThink } = this.#values;
    this.#loadSeconds = (performance.now() - this.#opened) / 1000;
    this.#eos = tokenizer.eosTokenIds;
    const messages: mx.lm.ChatMessage[] = [{ role: "user", content: this.#prompt }];
    if (system !== undefined) messages.unshift({ role: "system", content: system });
    const forced = chat || system !== undefined || noThink;
    if (!forced && (raw || model === undefined || !tokenizer.hasChatTemplate)) {
      yield this.#ask(this.#prompt);
      const silent = this.#text === "" && this.#last?.finishReason === "stop";
      if (raw || model !== undefined || !silent) return;
    }
    yield this.#ask(messages);
  }

  /** Takes the next piece of the answer. */
  take(response: mx.lm.GenerationResponse): void {
    if (this.#last === undefined) {
      this.#firstTokenSeconds = (performance.now() - this.#asked) / 1000;
      // A continuation reads on from its prompt: show it before the text, but keep it out of the output.
      if (this.#continues && response.text !== "" && Deno.stderr.isTerminal() && !this.#values.json) note(this.#prompt);
    }
    this.#last = response;
    this.#text += response.text;
    if (!this.#eos.has(response.token)) this.#tokens.push(response.token);
    if (!this.#values.json) print(response.text);
  }

  /** Runs the generation; --profile has it timed kernel by kernel. Then tells what came of it. Returns the exit code. */
  async finish(device: string, work: () => Promise<void>): Promise<number> {
    const profile = this.#values.profile ? await mx.profile(work, { device }) : await work();
    const last = this.#last!;
    if (!this.#values.json && this.#text !== "" && !this.#text.endsWith("\n")) print("\n");
    tellLimit(last, this.#options);
    if (this.#values.json) printJson(this.#result(last, device));
    note(
      `${"=".repeat(10)}\n` +
        `Prompt: ${last.promptTokens} tokens, ${last.promptTps.toFixed(3)} tokens-per-sec\n` +
        `Generation: ${last.generationTokens} tokens, ${last.generationTps.toFixed(3)} tokens-per-sec\n` +
        `Peak memory: ${last.peakMemory.toFixed(3)} GB\n` +
        `Device: ${device}\n`,
    );
    if (profile) note(`${mx.describeProfile(profile)}\n`);
    return last.finishReason === "abort" ? 130 : 0;
  }

  #ask<P extends mx.lm.Prompt>(prompt: P): P {
    this.#asked = performance.now();
    this.#continues = typeof prompt === "string";
    this.#text = "";
    this.#tokens = [];
    this.#last = undefined;
    return prompt;
  }

  #result(last: mx.lm.GenerationResponse, device: string): Record<string, unknown> {
    return {
      text: this.#text,
      tokens: this.#tokens,
      prompt_tokens: last.promptTokens,
      finish_reason: last.finishReason,
      prompt_tps: last.promptTps,
      generation_tps: last.generationTps,
      time_to_first_token_s: this.#firstTokenSeconds,
      load_s: this.#loadSeconds,
      peak_memory_bytes: mx.getPeakMemory(),
      device,
      model: this.#values.model ?? "tiny-qwen3",
    };
  }
}

async function readPrompt(operands: readonly string[]): Promise<string> {
  if (operands.length > 1) throw new UsageError(`Expected one prompt, found ${operands.length}: put quotes around it`);
  const [given = "Once upon a time"] = operands;
  const prompt = given === "-" ? await readInput() : given;
  if (prompt === "") throw new UsageError(given === "-" ? "The prompt on stdin is empty" : "The prompt is empty");
  return prompt;
}
