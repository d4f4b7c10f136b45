/**
 * A conversation: what was said, the model that answers, and how it does.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import { tellEnd } from "../model_flags.ts";
import { Progress, TOKENS } from "../progress.ts";
import { note, printJson } from "../output.ts";
import type { ChatSettings } from "./conversation.ts";
import type { Input } from "./input.ts";
import { type LoadedModel, loadModel } from "./session.ts";
import { AnswerView } from "./view.ts";

/** How a conversation begins. */
export interface ChatOptions {
  readonly device: string | undefined;
  readonly system: string | undefined;
  /** Settings for a model, from what its makers suggest. */
  readonly settingsFor: (wishes: mx.lm.GenerationConfig) => ChatSettings;
  /** Whether answers are printed as JSON, one object a line. */
  readonly json: boolean;
  /** Whether figures follow an answer. */
  readonly stats: boolean;
}

/** Sums over the answers of a conversation. */
interface Totals {
  answers: number;
  read: number;
  cached: number;
  generated: number;
}

/** Milliseconds before the reading of a prompt is shown. */
const PROMPT_MS = 1000;

/** The conversation of one run of `vkmx chat`. */
export class Chat {
  readonly input: Input;
  readonly #options: ChatOptions;
  loaded: LoadedModel;
  settings: ChatSettings;
  system: string | undefined;
  messages: mx.lm.ChatMessage[] = [];
  hideThoughts = false;
  stats: boolean;
  readonly totals: Totals = { answers: 0, read: 0, cached: 0, generated: 0 };
  /** The last response of the answer before. */
  last: mx.lm.GenerationResponse | undefined;

  constructor(input: Input, loaded: LoadedModel, options: ChatOptions) {
    this.input = input;
    this.loaded = loaded;
    this.#options = options;
    this.system = options.system;
    this.stats = options.stats;
    this.settings = options.settingsFor(loaded.generationConfig);
  }

  /** Loads a model to where the conversation is. */
  load(name: string): Promise<LoadedModel> {
    return loadModel(name, this.#options.device, this.input.signal);
  }

  /** Goes on with another model. Settings that were not asked for are what its makers suggest; thinking stays as it is. */
  take(loaded: LoadedModel): void {
    this.loaded = loaded;
    const { enableThinking } = this.settings;
    this.settings = { ...this.#options.settingsFor(loaded.generationConfig), enableThinking };
  }

  /** Says something, and prints and keeps the answer. What the context has no room for, or was not answered at all, is taken back. */
  async say(text: string): Promise<void> {
    this.messages.push({ role: "user", content: text });
    const answer = await this.#answer().catch((error: unknown) => {
      this.messages.pop();
      if (error instanceof mx.lm.LlmError && error.code === "context") {
        note(`error: ${error.message}, or /clear\n`);
      } else throw error;
    });
    if (answer !== undefined) this.messages.push(answer);
  }

  /** The messages as the template gets them. */
  get prompt(): mx.lm.ChatMessage[] {
    return this.system === undefined ? this.messages : [{ role: "system", content: this.system }, ...this.messages];
  }

  async #answer(): Promise<mx.lm.ChatMessage | undefined> {
    const { model, tokenizer, cache } = this.loaded;
    const { signal } = this.input;
    const view = this.#options.json ? undefined : new AnswerView(this.hideThoughts);
    let [content, reasoning] = ["", ""];
    const reading = new Progress("Reading", { unit: TOKENS, delay: PROMPT_MS });
    let last: mx.lm.GenerationResponse | undefined;
    const responses = mx.lm.streamGenerate(model, tokenizer, this.prompt, {
      ...this.settings,
      cache,
      cachePrompt: true,
      signal,
      onPrompt: (done, total) => reading.update(done, total),
    });
    try {
      for await (last of responses) {
        content += last.text;
        reasoning += last.reasoning;
        view?.show(last);
      }
    } catch (error) {
      if (!signal.aborted || last !== undefined) throw error;
    } finally {
      reading.clear();
    }
    if (last === undefined) { // stopped before the first token
      this.messages.pop();
      note("[stopped before the answer began: the message was taken back]\n");
      return undefined;
    }
    view?.end();
    const answer = { role: "assistant", content, ...(reasoning !== "" && { reasoning_content: reasoning }) } as const;
    this.#note(last, answer);
    return answer;
  }

  /** Counts an answer and tells its figures, and why it ended where the model had not ended it. */
  #note(last: mx.lm.GenerationResponse, { content, reasoning_content: reasoning }: mx.lm.ChatMessage): void {
    const { promptTokens, cachedTokens, generationTokens, generationTps, finishReason } = last;
    const read = promptTokens - cachedTokens;
    this.last = last;
    this.totals.answers++;
    this.totals.read += read;
    this.totals.cached += cachedTokens;
    this.totals.generated += generationTokens;
    if (this.#options.json) {
      printJson({
        text: content,
        reasoning: reasoning ?? null,
        prompt_tokens: promptTokens,
        cached_tokens: cachedTokens,
        generation_tokens: generationTokens,
        prompt_tps: last.promptTps,
        generation_tps: generationTps,
        finish_reason: finishReason,
      });
    }
    if (finishReason === "length" && generationTokens < (this.settings.maxTokens ?? Infinity)) {
      note(`[the context of ${this.contextSize} tokens is full: /clear begins a new conversation]\n`);
    } else tellEnd(last, this.settings);
    if (this.stats) {
      note(`[${read} of ${promptTokens} tokens read, ${generationTokens} at ${generationTps.toFixed(1)}/s]\n`);
    }
  }

  /** Tokens that the model can have before it. */
  get contextSize(): number {
    return this.loaded.model.config.maxPositionEmbeddings;
  }
}
