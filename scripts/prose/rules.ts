/**
 * The rules of prose: no sentence of too many words, and none with a word that CONTRIBUTING.md lists under "Words".
 *
 * @module
 */

import { FILLER, type Sentence, withoutSpans } from "./text.ts";

/** Most words of a sentence. CONTRIBUTING.md says so too. */
export const MAX_WORDS = 25;

/** A word or phrase that is not to be written. */
export interface Banned {
  readonly phrase: string;
  /** The right word. */
  readonly instead: string;
  /** Phrases in which it is right. */
  readonly allowed: readonly string[];
}

/** The phrases of a cell: those between its commas. */
function phrasesOf(cell: string): string[] {
  return cell.split(",").map((phrase) => phrase.trim()).filter((phrase) => phrase !== "");
}

/** The table of words in CONTRIBUTING.md: | not | but | except in |. */
export function bannedWords(contributing: string): Banned[] {
  const table = /^## Words\n([^]*?)(?=^## |$(?![^]))/m.exec(contributing)?.[1] ?? "";
  const rows = table.split("\n").filter((line) => line.startsWith("|")).slice(2);
  return rows.flatMap((row) => {
    const [not, instead, allowed] = row.split("|").slice(1, -1).map((cell) => cell.trim());
    return phrasesOf(not).map((phrase) => ({ phrase, instead, allowed: phrasesOf(allowed) }));
  });
}

/** Matches a phrase as whole words, in any case, across line ends. */
function matcher(phrase: string): RegExp {
  const words = phrase.split(/\s+/).map((word) => word.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`(?<![\\p{L}\\p{N}_-])${words.join("\\s+")}(?![\\p{L}\\p{N}_-])`, "giu");
}

/** Tells what is wrong with a sentence. */
export type Check = (sentence: Sentence) => string[];

/** The rules, with the words of CONTRIBUTING.md. */
export function rulesOf(contributing: string): Check {
  const banned = bannedWords(contributing).map(({ phrase, instead, allowed }) => ({
    phrase,
    instead,
    pattern: matcher(phrase),
    allowed: allowed.map(matcher),
  }));
  return ({ text, words }) => {
    const prose = withoutSpans(text).replaceAll(FILLER, "");
    const wrong = words > MAX_WORDS ? [`${words} words, at most ${MAX_WORDS}`] : [];
    for (const { phrase, instead, pattern, allowed } of banned) {
      const rest = allowed.reduce((left, exception) => left.replace(exception, ""), prose);
      if (rest.search(pattern) >= 0) wrong.push(`"${phrase}": write ${instead}`);
    }
    return wrong;
  };
}
