/**
 * Checks of SPIR-V before a driver gets it: that the module is whole, what it needs of the device, how it uses its buffers.
 *
 * Drivers trust their input. Whether every instruction is right is checked by spirv-val, if that is installed.
 *
 * @module
 */

import type { ShaderFacts } from "./backend.ts";

export { compileGlsl, digestOf, judgeSpirv } from "../../ffi/glslc.ts";

const MAGIC = 0x07230203;
const HEADER_WORDS = 5;
/** Versions that Vulkan 1.3 takes. */
const MAX_VERSION = 0x10600;
/** Largest bound of ids that drivers must take. */
const MAX_IDS = 4194303;
const MAX_BYTES = 16 << 20;

const OP = {
  entryPoint: 15,
  executionMode: 16,
  capability: 17,
  constant: 43,
  function: 54,
  functionEnd: 56,
  decorate: 71,
  executionModeId: 331,
} as const;
const GL_COMPUTE = 5;
const LOCAL_SIZE = 17;
const LOCAL_SIZE_ID = 38;
const DECORATION = { builtIn: 11, binding: 33, descriptorSet: 34 } as const;
const WORKGROUP_SIZE = 25;

/** Capabilities of every device, by number: Matrix, Shader, integers of all sizes, storage of 8 and 16 bits, addresses, … */
const ALWAYS: ReadonlySet<number> = new Set([
  0,
  1,
  11,
  22,
  39,
  61,
  63,
  4433,
  4448,
  5345,
  5346,
  5347,
  6016,
  6017,
  6018,
  6019,
]);

/** Capabilities that some devices have: the feature or the bit of VkSubgroupFeatureFlagBits that stands for it. */
const SOMETIMES: Readonly<Record<number, { readonly name: string; readonly feature?: string; readonly bit?: number }>> =
  {
    9: { name: "Float16", feature: "float16" },
    12: { name: "Int64Atomics", feature: "int64Atomics" },
    6033: { name: "AtomicFloat32AddEXT", feature: "floatAtomics" },
    62: { name: "GroupNonUniformVote", bit: 2 },
    64: { name: "GroupNonUniformBallot", bit: 8 },
    65: { name: "GroupNonUniformShuffle", feature: "shuffle", bit: 16 },
    66: { name: "GroupNonUniformShuffleRelative", bit: 32 },
    67: { name: "GroupNonUniformClustered", bit: 64 },
    68: { name: "GroupNonUniformQuad", bit: 128 },
    6022: { name: "CooperativeMatrixKHR", feature: "coopmat" },
    5116: { name: "BFloat16TypeKHR", feature: "bfloat16" },
  };

/** Whether the device has a capability; a text says what is missing. */
function missingCapability(number: number, facts: ShaderFacts): string | undefined {
  if (ALWAYS.has(number)) return undefined;
  const row = SOMETIMES[number];
  if (!row) return `it needs the SPIR-V capability ${number}, which is not switched on`;
  const has = (row.feature === undefined || facts.features.includes(row.feature)) &&
    (row.bit === undefined || (facts.subgroupOperations & row.bit) !== 0);
  return has ? undefined : `it needs the SPIR-V capability ${row.name}, which this device lacks`;
}

/** The words of a module, if it is one. */
export function spirvWords(bytes: Uint8Array): Uint32Array<ArrayBuffer> | undefined {
  if (bytes.length % 4 !== 0 || bytes.length <= 4 * HEADER_WORDS || bytes.length > MAX_BYTES) return undefined;
  return new Uint32Array(bytes.slice().buffer);
}

/**
 * Why a module must not run on a device with workgroups of a size; undefined if nothing speaks against it. It takes buffers by address,
 * in push constants.
 */
export function whyNoKernel(
  words: Uint32Array | undefined,
  facts: ShaderFacts,
  threadgroup: readonly number[],
): string | undefined {
  if (!words) return `expected SPIR-V: 6 to ${MAX_BYTES / 4} words of 4 bytes`;
  if (words[0] !== MAGIC) {
    return `expected SPIR-V, which begins with ${MAGIC.toString(16)}: found ${words[0].toString(16)}`;
  }
  if (words[1] > MAX_VERSION || words[3] === 0 || words[3] > MAX_IDS || words[4] !== 0) {
    return "its header is not that of SPIR-V 1.0 to 1.6";
  }
  let entry = false;
  let open = 0; // functions that have not ended
  let size: readonly (number | undefined)[] = []; // undefined along axes that specialization constants say
  let sizeIds: readonly number[] = [];
  let sized = false; // by a decoration, which counts more than the execution mode
  const constants = new Map<number, number>();
  for (let at = HEADER_WORDS; at < words.length;) {
    const length = words[at] >>> 16;
    const op = words[at] & 0xffff;
    if (length === 0 || length > words.length - at) {
      return `it is cut off: the instruction at word ${at} passes its end`;
    }
    const operands = words.subarray(at + 1, at + length);
    const missing = op === OP.capability ? missingCapability(operands[0], facts) : undefined;
    if (missing) return missing;
    if (op === OP.entryPoint && operands[0] === GL_COMPUTE && nameOf(operands.subarray(2)) === "main") entry = true;
    if (op === OP.executionMode && operands[1] === LOCAL_SIZE) size = [...operands.subarray(2, 5)];
    if (op === OP.executionModeId && operands[1] === LOCAL_SIZE_ID) sizeIds = [...operands.subarray(2, 5)];
    if (op === OP.constant) constants.set(operands[1], operands[2]);
    if (op === OP.decorate && operands[1] === DECORATION.builtIn && operands[2] === WORKGROUP_SIZE) sized = true;
    if (op === OP.decorate && (operands[1] === DECORATION.descriptorSet || operands[1] === DECORATION.binding)) {
      return "it binds descriptors: buffers come by address, in push constants";
    }
    open += op === OP.function ? 1 : op === OP.functionEnd ? -1 : 0;
    at += length;
  }
  if (open !== 0) return "it is cut off: a function has no end";
  if (!entry) return 'it has no compute entry point "main"';
  if (sizeIds.length > 0) size = sizeIds.map((id) => constants.get(id));
  if (!sized && size.some((n, i) => n !== undefined && n !== threadgroup[i])) {
    const own = size.map((n) => n ?? "any").join(" x ");
    return `its workgroups are ${own}, those of the call ${threadgroup.join(" x ")}`;
  }
  return undefined;
}

/** A literal string: bytes up to a NUL. */
function nameOf(words: Uint32Array): string {
  const bytes = new Uint8Array(words.slice().buffer);
  const end = bytes.indexOf(0);
  return String.fromCharCode(...bytes.subarray(0, end < 0 ? 0 : end));
}
