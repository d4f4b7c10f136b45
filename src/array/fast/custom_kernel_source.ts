/**
 * Checks the names and texts of a program's own kernel before they are compiled.
 *
 * @module
 */

import { KernelError, kindOf, quoted, ValueError } from "../../graph/error.ts";
import { THREAD_NAMES, usesOf } from "../../schedule/ops/custom_glsl.ts";

/** The function in whose name errors are thrown. */
export const OP = "vulkanKernel";

/** Most characters of a source with its header. */
const MAX_TEXT = 1 << 20;
const MAX_NAME = 64;

/** Words with a fixed meaning in a body; others, such as `out`, may be names of buffers. */
const WORDS = new Set(
  ("if else for while do switch case default break continue return discard const true false struct shared void bool int uint float " +
    "double vec2 vec3 vec4 ivec2 ivec3 ivec4 uvec2 uvec3 uvec4 bvec2 bvec3 bvec4 mat2 mat3 mat4 int8_t int16_t int32_t int64_t " +
    "uint8_t uint16_t uint32_t uint64_t float16_t float32_t bfloat16_t main barrier defined to_float elem_to_loc")
    .split(" "),
);

function isName(name: unknown): name is string {
  return typeof name === "string" && name.length <= MAX_NAME && /^[A-Za-z_]\w*$/.test(name);
}

/** The name of a kernel. */
export function checkKernelName(name: unknown): string {
  if (isName(name)) return name;
  throw new ValueError(
    `${OP}() expected name to be up to ${MAX_NAME} letters, digits and _: found ${quoted(name)}`,
  );
}

/** A name in a shader that is not taken. */
export function checkName(what: string, name: unknown): string {
  const fits = isName(name) && !/^(gl_|vkmx_)|__/.test(name) && !WORDS.has(name) && !Object.hasOwn(THREAD_NAMES, name);
  if (fits) return name;
  throw new ValueError(
    `${OP}() expected ${what} to be up to ${MAX_NAME} letters, digits and _, and no word of GLSL: found ${
      quoted(name)
    }`,
  );
}

/** A list of them. */
export function checkNames(what: string, names: unknown): readonly string[] {
  if (!Array.isArray(names)) {
    throw new ValueError(`${OP}() expected ${what} to be a list of names: found ${kindOf(names)}`);
  }
  return names.map((name) => checkName(what, name));
}

/** A text that a shader is made of. */
export function checkText(what: string, text: unknown): string {
  if (typeof text !== "string") throw new ValueError(`${OP}() expected ${what} to be a text: found ${kindOf(text)}`);
  if (text.length > MAX_TEXT) {
    throw new ValueError(`${OP}() expected ${what} to have at most ${MAX_TEXT} characters: found ${text.length}`);
  }
  if (/^[ \t]*#[ \t]*(include|version)\b/m.test(text)) {
    throw new ValueError(`${OP}() expected no #include and no #version in ${what}: put the text itself into header`);
  }
  if (text.includes("\0")) throw new ValueError(`${OP}() expected no NUL character in ${what}`);
  return text;
}

/** Throws for a name that is there twice. The shader's names for the shape of an input and atomic functions of an output count too. */
export function checkDistinct(names: readonly string[]): void {
  const own = (name: string, other: string): boolean =>
    name.startsWith(other) && /^_(shape|strides|ndim|atomic_(add|min|max))$/.test(name.slice(other.length));
  const taken = names.find((name, i) => names.indexOf(name) !== i || names.some((other) => own(name, other)));
  if (taken === undefined) return;
  throw new ValueError(
    `${OP}() expected names that differ: found ${taken} twice, or as a name that the shader makes of another`,
  );
}

/** The syntax after or before a place that is written. */
const ASSIGNED = /^\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)/;
const CHANGED = /(?:\+\+|--|\batomic\w+\s*\()\s*$/;

/** Throws a {@link KernelError} if a body writes into an input: compilers let it pass, and other arrays may lie there. */
export function checkReads(kernel: string, source: string, inputs: readonly string[]): void {
  const code = source.replaceAll(/\/\/.*|\/\*[^]*?(?:\*\/|$)/g, (comment) => comment.replaceAll(/[^\n]/g, " "));
  for (const { name, index } of usesOf(code, inputs)) {
    const before = code.slice(Math.max(0, index - 64), index);
    const end = behindIndex(code, index + name.length);
    const after = code.slice(end, end + 64).replace(/^\s*\.\s*\w+/, "");
    if (!ASSIGNED.test(after) && !CHANGED.test(before)) continue;
    const line = code.slice(0, index).split("\n").length;
    const text = quoted(source.split("\n")[line - 1].trim());
    throw new KernelError(
      `${OP} "${kernel}" writes into its input ${name} in line ${line} of its source, ${text}`,
      "",
      line,
    );
  }
}

/** Most characters of an index. */
const MAX_INDEX = 512;

/** Where the index in brackets ends that begins at a place, or that place. */
function behindIndex(code: string, at: number): number {
  const from = at + /^\s*/.exec(code.slice(at, at + 64))![0].length;
  if (code[from] !== "[") return at;
  let depth = 0;
  for (let i = from; i < Math.min(code.length, from + MAX_INDEX); i++) {
    if (code[i] === "[") depth++;
    else if (code[i] === "]" && --depth === 0) return i + 1;
  }
  return at;
}
