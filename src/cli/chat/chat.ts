/**
 * A conversation: its messages, the model that answers, and its settings.
 *
 * @module
 */

import * as mx from "../../../mod.ts";
import type { McpTool } from "../../mcp/tools.ts";
import { describeCall, describeRun, type McpHost } from "../mcp.ts";
import { tellEnd } from "../model_flags.ts";
import { Progress, TOKENS } from "../progress.ts";
import { note, printJson } from "../output.ts";
import type { ChatSettings } from "./conversation.ts";
import type { Input } from "./input.ts";
import { type LoadedModel, loadModel, type LoadModelOptions } from "./session.ts";
import { AnswerView } from "./view.ts";

/** How a conversation begins. */
export interface ChatOptions {
  readonly place: LoadModelOptions["place"];
  /** Adapters of the model that it begins with. */
  readonly adapterPath: string | undefined;
  /** Bits of keys and values of each model's cache. */
  readonly kvBits?: 8;
  /** Whether heads that draft are loaded with models. */
  readonly draftHead?: true;
  readonly system: string | undefined;
  /** Servers whose tools the model may call. */
  readonly mcp?: McpHost | undefined;
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

/** An answer: the last response of its stream, with the parts of all. */
type Answer = mx.lm.GenerationResponse & Pick<mx.lm.Completion, "finishReason">;

/** An answer that was stopped before its first token. */
class NoAnswer extends Error {}

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
    const { place, adapterPath, kvBits, draftHead } = this.#options;
    const own = name === this.#first && { adapterPath };
    return loadModel(name, { place, signal: this.input.signal, kvBits, draftHead, ...own });
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

  /** Answers messages and keeps both, with the calls of tools between them. */
  async #exchange(messages: readonly mx.lm.ChatMessage[], otherwise: string): Promise<void> {
    const { mcp } = this.#options;
    const tools = mcp?.tools.tools ?? [];
    const offered = mx.lm.describeTools(tools);
    const dropped = this.#fit(messages, offered);
    const prompt = this.#promptOf(messages.slice(dropped));
    const toolOf = (name: string): McpTool | undefined => tools.find((tool) => tool.name === name);
    let last: Answer | undefined;
    const answer = async (conversation: readonly mx.lm.ChatMessage[]): Promise<Answer> =>
      last = await this.#answer(conversation, offered);
    let ended: Pick<mx.lm.ToolsCompletion, "messages" | "runs">;
    try {
      ended = await mx.lm.toolRounds(answer, prompt, tools, {
        maxRounds: mcp?.maxRounds,
        signal: this.input.signal,
        allow: ({ name, arguments: given }) => this.#allows(toolOf(name)!, given),
        onCall: (run) => note(`${describeRun(run, toolOf(run.name))}\n`),
      });
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      note(`[stopped before the answer began: ${otherwise}]\n`);
      return;
    }
    this.#note(last!, ended.runs);
    this.#dropped = dropped;
    const made = ended.messages.slice(prompt.length);
    // Calls at the limit of rounds were not made: no result would follow them.
    const { tool_calls: _, ...answered } = made.at(-1)!;
    this.#messages = [...messages, ...made.slice(0, -1), answered];
  }

  /** Whether the user allows a call. Where no person can answer, only what --mcp-allow names is allowed. */
  async #allows(tool: McpTool, given: Readonly<Record<string, unknown>>): Promise<boolean> {
    const { consent } = this.#options.mcp!;
    if (consent.allows(tool)) return true;
    const question = `${describeCall(tool, given)}\ny allows it, a allows this tool from now on, n refuses: `;
    const key = await this.input.choose(question, "yan");
    if (key === undefined) note(`[${describeCall(tool, {})} was not allowed: --mcp-allow names what may be called]\n`);
    if (key === "a") consent.add(tool);
    return key === "y" || key === "a";
  }

  /** The messages as the template gets them. */
  #promptOf(messages: readonly mx.lm.ChatMessage[]): readonly mx.lm.ChatMessage[] {
    return this.system === undefined ? messages : [{ role: "system", content: this.system }, ...messages];
  }

  /**
   * How many of the oldest messages are left out of the prompt. The number grows when the context has no room for them and an answer.
   * Then the context gets half empty, so that the next messages find their prompt in the cache.
   */
  #fit(messages: readonly mx.lm.ChatMessage[], tools: readonly unknown[]): number {
    const { tokenizer } = this.loaded;
    const { enableThinking, maxTokens = Infinity } = this.settings;
    const dropped = Math.min(this.#dropped, messages.length - 1);
    const length = (from: number): number =>
      tokenizer.encodeChat(this.#promptOf(messages.slice(from)), { enableThinking, tools }).length;
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

  /** Shows one answer as it comes. Throws {@link NoAnswer} if it is stopped before the first token. */
  async #answer(prompt: readonly mx.lm.ChatMessage[], tools: readonly unknown[]): Promise<Answer> {
    const { model, tokenizer, cache } = this.loaded;
    const { signal } = this.input;
    const view = this.#options.json ? undefined : new AnswerView(this.hideThoughts);
    const toolCalls: mx.lm.ParsedToolCall[] = [];
    let [text, reasoning] = ["", ""];
    const reading = new Progress("Reading", { unit: TOKENS, delay: PROMPT_MS });
    let last: mx.lm.GenerationResponse | undefined;
    const responses = mx.lm.streamGenerate(model, tokenizer, prompt, {
      ...this.settings,
      ...(tools.length > 0 && { tools }),
      cache,
      cachePrompt: true,
      signal,
      onPrompt: (done, total) => reading.update(done, total),
    });
    try {
      for await (last of responses) {
        text += last.text;
        reasoning += last.reasoning;
        toolCalls.push(...last.toolCalls);
        view?.show(last);
      }
    } catch (error) {
      if (!signal.aborted || last !== undefined) throw error;
    } finally {
      reading.clear();
    }
    if (last === undefined) throw new NoAnswer("the answer was stopped");
    view?.end(toolCalls.length > 0);
    this.#count(last);
    return { ...last, text, reasoning, toolCalls, finishReason: last.finishReason! };
  }

  #count(last: mx.lm.GenerationResponse): void {
    this.last = last;
    this.totals.answers++;
    this.totals.read += last.promptTokens - last.cachedTokens;
    this.totals.cached += last.cachedTokens;
    this.totals.generated += last.generationTokens;
  }

  /** Tells the figures of the last answer to a message, and why it ended if the model had not ended it. */
  #note(last: Answer, calls: readonly mx.lm.ToolRun[]): void {
    const { text, reasoning, promptTokens, cachedTokens, generationTokens, generationTps, finishReason } = last;
    const read = promptTokens - cachedTokens;
    if (this.#options.json) {
      printJson({
        text,
        reasoning: reasoning === "" ? null : reasoning,
        ...(this.#options.mcp && { calls }),
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
    if (last.toolCalls.length > 0 && finishReason === "stop") {
      note(`[ended after ${this.#options.mcp!.maxRounds} answers with calls: --mcp-rounds sets the limit]\n`);
    }
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
