/**
 * `deno run -A scripts/clang_format.ts [--check]`: formats C and GLSL as .clang-format says, or tells which files are not.
 *
 * GLSL is read as C++, whose attributes and calls it shares.
 *
 * @module
 */

import { say } from "./log.ts";
import { installFromPip } from "./setup/pip.ts";
import { exists, ROOT, run, TOOLS } from "./tools.ts";

/** The clang-format that .clang-format is written for: versions differ in what they do. */
export const CLANG_FORMAT_VERSION = "22.1.5";

const FOLDERS = ["runtime-c", "shaders"];
const SOURCES = /\.(c|h|comp|glsl)$/;

/** The formatted text of a file; throws what clang-format says against it. */
async function formatted(program: string, path: string): Promise<string> {
  const name = path.endsWith(".c") || path.endsWith(".h") ? path : `${path}.cpp`;
  const input = await Deno.open(ROOT + path);
  const child = new Deno.Command(program, {
    args: [`--assume-filename=${ROOT}${name}`],
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const [output] = await Promise.all([child.output(), input.readable.pipeTo(child.stdin)]);
  if (!output.success) throw new Error(`${path}: ${new TextDecoder().decode(output.stderr)}`);
  return new TextDecoder().decode(output.stdout);
}

/** All C and GLSL files, from the root on, sorted. */
function sources(folder: string): string[] {
  return Array.from(Deno.readDirSync(ROOT + folder)).flatMap(({ name, isDirectory }) =>
    isDirectory ? sources(`${folder}/${name}`) : SOURCES.test(name) ? [`${folder}/${name}`] : []
  ).sort();
}

/** Setup's clang-format of {@link CLANG_FORMAT_VERSION}, or that of the PATH; undefined, after a line, if there is none. */
async function provide(): Promise<string | undefined> {
  const own = `${TOOLS}/clang-format/clang_format/data/bin/clang-format${Deno.build.os === "windows" ? ".exe" : ""}`;
  const title = `clang-format ${CLANG_FORMAT_VERSION}`;
  if (await exists(own)) return own;
  const { ok, stdout } = await run(["clang-format", "--version"]);
  if (ok && stdout.includes(`version ${CLANG_FORMAT_VERSION}`)) return "clang-format";
  return await installFromPip(title, "clang_format.txt", "clang-format") ? own : undefined;
}

if (import.meta.main) {
  const program = await provide();
  if (!program) Deno.exit(1);
  const check = Deno.args.includes("--check");
  let changed = 0;
  for (const path of FOLDERS.flatMap(sources)) {
    const [before, after] = [await Deno.readTextFile(ROOT + path), await formatted(program, path)];
    if (before === after) continue;
    changed++;
    if (!check) await Deno.writeTextFile(ROOT + path, after);
    say(`${path} ${check ? "is not formatted: run `deno task format`" : "was formatted"}`);
  }
  Deno.exit(check && changed > 0 ? 1 : 0);
}
