/**
 * How the products of gemv layers (shaders/decode_gemv/product.glsl) are cut: rows go to workgroups, and 16 lanes make a run of them at
 * once.
 *
 * @module
 */

import type { LayerFormats, ProductFormat } from "./formats.ts";
import { mixedFeatures, type RecurrentPart } from "./recurrent_layer.ts";
import { type DecoderFeatures, type DecoderSizes, expertSizeOf, slotsOf } from "./spec.ts";

/** Threads of a workgroup. */
export const THREADS = 512;
/** Teams of 16 lanes, which make rows together. */
export const TEAMS = THREADS / 16;
/** Numbers of rows are multiples of it, but for those of the residual. There are at most so many workgroups of a sequence. */
export const MULTIPLE = 128;
/** Features that 16 lanes take of a row at once. */
export const STEP = 512;
/** Rows of 4 bits whose codes a lane has asked for at most; half as many of 8 bits. */
const IN_FLIGHT = 8;
/** The cost of a unit of a product beside its rows, in rows. */
const UNIT_COST = 2;

/** The products of a layer: rows, how many matrices a workgroup multiplies beside each other, and features of a row. */
export type Product = "QKV" | "O" | "ROUTER" | "GATE_UP" | "DOWN";

/** What the products of a decoder depend on. */
export interface GemvShape {
  readonly sizes: DecoderSizes;
  readonly features: Pick<DecoderFeatures, "experts" | "gated">;
  readonly recurrent?: Pick<RecurrentPart, "net"> | undefined;
}

/** Rows of each of `grid` workgroups, numbers that a run has to divide, and features of a row. */
interface ProductShape {
  readonly rows: number;
  readonly divides: readonly number[];
  readonly depth: number;
}

/**
 * The shapes of all products. Gate and up, and down, have the rows of all experts that a token takes. Where some layers are recurrent, the first
 * product is that of both kinds of layers: teams share as many rows as the larger one has.
 */
export function productsOf(shape: GemvShape, grid: number): Readonly<Record<Product, ProductShape>> {
  const { sizes: s, features, recurrent } = shape;
  const { count = 1 } = features.experts ?? {};
  const [attended, kv] = [s.heads * s.headDim, s.kvHeads * s.headDim];
  const q = features.gated ? 2 * attended : attended;
  // If workgroups do not share the residual evenly they take whole eights.
  const rows = s.hidden % grid === 0 ? s.hidden / grid : 8 * Math.ceil(s.hidden / grid / 8);
  const size = expertSizeOf(s, features);
  const scores = Math.ceil(count / grid);
  const firsts = [[q, kv, kv], ...(recurrent ? [netRows(recurrent)] : [])];
  const own = firsts.map((matrices) => matrices.reduce((a, b) => a + b, 0) / grid);
  return {
    QKV: { rows: Math.max(...own), divides: [...own, ...firsts.flat()], depth: s.hidden },
    O: { rows, divides: [rows, s.hidden], depth: attended },
    // The score of an expert of all tokens is a row of another matrix.
    ROUTER: { rows: scores, divides: features.experts?.shared ? [1] : [scores], depth: s.hidden },
    GATE_UP: { rows: 2 * s.intermediate / grid, divides: [s.intermediate / grid, size], depth: s.hidden },
    DOWN: { rows: slotsOf(features) * rows, divides: [rows, s.hidden], depth: size },
  };
}

function stepsOf(depth: number): number {
  return Math.ceil(depth / STEP);
}

/** Units of a run times {@link STEP} features that a team takes of a product. */
function unitsOfTeam(rows: number, depth: number, run: number): number {
  return Math.ceil(rows / run * stepsOf(depth) / TEAMS);
}

/** Sections that a team takes its units of a product in: each reaches into two runs at most. */
function sectionsOf(rows: number, depth: number, run: number): number {
  return Math.ceil(unitsOfTeam(rows, depth, run) / (stepsOf(depth) + 1));
}

/** Sums that a team leaves of a product: those of a run of so many rows, and of another one, for each section. */
export function sumsOfTeam(rows: number, depth: number, run: number): number {
  return sectionsOf(rows, depth, run) * 2 * (run > 4 ? 8 : run > 2 ? 4 : run);
}

/** Rows of the two matrices of the first product of a recurrent layer. */
function netRows({ net }: Pick<RecurrentPart, "net">): readonly number[] {
  return [mixedFeatures(net), net.valueHeads * net.valueDim];
}

/** Rows of b and a of a workgroup of a recurrent layer, as shaders/decode_gemv/rates.glsl has them. */
function ratesRows({ net }: Pick<RecurrentPart, "net">, grid: number): number {
  return Math.ceil(2 * net.valueHeads / grid);
}

/** Bytes of shared memory of their sums. */
export function ratesBytes({ sizes, recurrent }: GemvShape, grid: number): number {
  if (!recurrent) return 0;
  return 4 * TEAMS * Math.ceil(ratesRows(recurrent, grid) * stepsOf(sizes.hidden) / TEAMS);
}

/** Rows of a product that a lane makes at once, so that the teams are done soonest: they take whole units. */
function bestRun({ rows, divides, depth }: ProductShape, { bits }: ProductFormat): number {
  const most = IN_FLIGHT * 4 / bits;
  const runs = Array.from({ length: most }, (_, i) => i + 1).filter((run) => divides.every((n) => n % run === 0));
  const cost = (run: number): number => unitsOfTeam(rows, depth, run) * (run + UNIT_COST);
  return runs.reduce((a, b) => cost(b) < cost(a) ? b : a, 1);
}

/** Rows that a lane makes at once in each product of a layer. */
export function runsOf(shape: GemvShape, formats: LayerFormats, grid: number): Readonly<Record<Product, number>> {
  const products = productsOf(shape, grid);
  return {
    QKV: bestRun(products.QKV, formats.qkv),
    O: bestRun(products.O, formats.o),
    ROUTER: bestRun(products.ROUTER, formats.router ?? formats.qkv),
    GATE_UP: bestRun(products.GATE_UP, formats.gateUp),
    DOWN: bestRun(products.DOWN, formats.down),
  };
}
