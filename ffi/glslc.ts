/**
 * GLSL to SPIR-V with the system's glslc, at run time; and its judge, spirv-val, if that is there.
 *
 * Compiled code is kept in the cache folder under a hash of the text and of the options. So a program that ran before needs neither the
 * compiler nor the permission to start it. Nothing asks on the terminal.
 *
 * @module
 */

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { cacheFolder, mayKeep, tellNotKept } from "./cache_folder.ts";
import { environment, granted } from "./environment.ts";
import { RuntimeError } from "./error.ts";

/** Options of every call. */
const OPTIONS = ["--target-env=vulkan1.3", "-fshader-stage=compute", "-O"] as const;
/** Texts whose SPIR-V stays in memory. */
const MAX_KEPT = 1024;
const DIGEST_BYTES = 32;

type Bytes = Uint8Array<ArrayBuffer>;

/** By hash of the text. */
const kept = new Map<string, Bytes>();
/** Hashes of modules that spirv-val has looked at. */
const judged = new Set<string>();

/** The result of compiling: a module, or the compiler's errors. */
export type Compiled = { readonly spirv: Bytes } | { readonly log: string };

/** SHA-256 of bytes or text, in hexadecimal. */
export function digestOf(content: Uint8Array | string): string {
  return createHash("sha256").update(content).digest("hex");
}

/**
 * A compute shader as SPIR-V. Throws a RuntimeError with code "missing" if there is no compiler and with "unavailable" if Deno may not
 * start it.
 */
export function compileGlsl(text: string, call: string): Compiled {
  const key = digestOf([...OPTIONS, text].join("\n"));
  const known = kept.get(key) ?? readKept(key);
  if (known) {
    keep(key, known);
    return { spirv: known };
  }
  const program = compilerFor(call);
  const found = withFile(key, ".comp", text, call, (path) => start(program, [...OPTIONS, "-o", "-", path], call));
  if (!found.success) return { log: found.stderr };
  const spirv = new Uint8Array(found.stdout);
  keep(key, spirv);
  writeKept(key, spirv);
  return { spirv };
}

/** The errors of spirv-val for a module; undefined if there are none, or if it is not there or may not be started. */
export function judgeSpirv(spirv: Uint8Array, call: string): string | undefined {
  const key = digestOf(spirv);
  if (judged.has(key) || !granted({ name: "run", command: "spirv-val" })) return undefined;
  try {
    const found = withFile(
      key,
      ".spv",
      spirv,
      call,
      (path) => start("spirv-val", ["--target-env", "vulkan1.3", path], call),
    );
    if (!found.success) return found.stderr.trim().split("\n")[0] || "spirv-val refuses it";
  } catch (error) {
    if (!(error instanceof RuntimeError)) throw error;
  }
  if (judged.size < MAX_KEPT) judged.add(key);
  return undefined;
}

/** The compiler that may be started. */
function compilerFor(call: string): string {
  const program = environment("GLSLC") ?? "glslc";
  if (granted({ name: "run", command: program })) return program;
  throw new RuntimeError(
    "unavailable",
    call,
    `Deno may not start ${program}, which compiles GLSL: give --allow-run=${program}, or give the kernel as SPIR-V (option spirv)`,
  );
}

/** The output of a program. */
interface Said {
  readonly success: boolean;
  readonly stdout: Bytes;
  readonly stderr: string;
}

function start(program: string, args: readonly string[], call: string): Said {
  try {
    const { success, stdout, stderr } = new Deno.Command(program, { args: [...args], stdin: "null" }).outputSync();
    return { success, stdout: stdout as Bytes, stderr: new TextDecoder().decode(stderr) };
  } catch (cause) {
    if (cause instanceof Deno.errors.NotFound) {
      throw new RuntimeError(
        "missing",
        call,
        `${program}, which compiles GLSL, was not found. Install it (package glslc or shaderc), set GLSLC to its path, or give the ` +
          "kernel as SPIR-V (option spirv)",
        { cause },
      );
    }
    throw new RuntimeError("unavailable", call, `${program} cannot be started: ${(cause as Error).message}`, { cause });
  }
}

/** Hands `use` a file with some content, which goes afterwards. */
function withFile<T>(
  key: string,
  ending: string,
  content: Uint8Array | string,
  call: string,
  use: (path: string) => T,
): T {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  let path: string | undefined;
  try {
    try {
      if (mayKeep() && cacheFolder() !== "") {
        Deno.mkdirSync(folder(), { recursive: true });
        path = `${folder()}/${key}.${Deno.pid}${ending}`;
      } else path = Deno.makeTempFileSync({ prefix: "vkmx-", suffix: ending });
      Deno.writeFileSync(path, bytes);
    } catch (cause) {
      throw new RuntimeError(
        "unavailable",
        call,
        `the compiler reads files, and none can be written: give --allow-write for the cache folder or for that of temporary files ` +
          `(${(cause as Error).message})`,
        { cause },
      );
    }
    return use(path);
  } finally {
    if (path !== undefined) removeQuietly(path);
  }
}

function removeQuietly(path: string): void {
  try {
    Deno.removeSync(path);
  } catch { /* it was never written */ }
}

// ---- the cache ----------------------------------------------------------------------------------------------------------

function folder(): string {
  return `${cacheFolder()}/shaders`;
}

function keep(key: string, spirv: Bytes): void {
  kept.delete(key); // the one that was used last stands last
  kept.set(key, spirv);
  if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value!);
}

/** A file holds the digest of the module, and the module. A damaged one counts as missing. */
function readKept(key: string): Bytes | undefined {
  const root = cacheFolder();
  if (root === "" || !granted({ name: "read", path: root })) return undefined;
  try {
    const file = Deno.readFileSync(`${folder()}/${key}.spv`);
    const spirv = file.slice(DIGEST_BYTES);
    const digest = Buffer.from(file.subarray(0, DIGEST_BYTES)).toString("hex");
    return digest === digestOf(spirv) ? spirv : undefined;
  } catch {
    return undefined;
  }
}

function writeKept(key: string, spirv: Bytes): void {
  if (!mayKeep() || cacheFolder() === "") return tellNotKept();
  const partial = `${folder()}/${key}.${Deno.pid}.part`;
  try {
    Deno.mkdirSync(folder(), { recursive: true });
    Deno.writeFileSync(partial, Buffer.concat([Buffer.from(digestOf(spirv), "hex"), spirv]));
    Deno.renameSync(partial, `${folder()}/${key}.spv`);
  } catch (error) {
    removeQuietly(partial);
    tellNotKept(`cannot write ${folder()}: ${(error as Error).message}`);
  }
}
