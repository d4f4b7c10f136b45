/**
 * Functions in files on every device. A function that is read back must give the bits of the original, under
 * transformations too. A file that breaks the format in any way must be refused.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { gatherPages } from "../../../src/array/fast/pages.ts";
import { getBackend } from "../../../src/backend/devices.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { generator, size } from "../../support/oracles/oracle.ts";
import { casesOf, OPS } from "../cases.ts";
import type { Case } from "../cases/case.ts";
import { stored } from "../cases/draw.ts";

/** Rows of the case table that are tried, of each op. */
const PER_OP = 2;

/** A test on every device, with the path of a file that does not exist yet. */
function deviceTest(name: string, body: (path: string, device: string) => void): void {
  for (const device of testDevices()) {
    const backend = mx.withDevice(device, getBackend); // opened outside the test, which counts resources
    Deno.test(`${name} on ${device}`, () => {
      mx.setDefaultDevice(device);
      const folder = Deno.makeTempDirSync();
      const before = backend.liveObjects();
      try {
        mx.tidy(() => body(`${folder}/function.vkmxfn`, device));
        assertEquals(backend.liveObjects(), before, "buffers or Plans leaked");
      } finally {
        Deno.removeSync(folder, { recursive: true });
      }
    });
  }
}

/** The bytes of arrays: exactly what they hold. */
function bits(arrays: readonly mx.Tensor[]): string[] {
  mx.eval(arrays);
  return arrays.map((x) => `${x.dtype.name} (${x.shape}) ${mx.contiguous(x).toTypedArray()}`);
}

function inputsOf(c: Case, seed: number): mx.Tensor[] {
  const next = generator(seed);
  return c.inputs.map(({ shape, dtype, data, low = -4, high = 4 }) => {
    const whole = !dtype.startsWith("float") && dtype !== "bfloat16";
    const values = data ? Array.from(data) : Array.from({ length: size(shape) }, () => {
      const v = low + (high - low) * next();
      return stored(dtype, whole ? Math.floor(v) : v);
    });
    return mx.reshape(mx.array(values, mx[dtype]), [...shape]);
  });
}

// ---- every op -----------------------------------------------------------------------------------------------------------

deviceTest("Functions of every op come back as they were", (path, device) => {
  const failures: string[] = [];
  let count = 0;
  for (const op of OPS) {
    const { written, generated } = casesOf(op, device === "wasm");
    for (const [i, c] of [...written, ...generated].slice(0, PER_OP).entries()) {
      mx.tidy(() => {
        const inputs = inputsOf(c, i);
        const run = (...given: mx.Tensor[]): mx.Tensor[] => [c.run(mx, given)].flat();
        try {
          mx.random.seed(3);
          const expected = bits(run(...inputs));
          mx.random.seed(3);
          mx.exportFunction(path, run, ...inputs);
          using imported = mx.importFunction(path);
          assertEquals(bits(imported(...inputs)), expected);
          count++;
        } catch (error) {
          failures.push(`${op} ${i}: ${String(error).slice(0, 300)}`);
        }
      });
    }
  }
  assertEquals(failures, []);
  assert(count > 0);
});

// ---- calls --------------------------------------------------------------------------------------------------------------

const vector = (...values: number[]): mx.Tensor => mx.array(values);

deviceTest("Arguments come as arrays, as one list, and by name", (path) => {
  const weight = vector(1, 10);
  const fn = (x: mx.Tensor, { y }: { y: mx.Tensor }) => mx.subtract(mx.multiply(x, weight), y);
  mx.exportFunction(path, fn, vector(0, 0), { y: vector(0, 0), metadata: "né\n" });
  const [imported, metadata] = mx.importFunction(path, true);
  using _ = imported;
  assertEquals(metadata, "né\n");
  assertEquals(imported(vector(2, 3), { y: vector(1, 1) })[0].tolist(), [1, 29]);
  assertEquals(imported([vector(2, 3)], { y: vector(1, 1) })[0].tolist(), [1, 29]);
  const there = 'It has \n 1. float32 (2,), "y": float32 (2,)';
  const refused = (...args: readonly (mx.Tensor | Record<string, mx.Tensor>)[]): void => {
    assertThrows(() => imported(...args), mx.ValueError, there);
  };
  refused(vector(2, 3));
  refused(vector(2, 3), vector(1, 1));
  refused(vector(2, 3), { z: vector(1, 1) });
  refused(vector(2, 3), { y: vector(1) });
  refused(vector(2, 3), { y: mx.array([1, 1], mx.int32) });
  refused(vector(2, 3), { y: vector(1, 1), z: vector(1, 1) });
  assertThrows(() => imported(1 as never), mx.ValueError, "found 1");
  assertThrows(() => imported([[vector(1)]] as never), mx.ValueError, "found a list");
});

deviceTest("Names tell keyword arguments apart, in whatever order they come", (path) => {
  mx.exportFunction(path, ({ x, y }) => mx.subtract(x, y), { x: mx.array(1), y: mx.array(1) });
  using imported = mx.importFunction(path);
  assertEquals(imported({ y: mx.array(3), x: mx.array(2) })[0].item(), -1);
});

deviceTest("One file holds traces for other arguments, and their arrays once", (path) => {
  const constant = mx.zeros([16, 2048]);
  mx.eval(constant);
  {
    using write = mx.exporter(path, (...all: mx.Tensor[]) => all.reduce((a, b) => mx.add(a, b), constant));
    for (let i = 0; i < 5; i++) write(...Array.from({ length: i }, () => mx.array(1)));
    assertThrows(() => write(mx.array(2)), mx.ValueError, "already: float32 ()");
    assertThrows(() => Deno.statSync(path), Deno.errors.NotFound);
    write.close();
    assertThrows(() => write(mx.array([1])), mx.ArrayError, "closed");
  }
  assert(Deno.statSync(path).size < constant.nbytes + 8192);
  using imported = mx.importFunction(path);
  for (let i = 0; i < 5; i++) {
    assertEquals(imported(...Array.from({ length: i }, () => mx.array(2)))[0].index(3, 4).item(), 2 * i);
  }
  assertThrows(() => imported(vector(1)), mx.ValueError, "no trace for float32 (1,)");
});

deviceTest("A function without shapes serves other sizes, or says why not", (path) => {
  const w = mx.reshape(mx.arange(0, 6, 1, mx.float32), [2, 3]); // not evaluated: the same for all shapes
  const fn = (x: mx.Tensor) => mx.softmax(mx.add(mx.matmul(x, w), vector(1, 2, 3)), -1);
  mx.exportFunction(path, fn, mx.zeros([1, 4, 2]), { shapeless: true });
  using imported = mx.importFunction(path);
  for (const shape of [[1, 4, 2], [1, 7, 2], [1, 1, 2]]) {
    const x = mx.random.normal(shape);
    assertEquals(bits(imported(x)), bits([fn(x)]));
  }
  assertThrows(() => imported(mx.zeros([4, 2])), mx.ValueError, "of any sizes");
  assertThrows(() => imported(mx.zeros([1, 4, 3])), mx.ShapeError, "matmul");
  const write = (fn: (x: mx.Tensor) => mx.Tensor): void => {
    mx.exportFunction(path, fn, mx.zeros([4]), { shapeless: true });
  };
  assertThrows(() => write((x) => mx.add(x, mx.arange(x.shape[0]))), mx.ValueError, "arange, whose shape does not");
  assertThrows(() => write((x) => mx.multiply(x, mx.zerosLike(x))), mx.ValueError, "full, whose shape does not");
});

deviceTest("Imported functions are compiled and transformed", (path) => {
  const fn = (x: mx.Tensor) => mx.fast.rmsNorm(mx.sin(x), vector(1, 2, 3), 1e-5);
  const x = vector(0.5, -1, 2);
  mx.exportFunction(path, fn, x);
  using imported = mx.importFunction(path);
  const through = (x: mx.Tensor) => imported(x)[0];
  const loss = (fn: (x: mx.Tensor) => mx.Tensor) => (x: mx.Tensor) => mx.sum(mx.square(fn(x)));
  assertEquals(bits([mx.grad(loss(through))(x)]), bits([mx.grad(loss(fn))(x)]));
  const batch = mx.stack([x, mx.negative(x)]);
  assertEquals(bits([mx.vmap(through)(batch)]), bits([mx.vmap(fn)(batch)]));
  using compiled = mx.compile(through);
  assertEquals(bits([compiled(x)]), bits([fn(x)]));
  mx.exportFunction(path, through, x); // over the file that its own arrays lie in
  using again = mx.importFunction(path);
  assertEquals(bits(again(x)), bits([fn(x)]));
  const derivative = mx.grad(loss(fn));
  mx.exportFunction(path, derivative, x);
  using exported = mx.importFunction(path);
  assertEquals(bits(exported(x)), bits([derivative(x)]));
});

deviceTest("Keys are inputs like others, and an update in place leaves the argument alone", (path) => {
  const draw = (key: mx.Tensor) => mx.random.normal([5], mx.float32, 0, 1, key);
  mx.exportFunction(path, draw, mx.random.key(1));
  using drawn = mx.importFunction(path);
  assertEquals(bits(drawn(mx.random.key(7))), bits([draw(mx.random.key(7))]));
  const x = mx.array([1, 2, 3]);
  mx.eval(x);
  mx.exportFunction(path, (x) => mx.sliceUpdate(x, vector(9), mx.array([1], mx.int32), [0], { donate: true }), x);
  using update = mx.importFunction(path);
  assertEquals([update(x)[0].tolist(), x.tolist()], [[1, 9, 3], [1, 2, 3]]);
});

// ---- facts and refusals -------------------------------------------------------------------------------------------

Deno.test("A callback is told the steps in the names of MLX", () => {
  const events: mx.ExportEvent[] = [];
  const fn = (x: mx.Tensor, { y }: { y: mx.Tensor }) => mx.astype(mx.log(mx.abs(mx.subtract(x, y))), mx.int32);
  mx.exportFunction((event) => void events.push(event), fn, mx.array(1), { y: mx.array(1) });
  const [shape, float] = [[], mx.float32];
  // As MLX 0.32 tells of the same function.
  assertEquals(events, [
    { type: "inputs", inputs: [["A", shape, float], ["B", shape, float]] },
    { type: "keyword_inputs", keywords: [["y", "B"]] },
    { type: "outputs", outputs: [["C", shape, mx.int32]] },
    { type: "constants", constants: [] },
    {
      type: "primitive",
      name: "Subtract",
      arguments: [],
      inputs: [["A", shape, float], ["B", shape, float]],
      outputs: [["D", shape, float]],
    },
    { type: "primitive", name: "Abs", arguments: [], inputs: [["D", shape, float]], outputs: [["E", shape, float]] },
    { type: "primitive", name: "Log", arguments: [2], inputs: [["E", shape, float]], outputs: [["F", shape, float]] },
    {
      type: "primitive",
      name: "AsType",
      arguments: [mx.int32],
      inputs: [["F", shape, float]],
      outputs: [["C", shape, mx.int32]],
    },
  ]);
});

Deno.test("Exports say what they refuse, and leave an old file whole", () => {
  const path = Deno.makeTempFileSync();
  Deno.writeTextFileSync(path, "old");
  const x = mx.array(1);
  const refused = (fn: unknown, args: readonly unknown[], part: string): void => {
    assertThrows(() => mx.exportFunction(path, fn as () => mx.Tensor, ...args as mx.Tensor[]), mx.ArrayError, part);
  };
  refused((x: mx.Tensor) => x, ["hi"], 'found "hi"');
  refused((x: mx.Tensor) => x, [x, 2], "found 2");
  refused((x: mx.Tensor) => x, [[[x]]], "found a list");
  refused(() => [mx.zeros([2]), 1], [], "found 1");
  refused(() => [mx.zeros([2]), [mx.zeros([2])]], [], "found a list in a list");
  refused(() => undefined, [], "a list of arrays: found undefined");
  refused(async () => await Promise.resolve(x), [], "a promise");
  refused(3, [], "expected a function");
  refused((x: mx.Tensor) => x, [x, { metadata: { a: 1 } }], "metadata to be a text");
  refused((x: mx.Tensor) => x, [x, { shapeless: 1 }], "shapeless to be true or false");
  refused((x: mx.Tensor) => mx.add(x, x.item() as number), [x], "cannot evaluate");
  assertThrows(() => mx.exportFunction(() => {}, (x) => x, x, { metadata: "m" }), mx.ValueError, "callback");
  assertEquals(Deno.readTextFileSync(path), "old");
  assertThrows(() => mx.importFunction(path), mx.ArrayError, "too short");
  Deno.removeSync(path);
  assertThrows(() => mx.importFunction(path), mx.ArrayError, path);
});

/** A file with another header, or with other bytes after it. */
function edited(path: string, edit: (header: string) => string, more = 0): void {
  const bytes = Deno.readFileSync(path);
  const length = Number(new DataView(bytes.buffer).getBigUint64(8, true));
  const before = new TextDecoder().decode(bytes.subarray(16, 16 + length));
  const header = edit(before);
  if (more === 0) assert(header !== before, "the edit changes nothing");
  const text = new TextEncoder().encode(header);
  const out = new Uint8Array([
    ...bytes.subarray(0, 16),
    ...text,
    ...bytes.subarray(16 + length),
    ...new Uint8Array(more),
  ]);
  new DataView(out.buffer).setBigUint64(8, BigInt(text.length), true);
  Deno.writeFileSync(path, out);
}

Deno.test("Files that are not what the format says are refused", () => {
  const path = Deno.makeTempFileSync();
  const w = vector(1, 2, 3, 4);
  const fn = (x: mx.Tensor) => mx.add(mx.take(x.index(mx.Slice(1, 3)), mx.array([1], mx.int32)), mx.sum(w));
  mx.exportFunction(path, fn, vector(1, 2, 3, 4));
  const good = Deno.readFileSync(path);
  const refused = (part: string, from: string | RegExp, to: string): void => {
    Deno.writeFileSync(path, good);
    edited(path, (header) => header.replace(from, to));
    assertThrows(() => mx.importFunction(path), mx.ArrayError, part);
  };
  refused("does not fit what it reads", '"starts":[1]', '"starts":[3]');
  refused("does not fit what it reads", '"starts":[1]', '"starts":[-1]');
  refused("does not fit what it reads", '"steps":[1]', '"steps":[3]');
  refused("does not fit what it reads", '"steps":[1]', '"steps":[]');
  refused("that is no whole number", '"steps":[1]', '"steps":[1.5]');
  refused('an op "evil" that is unknown', '"op":"slice"', '"op":"evil"');
  refused('an op "__proto__" that is unknown', '"op":"slice"', '"op":"__proto__"');
  refused('an op "stored" that is unknown', '"op":"slice"', '"op":"stored"');
  refused('"fn" that slice does not know', '"attrs":{"starts"', '"attrs":{"fn":"sum","starts"');
  refused('"starts" twice', '"attrs":{"starts"', '"attrs":{"starts":[1],"starts"');
  refused('no attribute "steps"', /,"steps":\[1\]/, "");
  refused("is unknown", '"fn":"add"', '"fn":"constructor"');
  refused("does not fit", '"fn":"add"', '"fn":"select"');
  refused("reads what comes later", /"op":"slice","inputs":\[\d+\]/, '"op":"slice","inputs":[99]');
  refused("an output that is not there", /"outputs":\[\d+\]/, '"outputs":[99]');
  refused("a constant that is not there", /("keywords":\[\],"constants":)\[[^\]]*\]/, "$1[7]");
  refused("unknown dtype", '"dtype":"float32"', '"dtype":"float33"');
  refused("too large", '"shape":[4]', '"shape":[2147483648]');
  refused("too large", '"shape":[4]', '"shape":[0,4503599627370496]');
  refused("cut off", /("constants":\[\{"dtype":"\w+","shape":)\[\d+\]/, "$1[40]");
  refused('"evil"', '{"metadata"', '{"evil":1,"metadata"');
  refused("in place of", '"metadata":""', '"metadata":"","metadata":""');
  refused("the end of the text", /\]\}\s*$/, "]}x");
  Deno.writeFileSync(path, good);
  edited(path, (header) => header, 1);
  assertThrows(() => mx.importFunction(path), mx.ArrayError, "too long");
  for (
    const [at, value, part] of [[0, 0, "no file of functions"], [6, 2, "version 2"], [13, 1, "header of"]] as const
  ) {
    Deno.writeFileSync(path, good.with(at, value));
    assertThrows(() => mx.importFunction(path), mx.ArrayError, part);
  }
  for (let length = 0; length < good.length; length += 7) {
    Deno.writeFileSync(path, good.subarray(0, length));
    assertThrows(() => mx.importFunction(path), mx.ArrayError);
  }
  Deno.removeSync(path);
});

deviceTest("ops on the pages of an engine are written to no file", (path) => {
  const pool = mx.zeros([2, 1, 1, 64, 4]);
  const gather = (table: mx.Tensor): mx.Tensor => gatherPages(pool, table);
  assertThrows(
    () => mx.exportFunction(path, gather, mx.zeros([1, 1], mx.int32)),
    mx.ValueError,
    "cannot write the op gatherPages",
  );
});
