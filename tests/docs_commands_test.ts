/**
 * The commands and pictures of the documents. Every line of a ```sh block runs in a copy of the project, with empty caches and a hub on
 * localhost that has the embedded model under the names that documents use; or it is of a kind that is named here with the reason.
 */

import { assert, assertEquals } from "@std/assert";
import { fileURLToPath } from "node:url";
import { pictures } from "../scripts/pictures.ts";
import { ROOT } from "../scripts/tools.ts";
import * as mx from "../mod.ts";
import { anyDevice } from "./support/devices.ts";
import { COMMIT, HubServer, type ServedFile } from "./support/hub_server.ts";
import { TINY_DIR } from "./support/models.ts";

/** Lines that do not run here, by their begin, and why. */
const ELSEWHERE: readonly (readonly [begin: string, reason: string])[] = [
  ["npx ", "npm's Deno: what CI runs"],
  ["deno task setup", "what CI runs first"],
  ["deno task ok", "this and all other tests"],
  ["bash .ci/run", "this and all other tests"],
  ["deno run -A jsr:", "the registry: cli/package_test.ts, with one on localhost"],
  ["deno add jsr:", "the registry: runtime/library_test.ts, with one on localhost"],
  ["deno install -g", "cli/table_test.ts installs it"],
  ["git clone", "this repository"],
  ["jupyter lab", "a server: notebook/notebook_test.ts runs cells without one"],
];

const DOCUMENTS = [
  "README.md",
  "CONTRIBUTING.md",
  ...Array.from(Deno.readDirSync(`${ROOT}docs`), ({ name }) => `docs/${name}`).filter((name) => name.endsWith(".md")),
].sort();

/** Lines of the ```sh blocks of a document. */
function commandsOf(document: string): string[] {
  const text = Deno.readTextFileSync(ROOT + document);
  return Array.from(
    text.matchAll(/^( *)```sh[^\n]*\n([^]*?)^\1```$/gm),
    ([, indent, body]) => body.trimEnd().split("\n").map((line) => line.slice(indent.length)),
  ).flat();
}

/** A hub with the embedded model, as it is and made dense. */
async function hub(folder: string): Promise<HubServer> {
  const filesOf = (dir: string): Record<string, ServedFile> =>
    Object.fromEntries(
      Array.from(Deno.readDirSync(dir), ({ name }) => [name, {
        bytes: Deno.readFileSync(`${dir}/${name}`),
        lfs: name.endsWith(".safetensors"),
      }]),
    );
  mx.setDefaultDevice(anyDevice());
  await mx.lm.convert(TINY_DIR, `${folder}/dense`, { dequantize: true });
  const server = new HubServer();
  const model = (dir: string) => ({ commit: COMMIT, revisions: ["main"], files: filesOf(dir) });
  server.models.set("Qwen/Qwen3-0.6B-MLX-4bit", model(fileURLToPath(TINY_DIR)));
  server.models.set("Qwen/Qwen3-0.6B", model(`${folder}/dense`));
  return server;
}

/** Copies what git would hold. */
async function copyProject(to: string): Promise<void> {
  for (
    const part of ["deno.json", "deno.lock", "mod.ts", "README.md", "LICENSE", "src", "ffi", "examples", "scripts"]
  ) {
    const { success } = await new Deno.Command("cp", { args: ["-r", ROOT + part, to] }).output();
    assert(success, part);
  }
}

Deno.test({
  name: "the commands of the documents run",
  ignore: Deno.build.os === "windows", // they are a shell's
  fn: async () => {
    const folder = await Deno.makeTempDir();
    const server = await hub(folder);
    const project = `${folder}/project`;
    await Deno.mkdir(project);
    try {
      await copyProject(project);
      const schema = { type: "object", properties: { name: { type: "string", maxLength: 9 } }, required: ["name"] };
      await Deno.writeTextFile(`${project}/schema.json`, JSON.stringify(schema));
      const env = {
        HF_ENDPOINT: server.endpoint,
        HF_HOME: `${folder}/hub`,
        VKMX_CACHE: `${folder}/cache`,
        VKMX_DEVICE: "wasm",
        NO_COLOR: "1",
      };
      let count = 0;
      for (const document of DOCUMENTS) {
        for (const line of commandsOf(document)) {
          if (line.trim() === "" || ELSEWHERE.some(([begin]) => line.startsWith(begin))) continue;
          const { code, stderr } = await new Deno.Command("bash", {
            args: ["-c", line.replaceAll("deno task ", `"${Deno.execPath()}" task -q `)],
            cwd: project,
            env,
            stdin: "null",
          }).output();
          assertEquals(code, 0, `${document}: ${line}\n${new TextDecoder().decode(stderr)}`);
          count++;
        }
      }
      assert(count >= 20, `${count} commands ran`);
    } finally {
      await server[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    }
  },
});

Deno.test("the pictures show what the programs print and the documents say", async () => {
  for (const [name, text] of Object.entries(await pictures())) {
    assertEquals(await Deno.readTextFile(`${ROOT}docs/images/${name}`), text, `${name}: run deno task pictures`);
  }
});
