/** Safetensors: what is saved comes back, and damaged files are refused with one line. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../mod.ts";

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
    const loaded = mx.load(path);
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
  ["F64", file(entry("F64", [1], 0, 8), 8), 'tensor "w" has dtype F64, which is not supported'],
  ["I64", file(entry("I64", [1], 0, 8), 8), 'tensor "w" has dtype I64'],
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
    assertThrows(() => mx.load(`${folder}/x.npz`), mx.ValueError, "expected .safetensors");
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
