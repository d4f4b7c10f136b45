/**
 * Tokenizers of pieces with scores, as sentencepiece's models and GGUF files hold them.
 *
 * @module
 */

import { quoted } from "../../../graph/error.ts";
import type { AddedToken } from "../added_tokens.ts";
import { Bpe, type TokenModel } from "../bpe.ts";
import { ScoreRanks } from "../merges.ts";
import { type Fail, failing } from "../pipeline.ts";
import type { TokenDecoder } from "../token_decoder.ts";
import { TokenMatcher } from "../token_matcher.ts";
import type { TokenizerFile } from "../tokenizer_file.ts";
import { byteOf, UnknownCharacters } from "../unknown_characters.ts";
import { Vocabulary } from "../vocabulary.ts";
import { Charsmap } from "./charsmap.ts";
import { pieceNormalizer, placesOf, SPACE_MARK } from "./normalizer.ts";
import { Unigram } from "./unigram.ts";

/** Kinds of pieces, by sentencepiece's numbers. */
export const PIECE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

/** A vocabulary of pieces, and how text is prepared for it. */
export interface PieceModel {
  /** How words are cut into pieces. */
  readonly algorithm: "BPE" | "Unigram";
  /** Pieces by id; an empty one is no token. */
  readonly pieces: readonly string[];
  /** Their scores. */
  readonly scores: ArrayLike<number>;
  /** Their kinds: numbers of {@link PIECE}. */
  readonly kinds: ArrayLike<number>;
  /** Writes characters that are no pieces as pieces of their bytes. */
  readonly byteFallback: boolean;
  /** Bytes of rules for characters; empty or absent for none. */
  readonly charsmap?: Uint8Array;
  /** Writes a space before a text and before what follows a control token. Decoded text loses it. */
  readonly addsSpace: boolean;
  /** Removes spaces at both ends and leaves one of several in a row. */
  readonly removesSpaces: boolean;
  /** Writes spaces as "▁"; default true. */
  readonly marksSpaces?: boolean;
  /** What unknown characters are decoded to. */
  readonly unknownText: string;
  /**
   * Looks for user-defined pieces before text is prepared, as for control tokens. That is what GGUF files mean, where they are tokens that
   * were added to a model.
   */
  readonly findsUserDefined?: boolean;
  /** Id of the token that begins a text, if there is one. */
  readonly bos?: number;
  /** Id of the token that ends it. */
  readonly eos?: number;
}

/** The tokenizer of some pieces of `file`, for a model of `embeddings` rows. Throws an `LlmError` that says what is wrong. */
export function readPieces(model: PieceModel, file: string, embeddings: number): TokenizerFile {
  const fail = failing(file);
  const { pieces, scores, kinds } = model;
  if (scores.length !== pieces.length || kinds.length !== pieces.length) {
    fail(`there are ${pieces.length} pieces, ${scores.length} scores and ${kinds.length} kinds of them`);
  }
  const vocabulary = Vocabulary.of(pieces, file, embeddings);
  const isKind = (...some: readonly number[]) => (id: number): boolean => some.includes(kinds[id]);
  const idsOf = (...some: readonly number[]): number[] => [...pieces.keys()].filter(isKind(...some));
  const unknownIds = idsOf(PIECE.unknown); // GGUF files may have more of them, tokens without a kind
  const unknown = new UnknownCharacters(vocabulary, {
    byteFallback: model.byteFallback,
    unknown: unknownIds[0],
    fuse: true,
  });
  const added = idsOf(PIECE.control, PIECE.unknown, ...(model.findsUserDefined ? [PIECE.userDefined] : []));
  const fixedIds = model.findsUserDefined ? [] : idsOf(PIECE.userDefined);
  const fixedTexts = fixedIds.map((id) => pieces[id]);
  const fixed = fixedIds.length > 0 ? new TokenMatcher(fixedTexts) : undefined;
  const { charsmap, addsSpace, removesSpaces, marksSpaces = true } = model;
  const normalize = pieceNormalizer({
    charsmap: charsmap && charsmap.length > 0 ? new Charsmap(charsmap, fail) : undefined,
    addsSpace,
    removesSpaces,
    marksSpaces,
    fixed,
    fixedTexts,
  });
  const encoder = model.algorithm === "BPE"
    ? withFixed(bpeOf(model, vocabulary, unknown), fixed, fixedIds, pieces)
    : unigramOf(model, unknown, fail);
  return {
    vocabulary,
    model: encoder,
    decoder: decoderOf(model, unknownIds[0]),
    preTokenizer: { normalize, split: (text) => text === "" ? [] : [text] },
    around: { before: [], after: [] },
    added: added.filter((id) => pieces[id] !== "").map((id): AddedToken => ({
      id,
      content: pieces[id],
      special: kinds[id] !== PIECE.userDefined,
      normalized: false,
    })),
    vocabSize: pieces.length,
    bos: checkedId(model.bos, pieces, fail),
    eos: checkedId(model.eos, pieces, fail),
  };
}

function checkedId(id: number | undefined, pieces: readonly string[], fail: Fail): number | undefined {
  if (id !== undefined && !pieces[id]) fail(`the token with id ${id} that begins or ends a text does not exist`);
  return id;
}

/** Neighbours are merged by the score of the piece that they make. */
function bpeOf({ scores, kinds }: PieceModel, vocabulary: Vocabulary, unknown: UnknownCharacters): TokenModel {
  const made = Float64Array.from(scores, (score, id) => kinds[id] === PIECE.normal ? score : NaN);
  return new Bpe(vocabulary, { ranks: new ScoreRanks(made), wholeWords: false, byteLevel: false, unknown });
}

function unigramOf({ pieces, scores, kinds }: PieceModel, unknown: UnknownCharacters, fail: Fail): TokenModel {
  return new Unigram({
    tokens: pieces,
    scores,
    chooses: (id) => kinds[id] === PIECE.normal || kinds[id] === PIECE.userDefined,
    prefers: (id) => kinds[id] === PIECE.userDefined,
    counts: (id) => kinds[id] === PIECE.normal,
    unknown,
  }, fail);
}

/** A model that takes fixed pieces for what they are and encodes the text between them. */
function withFixed(
  model: TokenModel,
  fixed: TokenMatcher | undefined,
  ids: readonly number[],
  pieces: readonly string[],
): TokenModel {
  if (fixed === undefined) return model;
  return {
    encode: (word, out) => {
      const places = placesOf(fixed, word);
      let from = 0;
      const between = (to: number): void => {
        if (to > from) model.encode(word.slice(from, to), out);
      };
      for (const at of [...places.keys()].reverse()) {
        if (at < from) continue; // within another one
        between(at);
        const id = ids[places.get(at)!];
        out.push(id);
        from = at + pieces[id].length;
      }
      between(word.length);
    },
  };
}

/** Pieces as text: spaces for their mark, the byte of one, and the text for what is unknown. */
function decoderOf(
  { pieces, kinds, addsSpace, removesSpaces, unknownText }: PieceModel,
  unknown: number | undefined,
): TokenDecoder {
  const encoder = new TextEncoder();
  const isBytes = kinds.length > 0 && Array.prototype.includes.call(kinds, PIECE.byte);
  const bytes = (spelling: string): Uint8Array => {
    if (unknown !== undefined && spelling === pieces[unknown]) return encoder.encode(unknownText);
    const byte = isBytes ? byteOf(spelling) : undefined;
    return byte === undefined ? encoder.encode(spelling.replaceAll(SPACE_MARK, " ")) : Uint8Array.of(byte);
  };
  const loses = addsSpace || removesSpaces;
  const firstBytes = (spelling: string): Uint8Array =>
    bytes(spelling.startsWith(SPACE_MARK) ? spelling.slice(SPACE_MARK.length) : spelling);
  return { bytes, ...(loses && { firstBytes }), untilText: removesSpaces, leadingSpaces: 0, plainAdded: false };
}

/** Names a kind of piece that there is not. */
export function checkKinds(kinds: ArrayLike<number>, fail: Fail): void {
  const known: readonly number[] = Object.values(PIECE);
  const wrong = Array.from(kinds).find((kind) => !known.includes(kind));
  if (wrong !== undefined) fail(`a piece has the type ${quoted(wrong)}, expected ${known[0]} to ${known.at(-1)}`);
}
