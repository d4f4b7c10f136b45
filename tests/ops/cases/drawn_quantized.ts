/**
 * Families of quantized matrices: codes of every mode, and products with them.
 */

import { build, type Dense, dense, matmul, quantizeGroup } from "../../support/oracles/oracle.ts";
import {
  quantizeSmallFloats,
  SMALL_FLOATS,
  type SmallFloatMode,
  smallNumber,
  smallScale,
} from "../../support/oracles/small_floats.ts";
import { FLOATS, productTolerance, type TypeName } from "./case.ts";
import { type Draw, meet } from "./draw.ts";
import { product } from "./drawn_products.ts";
import { type Drawn, elementTolerance, type Families } from "./family.ts";

const RANGE = [-1, 1] as const;
const MODES = ["mxfp4", "mxfp8", "nvfp4"] as const;

/** A format of codes; in mode affine any width and group, in mode symmetric two widths, else those of the mode. */
interface Format {
  readonly mode: "affine" | "symmetric" | SmallFloatMode;
  readonly bits: number;
  readonly group: number;
}

/** One that matrices are quantized to. */
function drawQuantized(d: Draw, affine = 0.6): Format & { readonly mode: "affine" | SmallFloatMode } {
  if (d.chance(affine)) return { mode: "affine", bits: d.few([4, 8, 2, 3, 5, 6]), group: d.few([32, 64, 128], 1) };
  const mode = d.few(MODES, 1);
  return { mode, ...SMALL_FLOATS[mode] };
}

/** Any. */
function drawFormat(d: Draw, affine = 0.6): Format {
  if (d.chance(0.2)) return { mode: "symmetric", bits: d.few([6, 3], 1), group: 16 };
  return drawQuantized(d, affine);
}

/** Whether scales are floats. */
const hasFloats = ({ mode }: Format): boolean => mode === "affine" || mode === "symmetric";

/** Arguments from the group size on: in modes of small floats they may be left out. */
function formatArguments<M extends Format["mode"]>(
  d: Draw,
  { mode, bits, group }: Format & { readonly mode: M },
): [number | null, number | null, M] {
  return hasFloats({ mode, bits, group }) || d.chance(0.5) ? [group, bits, mode] : [null, null, mode];
}

/** Codes of a row of packed words: a stream of bits, the lowest first. */
function codesOf(words: ArrayLike<number>, bits: number): number[] {
  const count = words.length * 32 / bits;
  return Array.from({ length: count }, (_, i) => {
    let code = 0;
    for (let b = 0; b < bits; b++) {
      const at = i * bits + b;
      code |= (words[at >> 5] >>> (at & 31) & 1) << b;
    }
    return code;
  });
}

/** The matrix of codes, scales and, where they are affine, biases. */
function unpacked({ mode, bits, group }: Format, w: Dense, scales: Dense, biases?: Dense): Dense {
  const words = w.shape[w.shape.length - 1];
  const cols = words * 32 / bits;
  const data: number[] = [];
  for (let row = 0; row < w.data.length / Math.max(1, words); row++) {
    codesOf(w.data.subarray(row * words, (row + 1) * words), bits).forEach((code, i) => {
      const at = (row * cols + i - i % group) / group;
      const scale = scales.data[at];
      if (mode === "affine") data.push(scale * code + biases!.data[at]);
      else if (mode === "symmetric") data.push(scale * (code - 2 ** (bits - 1)));
      else data.push(smallScale(mode, scale) * smallNumber(mode, code));
    });
  }
  return { shape: [...w.shape.slice(0, -1), cols], data: Float64Array.from(data) };
}

/** A packed matrix (…, n, k): random codes, scales and, where they are affine, biases. */
function packed(
  d: Draw,
  format: Format,
  lead: readonly number[],
  n: number,
  most = 3,
): { inputs: Drawn["inputs"]; k: number } {
  const { mode, bits, group } = format;
  const k = Math.max(group, 32) * d.int(1, most);
  const words = d.input([...lead, n, k * bits / 32], "uint32", "bits", true);
  // No NaN among codes of eight bits.
  const word = (): number =>
    mode === "mxfp8"
      ? [0, 8, 16, 24].reduce((all, at) => all + (d.int(0, 126) + 128 * d.int(0, 1)) * 2 ** at, 0)
      : Math.floor(d.next() * 2 ** 32);
  const codes = { ...words, data: words.data!.map(word) };
  const shape = [...lead, n, k / group];
  if (mode === "symmetric") {
    return { inputs: [codes, d.input(shape, d.dtype(FLOATS), [-0.1, 0.1], true)], k };
  }
  if (mode !== "affine") {
    const scales = mode === "nvfp4" ? [0, 70] : mode === "mxfp8" ? [116, 121] : [118, 128];
    return { inputs: [codes, d.input(shape, "uint8", scales as [number, number], true)], k };
  }
  const dtype = d.dtype(FLOATS);
  const part = (range: readonly [number, number]) => d.input(shape, dtype, range, true);
  return { inputs: [codes, part([0.01, 0.1]), part([-1, 1])], k };
}

/** The matrix as products read it: (…, k, n). */
function factor(w: Dense, transpose: boolean): Dense {
  if (!transpose) return w;
  const [n, k] = w.shape.slice(-2);
  const size = n * k;
  return build([...w.shape.slice(0, -2), k, n], (at) => {
    const lead = at.slice(0, -2).reduce((sum, v, i) => sum * w.shape[i] + v, 0);
    return w.data[lead * size + at[at.length - 1] * k + at[at.length - 2]];
  });
}

/** Matrices of a stack. */
function chosen(x: Dense, indices: readonly number[]): Dense {
  const size = x.shape[x.shape.length - 2] * x.shape[x.shape.length - 1];
  const data = indices.flatMap((i) => [...x.data.subarray(i * size, (i + 1) * size)]);
  return { shape: [indices.length, ...x.shape.slice(-2)], data: Float64Array.from(data) };
}

/** A matrix after quantizing. */
function kept(mode: SmallFloatMode, x: Dense): Dense {
  const { group } = SMALL_FLOATS[mode];
  const out = dense(x.shape, () => 0);
  for (let at = 0; at < x.data.length; at += group) {
    out.data.set(quantizeSmallFloats(mode, x.data.subarray(at, at + group)), at);
  }
  return out;
}

/** Indices of `count` matrices of x and of w; either may be left out where it has one matrix. */
interface Chosen {
  readonly stacks: readonly [left: number, right: number];
  readonly lists: readonly (readonly number[] | null)[];
  readonly all: readonly (readonly number[])[];
}

function drawIndices(d: Draw): Chosen {
  const count = d.int(1, 4);
  const form = d.pick(["both", "both", "left", "right"] as const);
  const stacks = [form === "right" ? 1 : d.int(1, 4), form === "left" ? 1 : d.int(1, 5)] as const;
  const all = stacks.map((n) => Array.from({ length: count }, () => d.int(0, n - 1)));
  return { stacks, all, lists: [form === "right" ? null : all[0], form === "left" ? null : all[1]] };
}

/** Families of quantized matrices. */
export function drawnQuantized(): Families {
  const families: Families = {};
  families.quantize = (d) => {
    const { mode, bits, group } = drawQuantized(d);
    const shape = [...d.shape(1, 2, false).map((n) => Math.min(n, 5)), group * d.int(1, 3)];
    const options = formatArguments(d, { mode, bits, group });
    const inputs = [d.input(shape, "float32", d.pick([[-1, 1], [0.5, 3], [-100, 0]] as const))];
    if (mode !== "affine") {
      return {
        what: mode,
        inputs,
        run: (mx, [w]) => {
          const [codes, scales] = mx.quantize(w, ...options);
          return mx.dequantize(codes, scales, null, null, null, { mode, dtype: mx.float32 });
        },
        oracle: ([w]) => kept(mode, w),
        tolerance: 0,
        dtype: "float32",
      };
    }
    return {
      what: `${bits} bits in groups of ${group}`,
      inputs,
      run: (mx, [w]) => {
        const [codes, scales, biases] = mx.quantize(w, group, bits);
        return [mx.dequantize(codes, scales, biases, group, bits), scales, biases];
      },
      oracle: ([w]) => {
        const groups = Array.from(
          { length: w.data.length / group },
          (_, i) => quantizeGroup(w.data.subarray(i * group, (i + 1) * group), bits),
        );
        const to = [...shape.slice(0, -1), shape[shape.length - 1] / group];
        return [
          { shape, data: Float64Array.from(groups.flatMap((g) => g.codes.map((c) => g.scale * c + g.bias))) },
          { shape: to, data: Float64Array.from(groups, (g) => g.scale) },
          { shape: to, data: Float64Array.from(groups, (g) => g.bias) },
        ];
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families.dequantize = (d) => {
    const format = drawFormat(d);
    const { mode, bits, group } = format;
    const { inputs } = packed(d, format, d.shape(0, 1, false).map((n) => Math.min(n, 3)), d.int(1, 9));
    const dtype = mode === "affine" ? inputs[1].dtype : d.pick(["bfloat16", ...FLOATS] as const);
    const options = formatArguments(d, format);
    return {
      what: `${mode}, ${bits} bits in groups of ${group}`,
      inputs,
      run: (mx, [w, s, b = null]) =>
        dtype === "bfloat16" && mode !== "symmetric"
          ? mx.dequantize(w, s, b, ...options)
          : mx.dequantize(w, s, b, ...options, null, mx[dtype as "float32"]),
      oracle: ([w, s, b]) => unpacked(format, w, s, b),
      tolerance: hasFloats(format) ? elementTolerance(dtype) : 0,
      dtype,
    };
  };
  families.quantizedMatmul = (d) => {
    const format = drawFormat(d);
    const { mode, bits, group } = format;
    const transpose = d.chance(0.7);
    const n = d.chance(0.3) ? d.pick([33, 64, 130]) : d.int(1, 9);
    const lead = d.chance(0.2) ? [2] : [];
    const { inputs, k } = packed(d, format, lead, n);
    const floats = hasFloats(format);
    const dtype: TypeName = floats ? d.few([inputs[1].dtype, "float32"], 1) : d.dtype(FLOATS);
    const rows = d.chance(0.15) && lead.length === 0 ? [] : [...lead, d.chance(0.2) ? d.pick([17, 40]) : d.int(1, 9)];
    const result = floats ? meet(dtype, inputs[1].dtype) : dtype;
    const options = formatArguments(d, format);
    return {
      what: `${mode}, ${bits} bits in groups of ${group}${transpose ? " transposed" : ""}`,
      inputs: [d.input([...rows, transpose ? k : n], dtype, RANGE), ...inputs],
      run: (mx, [x, w, s, b = null]) => mx.quantizedMatmul(x, w, s, b, transpose, ...options),
      oracle: ([x, w, s, b]) => product(x, factor(unpacked(format, w, s, b), transpose)),
      tolerance: productTolerance(result),
      dtype: result,
    };
  };
  families.gatherQmm = (d) => {
    const format = drawFormat(d, 0.5);
    const { mode, bits, group } = format;
    const transpose = d.chance(0.7);
    const { stacks, lists, all } = drawIndices(d);
    const n = d.chance(0.3) ? d.pick([33, 67]) : d.int(1, 9);
    const { inputs, k } = packed(d, format, [stacks[1]], n);
    const floats = hasFloats(format);
    const dtype: TypeName = floats ? d.few([inputs[1].dtype, "float32"], 1) : d.dtype(FLOATS);
    const m = d.pick([1, 1, 3, 35]);
    const result = floats ? meet(dtype, inputs[1].dtype) : dtype;
    const options = formatArguments(d, format);
    return {
      what: `${mode}, ${bits} bits in groups of ${group}${transpose ? " transposed" : ""}, ${JSON.stringify(lists)}`,
      inputs: [d.input([stacks[0], m, transpose ? k : n], dtype, RANGE), ...inputs],
      run: (mx, [x, w, s, ...rest]) => {
        const biases = mode === "affine" ? rest[0] : null;
        return mx.gatherQmm(x, w, s, biases, lists[0], lists[1], transpose, ...options);
      },
      oracle: ([x, w, s, b]) => {
        const matrix = factor(unpacked(format, w, s, b), transpose);
        return matmul(chosen(x, all[0]), chosen(matrix, all[1]));
      },
      tolerance: productTolerance(result),
      dtype: result,
    };
  };
  families.qqmm = (d) => {
    const mode = d.few(MODES, 1);
    const { inputs, k } = packed(d, { mode, ...SMALL_FLOATS[mode] }, [], d.int(1, 40));
    const rows = d.pick([[], [1], [7], [2, 3]]);
    return {
      what: mode,
      inputs: [d.input([...rows, k], "float32", RANGE), ...inputs],
      run: (mx, [x, w, s]) => mx.qqmm(x, w, s, null, null, mode),
      oracle: ([x, w, s]) => product(kept(mode, x), factor(unpacked({ mode, ...SMALL_FLOATS[mode] }, w, s), true)),
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  families.gatherQqmm = (d) => {
    const mode = d.few(MODES, 1);
    const { stacks, lists, all } = drawIndices(d);
    const { inputs, k } = packed(d, { mode, ...SMALL_FLOATS[mode] }, [stacks[1]], d.int(1, 20));
    const quantized = d.chance(0.5);
    const n = inputs[0].shape[1];
    const dense = d.input([stacks[1], n, k], "float32", RANGE);
    return {
      what: `${mode}, ${JSON.stringify(lists)}`,
      inputs: [d.input([stacks[0], d.pick([1, 5]), k], "float32", RANGE), ...(quantized ? inputs : [dense])],
      run: (mx, [x, w, s]) => mx.gatherQqmm(x, w, s ?? null, lists[0], lists[1], null, null, mode),
      oracle: ([x, w, s]) => {
        const matrix = quantized ? unpacked({ mode, ...SMALL_FLOATS[mode] }, w, s) : kept(mode, w);
        return matmul(chosen(kept(mode, x), all[0]), chosen(factor(matrix, true), all[1]));
      },
      tolerance: 1e-7,
      dtype: "float32",
    };
  };
  return families;
}
