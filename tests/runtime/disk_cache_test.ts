/**
 * The cache folder between runs. If nothing can be kept, one line says so and nothing fails. If Deno has no permission,
 * nothing is tried and nothing is printed.
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { testDevices } from "../support/devices/devices.ts";
import { LIBRARY, NEEDS_LIBRARY, runCode } from "../support/processes/programs.ts";

/** Stores an answer twice and prints what is recalled. */
const REMEMBER = `
  import { recall, remember } from "./ffi/device_probe_cache.ts";
  for (let i = 0; i < 2; i++) remember("device", "question", "answer");
  console.log(recall("device", "question"));
`;

/** Runs `body` with the path of a folder that no user can make: a file stands in its way. */
async function blocked(body: (folder: string) => Promise<void>): Promise<void> {
  const file = await Deno.makeTempFile();
  try {
    await body(`${file}/cache`);
  } finally {
    await Deno.remove(file);
  }
}

/** Fails unless stderr is one line that names the folder's file, the cost and the remedy. */
function assertTold(stderr: string, folder: string, what: string): void {
  const line = stderr.trimEnd();
  assertEquals(line.split("\n").length, 1, `${what}: ${stderr}`);
  for (const part of [`vkmx: cannot write ${folder}`, "every start", `until ${folder} can be written or VKMX_CACHE`]) {
    assertStringIncludes(line, part, what);
  }
}

Deno.test({
  ...NEEDS_LIBRARY,
  name: "what is found out about a device is kept without a word, also for who may only read",
  fn: async () => {
    const folder = await Deno.makeTempDir();
    const run = await runCode(REMEMBER, { VKMX_CACHE: `${folder}/new` });
    const expected = { code: 0, stdout: "answer\n", stderr: "" };
    assertEquals(run, expected);
    const flags = ["--no-prompt", "--allow-env", "--allow-read"];
    assertEquals(await runCode(REMEMBER, { VKMX_CACHE: `${folder}/new` }, flags), expected);
    await Deno.remove(folder, { recursive: true });
  },
});

Deno.test({
  ...NEEDS_LIBRARY,
  name: "what cannot be kept is told once",
  fn: () =>
    blocked(async (folder) => {
      const { code, stdout, stderr } = await runCode(REMEMBER, { VKMX_CACHE: folder });
      assertEquals([code, stdout], [0, "undefined\n"]);
      assertTold(stderr, folder, "remember()");
    }),
});

Deno.test({
  ...NEEDS_LIBRARY,
  name: "that no variable names a place for caches is told once",
  fn: async () => {
    const places = { VKMX_CACHE: "", HOME: "", XDG_CACHE_HOME: "", LOCALAPPDATA: "" };
    const folder = await Deno.makeTempDir();
    const { code, stdout, stderr } = await runCode(REMEMBER, { ...places, DENO_DIR: folder });
    assertEquals([code, stdout, stderr.trimEnd().split("\n").length], [0, "undefined\n", 1], stderr);
    assertStringIncludes(stderr, "until VKMX_CACHE names one");
    await Deno.remove(folder, { recursive: true });
  },
});

Deno.test({
  ...NEEDS_LIBRARY,
  name: "without permission nothing is tried, which Deno would ask about, and only VKMX_EXPLAIN tells it",
  fn: async () => {
    const code = `
      const tried: string[] = [];
      for (const name of ["mkdirSync", "readTextFileSync", "renameSync", "statSync", "writeTextFileSync"] as const) {
        const own = Deno[name];
        const value = (...given) => {
          const kind = /read|stat/.test(name) ? "read" : "write";
          if (Deno.permissions.querySync({ name: kind, path: given[0] }).state !== "granted") tried.push(name);
          return own(...given);
        };
        Object.defineProperty(Deno, name, { value });
      }
      ${REMEMBER}
      console.log(tried);
    `;
    const folder = await Deno.makeTempDir();
    for (const permissions of [[], ["--allow-write"], ["--allow-read"], [`--allow-read=${LIBRARY}`]]) {
      const run = (env: Record<string, string>) =>
        runCode(code, { VKMX_CACHE: folder, ...env }, ["--no-prompt", "--allow-env", ...permissions]);
      assertEquals(await run({}), { code: 0, stdout: "undefined\n[]\n", stderr: "" });
      const { stdout, stderr } = await run({ VKMX_EXPLAIN: "1" });
      assertEquals([stdout, stderr.trimEnd().split("\n").length], ["undefined\n[]\n", 1], stderr);
      assertStringIncludes(stderr, "--allow-read and --allow-write");
    }
    await Deno.remove(folder, { recursive: true });
  },
});

const IMPORT = 'import { closeDevices, getBackend } from "./src/backend/devices.ts";\n';

/** Ways in which a program comes to save pipelines. */
const SAVES: readonly string[] = [
  "getBackend().save(); getBackend().save();",
  "await getBackend().saveAsync();",
  "getBackend(); closeDevices();",
  "getBackend();", // at its end
  "getBackend(); Deno.exit();",
];

for (const device of testDevices().filter((name) => name !== "wasm")) {
  Deno.test(`pipelines that cannot be saved are told once, however a program on ${device} ends`, () =>
    blocked(async (folder) => {
      const env = { VKMX_CACHE: folder, VKMX_DEVICE: device };
      for (const save of SAVES) {
        const { code, stderr } = await runCode(`${IMPORT}${save}`, env);
        assertEquals(code, 0, stderr);
        assertTold(stderr, folder, save);
      }
      const flags = ["--no-prompt", "--allow-env", "--allow-ffi", "--allow-read"];
      assertEquals(await runCode(`${IMPORT}${SAVES[0]}`, env, flags), { code: 0, stdout: "", stderr: "" });
    }));
}
