/**
 * Work at the end of a program: after `Deno.exit()`, or with nothing more to wait for. A program that is killed does none of it.
 * Part of it is the end of child processes.
 *
 * @module
 */

/** Calls `hook` where the program ends before the scope does. */
export function onExit(hook: () => void): Disposable {
  const listener = (): void => hook(); // of its own: one that throws keeps no other from being called
  globalThis.addEventListener("unload", listener);
  return { [Symbol.dispose]: () => globalThis.removeEventListener("unload", listener) };
}

/** Milliseconds between SIGTERM and SIGKILL. */
const GRACE_MS = 100;

/** Ends a child process while nothing can be awaited. One that has ended already is no error. */
export function endProcess(pid: number): void {
  signal(pid, "SIGTERM");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, GRACE_MS);
  killProcess(pid);
}

/** Kills a child process. One that has ended already is no error. */
export function killProcess(pid: number): void {
  signal(pid, "SIGKILL");
}

function signal(pid: number, name: Deno.Signal): void {
  try {
    Deno.kill(pid, name);
  } catch { /* it has ended */ }
}
