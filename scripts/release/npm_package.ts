/**
 * The package for npm, a part of `deno task release`: the published files as JavaScript, in `zig-out/npm`, for `npm publish zig-out/npm`.
 *
 * `deno pack` makes it. The package adds two things: one sentence tells other runtimes that it needs Deno, and `vkmx`
 * is a program that starts it.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { run } from "../tools.ts";

const NEEDS = "@vkmx/vkmx runs in Deno 2.9 or newer: npm install deno, then npx deno run -A main.ts";

/** The module for a runtime other than Deno: every name, so that its imports are found, and an error that says what is needed. */
function elsewhere(names: readonly string[]): string {
  const list = names.map((name) => `none as ${name}`).join(", ");
  return `let none;\nexport { ${list} };\nthrow new Error(${JSON.stringify(NEEDS)});\n`;
}

/** The program `vkmx`, which npm starts with Node. */
const PROGRAM = `#!/usr/bin/env node
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const cli = fileURLToPath(new URL("src/cli/mod.js", import.meta.url));
const shell = process.platform === "win32"; // npm's deno is a script there
const deno = spawn("deno", ["run", "-A", "--quiet", cli, ...process.argv.slice(2)], { stdio: "inherit", shell });
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => deno.kill(signal));
deno.on("error", () => {
  console.error("error: vkmx needs Deno 2.9 or newer: npx -y -p deno -p @vkmx/vkmx vkmx, or npm install -g deno");
  process.exit(1);
});
deno.on("close", (code) => process.exit(code ?? 1));
`;

/** Modules that a file names by an address of its own; `deno pack` leaves those as they are. */
const OWN_ADDRESS = /(new URL\("\.[^"]*)\.ts(", import\.meta\.url\))/g;

async function amendModules(folder: string): Promise<void> {
  for await (const { name, isDirectory } of Deno.readDir(folder)) {
    const path = `${folder}/${name}`;
    if (isDirectory) await amendModules(path);
    else if (name.endsWith(".js")) {
      const text = await Deno.readTextFile(path);
      const amended = text.replaceAll(OWN_ADDRESS, "$1.js$2");
      if (amended !== text) await Deno.writeTextFile(path, amended);
    }
  }
}

/** Writes the package to a folder, which is replaced. Throws where `deno pack` or `tar` fails. */
export async function writeNpmPackage(folder: string): Promise<void> {
  const work = await Deno.makeTempDir();
  try {
    const archive = `${work}/package.tgz`;
    const pack = [Deno.execPath(), "pack", "--allow-dirty", "--no-source-maps", "--output", archive];
    for (const command of [pack, ["tar", "-xzf", archive, "-C", work]]) {
      const { ok, stderr } = await run(command, { env: { NO_COLOR: "1" } });
      if (!ok) throw new Error(`${command[0]}: ${stderr}`);
    }
    const root = `${work}/package`;
    await amendModules(root);
    const config = JSON.parse(await Deno.readTextFile(`${root}/package.json`));
    for (const entry of Object.values<Record<string, string>>(config.exports)) {
      const { types, default: module } = entry;
      for (const condition of Object.keys(entry)) delete entry[condition];
      Object.assign(entry, { types, deno: module, default: "./elsewhere.js" });
    }
    const whole = {
      ...config,
      description: "MLX-style arrays and language models on any Vulkan GPU, from Deno",
      repository: { type: "git", url: "git+https://github.com/vkmx/vkmx.git" },
      main: "./elsewhere.js",
      bin: { vkmx: "./vkmx.js" },
      engines: { deno: ">=2.9" },
    };
    await Deno.writeTextFile(`${root}/package.json`, `${JSON.stringify(whole, null, 2)}\n`);
    await Deno.writeTextFile(`${root}/elsewhere.js`, elsewhere([...Object.keys(mx), "main"]));
    await Deno.writeTextFile(`${root}/vkmx.js`, PROGRAM);
    await Deno.remove(folder, { recursive: true }).catch(() => {});
    await run(["cp", "-r", root, folder]);
  } finally {
    await Deno.remove(work, { recursive: true });
  }
}
