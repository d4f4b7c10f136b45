/**
 * A model in GGUF files: config, tokenizer, chat template and weights from one file, or from the parts of one.
 *
 * @module
 */

import { basename, dirname } from "node:path";
import * as mx from "../../../array/mod.ts";
import type { Tensor } from "../../../array/mod.ts";
import { type GgufHeader, type GgufTensor, readGguf } from "../../../array/files/gguf.ts";
import { storedArray } from "../../../array/files/gguf_arrays.ts";
import { MAX_TENSORS } from "../../../array/files/safetensors.ts";
import { storedBytes } from "../../../array/files/stored.ts";
import { untrack } from "../../../array/tensor/tracking.ts";
import { quoted, shownPath } from "../../../graph/error.ts";
import { Fields } from "../../config/fields.ts";
import { type GenerationConfig, readGenerationConfig } from "../../config/model.ts";
import { LlmError } from "../../error.ts";
import type { Checkpoint, CheckpointTerms, TokenizerTexts } from "../checkpoint.ts";
import type { ArrayLimits } from "../row_parts.ts";
import { partsOf } from "../shards.ts";
import { Checksums, type Verify } from "../verify.ts";
import { type Facts, factsOf, HEAD } from "./config.ts";
import { familyOf, fieldsOf } from "./families.ts";
import type { GgufFamily } from "./family.ts";
import { Metadata } from "./metadata.ts";
import { storedName } from "./names.ts";
import { describeTypes, loaded, type Placed, tensorsOf } from "./tensors.ts";
import { endIds, readTokenizer } from "./tokenizer.ts";

/** Most elements of a tensor that a config is made of: the pairs of a head. */
const MAX_FACTORS = 4096;

/** Keys of suggestions for sampling, and the fields of generation_config.json. */
const SAMPLING = [
  ["general.sampling.temp", "temperature"],
  ["general.sampling.top_k", "top_k"],
  ["general.sampling.top_p", "top_p"],
  ["general.sampling.min_p", "min_p"],
] as const;

/** What the headers of a GGUF model say. */
export interface GgufDescription {
  /** Whether it has a head of its own. */
  readonly hasHead: boolean;
  /** Bytes of the tensors. */
  readonly weightBytes: number;
  /** Types of tensors, the one with most bytes first. */
  readonly dtypes: readonly string[];
  readonly hasChatTemplate: boolean;
  /** The names of its files. */
  readonly files: readonly string[];
}

/** A checkpoint in a GGUF file or the parts of one. */
export class GgufCheckpoint implements Checkpoint {
  readonly path: string;
  readonly terms: CheckpointTerms;
  readonly #placed: readonly Placed[];
  readonly #facts: Facts;
  readonly #family: GgufFamily;
  readonly #files: readonly string[];
  readonly #sums: Checksums | undefined;

  /** Reads the headers of a file and of the other parts of its model. */
  constructor(path: string, verify: Verify | undefined) {
    const files = partsOf(path);
    this.path = files[0];
    this.#files = files.map((file) => basename(file));
    this.#sums = Checksums.of(dirname(path), verify, this.#files);
    const headers = files.map(readHeader);
    const metadata = new Metadata(this.path, headers[0]);
    this.#placed = headers.flatMap((header) => header.tensors.map((tensor) => ({ header, tensor })));
    this.#facts = factsOfPlaced(metadata, this.#placed);
    checkParts(metadata, files, this.#placed);
    this.#family = familyOf(this.#facts);
    const { names = {} } = this.#family;
    this.terms = {
      config: "the metadata",
      nameOf: (name) => storedName(name.replace(/\.(scales|biases)$/, ".weight"), names) ?? name,
    };
  }

  note(exact: boolean): string | undefined {
    const types = describeTypes(loaded(this.#placed, this.#family, this.#facts), exact);
    return types && `${shownPath(basename(this.path))}: ${types}`;
  }

  readConfig(): { readonly fields: Fields; readonly file: string } {
    const isQuantized = this.#placed.some(({ tensor }) => tensor.type.codes);
    const values = {
      ...fieldsOf(this.#family, this.#facts),
      eos_token_id: endIds(this.#facts.metadata),
      // The format of each matrix follows from its shapes.
      ...(isQuantized && { quantization: { group_size: 32, bits: 4 } }),
    };
    return { fields: new Fields(values, this.path), file: this.path };
  }

  readGenerationConfig(): GenerationConfig {
    const { metadata } = this.#facts;
    const values = SAMPLING.map(([key, field]) => [field, metadata.number(key)]);
    return readGenerationConfig(JSON.stringify(Object.fromEntries(values)), this.path);
  }

  async checkFiles(signal: AbortSignal | undefined): Promise<void> {
    await this.#sums?.checkFiles(this.#files, signal);
  }

  readTokenizer(embeddings: number): TokenizerTexts {
    return readTokenizer(this.#facts.metadata, embeddings);
  }

  tensors(exact: boolean, most?: ArrayLimits): Map<string, Tensor> {
    return mx.tidy(() => {
      const stored = new Map<string, Tensor>();
      for (const [name, tensor] of tensorsOf(this.#placed, this.#family, this.#facts, exact, most)) {
        if (stored.has(name)) this.#facts.metadata.fail(`two tensors are ${quoted(name)}`, "weights");
        stored.set(name, tensor);
      }
      for (const tensor of stored.values()) untrack(tensor);
      return stored;
    });
  }

  /** What the headers say of the model. */
  describe(): GgufDescription {
    const { metadata, tensors } = this.#facts;
    const bytes = new Map<string, number>();
    for (const { tensor: { type, bytes: own } } of loaded(this.#placed, this.#family, this.#facts)) {
      bytes.set(type.name, (bytes.get(type.name) ?? 0) + own);
    }
    return {
      hasHead: tensors.has(HEAD),
      weightBytes: bytes.values().reduce((sum, size) => sum + size, 0),
      dtypes: Array.from(bytes).toSorted(([, a], [, b]) => b - a).map(([name]) => name),
      hasChatTemplate: metadata.has("tokenizer.chat_template"),
      files: this.#files,
    };
  }

  finish(): void {
    this.#sums?.finish();
  }
}

function readHeader(path: string): GgufHeader {
  try {
    return readGguf(path);
  } catch (cause) {
    if (cause instanceof mx.ArrayError) throw new LlmError("weights", cause.message);
    throw cause;
  }
}

function factsOfPlaced(metadata: Metadata, placed: readonly Placed[]): Facts {
  const tensors = new Map<string, GgufTensor>();
  for (const { tensor } of placed) {
    if (tensors.has(tensor.name)) metadata.fail(`${quoted(tensor.name)} is in two of its files`, "weights");
    tensors.set(tensor.name, tensor);
  }
  const floats = (name: string): number[] | undefined =>
    floatsOf(metadata, placed.find(({ tensor }) => tensor.name === name));
  return factsOf(metadata, tensors, floats);
}

/** The elements of a small tensor of float32, if it is there. */
function floatsOf(metadata: Metadata, placed: Placed | undefined): number[] | undefined {
  if (placed === undefined) return undefined;
  const { header, tensor } = placed;
  const { name, type, shape } = tensor;
  if (type.dtype !== mx.float32 || shape.length !== 1 || shape[0] > MAX_FACTORS) {
    metadata.fail(`${quoted(name)} is not a list of at most ${MAX_FACTORS} float32`, "weights");
  }
  using array = storedArray(header, tensor, mx.float32);
  return Array.from(new Float32Array(storedBytes(array).slice().buffer));
}

/** Throws unless the parts of a model are all there and have as many tensors as they should. */
function checkParts(metadata: Metadata, files: readonly string[], placed: readonly Placed[]): void {
  const count = metadata.number("split.count") ?? 1;
  if (Math.max(count, 1) !== files.length) {
    metadata.fail(
      `the model is in ${count} files, and by the name there are ${files.length}: keep their names`,
      "weights",
    );
  }
  const tensors = metadata.number("split.tensors.count") ?? placed.length;
  if (tensors !== placed.length) {
    metadata.fail(`the model has ${tensors} tensors and its files ${placed.length}: download them again`, "weights");
  }
  if (placed.length > MAX_TENSORS) metadata.fail(`there are more than ${MAX_TENSORS} tensors`, "weights");
}
