/**
 * The shader around the body that a program brings: extensions, buffers, template arguments, and the names of MLX for threads.
 *
 * Buffers come by address, in push constants. A buffer is a reference that main() makes of its address, and its name in the body becomes
 * that reference's array. Names after a dot stay, so that an input may be called x. Lines are counted as the program wrote them.
 *
 * @module
 */

import type { ShaderFacts } from "../../backend/backend.ts";
import type { CustomCall } from "../../graph/custom_kernel.ts";
import type { Dtype, DtypeName } from "../../graph/dtype.ts";
import { DtypeError } from "../../graph/error.ts";

/** An input as the shader sees it. */
export interface ShaderInput {
  readonly dtype: Dtype;
  readonly rank: number;
}

/** GLSL's type of an element in memory, and of a value that is a template argument. */
const TYPES: Readonly<Record<DtypeName, readonly [stored: string, value: string] | undefined>> = {
  bool: ["uint8_t", "bool"],
  uint8: ["uint8_t", "uint8_t"],
  uint16: ["uint16_t", "uint16_t"],
  uint32: ["uint", "uint"],
  int8: ["int8_t", "int8_t"],
  int16: ["int16_t", "int16_t"],
  int32: ["int", "int"],
  float16: ["float16_t", "float16_t"],
  bfloat16: ["bfloat16_t", "bfloat16_t"],
  float32: ["float", "float"],
  int64: ["int64_t", "int64_t"],
  uint64: ["uint64_t", "uint64_t"],
  float64: undefined,
  complex64: ["vec2", "vec2"],
};

/** Extensions that every device serves. */
const ALWAYS = [
  "GL_GOOGLE_cpp_style_line_directive",
  "GL_EXT_buffer_reference",
  "GL_EXT_shader_explicit_arithmetic_types_int64",
  "GL_EXT_shader_8bit_storage",
  "GL_EXT_shader_16bit_storage",
  "GL_EXT_shader_explicit_arithmetic_types_int8",
  "GL_EXT_shader_explicit_arithmetic_types_int16",
  "GL_KHR_shader_subgroup_basic",
  "GL_KHR_shader_subgroup_arithmetic",
];

/** Extensions that go with a feature, or with a bit of VkSubgroupFeatureFlagBits. */
const SOMETIMES: readonly (readonly [extension: string, has: (facts: ShaderFacts) => boolean])[] = [
  ["GL_EXT_shader_explicit_arithmetic_types_float16", hasFeature("float16")],
  ["GL_EXT_shader_atomic_int64", hasFeature("int64Atomics")],
  ["GL_EXT_shader_atomic_float", hasFeature("floatAtomics")],
  ["GL_KHR_shader_subgroup_shuffle", hasFeature("shuffle")],
  ["GL_KHR_shader_subgroup_vote", hasOperation(2)],
  ["GL_KHR_shader_subgroup_ballot", hasOperation(8)],
  ["GL_KHR_shader_subgroup_shuffle_relative", hasOperation(32)],
  ["GL_KHR_shader_subgroup_clustered", hasOperation(64)],
];

function hasFeature(name: string): (facts: ShaderFacts) => boolean {
  return ({ features }) => features.includes(name);
}

function hasOperation(bit: number): (facts: ShaderFacts) => boolean {
  return ({ subgroupOperations }) => (subgroupOperations & bit) !== 0;
}

/** MLX's names for where a thread is. */
export const THREAD_NAMES: Readonly<Record<string, string>> = {
  thread_position_in_grid: "gl_GlobalInvocationID",
  threads_per_grid: "uvec3(vkmx_pc.grid_x, vkmx_pc.grid_y, vkmx_pc.grid_z)",
  thread_position_in_threadgroup: "gl_LocalInvocationID",
  thread_index_in_threadgroup: "gl_LocalInvocationIndex",
  threads_per_threadgroup: "gl_WorkGroupSize",
  threadgroup_position_in_grid: "gl_WorkGroupID",
  threadgroups_per_grid: "gl_NumWorkGroups",
  threads_per_simdgroup: "gl_SubgroupSize",
  thread_index_in_simdgroup: "gl_SubgroupInvocationID",
  simdgroup_index_in_threadgroup: "gl_SubgroupID",
  simdgroups_per_threadgroup: "gl_NumSubgroups",
};

const BFLOAT16 = `struct bfloat16_t { uint16_t bits; };
bfloat16_t vkmx_bfloat16(float x) {
    uint u = floatBitsToUint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return bfloat16_t(uint16_t(0x7fc0u));
    return bfloat16_t(uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16));
}
float to_float(bfloat16_t x) { return uintBitsToFloat(uint(x.bits) << 16); }
#define bfloat16_t(x) vkmx_bfloat16(to_float(x))`;

/** Types of values that to_float() takes besides bfloat16_t. */
const NUMBERS = ["float", "int", "uint", "bool", "int8_t", "uint8_t", "int16_t", "uint16_t", "int64_t", "uint64_t"];

/** Names of an input's shape, strides and number of axes that a body speaks of. */
export function mentions(source: string, name: string): boolean {
  return new RegExp(`(?<![\\w.])${name}_(?:shape|strides|ndim)(?!\\w)`).test(source);
}

/** Whether the shader reads shapes and strides. */
export function needsMetadata({ kernel }: CustomCall): boolean {
  return kernel.inputNames.some((name) => mentions(kernel.source, name));
}

/** The type of elements in memory. */
function storedType(dtype: Dtype, facts: ShaderFacts, name: string): string {
  const types = TYPES[dtype.name];
  if (!types) throw new DtypeError(`vulkanKernel "${name}" cannot take ${dtype.name}, which is there on the CPU only`);
  if (dtype.name === "float16" && !facts.features.includes("float16")) {
    throw new DtypeError(
      `vulkanKernel "${name}" cannot take float16: this device does not compute in it, use astype(mx.float32)`,
    );
  }
  return types[0];
}

/** The whole shader of a call. */
export function shaderText(call: CustomCall, inputs: readonly ShaderInput[], facts: ShaderFacts): string {
  const { kernel, template } = call;
  const { name, inputNames, outputNames, source, header } = kernel;
  const types = [...inputs, ...call.outputs].map(({ dtype }) => storedType(dtype, facts, name));
  const references = new Map<string, string>();
  const reference = (i: number): string => {
    const [kind, qualifier] = i < inputs.length ? ["in", "readonly "] : ["out", ""];
    const type = `vkmx_${kind}_${types[i]}`;
    const { bytes } = [...inputs, ...call.outputs][i].dtype;
    references.set(
      type,
      `layout(buffer_reference, std430, buffer_reference_align = ${bytes}) ${qualifier}buffer ${type} { ${
        types[i]
      } v[]; };`,
    );
    return type;
  };
  const names = [...inputNames, ...outputNames];
  const locals = names.map((_, i) => {
    const type = reference(i);
    return `${type} vkmx_buffer_${i} = ${type}(vkmx_pc.address[${i}]);`;
  });
  const atomics = kernel.atomicOutputs
    ? outputNames.map((output, i) => atomicFunctions(call, output, i, types, facts, inputs.length))
    : [];
  const ranks = new Set<number>();
  const shapes = metadata(kernel.source, inputNames, inputs, ranks);
  return [
    "#version 460",
    ...ALWAYS.map((extension) => `#extension ${extension} : require`),
    ...SOMETIMES.filter(([, has]) => has(facts)).map(([extension]) => `#extension ${extension} : enable`),
    "layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;",
    "layout(push_constant, std430) uniform vkmx_push {",
    `    uint64_t address[${names.length}];`,
    "    uint64_t metadata;",
    "    uint grid_x, grid_y, grid_z;",
    "} vkmx_pc;",
    ...Object.entries(THREAD_NAMES).map(([mlx, glsl]) => `#define ${mlx} ${glsl}`),
    ...NUMBERS.map((type) => `float to_float(${type} x) { return float(x); }`),
    ...(facts.features.includes("float16") ? ["float to_float(float16_t x) { return float(x); }"] : []),
    BFLOAT16,
    ...references.values(),
    "layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer vkmx_ints { int v[]; };",
    "layout(buffer_reference, std430, buffer_reference_align = 4) buffer vkmx_words { uint v[]; };",
    ...Array.from(ranks, elementToLocation),
    ...atomics,
    '#line 1 "header"',
    header,
    '#line 1 "template"',
    ...template.map(([key, value]) => templateArgument(key, value, facts, name)),
    '#line 1 "main"',
    "void main() {",
    "    if (any(greaterThanEqual(gl_GlobalInvocationID, threads_per_grid))) return;",
    ...[...locals, ...shapes].map((line) => `    ${line}`),
    '#line 1 "source"',
    withBuffers(source, names, inputs),
    "}",
    "",
  ].join("\n");
}

/** The body with references in place of the names of buffers; an input without axes is its value. */
function withBuffers(source: string, names: readonly string[], inputs: readonly ShaderInput[]): string {
  let [text, at] = ["", 0];
  for (const { name, index } of usesOf(source, names)) {
    const i = names.indexOf(name);
    text += `${source.slice(at, index)}vkmx_buffer_${i}.v${inputs[i]?.rank === 0 ? "[0]" : ""}`;
    at = index + name.length;
  }
  return text + source.slice(at);
}

/** Characters before a name in which a dot is looked for. */
const NEAR = 32;

/** Where a text speaks of names, except for those after a dot, which are of fields. */
export function usesOf(source: string, names: readonly string[]): { readonly name: string; readonly index: number }[] {
  if (names.length === 0) return [];
  const found = source.matchAll(new RegExp(`(?<!\\w)(?:${names.join("|")})(?!\\w)`, "g"));
  return Array.from(found, ({ 0: name, index }) => ({ name, index }))
    .filter(({ index }) => !/\.\s*$/.test(source.slice(Math.max(0, index - NEAR), index)));
}

/** Constants of main() for the shapes, strides and ranks that the body speaks of. Their place: ndim, shape and strides of each input. */
function metadata(
  source: string,
  names: readonly string[],
  inputs: readonly ShaderInput[],
  ranks: Set<number>,
): string[] {
  const lines: string[] = [];
  let at = 0;
  inputs.forEach(({ rank }, i) => {
    const shape = at + 1;
    at += 1 + 2 * rank;
    if (!mentions(source, names[i])) return;
    ranks.add(Math.max(1, rank));
    const list = (from: number, otherwise: number): string => {
      const items = Array.from({ length: rank }, (_, axis) => `vkmx_metadata.v[${from + axis}]`);
      return `int[${Math.max(1, rank)}](${items.length > 0 ? items.join(", ") : otherwise})`;
    };
    lines.push(
      `const int ${names[i]}_ndim = ${rank};`,
      `const int ${names[i]}_shape[${Math.max(1, rank)}] = ${list(shape, 1)};`,
      `const int ${names[i]}_strides[${Math.max(1, rank)}] = ${list(shape + rank, 0)};`,
    );
  });
  return lines.length > 0 ? ["vkmx_ints vkmx_metadata = vkmx_ints(vkmx_pc.metadata);", ...lines] : [];
}

/** MLX's elem_to_loc for arrays of a rank: where element `elem` lies. */
function elementToLocation(rank: number): string {
  return `uint elem_to_loc(uint elem, int shape[${rank}], int strides[${rank}], int ndim) {
    uint at = 0u;
    for (int i = ndim - 1; i >= 0; i--) {
        at += (elem % uint(shape[i])) * uint(strides[i]);
        elem /= uint(shape[i]);
    }
    return at;
}`;
}

function templateArgument(
  key: string,
  value: CustomCall["template"][number][1],
  facts: ShaderFacts,
  name: string,
): string {
  if (typeof value === "boolean") return `const bool ${key} = ${value};`;
  if (typeof value === "number") return `const int ${key} = ${value};`;
  storedType(value, facts, name);
  return `#define ${key} ${TYPES[value.name]![1]}`;
}

/** name_atomic_add(), _min() and _max() of an output: the value before. */
function atomicFunctions(
  { outputs, kernel }: CustomCall,
  output: string,
  i: number,
  types: readonly string[],
  facts: ShaderFacts,
  inputs: number,
): string {
  const { dtype } = outputs[i];
  const type = types[inputs + i];
  const place = `(vkmx_pc.address[${inputs + i}])`;
  const head = (fn: string): string => `${type} ${output}_atomic_${fn}(uint i, ${type} x)`;
  const direct = (fn: string): string => {
    const builtin = `atomic${fn[0].toUpperCase()}${fn.slice(1)}`;
    return `${head(fn)} { return ${builtin}(vkmx_out_${type}${place}.v[i], x); }`;
  };
  const wide = dtype.name === "int64" || dtype.name === "uint64";
  if (dtype.name === "int32" || dtype.name === "uint32" || (wide && facts.features.includes("int64Atomics"))) {
    return ["add", "min", "max"].map(direct).join("\n");
  }
  if (dtype.name !== "float32") {
    const advice = wide
      ? "this device has no atomics of 64 bits"
      : "atomics are there for float32, int32, uint32, int64 and uint64";
    throw new DtypeError(`vulkanKernel "${kernel.name}" cannot have atomic outputs of ${dtype.name}: ${advice}`);
  }
  // By comparing and exchanging bits: every device can.
  const exchanged = (fn: string, value: string): string =>
    `${head(fn)} {
    vkmx_words at = vkmx_words${place};
    for (uint seen = at.v[i];;) {
        float before = uintBitsToFloat(seen);
        uint found = atomicCompSwap(at.v[i], seen, floatBitsToUint(${value}));
        if (found == seen) return before;
        seen = found;
    }
}`;
  return [
    facts.features.includes("floatAtomics") ? direct("add") : exchanged("add", "before + x"),
    exchanged("min", "min(before, x)"),
    exchanged("max", "max(before, x)"),
  ].join("\n");
}
