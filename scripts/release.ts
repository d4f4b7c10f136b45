/**
 * `deno task release`: what a release is made of. Compiles the library for every target, and writes
 *
 * - `ffi/releases.ts`, the table with the SHA-256 of each, which the package verifies against,
 * - `ffi/packaged/TARGET.ts`, the same libraries compressed, which travel in the package,
 * - `zig-out/release/`, the files of the release on GitHub with their SHA256SUMS,
 * - `zig-out/npm/`, the package for `npm publish zig-out/npm`,
 *
 * then has `deno publish --dry-run` say what would be published, and adds it up. `--tag v1.2.3` fails where the version is another.
 * `git checkout ffi/releases.ts` and removing `ffi/packaged` make it a checkout again.
 *
 * @module
 */

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants } from "node:zlib";
import type { ReleasedLibrary } from "../ffi/releases.ts";
import { fileName, VERSION } from "../ffi/version.ts";
import { EMBEDDED_FILES, EMBEDDED_MODEL } from "../src/llm/checkpoint/embedded.ts";
import { writeNpmPackage } from "./release/npm_package.ts";
import { findZig, ROOT, run, ZIG_VERSION } from "./tools.ts";

/** The targets that `zig build cross` compiles for, by Deno's names, and what tells a library of theirs: bytes at an offset. */
export const TARGETS = {
  "x86_64-linux": [[0, 0x7f, 0x45, 0x4c, 0x46, 2], [18, 62, 0]],
  "aarch64-linux": [[0, 0x7f, 0x45, 0x4c, 0x46, 2], [18, 183, 0]],
  "x86_64-windows": [[0, 0x4d, 0x5a], ["PE", 0x50, 0x45, 0, 0, 0x64, 0x86]],
  "aarch64-darwin": [[0, 0xcf, 0xfa, 0xed, 0xfe, 0x0c, 0, 0, 1]],
} as const satisfies Record<string, readonly (readonly [number | "PE", ...number[]])[]>;

/** Name of a target. */
export type Target = keyof typeof TARGETS;

/** The limits of JSR: for the files of a package, and for each one. */
const PACKAGE_BYTES = 20e6;

/** The library of a target where `zig build cross` leaves it. */
export function crossPath(target: Target, folder: string = `${ROOT}zig-out/cross`): string {
  return `${folder}/${target}/${fileName(osOf(target))}`;
}

const osOf = (target: Target): string => target.split("-")[1];

/** Throws unless bytes are a stripped library for a target that exports vkmx's functions. */
function checkLibrary(target: Target, bytes: Buffer): void {
  for (const [where, ...expected] of TARGETS[target]) {
    const at = where === "PE" ? bytes.readUInt32LE(0x3c) : where;
    if (!bytes.subarray(at, at + expected.length).equals(Buffer.from(expected))) {
      throw new Error(`the library for ${target} is for another system`);
    }
  }
  if (!bytes.includes("vkrt_abi")) throw new Error(`the library for ${target} has no vkrt_abi()`);
  for (const symbols of [".symtab", "debug_info"]) {
    if (bytes.includes(symbols)) throw new Error(`the library for ${target} is not stripped: it has ${symbols}`);
  }
}

/** The text of the module that holds a library. */
export function packagedModule(bytes: Uint8Array, quality: number = constants.BROTLI_MAX_QUALITY): string {
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: quality,
    [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
    [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
  };
  const text = brotliCompressSync(bytes, { params }).toString("base64");
  return `/** Written by \`deno task release\`. @module */\n\n/** A library in Brotli and base64. */\n` +
    `export const LIBRARY: string = "${text}";\n`;
}

/** The row of a library in the table of releases. */
export function releaseRow(target: Target, bytes: Uint8Array): ReleasedLibrary {
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { asset: `${target}-${fileName(osOf(target))}`, bytes: bytes.length, sha256 };
}

/** The text of ffi/releases.ts with another table. */
export function releaseTable(text: string, rows: Readonly<Record<string, ReleasedLibrary>>): string {
  const start = "export const RELEASES: Readonly<Record<string, ReleasedLibrary>> = ";
  const at = text.indexOf(start) + start.length;
  if (at < start.length) throw new Error("ffi/releases.ts has no table");
  const keys = (row: ReleasedLibrary): string =>
    Object.entries(row).map(([key, value]) => `\n    ${key}: ${JSON.stringify(value)},`).join("");
  const lines = Object.entries(rows).map(([target, row]) => `\n  "${target}": {${keys(row)}\n  },`).join("");
  return `${text.slice(0, at)}{${lines}${lines && "\n"}};\n`;
}

/** How {@link writeRelease} writes. */
export interface ReleaseOptions {
  /** Folder with a folder for each target. */
  readonly from: string;
  /** Root under which `ffi/` and `zig-out/` are written. */
  readonly to: string;
  /** The targets; default all. */
  readonly targets?: readonly Target[];
  /** Brotli's effort from 0 to 11; default 11. */
  readonly quality?: number;
}

/** Writes the table, the modules and the files of the release. Throws where a library is missing or wrong. */
export async function writeRelease(options: ReleaseOptions): Promise<Record<string, ReleasedLibrary>> {
  const { from, to, targets = Object.keys(TARGETS) as Target[], quality } = options;
  const rows: Record<string, ReleasedLibrary> = {};
  for (const folder of ["ffi/packaged", "zig-out/release"]) {
    await Deno.remove(`${to}/${folder}`, { recursive: true }).catch(() => {});
    await Deno.mkdir(`${to}/${folder}`, { recursive: true });
  }
  for (const target of targets) {
    const bytes = Buffer.from(await Deno.readFile(crossPath(target, from)));
    checkLibrary(target, bytes);
    const row = rows[target] = releaseRow(target, bytes);
    await Deno.writeFile(`${to}/zig-out/release/${row.asset}`, bytes);
    await Deno.writeTextFile(`${to}/ffi/packaged/${target}.ts`, packagedModule(bytes, quality));
  }
  const sums = Object.values(rows).map(({ asset, sha256 }) => `${sha256}  ${asset}\n`).join("");
  await Deno.writeTextFile(`${to}/zig-out/release/SHA256SUMS`, sums);
  const table = await Deno.readTextFile(`${ROOT}ffi/releases.ts`);
  await Deno.writeTextFile(`${to}/ffi/releases.ts`, releaseTable(table, rows));
  return rows;
}

/** Files that would be published, by path from the root, with their bytes. Throws where `deno publish` would refuse. */
export async function publishedFiles(): Promise<Map<string, number>> {
  const { ok, stdout, stderr } = await run([Deno.execPath(), "publish", "--dry-run", "--allow-dirty"], {
    env: { NO_COLOR: "1" },
  });
  if (!ok) throw new Error(`deno publish --dry-run: ${stderr}`);
  const files = new Map<string, number>();
  for (const [url] of (stdout + stderr).matchAll(/file:\/\/\S+(?= \([\d.]+ ?[A-Za-z]+\))/g)) {
    const path = fileURLToPath(url);
    files.set(path.slice(ROOT.length).replaceAll("\\", "/"), (await Deno.stat(path)).size);
  }
  return files;
}

if (import.meta.main) {
  const tag = Deno.args[0] === "--tag" ? Deno.args[1] : undefined;
  const fail = (reason: string): never => {
    console.error(`release: ${reason}`);
    Deno.exit(1);
  };
  if (Deno.args.length > (tag === undefined ? 0 : 2)) fail("usage: deno task release [--tag vVERSION]");
  if (tag !== undefined && tag !== `v${VERSION}`) fail(`the tag is ${tag}, the version of ffi/version.ts ${VERSION}`);
  const zig = await findZig() ?? fail(`Zig ${ZIG_VERSION} was not found: run \`deno task setup\``);
  const { ok } = await run([...zig, "build", "cross"], { show: true });
  if (!ok) fail("the libraries were not built");
  try {
    for (
      const [target, { bytes, sha256 }] of Object.entries(
        await writeRelease({ from: `${ROOT}zig-out/cross`, to: ROOT }),
      )
    ) {
      console.log(`${target.padEnd(16)} ${bytes} bytes  ${sha256}`);
    }
    const files = await publishedFiles();
    const needed = [
      ...Object.keys(TARGETS).map((target) => `ffi/packaged/${target}.ts`),
      ...Object.keys(EMBEDDED_FILES).map((name) => `${fileURLToPath(EMBEDDED_MODEL).slice(ROOT.length)}${name}`),
    ].map((path) => path.replaceAll("\\", "/"));
    for (const path of needed) if (!files.has(path)) fail(`${path} would not be published`);
    const total = Array.from(files.values()).reduce((sum, bytes) => sum + bytes, 0);
    console.log(
      `the package has ${files.size} files of ${(total / 1e6).toFixed(1)} MB; JSR takes ${PACKAGE_BYTES / 1e6} MB`,
    );
    if (total >= PACKAGE_BYTES) fail("the package is too large");
    await writeNpmPackage(`${ROOT}zig-out/npm`);
  } catch (error) {
    fail((error as Error).message);
  }
}
