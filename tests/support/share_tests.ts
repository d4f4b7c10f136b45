/**
 * Preloaded by `deno task test` before a file whose tests take long: every n-th test runs, beginning where the seed says, and the
 * others are ignored. So n runs in a row with the seeds 0 to n - 1 have all of them.
 *
 * VKMX_TEST_SHARE is n and VKMX_TEST_SHARE_FROM the first test that runs. VKMX_TEST_SHARE_OF is "vulkan" for the tests of Vulkan
 * devices alone, else "all".
 *
 * @module
 */

const SHARE = Number(Deno.env.get("VKMX_TEST_SHARE"));
const FROM = Number(Deno.env.get("VKMX_TEST_SHARE_FROM"));
const SHARED = Deno.env.get("VKMX_TEST_SHARE_OF") === "vulkan" ? /\bvulkan:\d/ : /(?:)/;

type Definition = Deno.TestDefinition;
type Options = Omit<Definition, "fn" | "name"> & { readonly name?: string };
type Body = Definition["fn"];

/** The definition by a call of Deno.test(), in any of its forms. */
function definitionOf(first: string | Options | Definition | Body, second?: Options | Body, third?: Body): Definition {
  if (typeof first === "function") return { name: first.name, fn: first };
  if (typeof first === "string") {
    return typeof second === "function" ? { name: first, fn: second } : { ...second, name: first, fn: third! };
  }
  if ("fn" in first) return first;
  const fn = second as Body;
  return { ...first, name: first.name ?? fn.name, fn };
}

if (!(SHARE >= 1) || !(FROM >= 0)) throw new Error("VKMX_TEST_SHARE or VKMX_TEST_SHARE_FROM is no number");

const test = Deno.test;
let count = 0;

/** Registers a test, ignored if it is another seed's. */
function shared(...args: Parameters<typeof definitionOf>): void {
  const definition = definitionOf(...args);
  const other = SHARED.test(definition.name) && !definition.ignore && count++ % SHARE !== FROM % SHARE;
  test(other ? { ...definition, ignore: true } : definition);
}

Object.defineProperty(Deno, "test", { value: Object.assign(shared, test), configurable: true, writable: true });
