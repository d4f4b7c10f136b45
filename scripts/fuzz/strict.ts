/**
 * The rules of safetensors once more, written apart from the library's reader: what it accepts must keep them.
 *
 * @module
 */

import { Wrong } from "./format.ts";

const WIDTH: Readonly<Record<string, number>> = {
  ...{
    BOOL: 1,
    U8: 1,
    I8: 1,
    F8_E4M3: 1,
    F8_E5M2: 1,
    F8_E8M0: 1,
    U16: 2,
    I16: 2,
    F16: 2,
    BF16: 2,
    U32: 4,
    I32: 4,
    F32: 4,
  },
};

/** Names of the members of the outermost object of a JSON text, in their order, those that occur twice too. */
function* namesOf(json: string): Generator<string> {
  let depth = 0;
  for (const { 0: token, index } of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]]/g)) {
    if (token === "{" || token === "[") depth++;
    else if (token === "}" || token === "]") depth--;
    else if (depth === 1 && /^\s*:/.test(json.slice(index + token.length, index + token.length + 64))) {
      yield JSON.parse(token);
    }
  }
}

/**
 * Throws if an accepted file breaks a rule: one name for each array, no gap, no overlap, nothing after the end, BOOL 0
 * or 1.
 */
export function checkAccepted(file: Uint8Array): void {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const text = new TextDecoder("utf-8", { fatal: true }).decode(file.subarray(8, 8 + length));
  const data = file.subarray(8 + length);
  const names = [...namesOf(text)];
  if (new Set(names).size !== names.length) throw new Wrong("accepted: a name occurs twice");
  const { __metadata__: _, ...tensors } = JSON.parse(text) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const rows = Object.values(tensors).sort((a, b) =>
    a.data_offsets[0] - b.data_offsets[0] || a.data_offsets[1] - b.data_offsets[1]
  );
  let end = 0;
  for (const { dtype, shape, data_offsets: [begin, next] } of rows) {
    if (begin !== end) throw new Wrong(`accepted: ${begin > end ? "a gap" : "an overlap"} in the data`);
    if (next - begin !== shape.reduce((n, d) => n * d, WIDTH[dtype])) {
      throw new Wrong("accepted: a size that shape and dtype do not give");
    }
    if (dtype === "BOOL" && data.subarray(begin, next).some((byte) => byte > 1)) {
      throw new Wrong("accepted: a BOOL that is neither 0 nor 1");
    }
    end = next;
  }
  if (end !== data.length) throw new Wrong("accepted: the arrays do not cover the data");
}
