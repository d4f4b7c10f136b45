/**
 * docs/extending.md names the exact edits for the usual additions. The gate sees that each fits the files as they are.
 * The full tier makes the edits on a copy of the project, builds it, and runs the tests of the additions. So the
 * document can leave no edit out.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import { importArguments } from "../scripts/imports.ts";
import { exists, findZig, ROOT, run, TOOLS } from "../scripts/tools.ts";
import { testDevices } from "./support/devices/devices.ts";
import { applyEdit, type Edit, editsOf } from "./support/edits.ts";
import { needing } from "./support/needs.ts";
import { TIER } from "./support/tier.ts";

/** The parts of the project that the edits and their tests need. */
const PARTS = [
  "build.zig",
  "build.zig.zon",
  "deno.json",
  "examples",
  "mod.ts",
  "ffi",
  "runtime-c",
  "scripts",
  "shaders",
  "src",
  "tests",
];

/** Most edits that an addition may take, by the section that names them. */
const MOST: Readonly<Record<string, number>> = {
  "An elementwise op": 3,
  "A fused kernel": 6,
  "A fused kernel on the CPU": 2,
  "A model family": 2,
};

/** Names of the document's additions in the table of cases, and the kernels that they bring. */
const OPS = [["softsign", "elementwise_single"], ["fast.l2Norm", "l2_norm"]] as const;

/** The copy, whose build cache stays. The first build takes a minute of a processor, later builds seconds. */
const COPY = `${ROOT}.zig-cache/extending`;

const sections = editsOf(await Deno.readTextFile(`${ROOT}docs/extending.md`));

/** Copies the parts of the project anew. */
async function copyProject(): Promise<void> {
  await Deno.mkdir(COPY, { recursive: true });
  for (const part of PARTS) {
    if (await exists(`${COPY}/${part}`)) await Deno.remove(`${COPY}/${part}`, { recursive: true });
    await copy(`${ROOT}${part}`, `${COPY}/${part}`);
  }
}

/** Copies a file or folder. */
async function copy(from: string, to: string): Promise<void> {
  if (!(await Deno.stat(from)).isDirectory) return await Deno.copyFile(from, to);
  await Deno.mkdir(to);
  for await (const { name } of Deno.readDir(from)) await copy(`${from}/${name}`, `${to}/${name}`);
}

/** Makes edits in the copy. */
async function edit(edits: readonly Edit[]): Promise<void> {
  for (const { path, lines } of edits) {
    const file = `${COPY}/${path}`;
    const text = await exists(file) ? await Deno.readTextFile(file) : undefined;
    await Deno.writeTextFile(file, applyEdit(text, { path, lines }));
  }
}

Deno.test("docs/extending.md names as few edits as it promises", () => {
  assertEquals(Object.fromEntries(Array.from(sections, ([title, edits]) => [title, edits.length])), MOST);
});

Deno.test("edits that do not fit are refused", () => {
  const change = (...lines: string[]): Edit => ({ path: "a.ts", lines });
  assertEquals(applyEdit("one\ntwo\n", change(" one", "+between", " two")), "one\nbetween\ntwo\n");
  assertEquals(applyEdit("one\ntwo\n", change("-one", "+1")), "1\ntwo\n");
  assertEquals(applyEdit("one\ntwo\n", change(" one", "+1", "@@", "+2", " two")), "one\n1\n2\ntwo\n");
  assertEquals(applyEdit(undefined, change("+one")), "one\n");
  assertThrows(() => applyEdit("one\none\n", change(" one", "+two")), Error, "2 places");
  assertThrows(() => applyEdit("one\n", change(" two", "+three")), Error, "0 places");
  assertThrows(() => applyEdit(undefined, change(" one", "+two")), Error, "a.ts is not there");
  assertThrows(() => applyEdit("one\n", change("+two")), Error, "a.ts is there already");
});

Deno.test("the edits of docs/extending.md fit the files that they name", async () => {
  const files = new Map<string, string>();
  for (const edit of Array.from(sections.values()).flat()) {
    const path = `${ROOT}${edit.path}`;
    const before = files.get(path) ?? (await exists(path) ? await Deno.readTextFile(path) : undefined);
    const after = applyEdit(before, edit);
    assert(after !== before, `${edit.path} stays as it is`);
    files.set(path, after);
  }
});

const inTier = "the edits of docs/extending.md make what they promise";

Deno.test({
  ...TIER === "full" ? await needing(inTier, "zig", "glslc") : { name: `${inTier} (in the full tier)`, ignore: true },
  fn: async () => {
    await copyProject();
    await edit(Array.from(sections.values()).flat());
    const devices = testDevices();
    const own = `${TOOLS}/glslc/glslc`;
    const env = await exists(own) && !Deno.env.has("GLSLC") ? { GLSLC: own } : undefined;
    const steps = devices.some((name) => name !== "wasm") ? ["gen", "install"] : ["gen"];
    const build = await run([...(await findZig())!, "build", ...steps, "-Doptimize=Debug"], { cwd: COPY, env });
    assert(build.ok, build.stderr);
    const imports = await importArguments();
    await Deno.writeTextFile(`${COPY}/tests/added_test.ts`, CHECK);
    const files = ["tests/kernels/elementwise_test.ts", "tests/ops/ops_test.ts", "tests/added_test.ts"] as const;
    const types = await run([Deno.execPath(), "check", ...imports, ...files], { cwd: COPY, env: { NO_COLOR: "1" } });
    assert(types.ok, types.stderr);
    const test = async (file: typeof files[number], variables: Record<string, string> = {}): Promise<void> => {
      const { ok, stdout, stderr } = await run([Deno.execPath(), "test", "-A", "--no-check", ...imports, file], {
        cwd: COPY,
        env: { NO_COLOR: "1", VKMX_TEST_DEVICES: devices.join(), VKMX_LIBRARY: "", ...variables },
      });
      assert(ok && /\b[1-9]\d* passed/.test(stdout), `${file}: ${stdout}${stderr}`);
    };
    await test("tests/kernels/elementwise_test.ts", { VKMX_TEST_DEVICES: "wasm" });
    for (const [op] of OPS) await test("tests/ops/ops_test.ts", { VKMX_CASES_OP: op });
    await test("tests/added_test.ts");
    const format = await run([Deno.execPath(), "fmt", "--check", "src", "tests/ops"], { cwd: COPY });
    assert(format.ok, format.stderr);
  },
});

/** Run in the copy: on every device the new ops take the new kernels, and the family computes as one that it equals. */
const CHECK = `
import { assertEquals } from "@std/assert";
import * as mx from "../mod.ts";
import { testDevices } from "./support/devices/devices.ts";
import { kernelsOf } from "./support/devices/harness.ts";
import { SHAPES } from "../scripts/synthetic/config.ts";
import { writeModel } from "../scripts/synthetic/synthetic.ts";

Deno.test("a model of the new family", async () => {
  const folder = await Deno.makeTempDir();
  await writeModel(folder + "/model", { ...SHAPES.tiny, family: "qwen2" });
  const logits = async () => {
    const { model } = await mx.lm.load(folder + "/model", { device: "wasm" });
    const found = mx.tidy(() => model.forward(mx.array([[1, 2, 3]], mx.int32)).astype(mx.float32).toTypedArray());
    model[Symbol.dispose]();
    return found;
  };
  const expected = await logits();
  const config = JSON.parse(await Deno.readTextFile(folder + "/model/config.json"));
  Object.assign(config, { model_type: "seed_oss", attention_bias: true });
  await Deno.writeTextFile(folder + "/model/config.json", JSON.stringify(config));
  mx.setDefaultDevice("wasm");
  assertEquals(await logits(), expected);
  await Deno.remove(folder, { recursive: true });
});

for (const device of testDevices()) {
  Deno.test(device, async () => {
    mx.setDefaultDevice(device);
    const kernels = await kernelsOf(device, async () => {
      await Promise.resolve();
      assertEquals(mx.tidy(() => mx.softsign([1, -3]).tolist()), [0.5, -0.75]);
      assertEquals(mx.tidy(() => mx.fast.l2Norm(mx.array([[0, 2]]), 0).tolist()), [[0, 1]]);
    });
    for (const name of ${JSON.stringify(OPS.map(([, kernel]) => kernel))}) assertEquals(kernels.has(name), true, name);
  });
}
`;
