/**
 * The elementwise kernel at Plan level: every row of shaders/include/elementwise.h in every domain, special values, strides, dtypes,
 * chains. Expected values come from JavaScript's own float64 and BigInt arithmetic.
 */

import { assert, assertEquals } from "@std/assert";
import type { Backend } from "../../src/backend/backend.ts";
import {
  type Domain,
  DTYPE_BF16,
  DTYPE_BOOL,
  DTYPE_F16,
  DTYPE_F32,
  DTYPE_I16,
  DTYPE_I32,
  DTYPE_I8,
  DTYPE_U16,
  DTYPE_U32,
  DTYPE_U8,
  ELEMENTWISE,
  type ElementwiseName,
} from "../../src/backend/kernels.ts";
import { bfloat16Bits, bfloat16Value } from "../../src/graph/dtype.ts";
import { elementwiseKernel, isMath } from "../../src/schedule/ops/elementwise_chain.ts";
import { kernelTest, runKernel } from "../support/devices/harness.ts";
import { ORACLES } from "../ops/cases/elementwise.ts";
import { erf, erfinv, unravel } from "../support/oracles/oracle.ts";

type Fn = (a: number, b: number, c: number) => number;
type Values = Float32Array | Int32Array | Uint32Array;

const DOMAINS: Record<Domain, number> = { float: 0, int: 1, uint: 2 };
const DTYPES: Record<Domain, number> = { float: DTYPE_F32, int: DTYPE_I32, uint: DTYPE_U32 };
const ARRAYS = { float: Float32Array, int: Int32Array, uint: Uint32Array } as const;

/** One step word. */
function step(name: ElementwiseName, domain: Domain, a = 0, b = 1, c = 2, rounding = 0): number {
  return ELEMENTWISE[name].id | DOMAINS[domain] << 8 | rounding << 10 | a << 12 | b << 16 | c << 20;
}

const truth = (a: number): boolean => a !== 0; // NaN too
const floored = (a: number, b: number): number => {
  if (!Number.isFinite(b)) return Number.isNaN(b) || !Number.isFinite(a) ? NaN : a === 0 || a < 0 === b < 0 ? a : b;
  const r = a % b;
  return r !== 0 && r < 0 !== b < 0 ? r + b : r;
};

/** Parts of what is not complex. */
const PARTS: Partial<Record<ElementwiseName, Fn>> = { conjugate: (a) => a, real: (a) => a, imag: () => 0 };

/** Where special values need an oracle other than that of the op, or where there is no op. */
const FLOAT: Partial<Record<ElementwiseName, Fn>> = {
  ...PARTS,
  identity: (a) => a,
  select: (a, b, c) => truth(c) ? a : b,
  float_to_int: (a) => Number.isNaN(a) ? 0 : Math.min(2147483647, Math.max(-2147483648, Math.trunc(a))),
  float_to_uint: (a) => Number.isNaN(a) ? 0 : Math.min(4294967295, Math.max(0, Math.trunc(a))),
  to_bool: (a) => Number(truth(a)),
  sign: (a) => Math.sign(a) || 0, // NaN has none
  erf: (a) => Math.abs(a) > 6 ? Math.sign(a) : Number.isNaN(a) ? a : erf(a),
  erfinv: (a) => Math.abs(a) < 1 ? erfinv(a) : Math.abs(a) === 1 ? a * Infinity : NaN,
  trunc: Math.trunc,
  logical_not: (a) => Number(!truth(a)),
  remainder: floored,
  floor_divide: (a, b) => Math.floor(Math.fround(a / b)),
  power: (a, b) => a === 1 || a === -1 && Math.abs(b) === Infinity ? 1 : Math.pow(a, b),
  logaddexp: (a, b) => {
    const most = Math.max(a, b);
    return Math.abs(most) === Infinity ? most : most + Math.log1p(Math.exp(-Math.abs(a - b)));
  },
  logical_and: (a, b) => Number(truth(a) && truth(b)),
  logical_or: (a, b) => Number(truth(a) || truth(b)),
};

const power = (a: number, b: number): number => {
  return b < 0 ? 0 : Number(BigInt.asUintN(32, modularPower(BigInt(a), b)));
};

function modularPower(a: bigint, b: number): bigint {
  let y = 1n;
  for (let p = BigInt.asUintN(32, a); b > 0; b = Math.floor(b / 2), p = BigInt.asUintN(32, p * p)) {
    if (b % 2 === 1) y = BigInt.asUintN(32, y * p);
  }
  return y;
}

/** Of both integer domains; the array that takes the result wraps it. */
const INTEGER: Partial<Record<ElementwiseName, Fn>> = {
  ...PARTS,
  identity: (a) => a,
  select: (a, b, c) => truth(c) ? a : b,
  int_to_float: Math.fround,
  uint_to_float: Math.fround,
  to_bool: (a) => Number(a !== 0),
  abs: Math.abs,
  negative: (a) => -a,
  sign: Math.sign,
  square: (a) => Math.imul(a, a),
  bitwise_invert: (a) => ~a,
  logical_not: (a) => Number(a === 0),
  add: (a, b) => a + b,
  subtract: (a, b) => a - b,
  multiply: Math.imul,
  remainder: (a, b) => b === 0 ? a : floored(a, b),
  floor_divide: (a, b) => b === 0 ? 0 : Math.floor(a / b),
  power,
  maximum: (a, b) => Math.max(a, b),
  minimum: (a, b) => Math.min(a, b),
  logical_and: FLOAT.logical_and,
  logical_or: FLOAT.logical_or,
  bitwise_and: (a, b) => a & b,
  bitwise_or: (a, b) => a | b,
  bitwise_xor: (a, b) => a ^ b,
  left_shift: (a, b) => b < 0 || b > 31 ? 0 : a << b,
  right_shift: (a, b) => b < 0 || b > 31 ? (a < 0 ? -1 : 0) : Math.floor(a / 2 ** b),
};

// Subnormal numbers are left out: devices may flush them.
const SPECIAL = [0, -0, 1, -1, Infinity, -Infinity, NaN, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5, 2, -3, 1e-8, -1e-8, 88, -88];
const SPECIAL_RANGE = [...SPECIAL, 1e30, -1e30, 3e38, 1e-37, 104, -104, 2147483648, 4294967296];
const INTS = [0, 1, -1, 2, -2, 3, -3, 5, -5, 7, 31, 32, 33, 100, 65535, 2147483647, -2147483648];

/** Functions that reduce their argument to an eighth of a turn: in one way up to 2^24, in another beyond. */
const PERIODIC = ["sin", "cos", "tan"];
// Next to their zeros and poles, where the reduction cancels most.
const QUARTERS = [
  1,
  2,
  3,
  4,
  7,
  2047,
  2048,
  2049,
  4095,
  4096,
  4097,
  6143,
  6144,
  65535,
  1e6,
  1e6 + 1,
  10680706,
  10680707,
]
  .flatMap((n) => [n * Math.PI / 2, -n * Math.PI / 2, (n - 0.5) * Math.PI / 2]);
// 16367173 * 2^72 is the float32 that lies nearest to a multiple of pi/2.
const FAR = [2 ** 24 + 2, 2 ** 25 - 2, 1e8, 1e9, 1e20, 2 ** 72 * 16367173, 2 ** 127, 3.4028234663852886e38]
  .flatMap((x) => [x, -x]);
// Where arguments are drawn from besides the special ones.
const RANGES: Partial<Record<ElementwiseName, [number, number]>> = {
  exp: [-85, 85],
  expm1: [-20, 20],
  arcsin: [-1, 1],
  arccos: [-1, 1],
  arctanh: [-1, 1],
  erfinv: [-1, 1],
  arccosh: [1, 100],
  log: [0, 100],
  log2: [0, 100],
  log10: [0, 100],
  log1p: [-1, 5],
  sqrt: [0, 100],
  rsqrt: [0, 100],
};

/** A fixed sequence of numbers in 0 to 1. */
function sequence(): () => number {
  let state = 12345;
  return () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
}

function isSubnormal(x: number): boolean {
  return x !== 0 && Math.abs(x) < 2 ** -126;
}

function floatOperands(name: ElementwiseName): Float32Array[] {
  const periodic = PERIODIC.includes(name);
  const special = periodic ? [...SPECIAL, ...QUARTERS, 2 ** 24, -(2 ** 24), ...FAR] : SPECIAL_RANGE;
  const arity = ELEMENTWISE[name].arity;
  const random = sequence();
  const [low, high] = RANGES[name] ?? [-8, 8];
  if (periodic) { for (let i = 0; i < 4000; i++) special.push((random() - 0.5) * 2 ** (3 + i % 125)); }
  const a: number[] = [];
  const b: number[] = [];
  if (arity === 1) a.push(...special);
  else {
    for (const x of special) {
      for (const y of special) {
        if (name === "floor_divide" && isSubnormal(x / y)) continue; // -1 or, flushed, 0
        a.push(x);
        b.push(y);
      }
    }
  }
  while (a.length % 700 !== 699) a.push(low + random() * (high - low));
  while (b.length < a.length) b.push(low + random() * (high - low));
  return [Float32Array.from(a), Float32Array.from(b)];
}

/** Runs one row over contiguous operands. */
function runRow(backend: Backend, name: ElementwiseName, domain: Domain, a: Values, b: Values, c: Uint32Array): Values {
  const { arity, domains } = ELEMENTWISE[name] as { arity: number; domains: Partial<Record<Domain, Domain>> };
  const result = domains[domain]!;
  const out = new ARRAYS[result](a.length);
  const dtype = DTYPES[domain];
  runKernel(backend, elementwiseKernel(1, isMath(ELEMENTWISE[name].id, DOMAINS[domain])), {
    spec: {
      DTYPE_A: dtype,
      DTYPE_B: dtype,
      DTYPE_C: DTYPE_U32,
      DTYPE_OUT: DTYPES[result],
      CONTIGUOUS: 1,
      STEPS: 1,
      STEP0: step(name, domain),
    },
    push: { count: a.length },
    buffers: { a, ...(arity > 1 && { b }), ...(arity > 2 && { c }), out },
    items: a.length,
  });
  return out;
}

/** Asserts normalised mean squared error ≤ 1e-7 over finite values and equality of the others. */
function assertClose(name: string, got: Values, expected: readonly number[], operands: readonly Values[]): void {
  let error = 0;
  let power = 0;
  expected.forEach((wanted, i) => {
    const rounded = got instanceof Float32Array ? Math.fround(wanted) : wanted;
    const at = `${name}(${operands.map((o) => o[i]).join(", ")})`;
    if (!Number.isFinite(rounded)) return assert(Object.is(got[i], rounded), `${at} is ${rounded}, not ${got[i]}`);
    assert(Number.isFinite(got[i]), `${at} is ${wanted}, not ${got[i]}`);
    // Relative where values are large, so that one huge value does not hide the others.
    const scale = Math.max(1e-3, Math.abs(wanted));
    error += ((got[i] - wanted) / scale) ** 2;
    power += Math.abs(wanted) > 1e-3 ? 1 : (wanted / scale) ** 2;
    assert(Math.abs(got[i] - wanted) <= 1e-5 * scale, `${at} is ${wanted}, not ${got[i]}`);
  });
  assert(error <= 1e-7 * Math.max(power, 1e-30) || error === 0, `${name}: NMSE ${error / power}`);
}

/** The oracle of a row: its own, or that of the op whose name it has in snake case. */
function oracleOf(name: ElementwiseName, own: typeof FLOAT): Fn {
  const fn = own[name] ?? ORACLES[name.replaceAll(/_./g, (part) => part[1].toUpperCase())];
  assert(fn, `${name} has no oracle`);
  return fn;
}

kernelTest("elementwise rows in float agree with float64", (backend) => {
  for (const name of Object.keys(ELEMENTWISE) as ElementwiseName[]) {
    if (!("float" in ELEMENTWISE[name].domains)) continue;
    const fn = oracleOf(name, FLOAT);
    const [a, b] = floatOperands(name);
    const c = Uint32Array.from(a, (_, i) => i % 3 === 0 ? 0 : 1);
    const got = runRow(backend, name, "float", a, b, c);
    const expected = Array.from(a, (x, i) => fn(x, b[i], c[i]));
    const operands = ELEMENTWISE[name].arity === 1 ? [a] : [a, b];
    if (got instanceof Float32Array) assertClose(name, got, expected, operands);
    else expected.forEach((y, i) => assertEquals(got[i], y, `${name}(${operands.map((o) => o[i])})`));
  }
});

kernelTest("elementwise rows in int and uint are exact", (backend) => {
  const pairs = INTS.flatMap((x) => INTS.map((y) => [x, y]));
  for (const domain of ["int", "uint"] as const) {
    const a = new ARRAYS[domain](pairs.map((p) => p[0]));
    const b = new ARRAYS[domain](pairs.map((p) => p[1]));
    const c = Uint32Array.from(pairs, (_, i) => i % 3);
    for (const name of Object.keys(ELEMENTWISE) as ElementwiseName[]) {
      if (!(domain in ELEMENTWISE[name].domains)) continue;
      const fn = oracleOf(name, INTEGER);
      const got = runRow(backend, name, domain, a, b, c);
      const expected = new (got.constructor as Uint32ArrayConstructor)(got.length);
      pairs.forEach((_, i) => expected[i] = fn(a[i], b[i], c[i]));
      expected.forEach((y, i) => assertEquals(got[i], y, `${name}(${a[i]}, ${b[i]}, ${c[i]}) of ${domain}`));
    }
  }
});

kernelTest("elementwise loads and stores every dtype", (backend) => {
  const rows: [number, ArrayBufferView, (i: number) => number][] = [
    [DTYPE_BOOL, Uint8Array.of(0, 1, 1, 0, 1), (i) => [0, 1, 1, 0, 1][i]],
    [DTYPE_U8, Uint8Array.of(0, 1, 127, 128, 255), (i) => [0, 1, 127, 128, 255][i]],
    [DTYPE_U16, Uint16Array.of(0, 1, 32767, 32768, 65535), (i) => [0, 1, 32767, 32768, 65535][i]],
    [
      DTYPE_U32,
      Uint32Array.of(0, 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1),
      (i) => [0, 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1][i],
    ],
    [DTYPE_I8, Int8Array.of(0, 1, 127, -128, -1), (i) => [0, 1, 127, -128, -1][i]],
    [DTYPE_I16, Int16Array.of(0, 1, 32767, -32768, -1), (i) => [0, 1, 32767, -32768, -1][i]],
    [DTYPE_I32, Int32Array.of(0, 1, 2 ** 31 - 1, -(2 ** 31), -1), (i) => [0, 1, 2 ** 31 - 1, -(2 ** 31), -1][i]],
    [
      DTYPE_F16,
      Float16Array.of(0, -1.5, 65504, Infinity, 1e-7),
      (i) => [0, -1.5, 65504, Infinity, Math.f16round(1e-7)][i],
    ],
    [DTYPE_BF16, Uint16Array.of(0, 0xbfc0, 0x4148, 0x7f80, 0x3380), (i) => [0, -1.5, 12.5, Infinity, 2 ** -24][i]],
    [DTYPE_F32, Float32Array.of(0, -1.5, 1e30, Infinity, 0.25), (i) => [0, -1.5, Math.fround(1e30), Infinity, 0.25][i]],
  ];
  for (const [dtype, array, value] of rows) {
    const kind: Domain = dtype >= DTYPE_F16 ? "float" : dtype >= DTYPE_I8 ? "int" : "uint";
    const wide = new ARRAYS[kind](5);
    for (const fours of [0, 1]) { // one thread for four elements, and one for the last
      const common = { CONTIGUOUS: 1, STEPS: 1, STEP0: step("identity", kind), FOURS: fours, WIDE: fours };
      runKernel(backend, "elementwise_single", {
        spec: { ...common, DTYPE_A: dtype, DTYPE_OUT: DTYPES[kind] },
        push: { count: 5 },
        buffers: { a: array, out: wide.fill(0) },
        items: 5,
      });
      assertEquals(Array.from(wide), [0, 1, 2, 3, 4].map(value), `load of dtype ${dtype}, fours ${fours}`);
      const back = (array as Uint8Array).slice().fill(77);
      runKernel(backend, "elementwise_single", {
        spec: { ...common, DTYPE_A: DTYPES[kind], DTYPE_OUT: dtype },
        push: { count: 5 },
        buffers: { a: wide, out: back },
        items: 5,
      });
      assertEquals(back, array, `store of dtype ${dtype}, fours ${fours}`);
    }
  }
});

kernelTest("elementwise takes four elements at once through strides", (backend) => {
  const shape = [2, 3, 5, 8];
  const count = 240;
  const a = Float32Array.from({ length: 2 * count }, (_, i) => i / 4);
  const b = Float16Array.from({ length: 2 * count }, (_, i) => i % 97);
  const c = Uint8Array.from({ length: 2 * count }, (_, i) => i * 7 % 3 === 0 ? 1 : 0);
  // Contiguous, repeated, with gaps and back to front: [strides, first element], the first one wide.
  const walks: readonly (readonly [readonly number[], number])[] = [
    [[120, 40, 8, 1], 0],
    [[0, 8, 24, 1], 4],
    [[120, 40, 8, 0], 0],
    [[240, 80, 16, 2], 1],
    [[-120, -40, -8, -1], count - 1],
    [[1, 2, 6, 30], 0],
  ];
  const place = ([strides, first]: (typeof walks)[number], i: number): number =>
    unravel(shape, i).reduce((at, x, d) => at + x * strides[d], first);
  for (const [i, first] of walks.entries()) {
    const [second, third] = [walks[(i + 1) % walks.length], walks[(i + 2) % walks.length]];
    const isWide = [first, second, third].map(([strides, at]) => strides[3] === 1 && at % 4 === 0);
    const out = new Float32Array(count);
    runKernel(backend, "elementwise_single", {
      spec: {
        DTYPE_A: DTYPE_F32,
        DTYPE_B: DTYPE_F16,
        DTYPE_C: DTYPE_BOOL,
        DTYPE_OUT: DTYPE_F32,
        STEPS: 1,
        STEP0: step("select", "float"),
        FOURS: 1,
        WIDE: isWide.reduce((bits, wide, r) => bits | Number(wide) << r, 0),
      },
      push: { count, shape, a_strides: first[0], b_strides: second[0], c_strides: third[0] },
      buffers: { a, b, c, out },
      offsets: { a: 4 * first[1], b: 2 * second[1], c: third[1] },
      items: count,
    });
    const expected = Array.from(out, (_, j) => c[place(third, j)] ? a[place(first, j)] : b[place(second, j)]);
    assertEquals(Array.from(out), expected, `walk ${i}`);
  }
});

kernelTest("elementwise stores 16-bit floats rounded to nearest even", (backend) => {
  const random = sequence();
  const a = Float32Array.from({ length: 3000 }, (_, i) => (random() - 0.5) * 2 ** (i % 40 - 26));
  a.set([
    1 + 2 ** -11,
    1 + 3 * 2 ** -11,
    65519.99,
    65520,
    2 ** -25,
    3 * 2 ** -25,
    1 + 2 ** -8,
    1 + 3 * 2 ** -8,
    3.4e38,
  ]);
  for (
    const [dtype, wanted] of [[DTYPE_F16, Math.f16round], [
      DTYPE_BF16,
      (x: number) => bfloat16Value(bfloat16Bits(x)),
    ]] as const
  ) {
    const out = new Uint16Array(a.length);
    runKernel(backend, "elementwise_single", {
      spec: { DTYPE_A: DTYPE_F32, DTYPE_OUT: dtype, CONTIGUOUS: 1, STEPS: 0 },
      push: { count: a.length },
      buffers: { a, out },
      items: a.length,
    });
    const got = dtype === DTYPE_F16 ? Array.from(new Float16Array(out.buffer)) : Array.from(out, bfloat16Value);
    got.forEach((x, i) => assert(Object.is(x, wanted(a[i])), `${a[i]} as dtype ${dtype} is ${wanted(a[i])}, not ${x}`));
  }
});

kernelTest("elementwise reads strided, broadcast and reversed inputs", (backend) => {
  // Lengths around the block of 512 and rows that straddle it; the last two have empty and single dimensions.
  for (const shape of [[2, 3, 5, 7], [1, 1, 3, 513], [1, 4, 1, 129], [1, 1, 1, 1], [3, 1, 2, 300], [1, 2, 0, 4]]) {
    const count = shape.reduce((n, d) => n * d, 1);
    const [, d1, d2, d3] = shape;
    const a = Float32Array.from({ length: Math.max(count, 1) }, (_, i) => i + 1); // transposed: first axis fastest
    const aStrides = [1, shape[0], shape[0] * d1, shape[0] * d1 * d2];
    const b = Float16Array.from({ length: Math.max(1, d3) }, (_, i) => i / 4); // broadcast along all but the last
    const c = Uint8Array.from({ length: Math.max(count, 1) }, (_, i) => i % 3); // reversed
    const out = new Float32Array(count);
    runKernel(backend, "elementwise_single", {
      spec: {
        DTYPE_A: DTYPE_F32,
        DTYPE_B: DTYPE_F16,
        DTYPE_C: DTYPE_U8,
        DTYPE_OUT: DTYPE_F32,
        STEPS: 1,
        STEP0: step("select", "float"),
      },
      push: {
        count,
        shape,
        a_strides: aStrides,
        b_strides: [0, 0, 0, 1],
        c_strides: [-d1 * d2 * d3, -d2 * d3, -d3, -1],
      },
      buffers: { a, b, c, out },
      offsets: { c: Math.max(0, count - 1) },
      items: count,
    });
    for (let i = 0; i < count; i++) {
      const at = [Math.floor(i / (d1 * d2 * d3)), Math.floor(i / (d2 * d3)) % d1, Math.floor(i / d3) % d2, i % d3];
      const from = at.reduce((n, x, d) => n + x * aStrides[d], 0);
      assertEquals(out[i], c[count - 1 - i] !== 0 ? a[from] : b[at[3]], `element ${i} of shape ${shape}`);
    }
  }
});

kernelTest("elementwise chains equal separate ops", (backend) => {
  const n = 1031;
  const random = sequence();
  const x = Float16Array.from({ length: n }, () => (random() - 0.5) * 8);
  const y = Float16Array.from({ length: n }, () => (random() - 0.5) * 8);
  const out = new Float16Array(n);
  // -(silu(x) * y + imm0), each result rounded to float16
  runKernel(backend, "elementwise", {
    spec: {
      DTYPE_A: DTYPE_F16,
      DTYPE_B: DTYPE_F16,
      DTYPE_OUT: DTYPE_F16,
      CONTIGUOUS: 1,
      STEPS: 5,
      STEP0: step("sigmoid", "float", 0, 0, 0, 1),
      STEP1: step("multiply", "float", 0, 5, 0, 1),
      STEP2: step("multiply", "float", 6, 1, 0, 1),
      STEP3: step("add", "float", 7, 3, 0, 1),
      STEP4: step("negative", "float", 8, 0, 0, 1),
    },
    push: { count: n, imm0: new Uint32Array(Float32Array.of(0.75).buffer)[0] },
    buffers: { a: x, b: y, out },
    items: n,
  });
  let differing = 0;
  for (let i = 0; i < n; i++) {
    const gate = Math.f16round(x[i] * Math.f16round(1 / (1 + Math.exp(-x[i]))));
    const wanted = -Math.f16round(Math.f16round(gate * y[i]) + 0.75);
    if (out[i] !== wanted) differing++; // where float32's sigmoid lies on the other side of a rounding boundary
    assert(
      Math.abs(out[i] - wanted) <= 2 ** -8 * Math.max(1, Math.abs(wanted)),
      `element ${i}: ${wanted}, not ${out[i]}`,
    );
  }
  assert(differing <= n / 100, `${differing} of ${n} elements differ`);
});

kernelTest("elementwise wraps narrow integers between steps", (backend) => {
  const a = Uint8Array.of(200, 255, 1, 128);
  const out = new Float32Array(4);
  const chain = (domain: Domain, dtype: number): number[] => {
    runKernel(backend, "elementwise", {
      spec: {
        DTYPE_A: dtype,
        DTYPE_OUT: DTYPE_F32,
        CONTIGUOUS: 1,
        STEPS: 2,
        STEP0: step("add", domain, 0, 0, 0, 1),
        STEP1: step(domain === "int" ? "int_to_float" : "uint_to_float", domain, 5),
      },
      push: { count: 4 },
      buffers: { a, out },
      items: 4,
    });
    return Array.from(out);
  };
  assertEquals(chain("uint", DTYPE_U8), [144, 254, 2, 0]);
  assertEquals(chain("int", DTYPE_I8), [-112, -2, 2, 0]);
});

kernelTest("elementwise stores 0 or 1 as bool", (backend) => {
  const out = new Uint8Array(4);
  runKernel(backend, "elementwise_single", {
    spec: { DTYPE_A: DTYPE_I32, DTYPE_OUT: DTYPE_BOOL, CONTIGUOUS: 1, STEPS: 0 },
    push: { count: 4 },
    buffers: { a: Int32Array.of(0, 256, -1, 7), out },
    items: 4,
  });
  assertEquals(Array.from(out), [0, 1, 1, 1]);
});
