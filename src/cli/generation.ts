/**
 * One run of `generate` around the calls of the library: its prompt, its options, and where the answer goes.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { quoted } from "../graph/error.ts";
import { useDevice } from "./device.ts";
import { draftOptions } from "../server/open.ts";
import { type Flags, UsageError, type Values } from "./flags.ts";
import { describeDevice, loadOptions, onInterrupt } from "./loading.ts";
import {
  ADAPTER_FLAG,
  checkDrafter,
  DRAFT_MODEL_FLAG,
  draftHeadOf,
  generateOptions,
  MODEL_FLAGS,
  placeOf,
  tellEnd,
} from "./model_flags.ts";
import { hasPipedInput, note, print, printJson, readInput } from "./output.ts";
import type { Program } from "./program.ts";
import { FORMAT_FLAGS, readFormat } from "./response_format.ts";
import { Progress, TOKENS } from "./progress.ts";
import { CACHE_FLAGS } from "./prompt_cache.ts";

const FLAGS = {
  "prompt": {
    value: "TEXT",
    short: "p",
    help: 'the prompt, in place of the operand; "-" reads stdin',
    meant: ["f", "file", "message"],
  },
  ...MODEL_FLAGS,
  ...ADAPTER_FLAG,
  ...CACHE_FLAGS,
  ...DRAFT_MODEL_FLAG,
  "chat": {
    help: "put the prompt into the model's chat template (default with --model, where there is one)",
    meant: ["cnv", "conversation"],
  },
  "raw": {
    help: "continue the prompt as it is",
    aliases: ["ignore-chat-template"],
    meant: ["no-cnv", "no-conversation"],
  },
  "extra-eos-token": {
    value: "TOKEN",
    help: "end at this token of the vocabulary too; may be given several times",
    many: true,
  },
  ...FORMAT_FLAGS,
  "prefill-response": { value: "TEXT", help: "what the answer begins with; implies the chat template" },
  "profile": { help: "print where the time goes, on stderr; every kernel runs by itself meanwhile" },
  "verbose": { value: "BOOL", help: "false leaves the figures on stderr out (true)" },
  "json": { help: "print one JSON object at the end instead of streaming text" },
} as const satisfies Flags;

/** The prompt if none is given. */
const STORY = "Once upon a time";

const ABOUT =
  `Streams generated text to stdout and figures to stderr. Piped text stands before the prompt, which may then be
absent. Without either it is "${STORY}".
The embedded model continues the prompt, or answers it where it has nothing to add.`;

/** The help text of `generate`. */
export const GENERATE = {
  name: "vkmx generate",
  operand: "[prompt]",
  about: ABOUT,
  flags: FLAGS,
  examples: [
    '"Once upon a time"',
    '--model Qwen/Qwen3-0.6B-MLX-4bit --temp 0 "Why is the sky blue?"',
    '--system "Answer in French" --max-tokens 100 < question.txt',
    '"Summarize this in one sentence." < README.md',
    '--json --seed 1 "Once upon a time"',
    "--device list",
    '--model Qwen/Qwen3-32B-MLX-4bit --device vulkan:0,vulkan:1 --split layers "Why is the sky blue?"',
  ],
} as const satisfies Program<Flags>;

/** Values of --verbose; mlx-lm writes True and False. */
const TRUE = ["true", "t", "1"];
const FALSE = ["false", "f", "0"];

/** A prompt on its way to an answer on stdout. */
export class Generation {
  /** The model directory or its name. */
  readonly model: string | URL;
  /** Options of `mx.lm.load`. */
  readonly loading: mx.lm.LoadOptions;
  readonly #values: Values<typeof FLAGS>;
  readonly #prompt: string;
  readonly #verbose: boolean;
  readonly #reading = new Progress("Reading the prompt", { unit: TOKENS, delay: 1000, live: true });
  readonly #opened: number = performance.now();
  #asked = 0;
  #format: mx.lm.ResponseFormat | undefined;
  #loadSeconds = 0;
  #firstTokenSeconds = 0;
  #options: mx.lm.GenerateOptions = {};
  #continues = false;
  #text = "";
  #reasoning = "";
  #answer = "";
  #tokens: number[] = [];
  #last: mx.lm.GenerationResponse | undefined;
  #eos: ReadonlySet<number> = new Set();

  private constructor(values: Values<typeof FLAGS>, prompt: string, model: string | URL) {
    this.#values = values;
    this.#prompt = prompt;
    this.#format = readFormat(values);
    this.#verbose = readBool("--verbose", values.verbose ?? "true");
    this.model = model;
    const adapterPath = values["adapter-path"];
    this.loading = {
      ...loadOptions(placeOf(values), onInterrupt()),
      ...(adapterPath !== undefined && { adapterPath }),
      ...draftHeadOf(values),
    };
  }

  /** Checks the command line, reads the prompt and readies the device. */
  static async open(values: Values<typeof FLAGS>, operands: readonly string[]): Promise<Generation> {
    if (values.chat && values.raw) throw new UsageError("--chat and --raw exclude each other");
    if (values.raw && (values.system !== undefined || values["no-think"])) {
      throw new UsageError("--system and --no-think need the chat template: leave out --raw");
    }
    if (values.raw && values["prefill-response"] !== undefined) {
      throw new UsageError("--prefill-response needs the chat template: leave out --raw");
    }
    checkDrafter(values);
    const quiet = !readBool("--verbose", values.verbose ?? "true");
    readFormat(values);
    placeOf(values);
    const given = givenPrompt(values, operands);
    const prompt = values.device === "list" ? "" : await readPrompt(given);
    await useDevice(values.device, { json: values.json, quiet });
    return new Generation(values, prompt, values.model ?? mx.lm.EMBEDDED_MODEL);
  }

  /** The draft model, if there is one. */
  async loadDraft(): Promise<mx.lm.Loaded | undefined> {
    const { "draft-model": draft } = this.#values;
    if (draft === undefined) return undefined;
    const { adapterPath: _, draftHead: _head, ...loading } = this.loading;
    return await mx.lm.load(draft, draftOptions(loading));
  }

  /** Options of the generation: the flags, and for missing ones the model's defaults. */
  options(wishes: mx.lm.GenerationConfig, draft?: mx.lm.DraftModel): mx.lm.GenerateOptions {
    this.#options = {
      ...generateOptions(this.#values, wishes, draft),
      responseFormat: this.#format,
      signal: this.loading.signal,
      onPrompt: (done, total) => this.#reading.update(done, total),
    };
    return this.#options;
  }

  /**
   * The prompt as text or as a message; both, one after the other, if the first got no answer. Throws if the vocabulary has no token of
   * --extra-eos-token.
   */
  *prompts(tokenizer: mx.lm.Tokenizer): Generator<mx.lm.Prompt, void, void> {
    const { chat, raw, system, model, "no-think": noThink, "prefill-response": prefill } = this.#values;
    this.#loadSeconds = (performance.now() - this.#opened) / 1000;
    for (const token of this.#values["extra-eos-token"] ?? []) tokenizer.addEosToken(token);
    this.#eos = tokenizer.eosTokenIds;
    const forced = chat || system !== undefined || noThink || prefill !== undefined;
    if (!forced && (raw || model === undefined || !tokenizer.hasChatTemplate)) {
      yield this.#ask(this.#prompt, tokenizer.encode(this.#prompt).length);
      const silent = this.#text === "" && this.#last?.finishReason === "stop";
      if (raw || model !== undefined || !silent) return;
    }
    const messages: mx.lm.ChatMessage[] = [{ role: "user", content: this.#prompt }];
    if (system !== undefined) messages.unshift({ role: "system", content: system });
    const ids = tokenizer.encodeChat(messages, { enableThinking: !noThink });
    if (prefill === undefined) return yield this.#ask(messages, ids.length);
    const begun = [...ids, ...tokenizer.encode(prefill, { addSpecialTokens: false })];
    yield this.#ask(begun, begun.length);
  }

  /** Takes the next piece of the answer. */
  take(response: mx.lm.GenerationResponse): void {
    if (this.#last === undefined) {
      this.#reading.clear();
      this.#firstTokenSeconds = (performance.now() - this.#asked) / 1000;
      // A continuation reads on from its prompt: a person sees both, a file or a pipe gets the text alone.
      if (this.#continues && response.raw !== "" && Deno.stdout.isTerminal() && !this.#values.json) print(this.#prompt);
    }
    this.#last = response;
    this.#text += response.raw;
    this.#answer += response.text;
    this.#reasoning += response.reasoning;
    if (!this.#eos.has(response.token)) this.#tokens.push(response.token);
    if (!this.#values.json) print(response.raw);
  }

  /** Runs the generation; --profile has it timed kernel by kernel. Then tells what came of it. Returns the exit code. */
  async finish(loaded: mx.lm.Loaded, work: () => Promise<void>): Promise<number> {
    const timed = this.#values.profile ? mx.profile(work, { device: loaded.device }) : work();
    const profile = await timed.finally(() => this.#reading.clear());
    const device = describeDevice(loaded);
    const last = this.#last!;
    if (!this.#values.json && this.#text !== "" && !this.#text.endsWith("\n")) print("\n");
    tellEnd(last, this.#options);
    if (this.#values.json) printJson(this.#result(last, device));
    if (this.#verbose) note(describeFigures(last, device));
    if (profile) note(`${mx.describeProfile(profile)}\n`);
    return last.finishReason === "abort" ? 130 : 0;
  }

  #ask(prompt: mx.lm.Prompt, length: number): mx.lm.Prompt {
    this.#asked = performance.now();
    this.#reading.update(0, length);
    this.#continues = typeof prompt === "string";
    this.#text = this.#reasoning = this.#answer = "";
    this.#tokens = [];
    this.#last = undefined;
    return prompt;
  }

  #result(last: mx.lm.GenerationResponse, device: string): Record<string, unknown> {
    return {
      text: this.#text,
      reasoning: this.#reasoning,
      answer: this.#answer,
      tokens: this.#tokens,
      prompt_tokens: last.promptTokens,
      ...(this.#values["prompt-cache"] !== undefined && { cached_tokens: last.cachedTokens }),
      ...(last.draftedTokens !== undefined && {
        drafted_tokens: last.draftedTokens,
        accepted_tokens: last.acceptedTokens,
      }),
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

/** The figures after an answer, as mlx-lm prints them. */
function describeFigures(last: mx.lm.GenerationResponse, device: string): string {
  return `${"=".repeat(10)}\n` +
    `Prompt: ${last.promptTokens} tokens, ${last.promptTps.toFixed(3)} tokens-per-sec\n` +
    `Generation: ${last.generationTokens} tokens, ${last.generationTps.toFixed(3)} tokens-per-sec\n` +
    (last.draftedTokens === undefined ? "" : describeDrafts(last.draftedTokens, last.acceptedTokens!)) +
    `Peak memory: ${last.peakMemory.toFixed(3)} GB\n` +
    `Device: ${device}\n`;
}

function describeDrafts(drafted: number, accepted: number): string {
  const share = drafted > 0 ? ` (${(100 * accepted / drafted).toFixed(1)} %)` : "";
  return `Drafts: ${drafted} tokens, ${accepted} accepted${share}\n`;
}

/** The one prompt of the operands or --prompt, if there is one. */
function givenPrompt({ prompt }: Values<typeof FLAGS>, operands: readonly string[]): string | undefined {
  if (operands.length > 1) throw new UsageError(`Expected one prompt, found ${operands.length}: put quotes around it`);
  if (prompt !== undefined && operands.length > 0) {
    throw new UsageError(`Expected one prompt, found --prompt and ${quoted(operands[0])}: give one`);
  }
  const given = prompt ?? operands[0];
  if (given === "") throw new UsageError("The prompt is empty");
  return given;
}

/** The text of a prompt: piped text, then that of the command line. "-" alone demands piped text. */
async function readPrompt(given: string | undefined): Promise<string> {
  const input = given === "-" || hasPipedInput() ? await readInput() : "";
  if (given === "-" && input === "") throw new UsageError("The prompt on stdin is empty");
  if (input === "") return given ?? STORY;
  return given === undefined || given === "-" ? input : `${input}\n\n${given}`;
}

function readBool(flag: string, text: string): boolean {
  const word = text.toLowerCase();
  if (!TRUE.includes(word) && !FALSE.includes(word)) {
    throw new UsageError(`${flag} is ${quoted(text)}, expected true or false`);
  }
  return TRUE.includes(word);
}
