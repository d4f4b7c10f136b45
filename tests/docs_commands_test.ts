/**
 * The commands, examples and pictures of the documents. Every line of a ```sh block and every ```ts block runs in a
 * copy of the project, with empty caches. A hub on localhost has the embedded model under the names that documents use.
 * Kinds of lines that do not run are named here with the reason. Before the full tier, training takes few steps and the
 * types of examples are not checked. A quarter of the documents and of the files with examples in comments is drawn.
 */

import { assert, assertEquals } from "@std/assert";
import { fileURLToPath } from "node:url";
import { pictures } from "../scripts/pictures.ts";
import { hashOf, turnOf } from "../scripts/test/seed.ts";
import { ROOT } from "../scripts/tools.ts";
import * as mx from "../mod.ts";
import { anyDevice } from "./support/devices/devices.ts";
import { COMMIT, HubServer, type ServedFile } from "./support/processes/hub_server.ts";
import { TINY_DIR } from "./support/models/models.ts";
import { SEED, TIER } from "./support/tier.ts";

/** Lines that do not run here, by their begin, and why. */
const ELSEWHERE: readonly (readonly [begin: string, reason: string])[] = [
  ["npx ", "npm's Deno: what CI runs"],
  ["npm install", "the registry: cli/npm_package_test.ts runs what is published"],
  ["deno task setup", "what CI runs first"],
  ["deno task ok", "this and all other tests"],
  ["bash .ci/run", "this and all other tests"],
  ["deno run -A jsr:", "the registry: cli/package_test.ts, with one on localhost"],
  ["deno add jsr:", "the registry: runtime/library_test.ts, with one on localhost"],
  ["deno install -g", "cli/table_test.ts installs it"],
  ["git clone", "this repository"],
  ["deno task vkmx serve", "a server: cli/serve_test.ts"],
  ["curl ", "its client: server/clients_test.ts"],
  ["apt-get install openmpi", "what deno task setup installs"],
  ["mpirun ", "distributed/: programs of several processes"],
  ["vkmx launch ", "distributed/launch_test.ts and train_test.ts: several processes"],
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

/** Files of a clone that commands and examples need. */
const PARTS = ["deno.json", "deno.lock", "mod.ts", "README.md", "LICENSE", "src", "ffi", "examples", "scripts"];

/** Runs programs in a copy of the project with caches that are empty. */
async function inProject(work: (project: string, env: Record<string, string>) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  const server = await hub(folder);
  const project = `${folder}/project`;
  await Deno.mkdir(project);
  try {
    for (const part of PARTS) {
      const { success } = await new Deno.Command("cp", { args: ["-r", ROOT + part, project] }).output();
      assert(success, part);
    }
    const schema = { type: "object", properties: { name: { type: "string", maxLength: 9 } }, required: ["name"] };
    await Deno.writeTextFile(`${project}/schema.json`, JSON.stringify(schema));
    await work(project, {
      HF_ENDPOINT: server.endpoint,
      HF_HOME: `${folder}/hub`,
      VKMX_CACHE: `${folder}/cache`,
      VKMX_DEVICE: "wasm",
      NO_COLOR: "1",
    });
  } finally {
    await server[Symbol.asyncDispose]();
    await Deno.remove(folder, { recursive: true });
  }
}

/** Commands are a shell's. */
const ignore = Deno.build.os === "windows";

/** Whether this run takes a document or a file: all in the full tier, else a quarter by the seed. */
function isTaken(path: string): boolean {
  return TIER === "full" || (hashOf(path) + turnOf(SEED)) % 4 === 0;
}

/** Files whose documentation comments have examples that this run takes. */
function commented(): string[] {
  const files: string[] = ["mod.ts"];
  const look = (folder: string): void => {
    for (const { name, isDirectory } of Deno.readDirSync(ROOT + folder)) {
      const path = `${folder}/${name}`;
      if (isDirectory) look(path);
      else if (isTaken(path)) files.push(path);
    }
  };
  for (const folder of ["array", "llm", "nn", "notebook", "plot"]) look(`src/${folder}`);
  return files.filter((path) => path.endsWith(".ts") && Deno.readTextFileSync(ROOT + path).includes("```ts"));
}

/** A line as the tier runs it. */
function shortened(line: string): string {
  return TIER === "full" ? line : line.replace(/--iters \d+/, "--iters 4");
}

Deno.test("the commands of the documents run", { ignore }, () =>
  inProject(async (project, env) => {
    const lines = DOCUMENTS.flatMap((document) => commandsOf(document).map((line) => ({ document, line })))
      .filter(({ line }) => line.trim() !== "");
    const unused = ELSEWHERE.filter(([begin]) => !lines.some(({ line }) => line.startsWith(begin)));
    assertEquals(unused, [], "kinds of lines that no document has");
    for (const { document, line } of lines) {
      if (!isTaken(document)) continue;
      if (ELSEWHERE.some(([begin]) => line.startsWith(begin))) continue;
      const { code, stderr } = await new Deno.Command("bash", {
        args: ["-c", shortened(line).replaceAll("deno task ", `"${Deno.execPath()}" task -q `)],
        cwd: project,
        env,
        stdin: "null",
      }).output();
      assertEquals(code, 0, `${document}: ${line}\n${new TextDecoder().decode(stderr)}`);
    }
  }));

Deno.test(
  "the examples of documents and documentation comments run",
  { ignore },
  () =>
    inProject(async (project, env) => {
      const { imports } = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
      for (const name of Object.keys(imports)) if (imports[name].startsWith("jsr:")) delete imports[name]; // no example uses them
      for (const name of ["@vkmx/vkmx", "jsr:@vkmx/vkmx"]) imports[name] = new URL("mod.ts", `file://${project}/`).href;
      await Deno.writeTextFile(`${project}/map.json`, JSON.stringify({ imports }));
      const comments = commented().map((path) => `${project}/${path}`);
      const documents = DOCUMENTS.filter(isTaken);
      const examples = documents.map((path) => ROOT + path);
      const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
        args: [
          ...["test", "-A", "--doc", "--no-lock", "--no-config", "--import-map=map.json"],
          ...TIER === "full" ? [] : ["--no-check"],
          ...examples,
          ...comments,
        ],
        cwd: project,
        env,
      }).output();
      const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
      assert(success, text);
      const expected = ["README.md", "docs/guide.md", "docs/models.md"].filter(isTaken);
      for (const path of [...expected, "mod.ts"]) assert(text.includes(`${path}#`), path);
    }),
);

Deno.test("the pictures show what the programs print and the documents say", async () => {
  for (const [name, text] of Object.entries(await pictures())) {
    assertEquals(await Deno.readTextFile(`${ROOT}docs/images/${name}`), text, `${name}: run deno task pictures`);
  }
});
