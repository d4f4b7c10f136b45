/**
 * Marks around the thoughts of models, a row for each pair.
 *
 * @module
 */

/** What stands around thoughts. */
export interface ThoughtMarks {
  /** Begins a thought in the text. */
  readonly open: string;
  /** Ends it. */
  readonly close: string;
  /** The token that begins a thought, if it is shorter than `open`. */
  readonly token?: string;
}

/** The first pair that a model knows counts. The last pair is that of models that name none. */
export const THOUGHT_MARKS = [
  { open: "[THINK]", close: "[/THINK]" },
  { open: "<|channel>thought", close: "<channel|>", token: "<|channel>" },
  { open: "<think>", close: "</think>" },
] as const satisfies readonly ThoughtMarks[];

/** The marks of a model whose vocabulary is asked for tokens. */
export function thoughtMarks(hasToken: (token: string) => boolean): ThoughtMarks {
  const known = (marks: ThoughtMarks): boolean => hasToken(openingToken(marks)) && hasToken(marks.close);
  return THOUGHT_MARKS.find(known) ?? THOUGHT_MARKS[THOUGHT_MARKS.length - 1];
}

/** The token that begins a thought. */
export function openingToken({ open, token = open }: ThoughtMarks): string {
  return token;
}
