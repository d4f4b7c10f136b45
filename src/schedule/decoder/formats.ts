/**
 * Formats in which the kernels of a decoder read its matrices. Matrices with the same input are one product, and each product has its own
 * format. So some layers, or the head, may have more bits than others.
 *
 * @module
 */

import { type CodeFormat, DENSE, type MatrixFormat, type SmallFloatMode } from "../../graph/quantization.ts";
import { isSymmetric, type Matrix } from "../plan/pattern.ts";
import { firstReason, type Requirement } from "../plan/requirements.ts";
import { type DecoderEnds, endMatrices, headOf, tableOf } from "./ends.ts";

/** Weights of symmetric codes that share a scale, and a word of two scales. */
export const SYMMETRIC_GROUP = 16;
const SYMMETRIC_WORD = 2 * SYMMETRIC_GROUP;
/** Group sizes that kernels know. */
const GROUP_SIZES: readonly number[] = [32, 64, 128];
/** The mask of matrices if all of a product are symmetric. */
const ALL_SYMMETRIC = 7;
/** Matrices that the mask has bits for. */
const MASKED = 3;

/** The width to which codes are unpacked if kernels do not read theirs: see unpack_codes.ts. */
const WIDER = new Map([[1, 4], [2, 4], [3, 4], [5, 8], [6, 8]]);

/** The bits of the codes that kernels read for codes of `bits`. */
export function unpackedBits(bits: number): number {
  return WIDER.get(bits) ?? bits;
}

/** How kernels read the matrices of a product. */
export interface ProductFormat extends MatrixFormat {
  /** A bit for each matrix with symmetric codes, {@link ALL_SYMMETRIC} if all have them. */
  readonly symmetric: number;
}

/** The products of a layer. */
export interface LayerFormats {
  readonly qkv: ProductFormat;
  readonly o: ProductFormat;
  readonly gateUp: ProductFormat;
  readonly down: ProductFormat;
  /** Of the router of experts. */
  readonly router?: ProductFormat;
}

/** The matrices of a layer. */
type LayerMatrices = Readonly<Record<"q" | "k" | "v" | "o" | "gate" | "up" | "down", Matrix>> & {
  readonly router?: Matrix | undefined;
  readonly shared?: SharedMatrices | undefined;
};

/** The matrices of an expert that all tokens take. */
export type SharedMatrices = Readonly<Record<"router" | "gate" | "up" | "down", Matrix>>;

/** The matrices of the products of a feed-forward part. Those of an expert of all tokens come last. */
export function productsOfPart(
  { router, gate, up, down, shared }: Pick<LayerMatrices, "router" | "gate" | "up" | "down" | "shared">,
): Readonly<Record<"gateUp" | "down", readonly Matrix[]>> & { readonly router?: readonly Matrix[] } {
  return {
    gateUp: shared ? [gate, up, shared.gate, shared.up] : [gate, up],
    down: shared ? [down, shared.down] : [down],
    ...(router && { router: shared ? [router, shared.router] : [router] }),
  };
}

/** The matrices of each product of a layer. */
export function productsOfLayer(
  { q, k, v, o, ...part }: LayerMatrices,
): Readonly<{ [P in keyof LayerFormats]: readonly Matrix[] }> {
  return { qkv: [q, k, v], o: [o], ...productsOfPart(part) };
}

/** Whether matrices are dense: the gemv and the batched kernels read them as they lie, and no others do. */
export function isDense({ bits }: Pick<CodeFormat, "bits">): boolean {
  return bits === DENSE.bits;
}

/** Small floats that kernels read, and the bits of a format that stand for them. */
const SMALL_FLOAT_CODES: Readonly<Partial<Record<SmallFloatMode, number>>> = { mxfp4: 3, nvfp4: 7 };

/** Small floats that share a word or a part of one. */
const SMALL_FLOAT_WORD = 32;

/** Whether matrices have small floats: the gemv kernels read them where they are, and no others do. */
export function hasSmallFloats({ mode }: Pick<MatrixFormat, "mode">): boolean {
  return mode !== undefined;
}

/** The format of matrices that kernels multiply as one: the widest of their codes. */
export function productFormat(matrices: readonly Matrix[]): ProductFormat {
  const bits = Math.max(...matrices.map((m) => unpackedBits(m.bits)));
  const groupSize = Math.max(...matrices.map(wordSize));
  const mask = matrices.slice(0, MASKED).reduce((sum, m, i) => sum | Number(isSymmetric(m)) << i, 0);
  const symmetric = matrices.every(isSymmetric) ? ALL_SYMMETRIC : mask;
  const [{ mode }] = matrices;
  return { bits, groupSize, symmetric, ...(mode && { mode }) };
}

/** The formats of a layer. */
export function layerFormats(layer: LayerMatrices): LayerFormats {
  const { qkv, o, gateUp, down, router } = productsOfLayer(layer);
  return {
    qkv: productFormat(qkv),
    o: productFormat(o),
    gateUp: productFormat(gateUp),
    down: productFormat(down),
    ...(router && { router: productFormat(router) }),
  };
}

/** Weights of a matrix that share a word: a scale and a bias of affine codes, two scales of symmetric ones. */
function wordSize(m: Matrix): number {
  if (hasSmallFloats(m)) return SMALL_FLOAT_WORD;
  return isSymmetric(m) ? SYMMETRIC_WORD : m.groupSize;
}

/** Requirements of matrices that kernels multiply as one. */
function productRequirements(matrices: readonly Matrix[]): readonly Requirement[] {
  const sizes = [...new Set(matrices.map(wordSize))];
  return [
    [
      matrices.every((m) => isDense(m) === isDense(matrices[0])),
      "matrices with the same input are dense and quantized",
    ],
    [
      matrices.length <= MASKED || matrices.every((m) => isSymmetric(m) === isSymmetric(matrices[0])),
      "some matrices of an expert are symmetric",
    ],
    [sizes.length === 1, `matrices with the same input have groups of ${sizes.join(" and ")}`],
    [
      matrices.every(({ mode }) => mode === matrices[0].mode),
      "matrices with the same input are small floats and integers",
    ],
    ...formatRequirements(matrices),
  ];
}

/** Requirements of formats of matrices, each for itself. */
export function formatRequirements(formats: readonly MatrixFormat[]): readonly Requirement[] {
  return formats.flatMap(({ bits, groupSize, mode }) => [
    [mode === undefined || mode in SMALL_FLOAT_CODES, `no fused kernel reads ${mode} weights`],
    [[4, 8, DENSE.bits].includes(unpackedBits(bits)), `weights have ${bits} bits, not 2 to 6, 8 or 16`],
    [
      GROUP_SIZES.includes(groupSize) || groupSize === SYMMETRIC_GROUP,
      `groups of ${groupSize} weights are not of 16, 32, 64 or 128`,
    ],
  ]);
}

/** Why kernels do not read matrices as one product; undefined if they do. */
export function productUnsupportedReason(matrices: readonly Matrix[]): string | undefined {
  return firstReason(productRequirements(matrices));
}

/** Layers as far as formats go. */
export type DecoderFormats = readonly { readonly formats: LayerFormats }[];

/** Whether the matrices of a decoder are dense: all of them are or none. */
export function isDenseDecoder({ layers: [{ formats }] }: { readonly layers: DecoderFormats }): boolean {
  return isDense(formats.qkv);
}

/** Whether a matrix of a decoder has small floats. */
export function hasSmallFloatProducts({ layers }: { readonly layers: DecoderFormats }): boolean {
  return layers.some(({ formats }) => Object.values(formats).some(hasSmallFloats));
}

/** A decoder as far as formats go. */
interface FormattedDecoder extends DecoderEnds {
  readonly layers: DecoderFormats;
  readonly recurrent?: { readonly layers: DecoderFormats } | undefined;
}

/** The format of all products of a decoder and of its embedding, if they have the same; else undefined. */
export function commonFormat(decoder: FormattedDecoder): ProductFormat | undefined {
  const layers = [...decoder.layers, ...decoder.recurrent?.layers ?? []];
  const products = layers.flatMap(({ formats }) => Object.values(formats));
  const [first, ...others] = [...products, ...endMatrices(decoder).map((matrix) => productFormat([matrix]))];
  return others.every((format) => isSameFormat(format, first)) ? first : undefined;
}

/** Whether kernels read two products alike. */
function isSameFormat(a: ProductFormat, b: ProductFormat): boolean {
  return a.bits === b.bits && a.groupSize === b.groupSize && a.symmetric === b.symmetric && a.mode === b.mode;
}

/** Formats as a specialization constant, a byte each: shaders/include/formats.glsl. */
function formatWord(formats: readonly ProductFormat[]): number {
  return formats.reduce((word, { bits, groupSize, symmetric, mode }, i) => {
    const codes = mode ? SMALL_FLOAT_CODES[mode]! : bits / 4;
    const byte = codes | Math.log2(groupSize / GROUP_SIZES[0]) << 3 | symmetric << 5;
    return (word | byte << (8 * i)) >>> 0;
  }, 0);
}

/** The constant of the products of a layer. */
export function layerFormatWord({ qkv, o, gateUp, down }: LayerFormats): number {
  return formatWord([qkv, o, gateUp, down]);
}

/** The constant of the router; without one it is that of q, k and v, since no number of bits may be 0. */
export function routerFormatWord({ qkv, router = qkv }: LayerFormats): number {
  return formatWord([router]);
}

/** The constant of one product. */
export function productFormatWord(format: ProductFormat): number {
  return formatWord([format]);
}

/** The constant of the head and the embedding. What is not there has the format of another product, since no number of bits may be 0. */
export function endFormatWord(decoder: FormattedDecoder): number {
  const [first] = endMatrices(decoder);
  const other = first ? productFormat([first]) : decoder.layers[0].formats.qkv;
  const [head, table] = [headOf(decoder)?.head, tableOf(decoder)];
  return formatWord([head, table].map((matrix) => matrix ? productFormat([matrix]) : other));
}
