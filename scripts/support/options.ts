/**
 * Global options for the length of a scope: what the scheduler may do, and variables of the environment.
 *
 * `scripts/support` holds what benchmarks and tests both use: tests import scripts, and no benchmark imports tests
 * (`tests/layers_test.ts`).
 *
 * @module
 */

import { options } from "../../src/schedule/plan/options.ts";

/** The options that a scope changes; the others stay. */
export type OptionChanges = Partial<typeof options> & {
  /** Variables of the environment; undefined removes one. */
  readonly env?: Readonly<Record<string, string | undefined>>;
};

function setVariable(name: string, value: string | undefined): void {
  if (value === undefined) Deno.env.delete(name);
  else Deno.env.set(name, value);
}

/**
 * Changes global options until the scope ends, however it does: `using _options = withOptions({ fuse: false })`. Scopes nest, and the
 * body may be asynchronous. All options of the scheduler are brought back, also those that the body changed by itself.
 */
export function withOptions({ env = {}, ...change }: OptionChanges): Disposable {
  const before = { ...options };
  const variables = Object.keys(env).map((name) => [name, Deno.env.get(name)] as const);
  Object.assign(options, change);
  for (const [name, value] of Object.entries(env)) setVariable(name, value);
  return {
    [Symbol.dispose](): void {
      Object.assign(options, before);
      for (const [name, value] of variables) setVariable(name, value);
    },
  };
}
