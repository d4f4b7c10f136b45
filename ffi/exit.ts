/**
 * What is left to do where a program ends by itself: `Deno.exit()`, or nothing more to wait for. A program that is killed does none of it.
 *
 * @module
 */

const hooks = new Set<() => void>();
let listens = false;

/** Calls `hook` where the program ends before the scope does. */
export function onExit(hook: () => void): Disposable {
  if (!listens) globalThis.addEventListener("unload", () => hooks.forEach((each) => each()));
  listens = true;
  hooks.add(hook);
  return { [Symbol.dispose]: () => void hooks.delete(hook) };
}
