/** Array semantics: values against MLX, errors at the call, printing, lifetimes, indexing state, files. */

import { assert, assertEquals, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { NAMES, runRow } from "./array_rows.ts";
import { testDevices } from "../../support/devices/devices.ts";
import { withOptions } from "../../../scripts/support/options.ts";

mx.devices(); // opens the Vulkan library outside of any test

/** A result as MLX computed it; numbers that JSON lacks are strings. */
interface Golden {
  readonly shape: readonly number[];
  readonly dtype: string;
  readonly values: unknown;
}

const golden: Record<string, readonly Golden[]> = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/arrays/mlx_arrays.json", import.meta.url)),
);

/** Relative and absolute closeness by dtype; integers and bool are equal. */
const TOLERANCE: Record<string, number> = { float32: 2e-5, float16: 2e-3, bfloat16: 1.6e-2 };

function compare(name: string, actual: mx.Tensor, expected: Golden): void {
  assertEquals(actual.dtype.name, expected.dtype, `${name}: dtype`);
  assertEquals(actual.shape, [...expected.shape], `${name}: shape`);
  const flat = (v: unknown): unknown[] => Array.isArray(v) ? v.flatMap(flat) : [v];
  const [a, b] = [flat(actual.tolist()), flat(expected.values)];
  const bound = TOLERANCE[expected.dtype] ?? 0;
  const number = (v: unknown): number =>
    v === "nan" ? NaN : v === "inf" ? Infinity : v === "-inf" ? -Infinity : Number(v);
  a.forEach((value, i) => {
    const [x, y] = [number(value), number(b[i])];
    const close = Object.is(x, y) || x === y || Math.abs(x - y) <= bound * Math.max(1, Math.abs(y));
    assert(close, `${name}: element ${i} is ${x}, MLX has ${y}`);
  });
}

/** Runs all rows on a device; fails with the list of those that differ. */
function checkRows(device: string): void {
  mx.setDefaultDevice(device);
  const failures: string[] = [];
  for (const name of NAMES) {
    try {
      mx.tidy(() => {
        const results = runRow(name);
        assertEquals(results.length, golden[name].length, `${name}: number of results`);
        results.forEach((tensor, i) => compare(name, tensor, golden[name][i]));
      });
    } catch (error) {
      failures.push(`${name}: ${(error as Error).message.split("\n")[0]}`);
    }
  }
  assertEquals(failures, []);
}

for (const device of testDevices()) {
  Deno.test(`arrays agree with MLX on ${device}`, () => checkRows(device));
}

Deno.test("arrays agree with MLX when every op runs by itself", () => {
  using _options = withOptions({ fuse: false });
  checkRows("wasm");
});

Deno.test("every golden result has a row", () => {
  assertEquals(Object.keys(golden).filter((name) => !NAMES.includes(name)), []);
});

const ints = (...v: number[]): mx.Tensor => mx.array(v, mx.int32);

/** Attention over float16 arrays. */
function attend(options: Partial<Parameters<typeof mx.fast.scaledDotProductAttention>[3]>): mx.Tensor {
  const x = mx.ones([1, 2, 3, 4], mx.float16);
  return mx.fast.scaledDotProductAttention(x, x, x, { scale: 1, ...options });
}

type ErrorClass = typeof mx.ArrayError | typeof mx.ShapeError | typeof mx.IndexError;

/** Calls that are refused where they are made, with the class and a part of the message. */
const REFUSED: readonly (readonly [() => unknown, ErrorClass, string])[] = [
  [() => mx.reshape(mx.zeros([2, 3]), [4]), mx.ShapeError, "reshape() cannot reshape (2, 3) to (4,): sizes differ"],
  [() => mx.reshape(mx.zeros([2, 3]), [-1, -1]), mx.ShapeError, "reshape()"],
  [() => mx.add(mx.zeros([2, 3]), mx.zeros([4])), mx.ShapeError, "add() cannot broadcast shapes (2, 3) and (4,)"],
  [() => mx.matmul(mx.zeros([2, 3]), mx.zeros([2, 3])), mx.ShapeError, "matmul() cannot multiply (2, 3) by (2, 3)"],
  [() => mx.matmul(mx.arange(3), mx.arange(3)), mx.DtypeError, "matmul() takes float arrays only: found int32"],
  [() => mx.concatenate([mx.zeros([2, 3]), mx.zeros([2])]), mx.ShapeError, "concatenate() cannot join (2, 3) and (2,)"],
  [() => mx.concatenate([]), mx.ValueError, "concatenate()"],
  [() => mx.stack([mx.zeros([2]), mx.zeros([3])]), mx.ShapeError, "stack() expected equal shapes"],
  [() => mx.sum(mx.zeros([2, 3]), 2), mx.IndexError, "sum() axis 2 is out of range for an array of shape (2, 3)"],
  [() => mx.sum(mx.zeros([2, 3]), [0, -2]), mx.ValueError, "sum() expected distinct axes"],
  [() => mx.sum(mx.zeros([2]), 0.5), mx.ValueError, "sum() expected a whole number for an axis: found 0.5"],
  [() => mx.sum(mx.zeros([2]), "0" as unknown as number), mx.ValueError, "sum() expected a whole number for an axis"],
  [() => mx.max(mx.zeros([0])), mx.ValueError, "max() cannot reduce axis 0 of (0,): it is empty"],
  [() => mx.argmax(mx.zeros([0, 3]), 0), mx.ValueError, "argmax()"],
  [
    () => mx.pad(mx.zeros([0]), 1, "reflect"),
    mx.ShapeError,
    'pad() mode "reflect" cannot fill an empty axis: found (0,)',
  ],
  [() => mx.pad([1], 1, "wrap" as "edge"), mx.ValueError, 'pad() expected mode to be one of "constant", "edge"'],
  [() => mx.matrixTranspose([1, 2]), mx.ValueError, "matrixTranspose() expected at least 2 axes: found shape (2,)"],
  [() => mx.hanning(2.5), mx.ValueError, "hanning() expected m to be a whole number"],
  [() => mx.asarray(mx.array([1]), null, { copy: false }), mx.ValueError, "asarray() cannot do without a copy"],
  [() => mx.pad([1, 2], 1, "constant", [1, 2]), mx.ShapeError, "pad() cannot broadcast a value of shape (2,) to (4,)"],
  [() => mx.fullLike(mx.zeros([64]), [1, 2]), mx.ShapeError, "fullLike() cannot broadcast (2,) to (64,)"],
  [() => mx.takeAlongAxis(mx.zeros([0]), [5]), mx.IndexError, "takeAlongAxis() has indices into an empty axis"],
  [
    () => mx.putAlongAxis(mx.zeros([3, 3]), [5], 1, 0),
    mx.ShapeError,
    "putAlongAxis() expected indices with as many axes",
  ],
  [
    () => mx.putAlongAxis(mx.zeros([3, 3]), [[5]], 1),
    mx.ShapeError,
    "putAlongAxis() expected indices with as many axes",
  ],
  [
    () => mx.takeAlongAxis(mx.zeros([3, 3]), [[5]], null),
    mx.ShapeError,
    "takeAlongAxis() expected indices with as many",
  ],
  [() => mx.putAlongAxis(mx.zeros([3]), [0, 1], [1, 2, 3]), mx.ShapeError, "putAlongAxis() cannot broadcast an array"],
  [() => mx.diagonal(mx.zeros([2, 2]), 0.5), mx.ValueError, "diagonal() expected offset to be a whole number"],
  [() => mx.diag(mx.zeros([2]), NaN), mx.ValueError, "diag() expected k to be a whole number"],
  [() => mx.asStrided(mx.zeros([2]), [2], [NaN]), mx.ValueError, "asStrided() expected strides and offset"],
  [() => mx.tensordot(mx.zeros([2]), mx.zeros([2]), 1e9), mx.ValueError, "tensordot() expected axes from 0 to 1"],
  [
    () => mx.tensordot(mx.zeros([2]), mx.zeros([2]), 0.5),
    mx.ValueError,
    "tensordot() expected axes to be a whole number",
  ],
  [() => mx.softmax(mx.zeros([2]), 1), mx.IndexError, "softmax()"],
  [() => mx.negative(mx.array([true])), mx.DtypeError, "negative() does not take bool"],
  [() => mx.bitwiseAnd(mx.array([1.5]), 1), mx.DtypeError, "bitwiseAnd() takes integers and bool only: found float32"],
  [() => mx.zeros([2]).index(5), mx.IndexError, "index() index 5 is out of range for axis 0 of size 2"],
  [() => mx.zeros([2]).index(0, 0), mx.IndexError, "index() got 2 indices for an array of shape (2,)"],
  [() => mx.zeros([2]).index([true, false]), mx.IndexError, "index() cannot read with a boolean mask"],
  [() => mx.zeros([2]).index(mx.array([1.5])), mx.DtypeError, "index() expected integer indices: found float32"],
  [() => mx.zeros([2]).indexPut_(0, [1, 2]), mx.ShapeError, "indexPut_() cannot broadcast a value of shape (2,) to ()"],
  [() => mx.Slice(0, 1, 0), mx.IndexError, "Slice() expected a step that is not 0"],
  [() => mx.take(mx.zeros([0]), [0]), mx.IndexError, "take() cannot take from an empty axis"],
  [
    () => mx.transpose(mx.zeros([2, 3]), [0, 0]),
    mx.ValueError,
    "transpose() expected each axis of (2, 3) once: found (0, 0)",
  ],
  [() => mx.squeeze(mx.zeros([2, 1]), 0), mx.ShapeError, "squeeze() cannot drop axis 0 of (2, 1): its size is not 1"],
  [() => mx.split(mx.zeros([5]), 2), mx.ShapeError, "split() cannot cut axis 0 of (5,) into 2 equal pieces"],
  [() => mx.broadcastTo(mx.zeros([3]), [2]), mx.ShapeError, "broadcastTo() cannot broadcast (3,) to (2,)"],
  [() => mx.asStrided(mx.zeros([4]), [3], [2]), mx.ShapeError, "asStrided() cannot view (4,) as (3,)"],
  [() => mx.asStrided(mx.zeros([4]), [3], [-1], 1), mx.ShapeError, "asStrided() cannot view (4,) as (3,)"],
  [
    () => mx.array([[1, 2], [3]]),
    mx.ShapeError,
    "array() expected lists of one length at each depth: found 1 beside 2",
  ],
  [() => mx.array([1, [2]]), mx.ShapeError, "array() cannot mix scalars and lists"],
  [
    () => mx.array([mx.array([1]), 2]),
    mx.ShapeError,
    "array() expected entries of one shape in a list: found (1,) beside ()",
  ],
  [
    () => mx.array(["a"] as unknown as number[]),
    mx.DtypeError,
    "array() expected numbers, booleans, bigints or complex numbers in a list",
  ],
  [
    () => mx.array(new DataView(new ArrayBuffer(8)) as unknown as Uint8Array),
    mx.DtypeError,
    "array() does not take DataView: use a typed array",
  ],
  [() => mx.zeros([-1]), mx.ShapeError, "zeros() expected sizes"],
  [
    () => mx.greater(mx.array([1], mx.int16), 100000),
    mx.ValueError,
    "greater() cannot make 100000 int16: it holds -32768",
  ],
  [() => mx.clip(mx.array([1], mx.uint8), -1, 5), mx.ValueError, "clip() cannot make -1 uint8: it holds 0 to 255"],
  [() => mx.full([2], 2 ** 31, mx.int32), mx.ValueError, "full() cannot make 2147483648 int32"],
  [
    () => mx.add(mx.ones([1 << 16, 1]), mx.ones([1, 1 << 16])),
    mx.ShapeError,
    "cannot make an array of shape (65536, 65536)",
  ],
  [() => mx.repeat(mx.ones([1000]), 1e9), mx.ShapeError, "it has more than 2^31 - 1 elements: 1000000000000"],
  [
    () => mx.ones([2]).astype("int32" as unknown as mx.Dtype),
    mx.DtypeError,
    'expected a dtype such as mx.float32: found "int32", which is a string: use mx.int32',
  ],
  [
    () => mx.array([2], "int32" as unknown as mx.Dtype),
    mx.DtypeError,
    'expected a dtype such as mx.float32: found "int32", which is a string: use mx.int32',
  ],
  [() => mx.zeros([2], "f32" as unknown as mx.Dtype), mx.DtypeError, 'such as mx.float32: found "f32"'],
  [
    () => mx.random.uniform(0, 1, [2], "float16" as unknown as mx.Dtype),
    mx.DtypeError,
    'found "float16", which is a string',
  ],
  [() => mx.random.randint(0, 2, [2], "int8" as unknown as mx.Dtype), mx.DtypeError, 'found "int8", which is a string'],
  [
    () => mx.concatenate(mx.ones([2]) as unknown as mx.Tensor[]),
    mx.ValueError,
    "concatenate() expected a list of arrays, such as concatenate([a, b]): found Tensor",
  ],
  [() => mx.stack(1 as unknown as mx.Tensor[]), mx.ValueError, "stack() expected a list of arrays"],
  [() => mx.addmm(mx.zeros([5, 2, 3]), mx.ones([2, 4]), mx.ones([4, 3])), mx.ShapeError, "addmm() cannot broadcast c"],
  [() => mx.addmm(mx.zeros([2, 1]), mx.ones([2, 4]), mx.ones([4])), mx.ShapeError, "addmm() cannot broadcast c"],
  [() => mx.addmm(mx.zeros([1]), mx.ones([4]), mx.ones([4])), mx.ShapeError, "product's shape ()"],
  [() => mx.addmm(ints(1), ints(1), ints(1)), mx.DtypeError, "addmm() takes float arrays only: found int32"],
  [
    () => mx.addmm(1, mx.ones([1]), mx.ones([1]), "2" as unknown as number),
    mx.ValueError,
    'addmm() expected alpha to be a number: found "2"',
  ],
  [() => mx.kron(mx.zeros([0]), mx.ones([2])), mx.ShapeError, "kron() takes no arrays without elements"],
  [() => mx.broadcastShapes(), mx.ValueError, "broadcastShapes() expected at least one shape"],
  [() => mx.vecdot(mx.ones([2]), mx.ones([1])), mx.ShapeError, "vecdot() expected one size along axis -1"],
  [() => mx.vecdot(1, 2), mx.ShapeError, "vecdot() takes no 0-dimensional arrays"],
  [() => mx.vecdot(mx.ones([3, 2]), mx.ones([2])), mx.ShapeError, "vecdot() axis -1 is not the same axis"],
  [() => mx.vecdot(mx.ones([3, 2]), mx.ones([2]), 1), mx.IndexError, "vecdot() axis 1 is out of range"],
  [() => mx.Slice(null, 2 ** 32), mx.IndexError, "Slice() expected whole numbers of 32 bits or null: found 4294967296"],
  [() => mx.Slice(-(2 ** 31) - 1), mx.IndexError, "Slice() expected whole numbers of 32 bits"],
  [() => mx.Slice(null, null, 2 ** 31), mx.IndexError, "Slice() expected whole numbers of 32 bits"],
  [() => mx.Slice("1" as unknown as number), mx.IndexError, 'or null: found "1"'],
  [() => mx.arange(0, Infinity), mx.ValueError, "arange() expected finite numbers: found 0, Infinity, 1"],
  [() => mx.arange(0, 5, NaN), mx.ValueError, "arange() expected finite numbers"],
  [() => [...mx.array(2)], mx.ShapeError, "a 0-dimensional array cannot be iterated"],
  [() => mx.arange(0, 5, 0), mx.ValueError, "arange() expected a step that is not 0"],
  [() => mx.einsum("ij,jk->ik", mx.ones([2, 3]), mx.ones([4, 5])), mx.ShapeError, 'einsum() letter "j"'],
  [() => mx.einsum("ij->ii", mx.ones([2, 3])), mx.ValueError, "einsum() cannot use"],
  [() => mx.einsum("...i...->i", mx.ones([2, 3])), mx.ValueError, "einsum() cannot use"],
  [() => mx.einsum("...ij->", mx.ones([3])), mx.ShapeError, 'einsum() "...ij" does not fit an array of shape (3,)'],
  [
    () => mx.quantize(mx.ones([3, 33])),
    mx.ShapeError,
    "quantize() expected the last axis to be divisible by groupSize 64",
  ],
  [
    () => mx.quantize(mx.ones([3, 64]), 64, 7),
    mx.ValueError,
    "quantize() expected bits to be one of 1, 2, 3, 4, 5, 6, 8: found 7",
  ],
  [
    () => mx.quantize(mx.ones([3, 64]), null, 3, "mxfp4"),
    mx.ValueError,
    "quantize() expected bits to be one of 4 in mode mxfp4: found 3",
  ],
  [
    () => mx.quantize(mx.ones([3, 64]), 32, null, "nvfp4"),
    mx.ValueError,
    "quantize() expected groupSize to be one of 16 in mode nvfp4: found 32",
  ],
  [
    () => mx.quantize(mx.ones([3, 64]), null, null, "fp4" as "nvfp4"),
    mx.ValueError,
    'quantize() expected mode to be one of affine, mxfp4, mxfp8, nvfp4: found "fp4"',
  ],
  [
    () => mx.quantize(mx.ones([3, 64]), null, null, "mxfp4", { globalScale: 1 }),
    mx.ValueError,
    "quantize() takes globalScale in mode nvfp4 only: found mode mxfp4",
  ],
  [
    () => mx.quantize(mx.ones([3, 64]), null, null, "nvfp4", { globalScale: mx.ones([2]) }),
    mx.ShapeError,
    "quantize() expected globalScale to be one number: found shape (2,)",
  ],
  [
    () => mx.quantize(mx.ones([3, 64]), null, null, "nvfp4", { globalScale: mx.array(1, mx.int32) }),
    mx.DtypeError,
    "quantize() expected globalScale to be float32: found int32",
  ],
  [
    () => mx.dequantize(...mx.quantize(mx.ones([3, 64])), 64, 4, "mxfp4"),
    mx.ValueError,
    "dequantize() expected groupSize to be one of 32 in mode mxfp4: found 64",
  ],
  [
    () => mx.dequantize(...mx.quantize(mx.ones([3, 64])), null, null, "mxfp4"),
    mx.ValueError,
    "dequantize() takes no biases in mode mxfp4",
  ],
  [
    () =>
      mx.dequantize(...mx.quantize(mx.ones([3, 64]), null, null, "mxfp8"), null, null, null, "mxfp8", null, mx.int32),
    mx.DtypeError,
    "dequantize() takes float arrays only: found dtype of int32",
  ],
  [
    () => mx.dequantize(mx.zeros([3, 8], mx.uint32), mx.ones([3, 2]), null, null, null, "mxfp4"),
    mx.DtypeError,
    "dequantize() in mode mxfp4 expected scales to be uint8: found float32",
  ],
  [
    () => mx.quantizedMatmul(mx.ones([1, 64]), ...mx.quantize(mx.ones([3, 64]), null, null, "mxfp4")),
    mx.ValueError,
    "quantizedMatmul() expected biases, which affine codes have",
  ],
  [
    () => mx.gatherQmm(mx.ones([64]), ...mx.quantize(mx.ones([2, 3, 64])), [0]),
    mx.ShapeError,
    "gatherQmm() expected x of at least 2 axes: found shape (64,)",
  ],
  [
    () => mx.gatherQmm(mx.ones([2, 1, 64]), ...mx.quantize(mx.ones([2, 3, 64])), mx.array([0.5])),
    mx.DtypeError,
    "gatherQmm() expected integer indices",
  ],
  [
    () => mx.gatherQmm(mx.ones([2, 1, 64]), ...mx.quantize(mx.ones([3, 3, 64])), null, [0, 1, 2]),
    mx.ShapeError,
    "gatherQmm() cannot broadcast indices of shapes (2,) and (3,)",
  ],
  [
    () => mx.gatherQmm(mx.ones([2, 1, 32]), ...mx.quantize(mx.ones([2, 3, 64])), [0]),
    mx.ShapeError,
    "gatherQmm() cannot multiply (2, 1, 32) by the transpose of a matrix of shape (2, 3, 64)",
  ],
  [
    () => mx.qqmm(mx.ones([1, 64]), mx.quantize(mx.ones([3, 64]), null, null, "nvfp4")[0]),
    mx.ValueError,
    "qqmm() expected scales, since w holds codes",
  ],
  [
    () => mx.qqmm(mx.ones([1, 64]), mx.ones([2, 3, 64])),
    mx.ShapeError,
    "qqmm() expected matrices x and w: found shapes",
  ],
  [
    () => mx.qqmm(mx.ones([1, 64]), mx.ones([3, 64]), null, null, null, "affine" as "nvfp4"),
    mx.ValueError,
    "qqmm() multiplies small floats: mode affine has none",
  ],
  [
    () => mx.qqmm(mx.ones([1, 64]), mx.ones([3, 64]), null, null, null, "nvfp4", 1),
    mx.ValueError,
    "qqmm() takes both of globalScaleX and globalScaleW, or neither",
  ],
  [() => mx.quantize(mx.ones([64])), mx.ShapeError, "quantize() expected at least 2 axes"],
  [() => mx.quantize(mx.arange(64).reshape(1, 64)), mx.DtypeError, "quantize() takes float arrays only"],
  [
    () => mx.fast.rmsNorm(mx.ones([2, 4]), mx.ones([3]), 1e-5),
    mx.ShapeError,
    "rmsNorm() expected weight to be a vector",
  ],
  [() => mx.fast.rope(mx.ones([1, 2, 4]), 3), mx.ValueError, "rope() expected dims to be even"],
  [
    () => mx.fast.rope(mx.ones([1, 2, 4]), 4, { offset: 0.5 }),
    mx.ValueError,
    "rope() expected offset to be a whole number",
  ],
  [() => mx.fast.rope(mx.ones([1, 2, 4]), 4, { offset: [[1]] }), mx.ShapeError, "rope() expected one offset"],
  [
    () => mx.fast.rmsNorm(mx.ones([4]), null, undefined as unknown as number),
    mx.ValueError,
    "rmsNorm() expected eps to be a number",
  ],
  [() => attend({ sinks: mx.zeros([2]) }), mx.DtypeError, "expected sinks of a dtype that meets float16 in float16"],
  [() => attend({ mask: mx.zeros([3, 3]) }), mx.DtypeError, "expected a mask of a dtype that meets float16 in float16"],
  [() => attend({ mask: "casual" as "causal" }), mx.ValueError, 'one mask with a name, "causal": found "casual"'],
  [() => attend({ softcap: 0 }), mx.ValueError, "scaledDotProductAttention() expected softcap above 0: found 0"],
  [() => attend({ softcap: NaN }), mx.ValueError, "scaledDotProductAttention() expected softcap above 0: found NaN"],
  [() => attend({ softcap: "50" as unknown as number }), mx.ValueError, "expected softcap to be a number"],
  [() => attend({ scale: undefined }), mx.ValueError, "scaledDotProductAttention() expected scale to be a number"],
  [() => mx.random.categorical(mx.ones([2, 3]), 2), mx.IndexError, "categorical()"],
  [() => mx.ones([2]).item(), mx.ShapeError, "item() expected an array of one element: found shape (2,)"],
];

/** Calls with an option that is not there, the name that is meant and all there are. */
const MISSPELT: readonly (readonly [(options: object) => unknown, string, string, string])[] = [
  [(o) => mx.cumsum([1], 0, o), "revers", "reverse", "reverse, inclusive, dtype"],
  [(o) => mx.ones([2]).cummax(0, o), "Inclusive", "inclusive", "reverse, inclusive"],
  [(o) => mx.isclose(1, 1, 1e-5, 1e-8, o), "equal_nan", "equalNan", "equalNan"],
  [(o) => mx.allclose(1, 1, 1e-5, 1e-8, o), "equalNaN", "equalNan", "equalNan"],
  [(o) => mx.meshgrid([[1]], o), "idnexing", "indexing", "sparse, indexing"],
  [(o) => mx.sliceUpdate([1], [2], [0], [0], o), "donates", "donate", "donate"],
  [(o) => mx.dequantize(1, 1, 1, 64, 4, o), "dtyp", "dtype", "mode, globalScale, dtype"],
  [(o) => mx.random.categorical([1], -1, o), "num_samples", "numSamples", "shape, numSamples, key"],
  [(o) => mx.fast.rope(mx.ones([1, 1, 2]), 2, o), "ofset", "offset", "traditional, base, scale, offset, freqs"],
  [(o) => attend(o), "masks", "mask", "scale, mask, window, sinks, softcap, lengths"],
  [(o) => mx.fast.sample(mx.ones([2]), o), "top_p", "topP", "temperature, topP, minP, topK, key, mask"],
];

Deno.test("an option that is not there is an error that names the one that is meant", () => {
  for (const [call, name, meant, all] of MISSPELT) {
    const message = `() has no option "${name}", did you mean "${meant}"? Its options are: ${all}`;
    assertThrows(() => mx.tidy(() => call({ [name]: 1 })), mx.ValueError, message);
  }
  const [[cumsum], [cummax]] = MISSPELT;
  assertThrows(
    () => cumsum({ "\u001b[31mwhatever": 1 }),
    mx.ValueError,
    'no option "\\u001b[31mwhatever". Its options',
  );
  for (const [options, found] of [[null, "null"], [true, "true"], ["ij", `"ij"`], [mx.ones([1]), "Tensor"]]) {
    assertThrows(
      () => cummax(options as object),
      mx.ValueError,
      `expected an object with options (reverse, inclusive): found ${found}`,
    );
  }
  assertEquals(mx.cumsum([1, 2], 0, Object.assign(Object.create(null), { reverse: true })).tolist(), [3, 2]);
});

Deno.test("calls with arguments that do not fit throw where they are made", () => {
  for (const [call, type, message] of REFUSED) assertThrows(() => mx.tidy(call), type, message);
});

/** Printed forms of arrays; the texts are MLX's. */
const PRINTED: readonly (readonly [() => mx.Tensor, string])[] = [
  [() => mx.array([[1, 2], [3, 4]]), "array([[1, 2],\n       [3, 4]], dtype=float32)"],
  [() => mx.arange(20), "array([0, 1, 2, ..., 17, 18, 19], dtype=int32)"],
  [() => mx.array(1.5), "array(1.5, dtype=float32)"],
  [() => mx.zeros([0, 3]), "array([], dtype=float32)"],
  [() => mx.zeros([2, 0]), "array([[],\n       []], dtype=float32)"],
  [() => mx.array([true, false]), "array([True, False], dtype=bool)"],
  [
    () => mx.array([1e-7, 123456789, 0.1, 1e6, 999999, 100000]),
    "array([1e-07, 1.23457e+08, 0.1, 1e+06, 999999, 100000], dtype=float32)",
  ],
  [() => mx.array([-0, NaN, -Infinity, 1e-4, 1e-5]), "array([-0, nan, -inf, 0.0001, 1e-05], dtype=float32)"],
  [() => mx.array([0.1, 1 / 3], mx.bfloat16), "array([0.100098, 0.333984], dtype=bfloat16)"],
  [
    () => mx.arange(64).reshape(8, 8),
    "array([[0, 1, 2, ..., 5, 6, 7],\n       [8, 9, 10, ..., 13, 14, 15],\n       [16, 17, 18, ..., 21, 22, 23],\n" +
    "       ...,\n       [40, 41, 42, ..., 45, 46, 47],\n       [48, 49, 50, ..., 53, 54, 55],\n" +
    "       [56, 57, 58, ..., 61, 62, 63]], dtype=int32)",
  ],
];

Deno.test("toString() prints as MLX does", () => {
  mx.setDefaultDevice("wasm");
  for (const [make, text] of PRINTED) assertEquals(mx.tidy(() => make().toString()), text);
  using x = mx.array([1, 2]);
  assertEquals(Deno.inspect(x), "array([1, 2], dtype=float32)");
});

Deno.test("halves print as C prints them: to the even digit", () => {
  mx.setDefaultDevice("wasm");
  using x = mx.array([123456.5, 100001.5, 1000005, 2000015, 0.125]);
  assertEquals(x.toString(), "array([123456, 100002, 1e+06, 2.00002e+06, 0.125], dtype=float32)");
});

Deno.test("setPrintoptions() and printoptions() set decimal places as in MLX", () => {
  mx.setDefaultDevice("wasm");
  using x = mx.array([0.125, 0.375, 1e30, NaN, -0]);
  using halves = mx.array([0.5, 1.5, 2.5, -0.5, -5.5]);
  assertEquals(mx.getPrintoptions(), { precision: -1 });
  try {
    mx.setPrintoptions({ precision: 2 });
    assertEquals(x.toString(), "array([0.12, 0.38, 1000000015047466219876688855040.00, nan, -0.00], dtype=float32)");
    {
      using _ = mx.printoptions({ precision: 0 });
      assertEquals(halves.toString(), "array([0, 2, 2, -0, -6], dtype=float32)");
      assertEquals(mx.array([1, 2], mx.int32).toString(), "array([1, 2], dtype=int32)");
    }
    assertEquals(mx.getPrintoptions(), { precision: 2 });
  } finally {
    mx.setPrintoptions();
  }
  assertEquals(halves.toString(), "array([0.5, 1.5, 2.5, -0.5, -5.5], dtype=float32)");
  assertThrows(() => mx.setPrintoptions({ precision: 0.5 }), mx.ValueError, "expected precision to be whole");
  assertThrows(() => mx.printoptions({ digits: 3 } as object), mx.ValueError, 'has no option "digits"');
});

Deno.test("methods that are functions by another name", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    const x = mx.array([[1, 2], [3, 5]]);
    assertEquals(x.diag().tolist(), [1, 5]);
    assertEquals(x.diag(1).tolist(), [2]);
    assertEquals(x.var(0, true, 1).tolist(), [[2, 4.5]]);
    assertEquals(x.logcumsumexp(1).tolist(), mx.logcumsumexp(x, 1).tolist());
    assertEquals(mx.eulerGamma, 0.5772156649015329);
  });
});

Deno.test("an array is text and JSON, and no operand", () => {
  mx.setDefaultDevice("wasm");
  using x = mx.array([[1, 2], [3, 4]]);
  assertEquals(JSON.stringify({ x }), '{"x":[[1,2],[3,4]]}');
  assertEquals(`${mx.array(3)}`, "array(3, dtype=float32)");
  const untyped = x as unknown as number;
  for (const use of [() => untyped + 1, () => untyped * 2, () => untyped < 1, () => Number(untyped)]) {
    assertThrows(use, mx.ValueError, "operators do not work on arrays: use mx.add(a, b)");
  }
});

for (const device of testDevices()) {
  Deno.test(`means of 16-bit floats are summed in float32 on ${device}`, () => {
    mx.withDevice(device, () => {
      // The sum is beyond float16, whose largest number is 65504.
      assertEquals(mx.mean(mx.full([8], 60000, mx.float16)).item(), 60000); // a number of float16
      // bfloat16 has 8 bits: it has no number between 256 and 258.
      assertEquals(mx.mean(mx.ones([257], mx.bfloat16)).item(), 1);
    });
  });
}

Deno.test("toTypedArray() keeps the dtype and widens bfloat16", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    assertEquals(mx.array([1.5, 2]).toTypedArray(), Float32Array.of(1.5, 2));
    assertEquals(mx.array([1.5, 2], mx.float16).toTypedArray(), Float16Array.of(1.5, 2));
    assertEquals(mx.array([1.5, 2], mx.bfloat16).toTypedArray(), Float32Array.of(1.5, 2));
    assertEquals(mx.array(Int16Array.of(-1, 2)).toTypedArray(), Int16Array.of(-1, 2));
    assertEquals(mx.array([true, false]).toTypedArray(), Uint8Array.of(1, 0));
  });
});

Deno.test("tidy() keeps what its result reaches and disposes the rest", () => {
  let inner: mx.Tensor | undefined;
  const kept = mx.tidy(() => {
    inner = mx.ones([2]);
    return { list: [mx.add(inner, 1)], name: "x" };
  });
  assert(inner!.isDisposed);
  assert(!kept.list[0].isDisposed);
  mx.dispose(kept);
  assert(kept.list[0].isDisposed);
  mx.dispose(kept);
});

Deno.test("an array is iterated along its first axis", () => {
  const rows = [...mx.array([[1, 2], [3, 4], [5, 6]])].map((row) => row.tolist());
  assertEquals(rows, [[1, 2], [3, 4], [5, 6]]);
  assertEquals([...mx.zeros([0, 3])], []);
});

Deno.test("tidy() passes results on to the scope around it", () => {
  const made: mx.Tensor[] = [];
  mx.tidy(() => {
    made.push(mx.tidy(() => mx.ones([1])));
    assert(!made[0].isDisposed);
  });
  assert(made[0].isDisposed);
});

Deno.test("tidy() follows its async function and leaves other tasks alone", async () => {
  const made: mx.Tensor[] = [];
  const task = mx.tidy(async () => {
    await new Promise((resolve) => setTimeout(resolve, 1));
    made.push(mx.ones([1]));
    await Promise.resolve();
    return mx.ones([2]);
  });
  using beside = mx.ones([3]);
  using result = await task;
  assert(made[0].isDisposed);
  assert(!result.isDisposed);
  assert(!beside.isDisposed);
});

Deno.test("tidy() disposes when its function throws", () => {
  let inner: mx.Tensor | undefined;
  assertThrows(
    () =>
      mx.tidy(() => {
        inner = mx.ones([2]);
        throw new Error("no");
      }),
    Error,
    "no",
  );
  assert(inner!.isDisposed);
  assertThrows(() => inner!.shape, mx.ArrayError, "disposed");
});

Deno.test("arrays let their memory go when disposed, composites at once", () => {
  mx.setDefaultDevice("wasm");
  using one = mx.ones([1]);
  // Memory comes back once the work that used it is done: waits for more work.
  const active = (): number => {
    mx.tidy(() => mx.add(one, 1).item());
    return mx.getActiveMemory();
  };
  const before = active();
  const x = mx.random.normal([1000]);
  const y = mx.nn.silu(x); // sigmoid(x) inside is let go with it
  mx.eval(x, { y: [y] });
  assert(active() >= before + 8000);
  x.dispose();
  y.dispose();
  assertEquals(active(), before);
});

Deno.test("indexPut_() leaves arrays made before it alone", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    const x = mx.arange(4);
    mx.eval(x);
    const view = x.index(mx.Slice(1, 3));
    const later = x.add(0);
    x.indexPut_(1, 9).indexPut_(2, 8);
    assertEquals(x.tolist(), [0, 9, 8, 3]);
    assertEquals(view.tolist(), [1, 2]);
    assertEquals(later.tolist(), [0, 1, 2, 3]);
  });
});

Deno.test("indexPut_() reads its value and indices before it writes, even if they are the array itself", () => {
  for (const device of testDevices()) {
    mx.setDefaultDevice(device);
    mx.tidy(() => {
      const rotated = mx.array([1, 2, 3, 0], mx.int32);
      mx.eval(rotated);
      assertEquals(rotated.indexPut_([[1, 2, 3, 0]], rotated).tolist(), [0, 1, 2, 3]);
      const inverse = mx.array([1, 2, 3, 0], mx.int32);
      mx.eval(inverse);
      assertEquals(inverse.indexPut_([inverse], mx.arange(4)).tolist(), [3, 0, 1, 2]);
    });
  }
});

Deno.test("functions that return a changed array leave theirs alone", () => {
  mx.setDefaultDevice("wasm");
  const changes: readonly ((x: mx.Tensor) => mx.Tensor)[] = [
    (x) => mx.putAlongAxis(x, [2], 9, 0),
    (x) => mx.sliceUpdate(x, [9], [1], [0]),
    (x) => x.at([0]).add(9),
    (x) => x.at(mx.Slice(1)).multiply(9),
    (x) => mx.pad(x, 1),
  ];
  for (const change of changes) {
    mx.tidy(() => {
      const x = mx.array([1, 2, 3]);
      mx.eval(x);
      mx.eval(change(x));
      assertEquals(x.tolist(), [1, 2, 3]);
    });
  }
});

Deno.test("an op of nothing but scalars finds all of them", () => {
  for (const device of testDevices()) {
    mx.withDevice(device, () => assertEquals(mx.where(true, mx.full([3], 2), mx.full([3], 3)).tolist(), [2, 2, 2]));
  }
});

Deno.test("full() keeps infinities and the sign of zero", () => {
  for (const device of testDevices()) {
    for (const value of [-0, Infinity, -Infinity, NaN]) {
      for (const dtype of [mx.float32, mx.float16, mx.bfloat16]) {
        const filled = mx.withDevice(device, () => mx.full([3], value, dtype).toTypedArray());
        assert(
          Array.from(filled).every((v) => Object.is(v, value)),
          `${value} in ${dtype.name} on ${device}: ${filled}`,
        );
      }
    }
  }
});

Deno.test("slices and updates of every alignment move what they should", () => {
  const [rows, wide] = [3, 64];
  const numbers = Array.from({ length: rows * wide }, (_, i) => i % 251);
  for (const device of testDevices()) {
    mx.withDevice(device, () =>
      mx.tidy(() => {
        for (const dtype of [mx.float32, mx.float16, mx.uint8]) {
          const x = mx.array(numbers, dtype).reshape([rows, wide]);
          mx.eval(x);
          for (const at of [0, 1, 4, 8, 16]) {
            for (const size of [16, 20, 32]) {
              const what = `${size} of ${dtype.name} at ${at} on ${device}`;
              const expected = [0, 1, 2].map((r) => numbers.slice(r * wide + at, r * wide + at + size));
              const start = mx.array([at], mx.int32);
              assertEquals(x.index("...", mx.Slice(at, at + size)).tolist(), expected, what);
              const part = mx.slice(x, start, [1], [rows, size]);
              assertEquals(part.tolist(), expected, `slice() of ${what}`);
              const updated = mx.sliceUpdate(mx.zeros([rows, wide], dtype), part, start, [1]).tolist();
              const row = (r: number): number[] =>
                Array.from({ length: wide }, (_, i) => i >= at && i < at + size ? numbers[r * wide + i] : 0);
              assertEquals(updated, [row(0), row(1), row(2)], `sliceUpdate() of ${what}`);
            }
          }
        }
      }));
  }
});

for (const device of testDevices()) {
  Deno.test(`slice() and sliceUpdate() start anywhere on all axes on ${device}`, () => {
    mx.withDevice(device, () => {
      const [shape, size, axes, start] = [[3, 4, 2, 5, 3], [2, 2, 1, 3, 2], [3, 0, -1, 1, 2], [1, 1, -4, 9, 1]];
      // The start of each axis, brought to where the part lies inside.
      const from = [1, 2, 1, 1, 0];
      const inside = (place: number[]): boolean => place.every((p, i) => p >= from[i] && p < from[i] + size[i]);
      const count = shape.reduce((n, d) => n * d, 1);
      const places = Array.from({ length: count }, (_, i) => {
        const place: number[] = [];
        for (const d of [...shape].reverse()) {
          place.unshift(i % d);
          i = Math.floor(i / d);
        }
        return place;
      });
      const x = mx.arange(count).reshape(shape);
      const at = mx.array(start, mx.int32);
      const expected = places.flatMap((place, i) => inside(place) ? [i] : []);
      assertEquals(mx.slice(x, at, axes, size).reshape(-1).tolist(), expected);
      let next = 0;
      const written = places.map((place, i) => inside(place) ? --next : i);
      const update = mx.arange(-1, -1 - expected.length, -1).reshape(size);
      assertEquals(mx.sliceUpdate(x, update, at, axes).reshape(-1).tolist(), written);
      assertEquals(mx.sliceUpdate(mx.add(x, 0), update, at, axes, { donate: true }).reshape(-1).tolist(), written);
    });
  });
}

Deno.test("slice() and sliceUpdate() clamp a start that lies outside", () => {
  mx.setDefaultDevice("wasm");
  mx.tidy(() => {
    const x = mx.arange(5);
    assertEquals(mx.slice(x, mx.array([9], mx.int32), [0], [2]).tolist(), [3, 4]);
    assertEquals(mx.slice(x, mx.array([-9], mx.int32), [0], [2]).tolist(), [0, 1]);
    assertEquals(mx.sliceUpdate(x, mx.array([7, 8], mx.int32), [4], [0]).tolist(), [0, 1, 2, 7, 8]);
  });
});

Deno.test("scaledDotProductAttention() gives 0 where everything is masked", () => {
  mx.setDefaultDevice("wasm");
  for (const fuse of [true, false]) {
    using _options = withOptions({ fuse });
    mx.tidy(() => {
      const q = mx.ones([1, 2, 2, 8]);
      const mask = mx.array([[true, false], [false, false]]);
      for (const m of [mask, mx.where(mask, 0, -Infinity), mx.where(mask, 0, -3.4028234663852886e38)]) {
        const y = mx.fast.scaledDotProductAttention(q, q, q, { scale: 1, mask: m });
        assertEquals(y.sum(-1).tolist(), [[[8, 0], [8, 0]]]);
      }
    });
  }
});

Deno.test("asyncEval() resolves with values in place", async () => {
  mx.setDefaultDevice("wasm");
  using x = mx.tidy(() => mx.add(mx.ones([3]), 1));
  await mx.asyncEval(x);
  assertEquals(x.tolist(), [2, 2, 2]);
});

Deno.test("to() copies an array to another device", () => {
  for (const device of testDevices()) {
    mx.setDefaultDevice("wasm");
    mx.tidy(() => {
      const there = mx.arange(6).reshape(2, 3).T.to(device);
      assertEquals(there.add(1).tolist(), [[1, 4], [2, 5], [3, 6]]);
      const here = mx.arange(3).to("wasm");
      if (device !== "wasm") assertThrows(() => mx.eval(there.add(here.reshape(3, 1))), mx.ValueError, "x.to(device)");
    });
  }
});

Deno.test("fast.sample() draws what its composite draws", () => {
  mx.setDefaultDevice("wasm");
  const settings: readonly mx.fast.SampleOptions[] = [
    { temperature: 0 },
    { temperature: 0.7 },
    { topP: 0.8 },
    { topK: 5 },
    { minP: 0.1 },
    { temperature: 0.6, topP: 0.9, topK: 20, minP: 0.01 },
  ];
  mx.tidy(() => {
    const logits = mx.multiply(mx.random.normal([64, 500], mx.float32, null, null, mx.random.key(3)), 3);
    for (const options of settings) {
      const draw = (): unknown => mx.fast.sample(logits, { ...options, key: mx.random.key(1) }).tolist();
      const fused = draw();
      using _options = withOptions({ fuse: false });
      assertEquals(draw(), fused, JSON.stringify(options));
    }
  });
});

Deno.test("array() stacks the arrays in lists: in the dtype that they meet in, with scalars weak beside them", () => {
  mx.setDefaultDevice("wasm");
  const check = (found: mx.Tensor, dtype: mx.Dtype, values: unknown): void => {
    assertEquals(found.dtype, dtype);
    assertEquals(found.tolist(), values as mx.NestedValue);
  };
  mx.tidy(() => {
    const x = mx.array([1, 2], mx.int8), y = mx.array([3, 4], mx.float16);
    check(mx.array([x]), mx.int8, [[1, 2]]);
    check(mx.array([x, y]), mx.float16, [[1, 2], [3, 4]]);
    check(mx.array([x, [5, 6]]), mx.float32, [[1, 2], [5, 6]]);
    check(mx.array([[mx.array(1, mx.int32), 2], [3, mx.array(true)]]), mx.int32, [[1, 2], [3, 1]]);
    check(mx.array([mx.array(1, mx.int32), 2]), mx.int32, [1, 2]);
    check(mx.array([x, y], mx.int32), mx.int32, [[1, 2], [3, 4]]);
    check(mx.add([x, x], 1), mx.int8, [[2, 3], [2, 3]]);
    const gradient = mx.grad((a: mx.Tensor) => mx.multiply(mx.array([a, [2, 3]]), [[5, 6], [7, 8]]).sum());
    check(gradient(mx.array([1, 1])), mx.float32, [5, 6]);
  });
});
