/**
 * A decoder-only language model: a decoder and a head. A {@link DecoderConfig} says what its family makes of it.
 *
 * Modules below have the names that checkpoints give them, and theirs are the parameters.
 *
 * @module
 */

import { TracedSteps } from "../../array/compile/loop.ts";
import { type DeviceFacts, deviceOf, devicesOf } from "../../array/devices/device_of.ts";
import * as mx from "../../array/mod.ts";
import type { Tensor } from "../../array/mod.ts";
import { tensorsOf } from "../../array/tensor/scope.ts";
import { ReachedTensors } from "../../array/tensor/reached_tensors.ts";
import { Module } from "../../nn/mod.ts";
import { checkTokens } from "../arguments.ts";
import { attentionOf, type DecoderConfig, DRAFT_HEAD } from "../config/decoder.ts";
import { LlmError } from "../error.ts";
import type { Cache, KvCache } from "../kv/cache.ts";
import { attendsInPages, type CachedModel, type CacheOptions, makeCache, poolSizes } from "../kv/make_cache.ts";
import type { DecodingModel, Draft, ModelSections } from "../models/language_model.ts";
import type { Weights } from "../checkpoint/weights.ts";
import { Decoder } from "./decoder.ts";
import { draftConfig, DraftHead } from "./draft_head.ts";
import { SwitchGlu } from "./experts.ts";
import { formatsOf } from "./formats.ts";
import { partOfConfig, type Sharder } from "./shard.ts";
import { copyOfTable, forwardInDtype, type Layer, linear, type Table } from "./stored.ts";

/** A model of any family whose layers are {@link Decoder}s' blocks. */
export class DecoderModel extends Module implements DecodingModel {
  /** All but the head. */
  model: Decoder;
  /** (…, hidden) → (…, V); not there where the embedding is the head, or where there is none. */
  lm_head?: Layer;
  /** The head that drafts tokens, if it was loaded. */
  mtp?: DraftHead;
  readonly #config: DecoderConfig & { readonly tieWordEmbeddings: boolean };
  readonly #weights: Weights;
  readonly #prefix: string;
  /** Whether traces are of a model in training, whose adapters drop inputs. */
  #tracedInTraining = true;
  readonly #traces: TracedSteps;
  #device: DeviceFacts | undefined;
  /** The device of each layer, where they are on several. */
  #placement: readonly string[] | undefined;
  /** The embedding on the device of the last layer, where it is the head and layers are on several devices. */
  #head: Table | undefined;
  /** The config of this process's part, and the processes. */
  #part: { readonly config: DecoderConfig; readonly group: mx.distributed.Group } | undefined;
  readonly #reached = new ReachedTensors(this);
  /** What caches depend on, for these parameters. */
  #cacheFacts: { readonly of: readonly Tensor[]; readonly model: CachedModel } | undefined;

  /**
   * Takes all tensors from `weights`, which the model owns from now on. A draft head is part of it if `drafts`. `prefix` is
   * {@link DecoderModel.namePrefix}.
   */
  constructor(
    config: DecoderConfig,
    weights: Weights,
    drafts: boolean = weights.has(`${DRAFT_HEAD}.fc.weight`),
    prefix: string = "",
  ) {
    super();
    this.#prefix = prefix;
    const { vocabSize, hiddenSize, tieWordEmbeddings = !weights.has("lm_head.weight") } = config;
    this.#config = { ...config, tieWordEmbeddings };
    this.#weights = weights;
    this.#traces = new TracedSteps(() => this.#tensors);
    this.model = new Decoder(config, weights, "model");
    // A head that is tied but stored all the same is left in the file.
    if (tieWordEmbeddings) weights.drop("lm_head");
    else if (!weights.headless) this.lm_head = linear(weights, "lm_head", hiddenSize, vocabSize);
    if (drafts) this.mtp = new DraftHead(draftConfig(config), weights);
  }

  /** The fields of config.json. */
  get config(): DecoderConfig {
    return this.#config;
  }

  /** Traces of the other mode go. */
  protected override trainingChanged(): void {
    if (this.training === this.#tracedInTraining) return;
    this.#tracedInTraining = this.training;
    this.#traces[Symbol.dispose]();
  }

  /** What mlx-lm's names of its parameters begin with, before the names that they have here. */
  get namePrefix(): string {
    return this.#prefix;
  }

  /** Steps of this model that were traced, with the parameters that it has now. */
  get traces(): TracedSteps {
    return this.#traces;
  }

  /** The device of the parameters: looked for once among hundreds of them. */
  get device(): DeviceFacts {
    return this.#device ??= this.#placement ? devicesOf([...new Set(this.#placement)]) : deviceOf(this.#tensors);
  }

  /** See {@link DecodingModel.placement}. */
  get placement(): readonly string[] | undefined {
    return this.#placement;
  }

  /** See {@link DecodingModel.sections}. */
  get sections(): ModelSections {
    const { layers, norm, embedding_norm, ...embedding } = this.model;
    const head = this.#head ?? this.lm_head ?? (this.#config.tieWordEmbeddings ? this.model.embed_tokens : []);
    return {
      first: tensorsOf(embedding),
      layers: layers.map((block) => tensorsOf(block)),
      experts: layers.map((block) => tensorsOf(block.modules().filter((part) => part instanceof SwitchGlu))),
      last: tensorsOf([norm, embedding_norm, head]),
      sharesWith: layers.map((_, layer) => attentionOf(this.#config, layer).sharesWith),
    };
  }

  /** See {@link DecodingModel.place}. */
  place(devices: readonly string[]): void {
    this.#checkAlive();
    if (new Set(devices).size < 2) return;
    if (this.mtp) throw new LlmError("option", "A model with a head that drafts tokens takes one device");
    this.model.place(devices, this.#config, this.#weights);
    if (this.#config.tieWordEmbeddings) this.#head = copyOfTable(this.#weights, this.model.embed_tokens);
    this.#placement = devices;
    this.#device = this.#cacheFacts = undefined;
  }

  /** See {@link DecodingModel.group}. */
  get group(): mx.distributed.Group | undefined {
    return this.#part?.group;
  }

  /** See {@link LanguageModel.shard}. */
  shard(group: mx.distributed.Group = mx.distributed.init()): void {
    this.#checkAlive();
    if (group.size() === 1) return;
    if (this.#part) throw new LlmError("option", "The model was sharded before: load it again");
    if (this.mtp) throw new LlmError("option", "A model with a head that drafts tokens cannot be sharded");
    if (this.#placement) throw new LlmError("option", "A model on several devices cannot be sharded");
    const config = partOfConfig(this.#config, group.size());
    const sharder: Sharder = { group, weights: this.#weights, changes: [] };
    for (const block of this.model.layers) block.shard(sharder, config);
    for (const change of sharder.changes) change();
    this.#part = { config, group };
    this.#cacheFacts = undefined;
  }

  /** See {@link DecodingModel.forward}. Throws an {@link LlmError} if the model was disposed or the cache has no room. */
  override forward(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor {
    return this.logits(this.hidden(tokens, cache, rows));
  }

  /** See {@link DecodingModel.hidden}. */
  hidden(tokens: Tensor, cache?: Cache, rows?: Tensor): Tensor {
    this.#checkAlive();
    checkTokens(tokens, rows);
    return this.model.forward(tokens, cache, rows);
  }

  /** See {@link DecodingModel.draft}. */
  draft(hidden: Tensor, tokens: Tensor, cache?: Cache): Draft {
    this.#checkAlive();
    checkTokens(tokens);
    const [B, T, H] = [...tokens.shape, this.#config.hiddenSize];
    if (hidden.shape.join() !== [B, T, H].join()) {
      throw new mx.ShapeError(
        `draft() expected hidden states of shape (${B}, ${T}, ${H}), found (${hidden.shape.join(", ")})`,
      );
    }
    const drafted = this.#draftHead.forward(this.model.embedded(tokens), hidden, cache);
    return { hidden: drafted, logits: this.logits(drafted) };
  }

  get #draftHead(): DraftHead {
    if (this.mtp !== undefined) return this.mtp;
    throw new LlmError("weights", "The model has no head that drafts tokens: load it with draftHead: true");
  }

  /** See {@link DecodingModel.logits}. Throws an {@link LlmError} if the checkpoint had no head. */
  logits(hidden: Tensor): Tensor {
    return this.model.onLast(() => this.#logits(hidden));
  }

  #logits(hidden: Tensor): Tensor {
    const { logitDivisor = 1, logitCap } = this.#config;
    const logits = this.#project(hidden);
    const divided = logitDivisor === 1 ? logits : mx.divide(logits, logitDivisor);
    return logitCap === undefined ? divided : mx.multiply(mx.tanh(mx.divide(divided, logitCap)), logitCap);
  }

  #project(hidden: Tensor): Tensor {
    if (this.lm_head !== undefined) return forwardInDtype(this.lm_head, hidden);
    if (this.#config.tieWordEmbeddings) {
      return (this.#head ?? this.model.embed_tokens).asLinear(hidden).astype(hidden.dtype);
    }
    throw new LlmError("weights", "The model has no head, which logits come from: it is one for embeddings");
  }

  /** See {@link DecodingModel.hiddenStates}. */
  hiddenStates(tokens: Tensor, cache?: Cache): Tensor[] {
    this.#checkAlive();
    checkTokens(tokens);
    return this.model.hiddenStates(tokens, cache);
  }

  /** The parameters as they are now; none when they were freed. */
  get #tensors(): readonly Tensor[] {
    return this.#weights.tensors.length === 0 ? [] : this.#reached.tensors;
  }

  #checkAlive(): void {
    if (this.#weights.tensors.length === 0) throw new LlmError("weights", "The model was disposed: load it again");
  }

  /** See {@link LanguageModel.makeCache}. */
  makeCache(options: CacheOptions | number = {}): KvCache {
    return makeCache(this.#cached, typeof options === "number" ? { batch: options } : options);
  }

  /** See {@link DecodingModel.makeDraftCache}. */
  makeDraftCache(batch = 1): KvCache {
    this.#draftHead; // without one there is nothing to keep
    return makeCache({ ...this.#cached, config: draftConfig(this.#config), formats: undefined }, { batch });
  }

  /** See {@link DecodingModel.attendsInPages}. */
  get attendsInPages(): boolean {
    return attendsInPages(this.#part?.config ?? this.#config);
  }

  /** See {@link DecodingModel.poolSizes}. */
  poolSizes(drafts: boolean = false): ReturnType<typeof poolSizes> {
    if (!drafts) return poolSizes(this.#cached);
    this.#draftHead; // without one there is nothing to keep
    return poolSizes(this.#cached, draftConfig(this.#config));
  }

  /** What caches depend on, found anew where the parameters changed. */
  get #cached(): CachedModel {
    const tensors = this.#tensors;
    if (this.#cacheFacts?.of === tensors) return this.#cacheFacts.model;
    const device = this.#placement ? this.device : deviceOf(tensors.slice(0, 1)); // one tells for all
    const model = this.#placement
      ? { config: this.#config, device, dtype: this.#weights.dtype, formats: formatsOf(this), devices: this.#placement }
      : this.#part
      ? { config: this.#part.config, device, dtype: this.#weights.dtype, formats: undefined } // no fused steps
      : { config: this.#config, device, dtype: this.#weights.dtype, formats: formatsOf(this) };
    this.#cacheFacts = { of: tensors, model };
    return model;
  }

  /** Frees the weights: those that were loaded, and those that took their places. */
  [Symbol.dispose](): void {
    this.#traces[Symbol.dispose]();
    mx.dispose(this);
    this.#weights[Symbol.dispose]();
  }
}
