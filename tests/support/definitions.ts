/**
 * Changes tests as they are registered: for modules that `deno task test` preloads.
 *
 * @module
 */

import { definitionOf, type TestArguments } from "../../scripts/test/share.ts";

/** From now on Deno.test() registers what `change` makes of a test. */
export function registerBy(change: (definition: Deno.TestDefinition) => Deno.TestDefinition): void {
  const test = Deno.test;
  const register = (...args: TestArguments): void => test(change(definitionOf(...args)));
  Object.defineProperty(Deno, "test", { value: Object.assign(register, test), configurable: true, writable: true });
}
