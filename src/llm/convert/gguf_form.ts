/**
 * The form of a model in GGUF before it is written: the row of its family. Metadata that give another config back are refused.
 *
 * @module
 */

import type { GgufTensor, GgufValue } from "../../array/files/gguf.ts";
import type { SavedMetadata } from "../../array/files/gguf_file.ts";
import { storedBytes } from "../../array/files/stored.ts";
import * as mx from "../../array/mod.ts";
import { quoted } from "../../graph/error.ts";
import { type Facts, factsOf } from "../checkpoint/gguf/config.ts";
import { familyOf, fieldsOf } from "../checkpoint/gguf/families.ts";
import type { GgufFamily } from "../checkpoint/gguf/family.ts";
import { Metadata } from "../checkpoint/gguf/metadata.ts";
import type { DecoderConfig } from "../config/decoder.ts";
import { Fields } from "../config/fields.ts";
import { LlmError } from "../error.ts";
import { describeModel } from "../models/mod.ts";

/** Fields of a config that a file has in another form, or in none. */
const OTHER_FORMS: ReadonlySet<string> = new Set(["modelType", "tieWordEmbeddings", "eosTokenIds", "quantization"]);
/** Relative: numbers of a file are float32. */
const NEAR = 1e-6;

/** A tensor that is going to be written. */
type Written = Pick<GgufTensor, "name" | "shape">;

/** A model on its way into a file. */
export interface GgufForm {
  readonly family: GgufFamily;
  /** Throws an {@link LlmError} if a reader of these tensors and the metadata would take the model for another one. */
  check(tensors: readonly Written[]): void;
}

/** Whether positions are stretched by factors of the wavelengths alone, which a file holds in a tensor. */
export function hasFactors({ modelType, ropeScaling }: DecoderConfig): boolean {
  return (modelType === "llama" || modelType === "mistral") &&
    (ropeScaling.type === "llama3" || (ropeScaling.type === "longrope" && ropeScaling.mscale === 1));
}

/** The form of a model with these metadata. */
export function ggufForm(config: DecoderConfig, metadata: SavedMetadata, path: string): GgufForm {
  const values = new Map(Object.entries(metadata).map(([key, value]) => [key, valueOf(value)]));
  const reader = new Metadata(path, { metadata: values });
  const architecture = metadata["general.architecture"] as string;
  const facts = (tensors: readonly Written[]): Facts =>
    factsOf(reader, new Map(tensors.map((tensor) => [tensor.name, tensor as GgufTensor])), () => undefined);
  return {
    family: familyOf(facts([])),
    check: (tensors) => {
      const all = facts(tensors);
      const read = describeModel(new Fields(fieldsOf(familyOf(all), all), path), path).config;
      const { ropeScaling } = config;
      const differs = difference(config, hasFactors(config) ? { ...read, ropeScaling } : read);
      if (differs === undefined) return;
      throw new LlmError(
        "option",
        `${path} has ${quoted(differs)} that a GGUF file of ${quoted(architecture)} cannot hold`,
      );
    },
  };
}

function valueOf(value: SavedMetadata[string]): GgufValue {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return { dtype: mx.bool, shape: [], bytes: Uint8Array.of(value ? 1 : 0) };
  if (value instanceof mx.Tensor) return { dtype: value.dtype, shape: value.shape, bytes: storedBytes(value) };
  return value as readonly string[];
}

/** The first field that differs; undefined if none does. */
function difference(a: object, b: object): string | undefined {
  const [left, right] = [a, b] as Readonly<Record<string, unknown>>[];
  return [...new Set([...Object.keys(left), ...Object.keys(right)])].find((key) =>
    !OTHER_FORMS.has(key) && !isNear(left[key], right[key])
  );
}

function isNear(a: unknown, b: unknown): boolean {
  if (typeof a === "number" && typeof b === "number") return Math.abs(a - b) <= NEAR * Math.abs(a);
  if (typeof a === "object" && typeof b === "object" && a !== null && b !== null) return difference(a, b) === undefined;
  return a === b;
}
