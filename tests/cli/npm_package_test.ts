/**
 * vkmx in other projects. The npm package runs in Deno and tells Node what it needs; a clone works through an import
 * map.
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { VERSION } from "../../ffi/version.ts";
import { writeNpmPackage } from "../../scripts/release/npm_package.ts";
import { ROOT } from "../../scripts/tools.ts";
import { needing } from "../support/needs.ts";

/** Runs a program in a folder; gives its code and what it wrote. */
async function runIn(cwd: string, program: string, ...args: string[]): Promise<[number, string, string]> {
  const env = { VKMX_DEVICE: "wasm", NO_COLOR: "1", PATH: Deno.env.get("PATH")! };
  const { code, stdout, stderr } = await new Deno.Command(program, { args, cwd, env, clearEnv: true }).output();
  return [code, new TextDecoder().decode(stdout), new TextDecoder().decode(stderr)];
}

Deno.test("the package for npm runs in Deno, with its types, and says elsewhere that it needs Deno", async (t) => {
  const project = await Deno.makeTempDir();
  const folder = `${project}/node_modules/@vkmx/vkmx`;
  await Deno.mkdir(`${project}/node_modules/@vkmx`, { recursive: true });
  try {
    await writeNpmPackage(folder);
    const config = JSON.parse(await Deno.readTextFile(`${folder}/package.json`));
    assertEquals([config.name, config.version, config.bin], ["@vkmx/vkmx", VERSION, { vkmx: "./vkmx.js" }]);
    for (const entry of Object.values<Record<string, string>>(config.exports)) {
      for (const path of Object.values(entry)) assert((await Deno.stat(`${folder}/${path}`)).isFile, path);
    }
    await Deno.writeTextFile(`${project}/package.json`, `{ "dependencies": { "@vkmx/vkmx": "${VERSION}" } }`);
    const program = `import { lm, ones } from "@vkmx/vkmx";
      const rows: number[][] = ones([1, 2]).tolist();
      // @ts-expect-error: its types are known
      ones([1]).nothing;
      const { model, tokenizer } = await lm.load(lm.EMBEDDED_MODEL);
      console.log(rows[0].join(), await lm.generate(model, tokenizer, "Once upon a time", { maxTokens: 3 }));`;
    await Deno.writeTextFile(`${project}/main.ts`, program);
    const [code, stdout, stderr] = await runIn(project, Deno.execPath(), "run", "-A", "--check", "main.ts");
    assertEquals([code, stdout], [0, "1,1 , there was\n"], stderr);
    const need = await needing("in Node", "node");
    await t.step({
      ...need,
      ignore: need.ignore || Deno.build.os === "windows",
      fn: async () => {
        await Deno.writeTextFile(`${project}/main.mjs`, 'import { lm } from "@vkmx/vkmx"; console.log(lm);');
        const [failed, , told] = await runIn(project, "node", "main.mjs");
        assertEquals(failed, 1);
        assertStringIncludes(told, "Error: @vkmx/vkmx runs in Deno 2.9 or newer");
        const node = new TextDecoder().decode((await new Deno.Command("which", { args: ["node"] }).output()).stdout)
          .trim();
        const start = async (PATH: string) =>
          await new Deno.Command(node, {
            args: [`${folder}/vkmx.js`, "--version"],
            env: { PATH, NO_COLOR: "1" },
            clearEnv: true,
          }).output();
        const missing = await start(project);
        assertEquals(missing.code, 1);
        assertStringIncludes(new TextDecoder().decode(missing.stderr), "error: vkmx needs Deno 2.9 or newer");
        await Deno.symlink(Deno.execPath(), `${project}/deno`);
        assertEquals(new TextDecoder().decode((await start(project)).stdout), `vkmx ${VERSION}\n`);
      },
    });
  } finally {
    await Deno.remove(project, { recursive: true });
  }
});

Deno.test("a project uses a clone by an import map, without a registry", async () => {
  const project = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${project}/deno.json`, JSON.stringify({ imports: { "@vkmx/vkmx": `${ROOT}mod.ts` } }));
    const program = `import * as mx from "@vkmx/vkmx";
      const { model, tokenizer } = await mx.lm.load(mx.lm.EMBEDDED_MODEL);
      await mx.lm.print(mx.lm.streamGenerate(model, tokenizer, "Once upon a time", { maxTokens: 3 }));`;
    await Deno.writeTextFile(`${project}/main.ts`, program);
    const found = await runIn(project, Deno.execPath(), "run", "-A", "--no-remote", "--no-npm", "main.ts");
    assertEquals(found, [0, ", there was\n", ""]);
  } finally {
    await Deno.remove(project, { recursive: true });
  }
});
