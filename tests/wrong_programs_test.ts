/**
 * Messages about wrong programs, before they run and when they do. Checking their types takes 25 s of a processor, so that is for the
 * full tier; when they run, they run in every tier.
 */

import { assert, assertEquals } from "@std/assert";
import { importArguments } from "../scripts/imports.ts";
import { ROOT, run } from "../scripts/tools.ts";
import { TIER } from "./support/tier.ts";
import { WRONG_PROGRAMS } from "./wrong_programs.ts";

const IMPORT = `import * as mx from ${JSON.stringify(new URL("../mod.ts", import.meta.url).href)};\n`;
const HEAD = `${IMPORT}type M = mx.lm.LanguageModel;\ntype T = mx.lm.Tokenizer;\n` +
  `export async function run(model: M, tokenizer: T, x: mx.Tensor<"float32", 2>): Promise<void> {\n`;

/** The programs as modules in a folder. */
async function writeModules(folder: string): Promise<string[]> {
  return await Promise.all(WRONG_PROGRAMS.map(async ({ program }, i) => {
    const path = `${folder}/program_${i}.ts`;
    await Deno.writeTextFile(path, `${HEAD}${program}\nawait 0; [model, tokenizer, x];\n}\n`);
    return path;
  }));
}

/** The code of the first type error of each program that has one, by its index. */
async function typeErrors(paths: readonly string[]): Promise<ReadonlyMap<number, string>> {
  const { stdout, stderr } = await run(
    [Deno.execPath(), "check", "--no-lock", ...await importArguments(), ...paths],
    { env: { NO_COLOR: "1" } },
  );
  const codes = new Map<number, string>();
  for (const [, code, at] of (stdout + stderr).matchAll(/(TS\d+) \[ERROR\][\s\S]*?program_(\d+)\.ts/g)) {
    if (!codes.has(Number(at))) codes.set(Number(at), code);
  }
  return codes;
}

/** A text as far as the expected one goes. */
function upToEllipsis(text: string, expected: string | undefined): string {
  const [start, ...rest] = expected?.split("…") ?? [];
  return rest.length > 0 && rest[0] === "" && text.startsWith(start) ? expected! : text;
}

Deno.test("wrong programs are found by deno check, or end with an error that says what is wrong", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const paths = await writeModules(folder);
    const codes = TIER === "full" ? await typeErrors(paths) : undefined;
    const main = `${folder}/main.ts`;
    await Deno.writeTextFile(
      main,
      `${IMPORT}
      addEventListener("unhandledrejection", (event) => event.preventDefault()); // of calls without await
      mx.setDefaultDevice("wasm");
      const { model, tokenizer } = await mx.lm.load(${JSON.stringify(`${ROOT}examples/models/tiny-qwen3`)});
      const found = [];
      for (let i = 0; i < ${paths.length}; i++) {
        const { run } = await import(\`./program_\${i}.ts\`);
        found.push(await run(model, tokenizer, mx.ones([2, 3])).then(() => undefined, (e) => \`\${e.name}: \${e.message}\`));
      }
      console.log(JSON.stringify(found.map((text) => text ?? null)));`,
    );
    const ran = await run([Deno.execPath(), "run", "-A", "--no-lock", "--no-check", main], { cwd: folder });
    assert(ran.ok, ran.stderr);
    const errors: readonly (string | null)[] = JSON.parse(ran.stdout);
    const found: unknown[] = WRONG_PROGRAMS.map(({ program }, i) => ({
      program,
      ...(codes?.has(i) && { check: codes.get(i) }),
      ...(errors[i] !== null && { error: upToEllipsis(errors[i], WRONG_PROGRAMS[i].error) }),
    }));
    const expected = WRONG_PROGRAMS.map(({ check, ...rest }) => ({
      ...rest,
      ...(codes && check !== undefined && { check }),
    }));
    assertEquals(found, expected);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
