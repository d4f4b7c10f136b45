/**
 * A glslc that knows cooperative matrices, and the spirv-val that judges its modules, on a Debian whose own are too old.
 *
 * Packages of the next release are unpacked beside the system, into .tools/glslc, and started through their own
 * dynamic loader; nothing of the system changes. Optional: without it the build leaves those kernels out.
 *
 * @module
 */

import { osRelease } from "./packages.ts";
import { lastLine, say } from "../log.ts";
import { exists, run, TOOLS } from "../tools.ts";

const SUITE = "trixie";
/** The packages to unpack. */
export const PACKAGES: readonly string[] = ["glslc", "spirv-tools", "libshaderc1", "libstdc++6", "libgcc-s1", "libc6"];

/** The programs to start from there. */
const PROGRAMS = ["glslc", "spirv-val"];

/** The first Debian whose glslc is new enough. */
const NEW_ENOUGH = 13;

/** Loader and library folder inside the unpacked packages, by processor. */
const LAYOUT: Readonly<Record<string, { readonly loader: string; readonly libraries: string }>> = {
  x86_64: { loader: "usr/lib64/ld-linux-x86-64.so.2", libraries: "usr/lib/x86_64-linux-gnu" },
  aarch64: { loader: "usr/lib/ld-linux-aarch64.so.1", libraries: "usr/lib/aarch64-linux-gnu" },
};

/** Unpacks the newer glslc where it is needed and not there yet. */
export async function provideGlslc(): Promise<void> {
  const folder = `${TOOLS}/glslc`;
  if (Deno.build.os !== "linux") return;
  if ((await Promise.all(PROGRAMS.map((program) => exists(`${folder}/${program}`)))).every(Boolean)) return;
  const release = await osRelease();
  if (release.ID !== "debian" || Number(release.VERSION_ID) >= NEW_ENOUGH || await isNew()) return;
  say(`unpacking a newer glslc into .tools/glslc`);
  const partial = `${folder}.partial`;
  await Deno.remove(partial, { recursive: true }).catch(() => {});
  const failure = await unpack(partial, release.VERSION_CODENAME);
  if (failure) {
    await Deno.remove(partial, { recursive: true }).catch(() => {});
    return say(`no newer glslc (kernels with cooperative matrices are left out): ${failure}`);
  }
  await Deno.remove(folder, { recursive: true }).catch(() => {});
  await Deno.rename(partial, folder);
}

/** "shaderc 2025.2-1 …": 2024 and later know the extension. */
async function isNew(): Promise<boolean> {
  const { stdout } = await run(["glslc", "--version"]);
  return Number(/shaderc v?(\d{4})/.exec(stdout)?.[1] ?? 0) >= 2024;
}

/** Fills `folder`; a text says what went wrong. */
async function unpack(folder: string, codename: string): Promise<string | undefined> {
  const layout = LAYOUT[Deno.build.arch];
  const source = await mirrorOf(codename);
  if (!layout || !source) return `no ${layout ? "mirror in the apt sources" : `layout for ${Deno.build.arch}`}`;
  const apt = `${folder}/apt`;
  await Deno.mkdir(`${apt}/lists/partial`, { recursive: true });
  await Deno.mkdir(`${apt}/cache/archives/partial`, { recursive: true });
  await Deno.writeTextFile(`${apt}/sources.list`, `deb ${source.options} ${source.uri} ${SUITE} main\n`);
  const settings = {
    "Dir::Etc::SourceList": `${apt}/sources.list`,
    "Dir::Etc::SourceParts": "-",
    "Dir::State::Lists": `${apt}/lists`,
    "Dir::Cache": `${apt}/cache`,
    "APT::Sandbox::User": Deno.uid() === 0 ? "root" : "",
    "Acquire::Retries": "0",
    "Acquire::http::Timeout": "10", // without a network, give up soon
  };
  const options = Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  for (const command of [["update"], ["download", ...PACKAGES]]) {
    const result = await run(["apt-get", "-qq", ...options, ...command], { cwd: apt });
    if (!result.ok) return lastLine(result.stderr);
  }
  for await (const file of Deno.readDir(apt)) {
    if (!file.name.endsWith(".deb")) continue;
    const result = await run(["dpkg", "-x", `${apt}/${file.name}`, `${folder}/root`]);
    if (!result.ok) return lastLine(result.stderr);
  }
  await Deno.remove(apt, { recursive: true });
  // Relative to the script's own place, so that the repository may move.
  for (const program of PROGRAMS) {
    const start = `exec "$r/${layout.loader}" --library-path "$r/${layout.libraries}" "$r/usr/bin/${program}" "$@"`;
    await Deno.writeTextFile(`${folder}/${program}`, `#!/bin/sh\nr="\${0%/*}/root"\n${start}\n`, { mode: 0o755 });
    const probe = await run([`${folder}/${program}`, "--version"]);
    if (!probe.ok) return lastLine(probe.stderr);
  }
  return undefined;
}

/** Mirror and keyring that the machine's own apt sources name for `codename`: one-line or deb822 form. */
async function mirrorOf(codename: string): Promise<{ readonly uri: string; readonly options: string } | undefined> {
  const files = ["/etc/apt/sources.list"];
  for await (const file of Deno.readDir("/etc/apt/sources.list.d")) files.push(`/etc/apt/sources.list.d/${file.name}`);
  for (const path of files) {
    const text = await Deno.readTextFile(path).catch(() => "");
    for (const paragraph of path.endsWith(".sources") ? text.split(/\n\s*\n/) : []) {
      const field = (name: string): string => new RegExp(`^${name}:[ \\t]*(.*)$`, "mi").exec(paragraph)?.[1] ?? "";
      if (!field("Suites").split(/\s+/).includes(codename)) continue;
      const keyring = field("Signed-By").trim();
      return { uri: field("URIs").trim().split(/\s+/)[0], options: keyring ? `[signed-by=${keyring}]` : "" };
    }
    const line = new RegExp(`^deb\\s+(\\[[^\\]]*\\])?\\s*(\\S+)\\s+${codename}\\s`, "m").exec(text);
    if (line) return { uri: line[2], options: line[1] ?? "" };
  }
  return undefined;
}
