/** Safetensors: what is saved comes back, and damaged files are refused with one line. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";

mx.devices(); // opens the Vulkan library outside of any test
mx.setDefaultDevice("wasm");

function withFolder(fn: (folder: string) => void): void {
  const folder = Deno.makeTempDirSync();
  try {
    mx.tidy(() => fn(folder));
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

Deno.test("saveSafetensors() and loadSafetensors() keep names, shapes, dtypes and values", () => {
  withFolder((folder) => {
    const path = `${folder}/x.safetensors`;
    const dtypes = [
      mx.bool,
      mx.uint8,
      mx.uint16,
      mx.uint32,
      mx.int8,
      mx.int16,
      mx.int32,
      mx.float16,
      mx.bfloat16,
      mx.float32,
    ];
    const saved = Object.fromEntries(dtypes.map((d) => [d.name, mx.arange(6).astype(d).reshape(2, 3)]));
    const tree = {
      layers: [saved, { weight: mx.arange(4).index(mx.Slice(null, null, -1)) }],
      scalar: mx.array(2.5),
      none: mx.zeros([0, 3]),
    };
    mx.save(path, tree, { step: "7" });
    assertEquals(mx.safetensorsMetadata(path), { format: "mlx", step: "7" });
    const loaded = mx.loadSafetensors(path);
    assertEquals(
      Object.keys(loaded).sort(),
      [...dtypes.map((d) => `layers.0.${d.name}`), "layers.1.weight", "none", "scalar"].sort(),
    );
    for (const dtype of dtypes) {
      const tensor = loaded[`layers.0.${dtype.name}`];
      assertEquals(tensor.dtype.name, dtype.name);
      assertEquals(tensor.tolist(), saved[dtype.name].tolist());
    }
    assertEquals(loaded["layers.1.weight"].tolist(), [3, 2, 1, 0]);
    assertEquals(loaded.scalar.item(), 2.5);
    assertEquals(loaded.none.shape, [0, 3]);
    assertEquals([...Deno.readDirSync(folder)].length, 1); // no temporary file stays
  });
});

/** A file with the given header and data. */
function file(header: string, data = 0, length?: bigint): Uint8Array {
  const text = new TextEncoder().encode(header);
  const bytes = new Uint8Array(8 + text.length + data);
  new DataView(bytes.buffer).setBigUint64(0, length ?? BigInt(text.length), true);
  bytes.set(text, 8);
  return bytes;
}

function entry(dtype: string, shape: readonly number[], begin: number, end: number): string {
  return JSON.stringify({ w: { dtype, shape, data_offsets: [begin, end] } });
}

/** Damaged files with a part of the message. */
const DAMAGED: readonly (readonly [string, Uint8Array, string])[] = [
  ["empty", new Uint8Array(0), "too short"],
  ["huge header", file("{}", 0, 1n << 40n), "at most 100000000"],
  ["a pointer", new TextEncoder().encode("version https://git-lfs.github.com/spec/v1\n"), '"git lfs pull" fetches it'],
  ["header beyond the file", file("{}", 0, 1000n), "is cut off"],
  ["no brace", file("[]"), 'does not begin with "{"'],
  ["no JSON", file("{]"), "not valid JSON"],
  ["metadata of numbers", file('{"__metadata__": {"a": 1}}'), "metadata"],
  ["no object", file('{"w": 1}'), 'tensor "w" is not described by an object'],
  ["F4", file(entry("F4", [2], 0, 1), 1), 'tensor "w" has dtype F4, which is not supported'],
  ["unknown dtype", file(entry("Q4", [1], 0, 8), 8), 'unknown dtype "Q4"'],
  ["inherited name as dtype", file(entry("toString", [1], 0, 8), 8), "unknown dtype"],
  ["negative size", file(entry("F32", [-1], 0, 4), 4), "not a list of sizes"],
  ["fraction", file(entry("F32", [1.5], 0, 6), 6), "not a list of sizes"],
  ["nine axes", file(entry("U8", [1, 1, 1, 1, 1, 1, 1, 1, 1], 0, 1), 1), "more than 8 axes"],
  ["overflow", file(entry("F32", [2 ** 40, 2 ** 40], 0, 4), 4), "too large"],
  ["wrong size", file(entry("F32", [2], 0, 4), 8), "needs 8 bytes: its offsets give 4"],
  ["turned offsets", file(entry("F32", [1], 4, 0), 8), "needs 4 bytes"],
  ["cut off", file(entry("F32", [2], 0, 8), 4), "is cut off"],
  [
    "overlap",
    file(
      '{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}',
      6,
    ),
    'tensors "a" and "b" overlap',
  ],
];

Deno.test("loadSafetensors() refuses damaged files with one line that names the file", () => {
  withFolder((folder) => {
    for (const [name, bytes, message] of DAMAGED) {
      const path = `${folder}/${name}.safetensors`;
      Deno.writeFileSync(path, bytes);
      const error = assertThrows(() => mx.loadSafetensors(path), mx.ArrayError, message);
      assert(error.message.startsWith(path) && !error.message.includes("\n"), error.message);
    }
    assertThrows(() => mx.loadSafetensors(`${folder}/none.safetensors`), mx.ArrayError, "does not exist");
    assertThrows(() => mx.load(`${folder}/x.txt`), mx.ValueError, "expected .safetensors");
  });
});

Deno.test("loadSafetensors() reads 8-bit floats as bytes, unaligned data and names like __proto__", () => {
  withFolder((folder) => {
    const path = `${folder}/x.safetensors`;
    const header = '{"__proto__": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [0, 3]}, ' +
      '"f": {"dtype": "F32", "shape": [2], "data_offsets": [3, 11]}}';
    const bytes = file(header, 11);
    bytes.set([7, 8, 9, ...new Uint8Array(Float32Array.of(1.5, -2).buffer)], bytes.length - 11);
    Deno.writeFileSync(path, bytes);
    const loaded = mx.loadSafetensors(path);
    assertEquals(Object.keys(loaded), ["__proto__", "f"]);
    assertEquals(loaded.f.tolist(), [1.5, -2]);
    assertEquals(Object.values(loaded)[0].tolist(), [7, 8, 9]);
  });
});

for (const device of testDevices()) {
  Deno.test(`arrays that several threads read, and pieces that the device copies, are whole on ${device}`, () => {
    const MIB = 1 << 20;
    withFolder((folder) => {
      const path = `${folder}/x.safetensors`;
      for (const bytes of [MIB - 1, MIB, 2 * MIB + 1, 3 * MIB - 1, 8 * MIB, 20 * MIB + 12_345]) {
        const content = Uint8Array.from({ length: bytes }, (_, i) => Math.imul(i, 2_654_435_761) >>> 24);
        mx.saveSafetensors(path, { x: mx.array(content) });
        const { x } = mx.loadSafetensors(path);
        const same = mx.withDevice(device, () => x.toTypedArray()).every((v: unknown, i: number) => v === content[i]);
        assert(same, `${bytes} bytes`);
      }
    });
  });
}

Deno.test("saveSafetensors() may replace the file that its arrays come from", () => {
  withFolder((folder) => {
    const path = `${folder}/x.safetensors`;
    mx.saveSafetensors(path, { a: mx.ones([4]) });
    const { a } = mx.loadSafetensors(path);
    mx.saveSafetensors(path, { b: mx.zeros([1000]), a: a.add(1) });
    assertEquals(mx.loadSafetensors(path).a.tolist(), [2, 2, 2, 2]);
  });
});

Deno.test("saveSafetensors() leaves nothing behind when it fails", () => {
  withFolder((folder) => {
    assertThrows(
      () => mx.saveSafetensors(`${folder}/missing/x.safetensors`, { a: mx.ones([1]) }),
      mx.ArrayError,
      "cannot be written",
    );
    const gone = mx.ones([1]);
    gone.dispose();
    assertThrows(() => mx.saveSafetensors(`${folder}/x.safetensors`, { gone }), mx.ArrayError, "disposed");
    const metadata = { layers: 5 } as unknown as Record<string, string>;
    assertThrows(
      () => mx.saveSafetensors(`${folder}/x.safetensors`, { a: mx.ones([1]) }, metadata),
      mx.ValueError,
      'expected strings in metadata: found 5 at "layers"',
    );
    assertEquals([...Deno.readDirSync(folder)], []);
  });
});

/** One more tensor after those of a header, for checks of the whole. */
const W = '{"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}';

/** A header of so many tensors without values; braces in names are none of the header's own. */
function empties(count: number): string {
  const entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}';
  return `{${Array.from({ length: count }, (_, i) => `"{{{\\"{${i}":${entry}`).join()},"__metadata__":{"a":"{"}}`;
}

/** Headers that other readers take, with data and a part of the message. */
const MISLEADING: readonly (readonly [string, Uint8Array, string])[] = [
  ["a name twice", file(`{"w": ${W}, "w": ${W}}`, 4), 'names the tensor "w" twice'],
  ["a name twice by its escape", file(`{"w": ${W}, "\\u0077": ${W}}`, 4), 'names the tensor "w" twice'],
  [
    "a field twice",
    file('{"w": {"dtype": "U8", "dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}'),
    'has "dtype" twice',
  ],
  ["metadata twice", file('{"__metadata__": {}, "__metadata__": {}}'), "has metadata twice"],
  ["a metadatum twice", file('{"__metadata__": {"a": "1", "a": "2"}}'), 'has the metadata "a" twice'],
  ["a hole in front", file(entry("U8", [4], 1, 5), 5), "bytes 0 to 1 of the data belong to no tensor"],
  [
    "a hole",
    file(`{"w": ${W}, "v": {"dtype": "U8", "shape": [2], "data_offsets": [5, 7]}}`, 7),
    "bytes 4 to 5 of the data belong to no tensor",
  ],
  ["bytes behind", file(`{"w": ${W}}`, 5), "bytes 4 to 5 of the data belong to no tensor"],
  ["only bytes", file("{}", 1), "bytes 0 to 1 of the data belong to no tensor"],
  [
    "an empty tensor inside of another",
    file(`{"w": ${W}, "v": {"dtype": "U8", "shape": [0], "data_offsets": [2, 2]}}`, 4),
    'tensors "w" and "v" overlap',
  ],
  ["an overflow behind 0", file(entry("F32", [2 ** 40, 2 ** 40, 0], 0, 0)), "too large"],
  ["white space in front", file(" {}"), 'does not begin with "{"'],
  ["a zero behind", file("{}\0"), "not valid JSON: expected the end of the text, at byte 10"],
  ["a comma behind", file(`{"w": ${W},}`, 4), "not valid JSON"],
  [
    "a fraction that is whole",
    file('{"w": {"dtype": "U8", "shape": [1.0], "data_offsets": [0, 1]}}', 1),
    "list of sizes",
  ],
  ["an exponent", file('{"w": {"dtype": "U8", "shape": [1e0], "data_offsets": [0, 1]}}', 1), "list of sizes"],
  ["a zero in front", file('{"w": {"dtype": "U8", "shape": [01], "data_offsets": [0, 1]}}', 1), "expected a number"],
  ["half a pair", file(`{"\\ud800": ${W}}`, 4), "without half a surrogate pair"],
  ["a control character", file(`{"a\nb": ${W}}`, 4), "without control characters"],
  ["three offsets", file('{"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 1]}}', 1), "has no data_offsets"],
  ["no shape", file('{"w": {"dtype": "U8", "data_offsets": [0, 1]}}', 1), "has no shape"],
  ["fields as a list", file('{"w": ["U8", [1], [0, 1]]}', 1), "not described by an object"],
  ["half bytes", file(entry("F4", [2], 0, 1), 1), "dtype F4, which is not supported"],
  ["a long name", file(`{"${"n".repeat(70_000)}": ${W}}`, 4), "a string of too many bytes: at most 65536 are allowed"],
  ["a long string", file(`{"__metadata__": {"a": "${"x".repeat(2e6)}"}}`), "at most 1048576 are allowed"],
  ["too many tensors", file(empties(100_001)), "has more than 100000 tensors"],
  ["a deep field", file(`{"w": {"x": ${"[".repeat(1e6)}`), "too many objects and lists inside of each other"],
  ["wide fields", file(`{"w": {"x": [${"1,".repeat(1e6)}1]}}`), "too many bytes of unknown fields"],
  ["white space without end", file(`{${" ".repeat(9e6)}}`), "too many bytes of white space"],
  ["a terabyte", file(entry("BOOL", [1e12], 0, 1e12), 4), "it is cut off"],
  ["a colourful name", file('{"\\u001b[31m\\n\u009b": 1}'), 'tensor "\\u001b[31m\\n\\u009b" is not described'],
];

Deno.test("loadSafetensors() takes only what the format allows", () => {
  withFolder((folder) => {
    for (const [name, bytes, message] of MISLEADING) {
      const path = `${folder}/${name}.safetensors`;
      Deno.writeFileSync(path, bytes);
      const error = assertThrows(() => mx.loadSafetensors(path), mx.ArrayError, message);
      assert(!/\p{Cc}/u.test(error.message) && error.message.length < 400 + path.length, error.message);
    }
    const invalid = file('{"??": 1}');
    invalid.set([0xc3, 0x28], 10);
    Deno.writeFileSync(`${folder}/x.safetensors`, invalid);
    assertThrows(() => mx.loadSafetensors(`${folder}/x.safetensors`), mx.ArrayError, "a string of valid UTF-8");
  });
});

Deno.test("loadSafetensors() takes all that the format allows", () => {
  withFolder((folder) => {
    const path = `${folder}/x.safetensors`;
    const load = (header: string, data = 0): string[] => {
      Deno.writeFileSync(path, file(header, data));
      return Object.keys(mx.loadSafetensors(path));
    };
    assertEquals(load("{}"), []);
    assertEquals(load("{} \n\t "), []);
    assertEquals(load('{"__metadata__": null}'), []);
    assertEquals(load(`{"w":${W},"__metadata__":{"\\u00e9":"\\ud83d\\ude00"}}`, 4), ["w"]);
    assertEquals(mx.safetensorsMetadata(path), { "é": "😀" });
    assertEquals(
      load('{"w": {"x": [{"y": -1.5e3, "z": null}], "shape": [], "data_offsets": [0, 1], "dtype": "U8"}}', 1),
      ["w"],
    );
    assertEquals(load('{"w": {"dtype": "\\u00558", "shape": [1], "data_offsets": [0, 1]}}', 1), ["w"]);
    assertEquals(load(`{"": ${W}}`, 4), [""]);
    assertEquals(load(`{"v": {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]}, "w": ${W}}`, 4), ["v", "w"]);
    assertEquals(load(empties(100_000)).length, 100_000);
    // Strings at every place of the pieces that a header is read in.
    const long = Object.fromEntries(Array.from({ length: 40 }, (_, i) => ["é\n".repeat(5000) + i, "x"]));
    assertEquals(load(JSON.stringify({ __metadata__: long })), []);
    assertEquals(mx.safetensorsMetadata(path), long);
  });
});

Deno.test("arrays of a file are read from the file that was checked, and booleans are 0 or 1", () => {
  withFolder((folder) => {
    const path = `${folder}/x.safetensors`;
    mx.saveSafetensors(path, { b: mx.array([true, false, true]), n: mx.ones([4]) });
    const { b, n } = mx.loadSafetensors(path);
    assertEquals(b.tolist(), [true, false, true]);
    mx.saveSafetensors(path, { b: mx.array([true, false, true]), n: mx.ones([1000]) });
    assertThrows(() => n.tolist(), mx.ArrayError, `${path} changed since it was opened`);
    Deno.removeSync(path);
    assertThrows(() => n.tolist(), mx.ArrayError, `${path} does not exist`);
    const bytes = file(entry("BOOL", [3], 0, 3), 3);
    bytes.set([1, 0, 2], bytes.length - 3);
    Deno.writeFileSync(path, bytes);
    const { w } = mx.loadSafetensors(path);
    assertThrows(() => w.tolist(), mx.ArrayError, `has 2 in place of true or false at byte ${bytes.length - 1}`);
  });
});

Deno.test("saveSafetensors() writes no file that loadSafetensors() would refuse", () => {
  withFolder((folder) => {
    const path = `${folder}/x.safetensors`;
    const save = (tree: mx.TensorTree, metadata = {}): () => void => () => mx.saveSafetensors(path, tree, metadata);
    const one = mx.ones([1]);
    assertThrows(save({ ["n".repeat(2 ** 16 + 1)]: one }), mx.ValueError, "got a text of 65537 bytes");
    assertThrows(save({ "\ud800": one }), mx.ValueError, "half a surrogate pair");
    assertThrows(save({}, { a: "x".repeat(2 ** 20 + 1) }), mx.ValueError, "at most 1048576 are allowed");
    assertThrows(save(Array.from({ length: 100_001 }, () => one)), mx.ValueError, "got 100001 arrays");
    assertEquals([...Deno.readDirSync(folder)], []);
    save({ ["n".repeat(2 ** 16)]: one }, { a: "x".repeat(2 ** 20) })();
    assertEquals(Object.values(mx.loadSafetensors(path))[0].tolist(), [1]);
  });
});

/** A program that writes half of a file and then waits for its end. */
const WRITER = `
import { writeWhole } from "${new URL("../../../ffi/file.ts", import.meta.url)}";
writeWhole(Deno.args[0], (function* () {
  yield new Uint8Array(1e6);
  Deno.stdout.writeSync(new Uint8Array(1));
  Deno.stdin.readSync(new Uint8Array(1));
})());`;

Deno.test("a save removes what killed writers of that file left, and nothing of living ones", async () => {
  const folder = Deno.makeTempDirSync();
  const path = `${folder}/x.safetensors`;
  const names = (): string[] => [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
  const save = (): void => mx.saveSafetensors(path, { a: mx.ones([4]) });
  Deno.writeTextFileSync(`${folder}/writer.ts`, WRITER);
  Deno.writeTextFileSync(`${folder}/x.safetensors.mine.tmp`, "");
  Deno.writeTextFileSync(`${folder}/y.safetensors.01234567.tmp`, "");
  const rest = ["writer.ts", "x.safetensors.mine.tmp", "y.safetensors.01234567.tmp"];
  const writers = Array.from({ length: 4 }, () => {
    const args = ["run", "-A", "--no-lock", `${folder}/writer.ts`, path];
    return new Deno.Command(Deno.execPath(), { args, stdin: "piped", stdout: "piped" }).spawn();
  });
  try {
    for (const { stdout } of writers) {
      const reader = stdout.getReader();
      assertEquals((await reader.read()).value?.length, 1); // half is written
      reader.releaseLock();
    }
    const temporary = names().filter((name) => !rest.includes(name));
    assertEquals(temporary.length, 4);
    save();
    assertEquals(names(), [...rest, ...temporary, "x.safetensors"].sort());
    for (const writer of writers.slice(1)) writer.kill("SIGKILL");
    for (const writer of writers.slice(1)) await writer.status;
    save();
    assertEquals(names().length, rest.length + 2); // those of the three are gone
    const end = writers[0].stdin.getWriter();
    await end.write(new Uint8Array(1));
    assertEquals((await writers[0].status).code, 0); // the living one finishes its file
    assertEquals(names(), [...rest, "x.safetensors"].sort());
    assertEquals(Deno.statSync(path).size, 1e6);
    await end.close();
  } finally {
    for (const { stdin, stdout } of writers) await Promise.allSettled([stdin.close(), stdout.cancel()]);
    Deno.removeSync(folder, { recursive: true });
  }
});

Deno.test("saveSafetensors() writes the largest dtypes first, so that every array lies aligned", () => {
  const folder = Deno.makeTempDirSync();
  try {
    mx.setDefaultDevice("wasm");
    const arrays: Record<string, mx.Tensor> = {
      byte: mx.array([7], mx.uint8),
      single: mx.array([1.5], mx.float32),
      half: mx.array([0.5, 1, 2], mx.float16),
      whole: mx.array([-1n], mx.int64),
      bool: mx.array([true, false, true]),
      pair: mx.array([mx.complex(1, 2)]),
      words: mx.array([1, 2, 3], mx.uint16),
      5: mx.array([5], mx.int32),
    };
    const path = `${folder}/x.safetensors`;
    mx.saveSafetensors(path, arrays);
    const file = Deno.readFileSync(path);
    const length = Number(new DataView(file.buffer).getBigUint64(0, true));
    const { __metadata__: _, ...header } = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)));
    assertEquals(Object.keys(header).sort(), Object.keys(arrays).sort());
    const places = Object.entries(header as Record<string, { data_offsets: [number, number] }>)
      .map(([name, { data_offsets: [begin] }]) => ({ bytes: arrays[name].dtype.bytes, begin }))
      .sort((a, b) => a.begin - b.begin);
    for (const { bytes, begin } of places) assertEquals((8 + length + begin) % bytes, 0);
    assertEquals(places.map(({ bytes }) => bytes), [8, 8, 4, 4, 2, 2, 1, 1]);
    const loaded = mx.loadSafetensors(path);
    for (const [name, array] of Object.entries(arrays)) assertEquals(loaded[name].tolist(), array.tolist(), name);
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
});
