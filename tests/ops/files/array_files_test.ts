/** Files of NumPy and GGUF: those that others wrote, what is saved and comes back, and damaged ones. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { nmse } from "../../support/oracles/oracle.ts";

mx.devices(); // opens the Vulkan library outside of any test

const golden = (name: string): string => new URL(`../../golden/array_files/${name}`, import.meta.url).pathname;

function withFolder(fn: (folder: string) => void): void {
  const folder = Deno.makeTempDirSync();
  try {
    mx.tidy(() => fn(folder));
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

for (const device of testDevices()) {
  Deno.test(`files of NumPy load in both orders of bytes and axes on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      assertEquals(mx.load(golden("big_endian.npy") as "x.npy").tolist(), [[0, 1, 2], [3, 4, 5]]);
      assertEquals(mx.loadNpy(golden("fortran.npy")).tolist(), [[0, 1, 2], [3, 4, 5]]);
      assertEquals(mx.loadNpy(golden("fortran.npy")).dtype.name, "int64");
      assertEquals(mx.loadNpy(golden("complex.npy")).tolist(), [
        [mx.complex(0, 3), mx.complex(1, 4), mx.complex(2, 5)],
        [mx.complex(3, 0), mx.complex(4, 1), mx.complex(5, 2)],
      ]);
      if (device === "wasm") assertEquals(mx.loadNpy(golden("scalar.npy")).item(), 2.5);
      const stored = mx.loadNpz(golden("stored.npz"));
      assertEquals([stored.a.tolist(), stored.b.tolist()], [[[0, 1, 2], [3, 4, 5]], [true, false]]);
      const { a, b } = mx.loadNpz(golden("deflated.npz"));
      assertEquals([a.shape, mx.sum(a).item(), b.tolist()], [[40, 50], 0, [[0, 1, 2], [3, 4, 5]]]);
    });
  });

  Deno.test(`quantized types of GGUF have the values that ggml gives them on ${device}`, () => {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const expected: Record<string, number[]> = JSON.parse(Deno.readTextFileSync(golden("blocks.json")));
      const loaded = mx.load(golden("blocks.gguf") as "x.gguf");
      for (const [name, values] of Object.entries(expected)) {
        const weight = loaded[`${name}.weight`];
        const [scales, biases] = [loaded[`${name}.scales`], loaded[`${name}.biases`]];
        const dense = scales ? mx.dequantize(weight, scales, biases, 32, name === "Q8_0" ? 8 : 4) : weight;
        assertEquals(dense.dtype.name, "float16", name);
        const error = nmse(dense.astype(mx.float32).toTypedArray() as Float32Array, values);
        assert(error <= 1e-6, `${name}: NMSE ${error}`);
      }
    });
  });
}

Deno.test("arrays of every dtype come back from .npy, .npz and .gguf files", () => {
  mx.setDefaultDevice("wasm");
  withFolder((folder) => {
    const names = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"] as const;
    const floats = ["float16", "bfloat16", "float32", "float64", "complex64"] as const;
    const arrays = Object.fromEntries(
      [...names, ...floats].map((name) => [name, mx.arange(6).astype(mx[name]).reshape(2, 3)]),
    );
    for (const [name, x] of Object.entries(arrays)) {
      mx.save(`${folder}/${name}`, x.T); // ".npy" is added
      const found = mx.loadNpy(`${folder}/${name}.npy`);
      assertEquals([found.dtype, found.tolist()], [x.dtype, x.T.tolist()], name);
      // The format of NumPy: a header ends with a line end, and values begin at a multiple of 64 bytes.
      const bytes = Deno.readFileSync(`${folder}/${name}.npy`);
      const start = bytes.length - 6 * x.dtype.bytes;
      assertEquals([start % 64, bytes[start - 1]], [0, 10], name);
    }
    for (const write of [mx.savez, mx.savezCompressed]) {
      write(`${folder}/all.npz`, arrays, mx.arange(3));
      const found = mx.load(`${folder}/all.npz`);
      assertEquals(Object.keys(found), [...Object.keys(arrays), "arr_1"]);
      for (const [name, x] of Object.entries(arrays)) assertEquals(found[name].tolist(), x.tolist(), name);
    }
    const path = `${folder}/all.gguf`;
    const kept = Object.fromEntries(
      ["int8", "int16", "int32", "int64", ...floats.slice(0, 4)].map((name) => [name, arrays[name]]),
    );
    mx.saveGguf(path, kept, {
      "general.name": "x",
      tags: ["a", "b"],
      scale: mx.array(1.5),
      list: mx.array([1, 2], mx.int64),
    });
    const [found, metadata] = mx.load(path, { returnMetadata: true });
    for (const [name, x] of Object.entries(kept)) {
      assertEquals([found[name].dtype, found[name].tolist()], [x.dtype, x.tolist()]);
    }
    assertEquals([metadata["general.name"], metadata.tags], ["x", ["a", "b"]]);
    assertEquals((metadata.list as mx.Tensor).tolist(), [1, 2]);
    // Arrays in a file are copied from there.
    mx.savez(`${folder}/copy.npz`, mx.loadNpz(`${folder}/all.npz`));
    assertEquals(mx.loadNpz(`${folder}/copy.npz`).uint64.tolist(), arrays.uint64.tolist());
    assertThrows(() => mx.saveGguf(path, { a: arrays.bool }), mx.DtypeError, 'cannot store bool, the dtype of "a"');
    assertThrows(() => mx.load(`${folder}/x.bin`), mx.ValueError, "expected .safetensors, .npz, .npy, .gguf");
    assertThrows(() => mx.load(`${folder}/all.npz`, { returnMetadata: true }), mx.ValueError, "no metadata");
  });
});

Deno.test("damaged files of NumPy and GGUF are refused with one line that names the file", () => {
  mx.setDefaultDevice("wasm");
  withFolder((folder) => {
    const npy = Deno.readFileSync(golden("big_endian.npy"));
    const npz = Deno.readFileSync(golden("deflated.npz"));
    const gguf = Deno.readFileSync(golden("blocks.gguf"));
    const refuse = (name: string, bytes: Uint8Array, message: string, load: (path: string) => unknown): void => {
      const path = `${folder}/${name}`;
      Deno.writeFileSync(path, bytes);
      const error = assertThrows(() => load(path), mx.ArrayError, message);
      assert(error.message.startsWith(path) && !error.message.includes("\n"), error.message);
    };
    const changed = (bytes: Uint8Array, at: number, ...values: number[]): Uint8Array => {
      const copy = bytes.slice();
      copy.set(values, at);
      return copy;
    };
    const header = (text: string): Uint8Array => {
      const bytes = new TextEncoder().encode(text);
      return Uint8Array.of(...npy.subarray(0, 6), 1, 0, bytes.length, 0, ...bytes);
    };
    refuse("a.npy", new Uint8Array(3), "is no .npy file", mx.loadNpy);
    refuse("b.npy", changed(npy, 6, 9), "version 9", mx.loadNpy);
    refuse("c.npy", npy.subarray(0, 40), "cut off in its header", mx.loadNpy);
    refuse("d.npy", npy.subarray(0, npy.length - 1), "is cut off", (path) => mx.loadNpy(path).tolist());
    refuse("e.npy", header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), "no array has", mx.loadNpy);
    refuse(
      "f.npy",
      header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"),
      "several dtypes",
      mx.loadNpy,
    );
    refuse(
      "g.npy",
      header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999, 9999999)}"),
      "too large",
      mx.loadNpy,
    );
    refuse("h.npy", header("__import__('os')"), "no dictionary", mx.loadNpy);
    refuse("a.npz", npz.subarray(0, npz.length - 30), "no directory", mx.loadNpz);
    refuse("b.npz", changed(npz, 80, 255, 255, 255), "damaged", (path) => mx.loadNpz(path).a.tolist());
    refuse("a.gguf", gguf.subarray(0, 12), "too short", mx.loadGguf);
    refuse("b.gguf", changed(gguf, 4, 1), "version 1", mx.loadGguf);
    refuse("c.gguf", gguf.subarray(0, gguf.length - 40), "it is cut off", mx.loadGguf);
    refuse("d.gguf", changed(gguf, 8, 255, 255, 255, 255, 255, 255), "number of tensors", mx.loadGguf);
    refuse("e.gguf", gguf.subarray(0, 60), "cut off in its header", mx.loadGguf);
    // Rows of the first tensor, after its name, its number of axes and its columns.
    const name = "Q4_0.weight";
    const rows = new TextDecoder("latin1").decode(gguf).indexOf(name) + name.length + 4 + 8;
    refuse("f.gguf", changed(gguf, rows, 0, 0), "of type Q4_0 has 0 elements", mx.loadGguf);
    refuse("g.gguf", changed(gguf, rows, 0, 0, 0, 0, 1), "elements: 1 to 34359738368 are allowed", mx.loadGguf);
    for (let at = 0; at < 400; at++) {
      for (
        const [name, bytes, load] of [["m.npy", npy, mx.loadNpy], ["m.npz", npz, mx.loadNpz], [
          "m.gguf",
          gguf,
          mx.loadGguf,
        ]] as const
      ) {
        const path = `${folder}/${name}`;
        Deno.writeFileSync(path, changed(bytes, at % bytes.length, (bytes[at % bytes.length] + 1 + at * 7) & 255));
        try {
          load(path);
        } catch (error) {
          assert(error instanceof mx.ArrayError && !error.message.includes("\n"), `${name} ${at}: ${error}`);
        }
      }
    }
  });
});
