/**
 * Which tests of a file a seed leaves to other seeds. With a share of n every n-th test runs, beginning where the seed says. So n runs
 * with the seeds 0 to n - 1 have all of them.
 *
 * @module
 */

/** How the tests of a file are shared out. */
export interface Share {
  /** One in so many tests runs. */
  readonly share: number;
  /** The first test that runs. */
  readonly from: number;
  /** The tests that are shared out: those of Vulkan devices, or all. */
  readonly shareOf: "vulkan" | "all";
}

type Definition = Deno.TestDefinition;
type Options = Omit<Definition, "fn" | "name"> & { readonly name?: string };
type Body = Definition["fn"];

/** The arguments of Deno.test(), in any of its forms. */
export type TestArguments = readonly [
  first: string | Options | Definition | Body,
  second?: Options | Body,
  third?: Body,
];

/** The definition by a call of Deno.test(). */
export function definitionOf(...[first, second, third]: TestArguments): Definition {
  if (typeof first === "function") return { name: first.name, fn: first };
  if (typeof first === "string") {
    return typeof second === "function" ? { name: first, fn: second } : { ...second, name: first, fn: third! };
  }
  if ("fn" in first) return first;
  const fn = second as Body;
  return { ...first, name: first.name ?? fn.name, fn };
}

/** A function that gets all tests of a file in order, and says of each whether it is another seed's. */
export function isOtherSeeds({ share, from, shareOf }: Share): (test: Definition) => boolean {
  const shared = shareOf === "vulkan" ? /\bvulkan:\d/ : /(?:)/;
  let count = 0;
  return ({ name, ignore }) => shared.test(name) && !ignore && count++ % share !== from % share;
}
