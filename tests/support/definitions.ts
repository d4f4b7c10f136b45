/**
 * Changes tests as they are registered: for modules that `deno task test` preloads.
 *
 * @module
 */

/** A test. */
export type Definition = Deno.TestDefinition;
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

/** From now on Deno.test() registers what `change` makes of a test. */
export function registerBy(change: (definition: Definition) => Definition): void {
  const test = Deno.test;
  const register = (...args: Parameters<typeof definitionOf>): void => test(change(definitionOf(...args)));
  Object.defineProperty(Deno, "test", { value: Object.assign(register, test), configurable: true, writable: true });
}
