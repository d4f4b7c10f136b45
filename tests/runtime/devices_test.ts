/**
 * Choosing a device and finding the library. Tests that depend on the environment run in processes of their own.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes, assertThrows } from "@std/assert";
import { driverAdvice } from "../../ffi/driver_advice.ts";
import { RuntimeError } from "../../ffi/error.ts";
import { VERSION } from "../../ffi/version.ts";
import { ABI_HASH } from "../../ffi/symbols.ts";
import { liveObjects } from "../../ffi/vulkan.ts";
import * as mx from "../../mod.ts";
import { encodeSlots } from "../../src/backend/backend.ts";
import { closeDevices, devices, getBackend, openAhead } from "../../src/backend/devices.ts";
import { KERNELS } from "../../src/backend/kernels.ts";
import { ROOT } from "../../scripts/tools.ts";
import { libraryThatNeeds } from "../support/processes/elf.ts";
import { encodePlan, encodePush } from "../support/devices/harness.ts";
import { otherBuild } from "../support/processes/other_build.ts";
import { LIBRARY, NEEDS_LIBRARY, runCode } from "../support/processes/programs.ts";

const PRINT_BACKEND = `
  import { closeDevices, getBackend } from "./src/backend/devices.ts";
  try {
    console.log(getBackend().name, getBackend().name);
  } catch (error) {
    console.log(error.code, error.message);
  }
  closeDevices();
`;

/** Runs a program on a machine without any settings. */
async function runFresh(
  code: string,
  env: Record<string, string> = {},
): Promise<{ readonly stdout: string; readonly stderr: string }> {
  const cache = await Deno.makeTempDir();
  try {
    return await runCode(code, { VKMX_CACHE: cache, ...env });
  } finally {
    await Deno.remove(cache, { recursive: true });
  }
}

Deno.test("VERSION is that of deno.json", async () => {
  assertEquals(JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`)).version, VERSION);
});

// ---- the library --------------------------------------------------------------------------------------------------------

Deno.test({
  ...NEEDS_LIBRARY,
  name: "openLibrary() refuses a library of another build by path and hashes",
  fn: async () => {
    const path = await otherBuild(LIBRARY!);
    try {
      const { stdout, stderr } = await runCode(PRINT_BACKEND, { VKMX_LIBRARY: path, VKMX_DEVICE: "vulkan:0" });
      for (const part of [path, "0x12345678", `0x${ABI_HASH.toString(16).padStart(8, "0")}`, "deno task build"]) {
        assertStringIncludes(stdout, part);
      }
      assertEquals(stderr, "");
    } finally {
      await Deno.remove(path);
    }
  },
});

Deno.test("a library that is no library leaves WASM, with one line that says why", async () => {
  for (const path of [`${ROOT}none/libnone.so`, `${ROOT}deno.json`]) {
    const { stdout, stderr } = await runFresh(PRINT_BACKEND, { VKMX_LIBRARY: path });
    assertEquals(stdout, "wasm wasm\n");
    assertMatch(stderr, /^vkmx: running on the CPU \(wasm\): cannot open [^\n]*; VKMX_LIBRARY names it\n$/);
    assertStringIncludes(stderr, path);
  }
});

Deno.test({
  ...NEEDS_LIBRARY,
  name: "the library needs no more than --allow-ffi for its path",
  fn: async () => {
    const code = `
      import { listVulkanDevices } from "./ffi/vulkan.ts";
      console.log(listVulkanDevices().length);
    `;
    const { stdout, stderr } = await runCode(code, {}, [
      "--no-prompt",
      `--allow-ffi=${LIBRARY}`,
      "--allow-env=VKMX_LIBRARY",
    ]);
    if (devices()[0].type === "none") assertStringIncludes(stderr, "vkrt_device_count()");
    else assertEquals(stdout, `${devices().length - 1}\n`, stderr);
  },
});

Deno.test("findLibrary() without permission to look says what is missing", async () => {
  const code = PRINT_BACKEND.replace("getBackend().name, getBackend().name", 'getBackend("vulkan:0").name');
  const { stdout } = await runCode(code, {}, ["--no-prompt"]);
  assertMatch(stdout, /^unavailable getBackend\(\): vulkan:0 is not usable: [^\n]*\n$/);
});

Deno.test("a library that is not there is told as that, whatever Deno may open", async () => {
  const path = `${ROOT}none/libnone.so`;
  const flags = ["--no-prompt", "--allow-env", `--allow-read=${ROOT}`];
  const told = (await runCode(PRINT_BACKEND, { VKMX_LIBRARY: path }, flags)).stderr;
  assertEquals(told, `vkmx: running on the CPU (wasm): cannot open ${path}: it is not there; VKMX_LIBRARY names it\n`);
  const blind = (await runCode(PRINT_BACKEND, { VKMX_LIBRARY: path }, ["--no-prompt", "--allow-env"])).stderr;
  assertMatch(blind, /may not look whether it is there, run again with the --allow-read and --allow-ffi flags\n$/);
});

Deno.test("why the CPU does the work is told once on a machine for each reason", async () => {
  const folder = await Deno.makeTempDir();
  const told = async (path: string): Promise<string> =>
    (await runCode(PRINT_BACKEND, { VKMX_LIBRARY: path, VKMX_CACHE: folder })).stderr;
  try {
    assertMatch(await told("/none/a.so"), /^vkmx: running on the CPU \(wasm\): cannot open \/none\/a\.so/);
    assertEquals(await told("/none/a.so"), "");
    assertMatch(await told("/none/b.so"), /^vkmx: running on the CPU \(wasm\): cannot open \/none\/b\.so/);
    assertEquals(await told("/none/a.so"), "");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a library that may not be opened is no reason to build one", async () => {
  const { stdout, stderr } = await runCode(PRINT_BACKEND, {}, ["--no-prompt", `--allow-read=${ROOT}`]);
  assertEquals(stdout, "wasm wasm\n");
  if (LIBRARY !== undefined) assertMatch(stderr, /: Requires ffi access to [^\n]*--allow-ffi flag\n$/);
});

Deno.test("variables are read without asking for permission, and a wrong value is told once with what is allowed", async () => {
  const code = `
    const { get } = Deno.env;
    const read: string[] = [];
    Deno.env.get = (name) => (read.push(name), get.call(Deno.env, name));
    const { environment } = await import("../ffi/environment.ts");
    const { getBackend } = await import("../src/backend/devices.ts");
    console.log(environment("VKMX_THREADS"), environment("VKMX_THREADS"), environment("VKMX_FAST"), getBackend("wasm").name);
    console.log(new Set(read.filter((name) => name.startsWith("VKMX_"))).size); // engines read others
  `;
  const env = { VKMX_THREADS: "all", VKMX_FAST: "maybe", VKMX_FAULT: "", VKMX_DEVICE: "wasm" };
  const flags = ["--no-prompt", `--allow-read=${ROOT}`];
  const { stdout, stderr } = await runCode(code, env, [...flags, "--allow-env=VKMX_THREADS,VKMX_FAST"]);
  assertEquals(stdout, "undefined undefined undefined wasm\n2\n", stderr);
  assertEquals(stderr.trimEnd().split("\n").toSorted(), [
    'vkmx: VKMX_FAST is "maybe", expected 0 or 1: it counts as unset',
    'vkmx: VKMX_THREADS is "all", expected a number of threads from 1 to 999: it counts as unset',
  ]);
  assertEquals(await runCode(code, env, flags), {
    code: 0,
    stdout: "undefined undefined undefined wasm\n0\n",
    stderr: "",
  });
});

Deno.test("importing the package opens no library", async () => {
  const code = `
    const dlopen = Deno.dlopen;
    Object.defineProperty(Deno, "dlopen", { value: () => { throw new Error("opened"); } });
    await import("../src/backend/devices.ts");
    console.log(typeof dlopen);
  `;
  assertEquals((await runCode(code)).stdout, "function\n");
});

const VALIDATION = Deno.env.get("VK_INSTANCE_LAYERS")?.includes("validation") ?? false;

Deno.test({
  ignore: !VALIDATION || !devices().some((d) => d.type === "cpu"),
  name: "validationMessages() counts: a bind that the runtime left out is noticed",
  fn: async () => {
    const index = devices().find((d) => d.type === "cpu")!.name.slice("vulkan:".length);
    const code = `
      import { validationMessages, VulkanDevice } from "./ffi/vulkan.ts";
      new VulkanDevice(${index}, "").bufferNew(100);
      const { count, text } = validationMessages();
      console.log(count > 0, text.includes("vkBindBufferMemory"));
      Deno.exit(0);
    `;
    const { stdout } = await runCode(code, { VKMX_FAULT: "vkBindBufferMemory:0", VKMX_VALIDATION_LOG: "" });
    assertMatch(stdout, /true true\n$/);
  },
});

// ---- choosing -----------------------------------------------------------------------------------------------------------

Deno.test({
  ...NEEDS_LIBRARY,
  name: "without a Vulkan driver WASM works, and one line says what to install",
  fn: async () => {
    const { stdout, stderr } = await runFresh(PRINT_BACKEND, {
      VK_ICD_FILENAMES: "/nonexistent.json",
      VK_DRIVER_FILES: "/nonexistent.json",
    });
    assertEquals(stdout, "wasm wasm\n");
    assertMatch(stderr, /^vkmx: running on the CPU \(wasm\): no Vulkan driver[^\n]*install[^\n]*\n$/);
  },
});

/** Runs PRINT_BACKEND with drivers of its own: a manifest for each library, beside which a library lies where there are bytes. */
async function withDrivers(
  drivers: Readonly<Record<string, Uint8Array | undefined>>,
  more: readonly string[] = [],
): Promise<{ readonly folder: string; readonly stdout: string; readonly stderr: string }> {
  const folder = await Deno.makeTempDir();
  try {
    for (const [name, bytes] of Object.entries(drivers)) {
      const path = `./${name}`; // beside the manifest
      const manifest = { file_format_version: "1.0.0", ICD: { library_path: path, api_version: "1.3.0" } };
      await Deno.writeTextFile(`${folder}/${name}.json`, JSON.stringify(manifest, null, 2));
      if (bytes) await Deno.writeFile(`${folder}/${name}`, bytes);
    }
    const files = [...Object.keys(drivers).map((name) => `${folder}/${name}.json`), ...more].join(":");
    const code = PRINT_BACKEND.replace("getBackend().name, getBackend().name", "getBackend().name");
    return { folder, ...await runFresh(code, { VK_DRIVER_FILES: files, VK_ICD_FILENAMES: files }) };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const LINUX_LIBRARY = { ignore: LIBRARY === undefined || Deno.build.os !== "linux" };

Deno.test({
  ...LINUX_LIBRARY,
  name: "a driver that cannot load its own libraries is named, with what is missing and what to install",
  fn: async () => {
    for (const missing of ["libX11-vkmx.so.6", "libvkmx_none.so.1"]) {
      const { folder, stdout, stderr } = await withDrivers({ "libdriver.so": libraryThatNeeds(missing) });
      assertEquals(stdout, "wasm\n");
      const lines = stderr.trimEnd().split("\n");
      assertEquals(lines.length, 1, stderr);
      assertStringIncludes(
        lines[0],
        "vkmx: running on the CPU (wasm): no Vulkan driver that is installed can be loaded; ",
      );
      assertStringIncludes(
        lines[0],
        `the Vulkan driver "${folder}/./libdriver.so" ("${folder}/libdriver.so.json") cannot`,
      );
      assertStringIncludes(lines[0], `${missing}: cannot open shared object file`);
      assert(lines[0].endsWith(`; install ${missing}`), lines[0]);
    }
  },
});

Deno.test({
  ...LINUX_LIBRARY,
  name: "drivers that cannot be loaded are told beside those that can, and missing or odd files do no harm",
  fn: async () => {
    const good = devices().find((d) => d.type === "cpu") && softwareManifest();
    const damaged = { "libgone.so": undefined, "libodd.so": new Uint8Array(100) };
    const { folder, stderr } = await withDrivers(damaged, good ? [good, "/nonexistent.json"] : ["/nonexistent.json"]);
    assertEquals(stderr.trimEnd().split("\n").length, 1, stderr);
    assertStringIncludes(stderr, `"${folder}/./libgone.so: cannot open shared object file`);
    assertStringIncludes(stderr, "install the driver of the GPU again");
    assertStringIncludes(stderr, `libodd.so`);
    if (good) assertStringIncludes(stderr, "vulkan:0 is a software driver");
  },
});

/** The manifest of Mesa's software driver, where it lies in the usual place. */
function softwareManifest(): string | undefined {
  try {
    const folder = "/usr/share/vulkan/icd.d";
    const entry = Array.from(Deno.readDirSync(folder)).find(({ name }) => name.startsWith("lvp_icd."));
    return entry && `${folder}/${entry.name}`;
  } catch {
    return undefined;
  }
}

Deno.test("driverAdvice() names the package of a library, where it knows one", () => {
  const advise = (reason: string): string =>
    driverAdvice({ manifest: "m", library: "/usr/lib/libGLX_nvidia.so.0", reason });
  const missing = (name: string): string =>
    advise(`${name}: cannot open shared object file: No such file or directory`);
  assertEquals(missing("libX11.so.6"), "install libX11.so.6 (Debian, Ubuntu: apt-get install libx11-6)");
  assertEquals(missing("libEGL.so.1"), "install libEGL.so.1 (Debian, Ubuntu: apt-get install libegl1)");
  assertEquals(missing("libLLVM-15.so.1"), "install libLLVM-15.so.1 (Debian, Ubuntu: apt-get install libllvm15)");
  assertEquals(missing("libother.so.3"), "install libother.so.3");
  assertEquals(missing("/usr/lib/libGLX_nvidia.so.0"), "install the driver of the GPU again");
  assertEquals(advise("file too short"), "install the driver of the GPU again");
});

Deno.test("a library that Deno may not open yet is not asked for", async () => {
  const code = `
    Object.defineProperty(Deno, "dlopen", { value: () => { throw new Error("opened"); } });
    const query = Deno.permissions.querySync.bind(Deno.permissions);
    Deno.permissions.querySync = (p) => p.name === "ffi" ? { ...query(p), state: "prompt" } : query(p);
    const { getBackend } = await import("../src/backend/devices.ts");
    console.log(getBackend().name);
  `;
  const { stdout, stderr } = await runFresh(code);
  assertEquals(stdout, "wasm\n", stderr);
  if (LIBRARY !== undefined) assertMatch(stderr, /: Requires ffi access to [^\n]*--allow-ffi flag\n$/);
});

Deno.test("cpu and gpu are names of devices, and VKMX_DEVICE counts as unset where it is no name", async () => {
  assertEquals([getBackend("cpu").name, mx.deviceInfo("cpu").name], ["wasm", "wasm"]);
  assertEquals(mx.withDevice("cpu", mx.defaultDevice), "wasm");
  const x = mx.ones([2]).to("cpu");
  assertEquals(x.tolist(), [1, 1]);
  x[Symbol.dispose]();
  const gpu = devices().find((d) => d.usable && !["cpu", "wasm"].includes(d.type));
  if (gpu) assertEquals(mx.withDevice("gpu", mx.defaultDevice).split(":")[0], "vulkan");
  else {
    const error = assertThrows(() => mx.setDefaultDevice("gpu"), RuntimeError, "there is no GPU that vkmx can use: ");
    assertEquals([error.code, error.call], ["unavailable", "setDefaultDevice"]);
    const { stdout } = await runCode(PRINT_BACKEND, { VKMX_DEVICE: "gpu" });
    assertMatch(stdout, /^unavailable getBackend\(\): there is no GPU that vkmx can use: /);
  }
  assertEquals(await runCode(PRINT_BACKEND, { VKMX_DEVICE: "cpu" }), { code: 0, stdout: "wasm wasm\n", stderr: "" });
  const tell = 'import { defaultDevice } from "./src/backend/devices.ts"; console.log(defaultDevice());';
  const [unset, foo] = await Promise.all(["", "foo\n\x1b[1m"].map((name) => runCode(tell, { VKMX_DEVICE: name })));
  assertEquals([foo.code, foo.stdout], [0, unset.stdout]);
  const line = 'vkmx: VKMX_DEVICE is "foo\\n\\u001b[1m", expected gpu, cpu, wasm or a name that mx.devices() lists: ';
  assertEquals(foo.stderr, `${line}it counts as unset\n`);
});

Deno.test("VKMX_DEVICE chooses, and a name that is not there lists what is", async () => {
  assertEquals(await runCode(PRINT_BACKEND, { VKMX_DEVICE: "wasm" }), { code: 0, stdout: "wasm wasm\n", stderr: "" });
  const { stdout } = await runCode(PRINT_BACKEND, { VKMX_DEVICE: "vulkan:99" });
  assertMatch(stdout, /^device getBackend\(\): there is no device "vulkan:99" \(VKMX_DEVICE\); there are .*wasm/);
});

Deno.test("getBackend() without a name never takes a software driver", async () => {
  const list = devices();
  if (list.some((d) => d.usable && !["cpu", "wasm"].includes(d.type))) return; // a real GPU is the default there
  const { stdout, stderr } = await runFresh(PRINT_BACKEND);
  assertEquals(stdout, "wasm wasm\n");
  assertEquals(stderr.trim().split("\n").length, 1);
  if (list.some((d) => d.type === "cpu")) assertStringIncludes(stderr, "software");
});

Deno.test("prepareDevices() does nothing where WASM is named or the library is there", async () => {
  const code =
    'import { prepareDevices } from "./src/backend/devices.ts"; await prepareDevices("wasm"); await prepareDevices();';
  const env = { VKMX_LIBRARY: LIBRARY ?? `${ROOT}none.so` };
  assertEquals(await runCode(code, env), { code: 0, stdout: "", stderr: "" });
});

Deno.test("devices() lists WASM last and a reason for whatever is not usable", () => {
  const list = devices();
  assertEquals(list.at(-1)?.name, "wasm");
  assertEquals(new Set(list.map((d) => d.name)).size, list.length);
  for (const d of list) assert(d.usable || d.reason, d.name);
});

Deno.test("programs can tell the failures of devices from others", () => {
  const error = assertThrows(() => mx.withDevice("cuda:0", () => 1), mx.RuntimeError, "there is no device");
  assertEquals([error.name, error.code, error.call], ["RuntimeError", "device", "withDevice"]);
});

Deno.test("getBackend() refuses an unknown name with code device", () => {
  const error = assertThrows(() => getBackend("cuda:0"), RuntimeError, "wasm");
  assertEquals(error.code, "device");
});

/** The output of `vkmx devices`, and its exit code. */
async function printDevices(...names: string[]): Promise<{ readonly lines: string[]; readonly code: number }> {
  const { stdout, stderr, code } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", `${ROOT}src/cli/mod.ts`, "devices", ...names],
    env: { NO_COLOR: "1", VKMX_DEVICE: "wasm" },
  }).output();
  const decoder = new TextDecoder();
  return { lines: (decoder.decode(stdout) + decoder.decode(stderr)).trimEnd().split("\n"), code };
}

Deno.test("vkmx devices prints a line a device, marks the default, and says what is missing and why", async () => {
  const { lines } = await printDevices();
  assertEquals(lines.filter((line) => !line.startsWith("    ")).length, devices().length);
  assertMatch(lines.at(-2)!, /^\* wasm /);
  const named = await printDevices("--verbose");
  assertMatch(lines.at(-1)!, /^ {4}CPU, [\d.]+ GB of [\d.]+ GB free$/);
  for (const { missing = [] } of devices()) {
    for (const { reason, kernels } of missing) {
      assert(lines.includes(`    without ${kernels.length} kernels: ${reason}`));
      assert(named.lines.includes(`    without ${kernels.join(", ")}: ${reason}`));
    }
  }
});

Deno.test({
  ...NEEDS_LIBRARY,
  ignore: !devices().some((d) => d.usable && d.type !== "wasm"),
  name: "vkmx devices and VKMX_EXPLAIN tell what a masked device does without",
  fn: async () => {
    const { name } = devices().find((d) => d.usable && d.type !== "wasm")!;
    const { lines, code } = await printDevices(`${name}-shuffle`, "-v");
    assertEquals(code, 0);
    assert(
      lines.some((line) => /^ {4}without .*decode_qkv_i32.*: the device has no shuffles/.test(line)),
      String(lines),
    );
    const refused = await printDevices(`${name}-nonsense`);
    assertEquals([refused.code, refused.lines.length], [2, 1]);
    assertStringIncludes(refused.lines[0], '"nonsense"');
    const { stderr } = await runCode(PRINT_BACKEND, { VKMX_DEVICE: `${name}-shuffle`, VKMX_EXPLAIN: "1" });
    assertMatch(stderr, /vkmx: vulkan:\d+-shuffle: without .*decode_qkv_i32.*, because the device has no shuffles/);
  },
});

// ---- backends -----------------------------------------------------------------------------------------------------------

for (const { name, usable } of devices()) {
  if (!usable) continue;

  Deno.test(`getBackend("${name}") is opened once, and anew after closeDevices()`, () => {
    const first = getBackend(name);
    assertEquals(getBackend(name), first);
    assertEquals(first.name, name);
    const buffer = first.alloc(4);
    closeDevices();
    const { code, detail } = assertThrows(() => first.read(buffer, 0, new Uint8Array(4)), RuntimeError);
    assertEquals([code, detail], ["handle", "the device was closed, and all arrays and models on it are gone"]);
    const second = getBackend(name);
    assert(second !== first);
    second.free(second.alloc(10));
    closeDevices();
  });

  Deno.test(`openAhead("${name}") opens it once, unless somebody cannot wait`, async () => {
    closeDevices();
    await openAhead(name);
    const first = getBackend(name);
    await openAhead(name);
    assert(getBackend(name) === first);
    closeDevices();
    const opening = openAhead(name);
    const own = getBackend(name);
    await opening;
    assert(getBackend(name) === own && own !== first);
    await openAhead("vulkan:99"); // its first use will say what is wrong
    assertThrows(() => getBackend("vulkan:99"), RuntimeError, 'there is no device "vulkan:99"');
    if (name !== "wasm") assertEquals(liveObjects().devices, 1);
  });

  Deno.test(`the backend of ${name} counts objects, memory and tickets`, async () => {
    const backend = getBackend(name);
    try {
      assert(
        backend.limits.maxGrid >= 65535 && backend.limits.maxBufferBytes >= 2 ** 27 && backend.limits.threads >= 64,
      );
      assert(Object.keys(KERNELS).some((kernel) => backend.has(kernel as keyof typeof KERNELS)));
      const before = backend.memory();
      assert(before.total > 0 && before.available > 0 && before.available <= before.total);
      const buffer = backend.alloc(4000);
      assert(backend.memory().active >= before.active + 4000);
      const push = encodePush("ArangePush", { count: 1000, start: 5, step: 3 });
      const words = encodePlan(1, [{
        kernel: "arange",
        spec: [64, 3],
        push,
        grid: [16, 1, 1],
        buffers: [[0, 0]],
      }]);
      const plan = backend.compile(words);
      assertEquals(backend.liveObjects(), { buffers: 1, plans: 1 });
      const first = backend.run(plan, encodeSlots([{ buffer, byteOffset: 0 }]));
      const second = backend.run(plan, encodeSlots([{ buffer, byteOffset: 0 }]));
      assert(second > first);
      await backend.waitAsync(second);
      backend.wait(first);
      const out = new Uint32Array(1000);
      backend.read(buffer, 0, new Uint8Array(out.buffer));
      assert(out.every((x, i) => x === 5 + 3 * i));
      assertEquals(backend.profileRead(plan).length, 0);
      backend.profile(true);
      backend.wait(backend.run(plan, encodeSlots([{ buffer, byteOffset: 0 }])));
      assertEquals(backend.profileRead(plan).length, 1);
      backend.profile(false);
      backend.release(plan);
      backend.free(buffer);
      assertEquals(backend.liveObjects(), { buffers: 0, plans: 0 });
      assertEquals(backend.memory().active, before.active);
      assert(backend.memory().peak >= before.active + 4000);
    } finally {
      closeDevices();
    }
  });

  Deno.test(`waitAsync() on ${name} lets timers run`, async () => {
    const backend = getBackend(name);
    try {
      const count = 1 << 21;
      const buffer = backend.alloc(4 * count);
      const push = encodePush("ArangePush", { count, start: 0, step: 1 });
      const dispatch = {
        kernel: "arange",
        spec: [64, 3],
        push,
        grid: [count / 64, 1, 1],
        buffers: [[0, 0]],
      } as const;
      const plan = backend.compile(encodePlan(1, Array.from({ length: 20 }, () => dispatch)));
      let ticket = 0;
      for (let i = 0; i < 5; i++) ticket = backend.run(plan, encodeSlots([{ buffer, byteOffset: 0 }]));
      let turns = 0;
      const timer = setInterval(() => turns++, 1);
      const start = performance.now();
      await backend.waitAsync(ticket);
      const elapsed = performance.now() - start;
      clearInterval(timer);
      assert(turns > 0 || elapsed < 10, `${turns} turns in ${elapsed} ms`);
      backend.release(plan);
      backend.free(buffer);
    } finally {
      closeDevices();
    }
  });
}
