/**
 * Work at the end of a program: after `Deno.exit()`, or with nothing more to wait for. A program that is killed does none of it.
 *
 * @module
 */

/** Calls `hook` where the program ends before the scope does. */
export function onExit(hook: () => void): Disposable {
  const listener = (): void => hook(); // of its own: one that throws keeps no other from being called
  globalThis.addEventListener("unload", listener);
  return { [Symbol.dispose]: () => globalThis.removeEventListener("unload", listener) };
}
