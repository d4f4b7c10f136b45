/**
 * Measurements of `deno task bench:gpu` for a shape: groups of rows, and the cases of each.
 *
 * @module
 */

import type { Case, Unit } from "../compare.ts";
import { VARIANTS } from "../step_variants.ts";

/** The groups, in the order in which they are measured. */
export const GROUPS = {
  load: "from the first file to the first token",
  decode: "tokens of one sequence, in the variant that is taken, with barriers and in one dispatch",
  batch: "tokens of several sequences together",
  prompt: "prompts to their first token",
  columns: "few tokens of one sequence after others, read as a prompt: with the logits of the last one only",
  speculation: "tokens of one sequence whose answer is drafted, with some shares of right tokens",
  mtp: "the same, of a model with a head that drafts: synth --draft-head writes one",
  split: "one device, and two that share the layers: decode, prompts and an exchange",
  host: "what the host does for a token and a prompt",
  code: "machine code of the kernels of a layer",
  where: "the time by region, op and kernel: text after the table",
} as const;

/** One of the groups. */
export type Group = keyof typeof GROUPS;

/** Groups of some models or machines, or that are no figures. */
const ASKED: ReadonlySet<Group> = new Set(["where", "mtp", "split"]);
/** The groups that are measured by default: those that any model has. */
export const DEFAULT_GROUPS: readonly Group[] = (Object.keys(GROUPS) as Group[]).filter((group) => !ASKED.has(group));

/** How much of each. */
export interface Effort {
  /** Positions after which tokens are decoded. */
  readonly positions: readonly number[];
  /** Numbers of sequences together. */
  readonly sequences: readonly number[];
  /** Tokens of prompts. */
  readonly prompts: readonly number[];
  /** The same of a model that two devices share: they read the parts of a long prompt at the same time. */
  readonly sharedPrompts: readonly number[];
  /** Tokens of one sequence at once, after others. */
  readonly columns: readonly number[];
  /** Tokens that are decoded. */
  readonly tokens: number;
  /** Every variant, also those of kernels that the shape does not take. */
  readonly variants: boolean;
  /** Runs that count; before them half as many. */
  readonly repeats: number;
}

/** The effort of a measurement for the record. */
export const FULL: Effort = {
  positions: [128, 1024, 3500],
  sequences: [2, 4, 8, 16, 32, 64],
  prompts: [64, 512, 2048],
  sharedPrompts: [64, 512, 2048, 8192],
  columns: [1, 2, 4, 8],
  tokens: 128,
  variants: false,
  repeats: 4,
};

/** Positions before sequences together and columns. */
const BEHIND = 128;
/** Shares of drafted tokens that are right: none, some and all. */
const RIGHT = [0, 0.6, 0.7, 1];
/** The same where a head drafts. */
const MTP_RIGHT = [0, 0.7, 1];
/** Most tokens of a prompt whose row shows its time and not its rate. */
const SHORT = 256;

/** A case and what its row says. */
export interface GpuCase extends Case {
  readonly group: Group;
  /** The row's name: the name without the variant. */
  readonly title: string;
  readonly unit: Unit;
}

/**
 * The cases of some groups. The default variant of a program comes first: one dispatch that fails when it is forced is not taken afterwards.
 */
export function gpuCases(groups: readonly Group[], effort: Effort): readonly GpuCase[] {
  const { positions, sequences, prompts, columns, tokens, variants, repeats } = effort;
  const runs = { warmUps: Math.ceil(repeats / 2), repeats };
  const decode = (prompt: number, title: string, more: Partial<GpuCase> = {}): GpuCase => ({
    group: "decode",
    name: title,
    title,
    kind: "decode",
    unit: "tok/s",
    prompt,
    tokens,
    variant: "any",
    ...runs,
    ...more,
  });
  const at = Math.min(BEHIND, ...positions);
  const single = positions.map((prompt) => decode(prompt, `decode @${prompt}`));
  const several = sequences.map((rows) =>
    decode(at, `${rows} sequences @${at}`, { group: "batch", rows, repeats: Math.ceil(repeats / 2), warmUps: 1 })
  );
  const inVariant = (c: GpuCase, variant: GpuCase["variant"]): GpuCase => ({
    ...c,
    name: `${c.name}, ${variant}`,
    variant,
    sameKind: !variants && c.group === "decode",
  });
  const read = (prompt: number, behind: number): GpuCase => {
    const name = behind > 0 ? `${prompt} column${prompt > 1 ? "s" : ""} @${behind}` : `prompt of ${prompt}`;
    const unit = prompt <= SHORT ? "ms" : "tok/s";
    return {
      group: behind > 0 ? "columns" : "prompt",
      name,
      title: name,
      kind: "prefill",
      unit,
      prompt,
      behind,
      ...runs,
    };
  };
  const all = [
    ...single,
    decode(at, `decode @${at}, sampled`, { sampled: true, variant: undefined }),
    ...several,
    ...prompts.map((prompt) => read(prompt, 0)),
    ...columns.map((count) => read(count, at)),
    decode(at, `no drafts @${at}`, { group: "speculation", variant: undefined }),
    ...RIGHT.map((drafted) =>
      decode(at, `drafts @${at}, ${100 * drafted} % right`, { group: "speculation", variant: undefined, drafted })
    ),
    decode(at, `no drafts of a head @${at}`, { group: "mtp", variant: undefined }),
    ...MTP_RIGHT.map((drafted) =>
      decode(at, `drafts of a head @${at}, ${100 * drafted} % right`, {
        group: "mtp",
        variant: undefined,
        drafted,
        head: true,
      })
    ),
    ...VARIANTS.one.flatMap((variant) => single.map((c) => inVariant(c, variant))),
    ...(variants ? VARIANTS.several.flatMap((variant) => several.map((c) => inVariant(c, variant))) : []),
  ];
  return all.filter(({ group }) => groups.includes(group));
}
