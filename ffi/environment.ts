/**
 * Environment variables, and what their values may be.
 *
 * Reading one never asks on the terminal: without permission it counts as unset, so that a program without any flags starts
 * without a dozen questions. A value that is not allowed counts as unset too, and one line on stderr says what is.
 *
 * @module
 */

/** The values of a variable. */
interface Values {
  readonly pattern: RegExp;
  /** The same in words. */
  readonly expected: string;
}

const SWITCH: Values = { pattern: /^[01]$/, expected: "0 or 1" };

/** Variables whose values are not names of files or folders; those are checked if they are used. */
const VALUES: Readonly<Record<string, Values>> = {
  VKMX_DEVICE: {
    pattern: /^(cpu|gpu|wasm|vulkan:\d+(-[\w=]+)*)$/,
    expected: "gpu, cpu, wasm or a name that mx.devices() lists",
  },
  VKMX_DTYPE: { pattern: /^(float32|float16|bfloat16)$/, expected: "float32, float16 or bfloat16" },
  VKMX_THREADS: { pattern: /^[1-9][0-9]{0,2}$/, expected: "a number of threads from 1 to 999" },
  VKMX_EXACT: SWITCH,
  VKMX_FAST: SWITCH,
  VKMX_EXPLAIN: SWITCH,
  VKMX_PROFILE: SWITCH,
  VKMX_DEBUG: SWITCH,
  VKMX_OFFLINE: SWITCH,
  VKMX_STRICT: SWITCH,
  VKMX_STAGING: SWITCH,
  VKMX_QUEUE_IDLE: SWITCH,
  VKMX_FAULT: { pattern: /^\w{1,47}:-?\d+(:\d+)?$/, expected: "a call and its result, such as vkAllocateMemory:-2" },
};

const permitted = new Set<string>();
const told = new Set<string>();

/** An environment variable; undefined if it is empty, not allowed as VALUES has it, or may not be read. */
export function environment(name: string): string | undefined {
  if (!mayRead(name)) return undefined;
  const text = Deno.env.get(name);
  if (!text) return undefined;
  const values = VALUES[name];
  if (!values || values.pattern.test(text)) return text;
  const line = `vkmx: ${name} is ${
    JSON.stringify(text.slice(0, 200))
  }, expected ${values.expected}: it counts as unset`;
  if (!told.has(line)) console.error(line);
  told.add(line);
  return undefined;
}

function mayRead(name: string): boolean {
  if (permitted.has(name)) return true;
  const may = granted({ name: "env", variable: name });
  if (may) permitted.add(name);
  return may;
}

/** Whether Deno was given a permission; nothing asks on the terminal. */
export function granted(permission: Deno.PermissionDescriptor): boolean {
  return Deno.permissions.querySync(permission).state === "granted";
}

/** Memory of the machine in bytes; undefined if asking is not permitted. */
export function hostMemory(): { readonly total: number; readonly available: number } | undefined {
  return granted({ name: "sys", kind: "systemMemoryInfo" }) ? Deno.systemMemoryInfo() : undefined;
}
