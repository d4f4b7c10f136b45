/**
 * Sets of characters, as the classes and properties of regular expressions name them.
 *
 * A set is a predicate of a code point. A table caches its answers, so a text evaluates it once for each code point.
 *
 * @module
 */

/** Whether a code point is in a set. */
export type CharTest = (code: number) => boolean;

/** Entries of tables for characters outside the set and inside of it; 0 for those not tested yet. */
export const OUTSIDE = 1;
export const INSIDE = 2;

/** A set with tables of its answers, which are made where a text asks. */
export class CharSet {
  /** 0, {@link OUTSIDE} or {@link INSIDE} by code unit. */
  readonly table = new Uint8Array(0x10000);
  #beyond: Uint8Array | undefined; // and by code point from there on
  readonly #test: CharTest;

  /** A set of the characters that pass `test`. */
  constructor(test: CharTest) {
    this.#test = test;
  }

  /** Whether a code point is in the set. */
  has(code: number): boolean {
    const table = code < 0x10000 ? this.table : this.#beyond ??= new Uint8Array(0x100000);
    const at = code & 0xfffff;
    return (table[at] || (table[at] = this.#test(code) ? INSIDE : OUTSIDE)) === INSIDE;
  }
}

/** A test for characters that match an expression in JavaScript's syntax, such as "\\p{L}". */
export function matching(one: string, flags = "u"): CharTest {
  const regex = new RegExp(`^${one}$`, flags);
  return (code) => regex.test(String.fromCodePoint(code));
}

/** Characters of a closed range. */
export function range(low: number, high: number): CharTest {
  return (code) => code >= low && code <= high;
}

/** A test for characters that pass any of some tests. */
export function union(tests: readonly CharTest[]): CharTest {
  return tests.length === 1 ? tests[0] : (code) => tests.some((test) => test(code));
}

/** A test for characters that pass all of some tests. */
export function intersection(tests: readonly CharTest[]): CharTest {
  return tests.length === 1 ? tests[0] : (code) => tests.every((test) => test(code));
}

/** A test for characters that fail a test. */
export function complement(test: CharTest): CharTest {
  return (code) => !test(code);
}

/** White space of Unicode: JavaScript's \s takes U+FEFF for it and leaves out U+0085. */
export const isWhiteSpace: CharTest = matching("\\p{White_Space}");
/** Decimal digits. */
export const isDigit: CharTest = matching("\\p{Nd}");
/** Characters of words, as classes of Oniguruma hold them. */
export const isWordInClass: CharTest = matching("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]");
/** Characters of words, as Oniguruma's \w and \b see them: the superscripts and fractions of Latin-1 are among them. */
export const isWord: CharTest = union([isWordInClass, matching("[²³¹¼½¾]")]);

/** Classes by the letter of their escape; the capital letter means the complement. */
export const CLASSES: Readonly<Record<string, CharTest>> = {
  s: isWhiteSpace,
  d: isDigit,
  w: isWord,
  h: matching("[0-9a-fA-F]"),
};
/** Names of properties that JavaScript does not know or means otherwise. */
export const PROPERTIES: Readonly<Record<string, CharTest | undefined>> = {
  alpha: matching("\\p{Alphabetic}"),
  space: isWhiteSpace,
  digit: isDigit,
  word: isWord,
  alnum: matching("[\\p{Alphabetic}\\p{Nd}]"),
  upper: matching("\\p{Uppercase}"),
  lower: matching("\\p{Lowercase}"),
};
/** Properties that all forms of a letter have in common, so that the case of letters does not matter to them. */
export const CASELESS = /^(?:[LNMPSZC]|N[dlo]|M[nce]|P[cdseifo]|S[mcko]|Z[slp]|Lo|Lm|alpha|space|digit|word|alnum)$/;

/** Characters of a range and those that differ from one of them by case only. */
export function anyCase(low: number, high: number): CharTest {
  return matching(`[\\u{${low.toString(16)}}-\\u{${high.toString(16)}}]`, "iu");
}
