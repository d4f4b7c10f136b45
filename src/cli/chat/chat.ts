/**
 * A conversation: its messages, the model that answers, and its settings.
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
  /** Adapters of the model that it begins with. */
  readonly adapterPath: string | undefined;
  /** Bits of keys and values of each model's cache. */
  readonly kvBits?: 8;
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

/** Part of the context that is kept free for an answer, if a limit of tokens does not ask for less. */
const ANSWER_SHARE = 1 / 8;
/** Milliseconds before the reading of a prompt is shown. */
const PROMPT_MS = 1000;

/** The conversation of one run of `vkmx chat`. */
export class Chat {
  readonly input: Input;
  readonly #options: ChatOptions;
  loaded: LoadedModel;
  settings: ChatSettings;
  system: string | undefined;
  #messages: readonly mx.lm.ChatMessage[] = [];
  /** How many of the oldest messages the model is not told of. */
  #dropped = 0;
  /** Name of the model that it began with. */
  readonly #first: string;
  hideThoughts = false;
  stats: boolean;
  readonly totals: Totals = { answers: 0, read: 0, cached: 0, generated: 0 };
  /** The last response of the answer before. */
  last: mx.lm.GenerationResponse | undefined;

  constructor(input: Input, loaded: LoadedModel, options: ChatOptions) {
    this.input = input;
    this.loaded = loaded;
    this.#first = loaded.name;
    this.#options = options;
    this.system = options.system;
    this.stats = options.stats;
    this.settings = this.defaults;
  }

  /** Loads a model to where the conversation is, the first one with its adapters. */
  load(name: string): Promise<LoadedModel> {
    const { device, adapterPath, kvBits } = this.#options;
    const own = name === this.#first && { adapterPath };
    return loadModel(name, { device, signal: this.input.signal, kvBits, ...own });
  }

  /** The settings that were asked for, else those of the model's makers. */
  get defaults(): ChatSettings {
    return this.#options.settingsFor(this.loaded.generationConfig);
  }

  /** Goes on with another model. Settings that were not asked for are what its makers suggest; thinking stays as it is. */
  take(loaded: LoadedModel): void {
    this.loaded = loaded;
    this.#dropped = 0;
    const { enableThinking } = this.settings;
    this.settings = { ...this.defaults, enableThinking };
  }

  /** Sends a message, and prints and keeps the answer. A message without any answer is taken back. */
  say(text: string): Promise<void> {
    return this.#exchange([...this.#messages, { role: "user", content: text }], "the message was taken back");
  }

  /** Has the last message answered again; its answer stays where there is no other one. False if nothing was said. */
  async retry(): Promise<boolean> {
    const last = this.#messages.findLastIndex(({ role }) => role === "user");
    if (last < 0) return false;
    await this.#exchange(this.#messages.slice(0, last + 1), "the answer before stays");
    return true;
  }

  /** Takes back the last message with its answer. False if nothing was said. */
  undo(): boolean {
    const last = this.#messages.findLastIndex(({ role }) => role === "user");
    if (last < 0) return false;
    this.#messages = this.#messages.slice(0, last);
    if (last <= this.#dropped) this.#dropped = 0;
    return true;
  }

  /** The messages. */
  get messages(): readonly mx.lm.ChatMessage[] {
    return this.#messages;
  }

  set messages(messages: readonly mx.lm.ChatMessage[]) {
    this.#messages = messages;
    this.#dropped = 0;
  }

  /** Answers messages and keeps both. */
  async #exchange(messages: readonly mx.lm.ChatMessage[], otherwise: string): Promise<void> {
    const dropped = this.#fit(messages);
    const answer = await this.#answer(this.#promptOf(messages.slice(dropped)), otherwise);
    if (answer === undefined) return;
    this.#dropped = dropped;
    this.#messages = [...messages, answer];
  }

  /** The messages as the template gets them. */
  #promptOf(messages: readonly mx.lm.ChatMessage[]): readonly mx.lm.ChatMessage[] {
    return this.system === undefined ? messages : [{ role: "system", content: this.system }, ...messages];
  }

  /**
   * How many of the oldest messages are left out of the prompt. The number grows when the context has no room for them and an answer.
   * Then the context gets half empty, so that the next messages find their prompt in the cache.
   */
  #fit(messages: readonly mx.lm.ChatMessage[]): number {
    const { tokenizer } = this.loaded;
    const { enableThinking, maxTokens = Infinity } = this.settings;
    const dropped = Math.min(this.#dropped, messages.length - 1);
    const length = (from: number): number =>
      tokenizer.encodeChat(this.#promptOf(messages.slice(from)), { enableThinking }).length;
    if (length(dropped) + Math.min(maxTokens, this.contextSize * ANSWER_SHARE) <= this.contextSize) return dropped;
    const starts = messages.flatMap(({ role }, i) => role === "user" && i > dropped ? [i] : []);
    const start = starts.find((from) => length(from) <= this.contextSize / 2) ?? starts.at(-1) ?? dropped;
    if (start > dropped) {
      note(
        `[the context of ${this.contextSize} tokens is full: the model is not told of the first ${start} messages]\n`,
      );
    }
    return start;
  }

  async #answer(prompt: readonly mx.lm.ChatMessage[], otherwise: string): Promise<mx.lm.ChatMessage | undefined> {
    const { model, tokenizer, cache } = this.loaded;
    const { signal } = this.input;
    const view = this.#options.json ? undefined : new AnswerView(this.hideThoughts);
    let [content, reasoning] = ["", ""];
    const reading = new Progress("Reading", { unit: TOKENS, delay: PROMPT_MS });
    let last: mx.lm.GenerationResponse | undefined;
    const responses = mx.lm.streamGenerate(model, tokenizer, prompt, {
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
      note(`[stopped before the answer began: ${otherwise}]\n`);
      return undefined;
    }
    view?.end();
    const answer = { role: "assistant", content, ...(reasoning !== "" && { reasoning_content: reasoning }) } as const;
    this.#note(last, answer);
    return answer;
  }

  /** Counts an answer and tells its figures, and why it ended if the model had not ended it. */
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
      note(`[the context of ${this.contextSize} tokens is full: the next message makes room, /clear begins anew]\n`);
    } else tellEnd(last, this.settings);
    if (this.stats) {
      const { offset } = this.loaded.cache;
      const context = `${offset} of ${this.contextSize} (${Math.round(100 * offset / this.contextSize)} %)`;
      const rate = `${generationTokens} at ${generationTps.toFixed(1)}/s`;
      note(`[${read} of ${promptTokens} tokens read, ${rate}, context ${context}]\n`);
    }
  }

  /** Tokens that the model can have before it. */
  get contextSize(): number {
    return this.loaded.model.config.maxPositionEmbeddings;
  }
}
