/**
 * Reads tokenizer.model, a model of sentencepiece: a message `ModelProto` of its protocol buffers.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import { type Fail, failing } from "../pipeline.ts";
import type { TokenizerFile } from "../tokenizer_file.ts";
import { MAX_IDS } from "../vocabulary.ts";
import { checkKinds, PIECE, type PieceModel, readPieces } from "./pieces.ts";
import { readMessage, type WireValue } from "./protobuf.ts";

/** Fields of `ModelProto`, of its pieces and of its specifications. */
const MODEL = { pieces: 1, trainer: 2, normalizer: 3, denormalizer: 5 } as const;
const PIECE_FIELDS = { piece: 1, score: 2, type: 3 } as const;
const TRAINER = { type: 3, spaceIsSuffix: 24, byteFallback: 35, unknownText: 44, bos: 46, eos: 47 } as const;
const NORMALIZER = { charsmap: 2, addsSpace: 3, removesSpaces: 4, marksSpaces: 5 } as const;

/** Models by `TrainerSpec.model_type`. */
const ALGORITHMS: ReadonlyMap<number, PieceModel["algorithm"]> = new Map([[1, "Unigram"], [2, "BPE"]]);
const UNIGRAM = 1;

/** A message's values by field; of a field that occurs twice the last one counts. */
type Values = ReadonlyMap<number, WireValue>;

/** Reads the bytes of the tokenizer.model `file`, for a model of `embeddings` rows. Throws an `LlmError` that says what is wrong. */
export function readModelFile(bytes: Uint8Array, file: string, embeddings: number): TokenizerFile {
  const fail = failing(file);
  const pieces: string[] = [];
  const scores: number[] = [];
  const kinds: number[] = [];
  const known = new Set<string>();
  const specs = new Map<number, Values>();
  readMessage(bytes, fail, (field, value) => {
    if (typeof value === "number") return;
    if (field !== MODEL.pieces) {
      specs.set(field, valuesOf(value, fail));
      return;
    }
    const fields = valuesOf(value, fail);
    const piece = textOf(fields.get(PIECE_FIELDS.piece), "", fail);
    if (piece === "") fail(`piece ${pieces.length} is empty`);
    if (known.has(piece)) fail(`piece ${pieces.length}, ${quoted(piece)}, occurs twice`);
    if (pieces.length === MAX_IDS) fail(`there are more than ${MAX_IDS} pieces`);
    known.add(piece);
    pieces.push(piece);
    scores.push(numberOf(fields.get(PIECE_FIELDS.score), 0));
    kinds.push(numberOf(fields.get(PIECE_FIELDS.type), PIECE.normal));
  });
  if (pieces.length === 0) fail("it holds no pieces: it is no model of sentencepiece");
  for (const [name, field] of [["trainer_spec", MODEL.trainer], ["normalizer_spec", MODEL.normalizer]] as const) {
    if (!specs.has(field)) fail(`it has no ${name}: the file may be cut off`);
  }
  checkKinds(kinds, fail);
  const unknown = kinds.filter((kind) => kind === PIECE.unknown).length;
  if (unknown === 0) fail("it has no piece for what is unknown");
  if (unknown > 1) fail(`it has ${unknown} pieces for what is unknown, expected one`);
  const model = { pieces, scores, kinds, ...readSpecs(specs, fail) };
  const idOf = (field: number, usual: string): number | undefined => {
    const id = pieces.indexOf(textOf(specs.get(MODEL.trainer)?.get(field), usual, fail));
    return kinds[id] === PIECE.control ? id : undefined;
  };
  return readPieces({ ...model, bos: idOf(TRAINER.bos, "<s>"), eos: idOf(TRAINER.eos, "</s>") }, file, embeddings);
}

/** What the model's specifications say; what they leave out has sentencepiece's defaults. */
function readSpecs(specs: ReadonlyMap<number, Values>, fail: Fail): Omit<PieceModel, "pieces" | "scores" | "kinds"> {
  const trainer = specs.get(MODEL.trainer) ?? new Map();
  const normalizer = specs.get(MODEL.normalizer) ?? new Map();
  const type = numberOf(trainer.get(TRAINER.type), UNIGRAM);
  const algorithm = ALGORITHMS.get(type);
  if (algorithm === undefined) return fail(`trainer_spec.model_type is ${type}: 1 (Unigram) and 2 (BPE) are supported`);
  if (numberOf(trainer.get(TRAINER.spaceIsSuffix), 0)) fail("trainer_spec.treat_whitespace_as_suffix is not supported");
  if (bytesOf(specs.get(MODEL.denormalizer)?.get(NORMALIZER.charsmap))) fail("denormalizer_spec is not supported");
  return {
    algorithm,
    byteFallback: numberOf(trainer.get(TRAINER.byteFallback), 0) !== 0,
    unknownText: textOf(trainer.get(TRAINER.unknownText), " \u2047 ", fail),
    charsmap: bytesOf(normalizer.get(NORMALIZER.charsmap)),
    addsSpace: numberOf(normalizer.get(NORMALIZER.addsSpace), 1) !== 0,
    removesSpaces: numberOf(normalizer.get(NORMALIZER.removesSpaces), 1) !== 0,
    marksSpaces: numberOf(normalizer.get(NORMALIZER.marksSpaces), 1) !== 0,
  };
}

function valuesOf(message: Uint8Array, fail: Fail): Values {
  const values = new Map<number, WireValue>();
  readMessage(message, fail, (field, value) => values.set(field, value));
  return values;
}

function numberOf(value: WireValue | undefined, usual: number): number {
  return typeof value === "number" ? value : usual;
}

/** Bytes of a field that is not empty. */
function bytesOf(value: WireValue | undefined): Uint8Array | undefined {
  return typeof value === "object" && value.length > 0 ? value : undefined;
}

function textOf(value: WireValue | undefined, usual: string, fail: Fail): string {
  if (typeof value !== "object") return usual;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value);
  } catch {
    return fail(`the text at byte ${value.byteOffset} is not valid UTF-8`);
  }
}
