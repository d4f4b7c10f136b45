/**
 * The types of matrices in a GGUF file that is written.
 *
 * @module
 */

/** The types that matrices are written as, and the mix of llama.cpp that is made of two of them. */
export const GGUF_OUTPUTS = ["F32", "F16", "BF16", "Q8_0", "Q6_K", "Q4_K_M", "Q4_K", "Q4_0"] as const;

/** The name of one. */
export type GgufOutput = typeof GGUF_OUTPUTS[number];

/** A type of tensors that is written. */
export type GgufOutputType = Exclude<GgufOutput, "Q4_K_M">;

/** Weights that a block of each type has, and the type for rows that are no multiple of that. */
const BLOCKS: Readonly<Partial<Record<GgufOutputType, readonly [size: number, other: GgufOutputType]>>> = {
  Q4_K: [256, "Q8_0"],
  Q6_K: [256, "Q8_0"],
  Q8_0: [32, "F16"],
  Q4_0: [32, "F16"],
};

/** A matrix on its way into a file: its name there, and the length of its rows. */
interface NamedMatrix {
  readonly name: string;
  readonly columns: number;
}

function fitting(type: GgufOutputType, columns: number): GgufOutputType {
  const [size, other] = BLOCKS[type] ?? [1, type];
  return columns % size === 0 ? type : fitting(other, columns);
}

/** Which of so many layers llama.cpp gives more bits: the first and the last eighth, and every third between them. */
function hasMoreBits(i: number, layers: number): boolean {
  const eighth = Math.floor(layers / 8);
  return i < eighth || i >= Math.floor(7 * layers / 8) || (i - eighth) % 3 === 2;
}

/** The layer in a tensor's name. */
function layerOf(name: string): number {
  return Number(/^blk\.(\d+)\./.exec(name)?.[1]);
}

const VALUES = /\.attn_(v|qkv)\.weight$/;
const DOWN = /\.ffn_down\w*\.weight$/;
/** Matrices that all experts share, in models of eight of them. */
const SHARED = /\.attn_[kv]\.weight$/;

/** The types of llama.cpp's mix Q4_K_M. Where it takes Q5_K, that is Q6_K here. */
function mixed(matrices: readonly NamedMatrix[], layers: number, experts: number): (name: string) => GgufOutputType {
  const names = matrices.map(({ name }) => name);
  const head = names.includes("output.weight") ? "output.weight" : "token_embd.weight";
  const values = names.filter((name) => VALUES.test(name)).sort((a, b) => layerOf(a) - layerOf(b));
  return (name) => {
    if (name === head) return "Q6_K";
    if (experts === 8 && SHARED.test(name)) return "Q8_0";
    if (experts === 8 && name.endsWith(".attn_output.weight")) return "Q6_K";
    if (name.endsWith(".attn_qkv.weight")) return "Q6_K";
    const more = VALUES.test(name)
      ? hasMoreBits(values.indexOf(name), values.length)
      : DOWN.test(name) && hasMoreBits(layerOf(name), layers);
    return more ? "Q6_K" : "Q4_K";
  };
}

/** The type of each matrix, by its name in the file, of a model with so many layers and experts in a layer. */
export function matrixTypes(
  output: GgufOutput,
  matrices: readonly NamedMatrix[],
  layers: number,
  experts: number,
): ReadonlyMap<string, GgufOutputType> {
  const typeOf = output === "Q4_K_M" ? mixed(matrices, layers, experts) : () => output;
  return new Map(matrices.map(({ name, columns }) => [name, fitting(typeOf(name), columns)]));
}
