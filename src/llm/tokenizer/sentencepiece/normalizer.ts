/**
 * How sentencepiece normalizes text: rules for characters, spaces removed or added, and spaces written as "▁".
 *
 * @module
 */

import { charBytes } from "../bpe.ts";
import type { TextChange } from "../text_normalizer.ts";
import type { TokenMatcher } from "../token_matcher.ts";
import type { Charsmap } from "./charsmap.ts";

/** What stands for a space. */
export const SPACE_MARK = "▁";

/** The fields of a `NormalizerSpec`. */
export interface NormalizerOptions {
  /** Rules for characters. */
  readonly charsmap?: Charsmap;
  /** Writes a space before a text. */
  readonly addsSpace: boolean;
  /** Removes spaces at both ends and leaves one of several in a row. */
  readonly removesSpaces: boolean;
  /** Writes spaces as {@link SPACE_MARK}. */
  readonly marksSpaces: boolean;
  /** Finds tokens that no rule changes. */
  readonly fixed?: TokenMatcher;
  /** Texts of the tokens that `fixed` finds. */
  readonly fixedTexts: readonly string[];
}

/** A piece of the text as the rules leave it, and the code units and bytes that it came from. */
interface Piece {
  readonly text: string;
  readonly units: number;
  readonly bytes: number;
}

/** The normal form of a text. */
export function pieceNormalizer(options: NormalizerOptions): TextChange {
  const { charsmap, addsSpace, removesSpaces, marksSpaces, fixed, fixedTexts } = options;
  const space = marksSpaces ? SPACE_MARK : " ";
  return (text, starts = true, ends = true) => {
    const bytes = charsmap && new TextEncoder().encode(text);
    const fixedAt = fixed && placesOf(fixed, text);
    const pieceAt = (unit: number, byte: number): Piece => {
      const token = fixedAt?.get(unit);
      const rule = token === undefined && bytes && charsmap?.longest(bytes, byte, bytes.length);
      if (rule) return { text: rule.text, units: unitsOf(bytes!, byte, byte + rule.length), bytes: rule.length };
      const own = token === undefined ? String.fromCodePoint(text.codePointAt(unit)!) : fixedTexts[token];
      return { text: own, units: own.length, bytes: bytes ? byteLength(own) : 0 };
    };
    let [unit, byte] = [0, 0];
    if (removesSpaces && starts) {
      for (let piece; unit < text.length && (piece = pieceAt(unit, byte)).text === " ";) {
        unit += piece.units;
        byte += piece.bytes;
      }
    }
    if (unit >= text.length) return "";
    let out = addsSpace && starts ? space : "";
    let isAfterSpace = removesSpaces && starts;
    while (unit < text.length) {
      const piece = pieceAt(unit, byte);
      unit += piece.units;
      byte += piece.bytes;
      const kept = isAfterSpace ? piece.text.replace(/^ +/, "") : piece.text;
      if (kept !== "") {
        out += marksSpaces ? kept.replaceAll(" ", SPACE_MARK) : kept;
        isAfterSpace = kept.endsWith(" ");
      }
      if (!removesSpaces) isAfterSpace = false;
    }
    let end = out.length;
    if (removesSpaces && ends) { while (end > 0 && out[end - 1] === space) end--; }
    return out.slice(0, end);
  };
}

/** The longest token at each place of a text where one begins. */
export function placesOf(matcher: TokenMatcher, text: string): ReadonlyMap<number, number> {
  const found: number[] = [];
  matcher.find(text, 0, text.length, found);
  const places = new Map<number, number>();
  for (let i = 0; i < found.length; i += 2) places.set(found[i + 1], found[i]);
  return places;
}

/** Code units of the characters whose UTF-8 is between two bytes. */
function unitsOf(bytes: Uint8Array, from: number, to: number): number {
  let units = 0;
  for (let at = from; at < to; at += charBytes(bytes[at])) units += bytes[at] < 0xf0 ? 1 : 2;
  return units;
}

/** Bytes of the UTF-8 of a text. */
function byteLength(text: string): number {
  let bytes = 0;
  for (const char of text) {
    const code = char.codePointAt(0)!;
    bytes += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return bytes;
}
