/**
 * Products of rows that are sorted by expert on cooperative matrices, whose lanes dequantize the codes that they multiply. Here are their
 * formats and kernels, and the dispatch.
 *
 * @module
 */

import type { Backend } from "../../../backend/backend.ts";
import * as k from "../../../backend/kernels.ts";
import type { KernelName } from "../../../backend/kernels.ts";
import { type Dtype, float32, isHalf, uint8 } from "../../../graph/dtype.ts";
import type { ExpertFormat, ExpertUnit } from "../../../graph/experts.ts";
import type { Lowering } from "../../plan/context.ts";
import { options } from "../../plan/options.ts";
import type { Value } from "../../plan/value.ts";
import { matrixMap, runsOn } from "./coopmat.ts";
import { MODE_CODES } from "./dequantize.ts";
import { halfRows } from "./half_rows.ts";

/** Codes of a lane: sizes are whole runs of them. */
const RUN = 32;

/** UNIT of kernels. */
export const UNITS: Readonly<Record<ExpertUnit, number>> = {
  silu: k.EXPERT_UNIT_SILU,
  geluTanh: k.EXPERT_UNIT_GELU_TANH,
  clipped: k.EXPERT_UNIT_CLIPPED,
};

/** Names of kernels: of products, and of the units of gate and up. */
type Names = Readonly<Record<"direct" | "gated", KernelName>>;

/** Kernels and their tile. */
export interface DirectKernel extends Names {
  readonly rows: number;
  readonly columns: number;
  readonly threads: number;
  /** Whether a workgroup finds the choices of its expert by itself where all rows fit into a tile. */
  readonly findsChoices?: true;
}

/** Kernels, and the most rows of an expert on average that they are for. */
interface KernelRow extends DirectKernel {
  readonly upTo: number;
}

const named = <Tile extends string>(tile: Tile): {
  readonly direct: `coopmat_experts_direct_${Tile}`;
  readonly gated: `coopmat_experts_gated_${Tile}`;
} => ({ direct: `coopmat_experts_direct_${tile}`, gated: `coopmat_experts_gated_${tile}` });

/** By bits of codes, the first that serves. Rows are not spread evenly: tiles have room for some more than the average. */
const KERNELS: Readonly<Record<number, readonly KernelRow[]>> = {
  4: [
    { ...named("8"), rows: 8, columns: 128, threads: 128, upTo: 5, findsChoices: true },
    { ...named("16"), rows: 16, columns: 128, threads: 128, upTo: 13 },
    { ...named("32"), rows: 32, columns: 128, threads: 128, upTo: 20 },
    { ...named("64x256"), rows: 64, columns: 256, threads: 128, upTo: Infinity },
  ],
  8: [
    { ...named("8_8bit"), rows: 8, columns: 128, threads: 128, upTo: 5, findsChoices: true },
    { ...named("16_8bit"), rows: 16, columns: 128, threads: 128, upTo: 9 },
    { ...named("32_8bit"), rows: 32, columns: 128, threads: 128, upTo: 20 },
    { ...named("64_8bit"), rows: 64, columns: 128, threads: 128, upTo: Infinity },
  ],
};
const EMULATED: typeof KERNELS = {
  4: [
    { ...named("few_emulated"), rows: 8, columns: 128, threads: 128, upTo: 5, findsChoices: true },
    { ...named("emulated"), rows: 16, columns: 128, threads: 128, upTo: Infinity },
  ],
  8: [
    { ...named("few_emulated_8bit"), rows: 8, columns: 128, threads: 128, upTo: 5, findsChoices: true },
    { ...named("emulated_8bit"), rows: 16, columns: 128, threads: 128, upTo: Infinity },
  ],
};

/** The codes and scales of matrices: a format, and the dtype of the scales. */
export interface DirectFormat extends ExpertFormat {
  readonly scales: Dtype;
}

/** Whether lanes read such codes: a lane's share one scale, and float16 has the digits of scales. */
function reads({ mode, groupSize, scales }: DirectFormat): boolean {
  if (mode === "mxfp4") return scales === uint8;
  return mode === "affine" && isHalf(scales) && groupSize >= RUN;
}

/** The kernel for so many rows of experts; undefined if none serves. `n` and `depth` are those of all matrices that it multiplies. */
export function directKernel(
  backend: Backend,
  format: DirectFormat,
  { rows, experts, sizes }: { readonly rows: number; readonly experts: number; readonly sizes: readonly number[] },
): DirectKernel | undefined {
  if (!reads(format) || sizes.some((size) => size % RUN !== 0)) return undefined;
  const emulated = options.matrices === "emulated";
  const found = (emulated ? EMULATED : KERNELS)[format.bits]?.find(({ upTo }) => rows / experts <= upTo);
  if (!found || emulated || !backend.has(found.direct)) return found; // a backend without it says so
  const runs = runsOn(backend, { kernel: found.direct, threads: found.threads });
  return runs && matrixMap(backend).pairs ? found : undefined;
}

/** A stack of matrices, with what is added to its products. */
export interface Stack {
  /** Codes, scales, and biases of affine codes. */
  readonly arrays: readonly Value[];
  readonly bias: Value | undefined;
}

/** Choices in the order of experts, and their tiles. */
export interface OrderedChoices {
  readonly left: Value;
  readonly tiles: Value;
  /** Whether results go to the rows that `left` names, or follow its order. */
  readonly inPlace: boolean;
}

/**
 * The experts of few rows (rows, 2 * chosen), which workgroups look through. No row has an expert twice. Results go to the rows of the
 * choices.
 */
export interface FoundChoices {
  readonly choice: Value;
  readonly experts: number;
}

/** Products of rows by expert. */
export interface DirectProducts {
  /** (x rows, depth) */
  readonly x: Value;
  readonly xRows: number;
  /** Whether x are units of the gated kernel, which stores a sixteenth of them. Default false. */
  readonly areUnits?: boolean;
  readonly depth: number;
  readonly n: number;
  /** One, or gate and up. */
  readonly stacks: readonly Stack[];
  /** The function of gate and up. */
  readonly unit?: ExpertUnit;
  readonly choices: OrderedChoices | FoundChoices;
  /** Choice i reads row i / divisor of x. */
  readonly divisor: number;
}

/** Emits products into `out` (rows, n). */
export function emitDirect(
  l: Lowering,
  { direct, gated, columns, threads, findsChoices }: DirectKernel,
  { mode, groupSize, scales }: DirectFormat,
  { x, xRows, areUnits = false, depth, n, stacks, unit, choices, divisor }: DirectProducts,
  out: Value,
): void {
  const { half, powers } = halfRows(l, x, xRows, depth);
  const matrices = [0, 1].flatMap((i) =>
    [0, 1, 2].map((part) => {
      const array = stacks[i]?.arrays[part];
      return array && l.contiguous(array, true);
    })
  );
  const biases = [0, 1].map((i) => stacks[i]?.bias && l.contiguous(stacks[i].bias!));
  const [left, tiles] = "tiles" in choices ? [l.contiguous(choices.left), choices.tiles] : [choices.choice, undefined];
  l.emit(unit ? gated : direct, [half, powers, ...matrices, ...biases, out, left, tiles], {
    threads,
    spec: {
      GROUP: groupSize,
      DTYPE_SCALES: scales.code,
      MODE: mode === "dense" ? k.MODE_DENSE : MODE_CODES[mode],
      SCALED: powers ? 1 : areUnits ? 2 : 0,
      DTYPE_OUT: out.dtype.code,
      DTYPE_BIAS: (biases[0]?.dtype ?? float32).code,
      HAS_BIAS: biases[0] ? 1 : 0,
      UNIT: unit ? UNITS[unit] : UNITS.silu,
      IN_PLACE: "tiles" in choices && !choices.inPlace ? 0 : 1,
      K: depth,
      ...(findsChoices && { CHOSEN: "tiles" in choices ? 0 : choices.choice.shape[1] / 2 }),
    },
    push: { n, x_rows: xRows, divisor },
    workgroups: [
      "tiles" in choices ? choices.tiles.shape[0] : choices.experts,
      Math.ceil(n * stacks.length / columns),
      1,
    ],
  });
}
