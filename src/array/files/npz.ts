/**
 * Arrays in NumPy's files: one in .npy, several by name in .npz, a ZIP archive of the former.
 *
 * Headers are read, values stay in the file until they are needed; those of deflated members are inflated then.
 *
 * @module
 */

import { inflateBeginning, type InputFile } from "../../../ffi/file.ts";
import { quoted } from "../../graph/error.ts";
import type { OpAttrs } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import * as dt from "../../graph/dtype.ts";
import { flip, reshape, transpose } from "../ops/movement.ts";
import { view } from "../ops/view.ts";
import { make, Tensor } from "../tensor/tensor.ts";
import { byName, checkNames, namedList, type NamedTensors } from "./named.ts";
import { type NpyHeader, npyHeader, readNpyHeader } from "./npy.ts";
import { tensorPieces, writeFile } from "./pieces.ts";
import { opened } from "./safetensors.ts";
import { type Member, type NewMember, readZip, zipPieces } from "./zip.ts";

/** The array of values that lie after a header. */
function stored({ dtype, fortran, bigEndian, shape }: NpyHeader, place: OpAttrs["file"]): Tensor {
  const axes = fortran ? shape.toReversed() : [...shape];
  let x: Tensor;
  if (bigEndian) {
    const bytes = make("file", [], [sizeOf(shape), dtype.bytes], dt.uint8, place);
    x = reshape(view(flip(bytes, -1), dtype), axes);
  } else x = make("file", [], axes, dtype, place);
  return fortran && shape.length > 1 ? transpose(x) : x;
}

/**
 * The array of a .npy file; its values are read when they are needed. Both byte orders and both orders of axes are understood;
 * "V2" is bfloat16, as MLX writes it.
 *
 * Throws an {@link ArrayError} with code "file" if that is no such file, or has elements that no array has.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const path = await Deno.makeTempFile({ suffix: ".npy" });
 * mx.save(path, mx.arange(3));
 * mx.loadNpy(path).tolist(); // [0, 1, 2]
 * ```
 */
export function loadNpy(path: string): Tensor {
  return opened(path, (file, fail) => {
    const read = (offset: number, length: number): Uint8Array =>
      file.read(Math.min(offset, file.size), Math.max(0, Math.min(length, file.size - offset)));
    const header = readNpyHeader(read, fail);
    return stored(header, { path: file.resolve(), version: file.version, byteOffset: header.dataStart });
  });
}

/** Most bytes of a deflated member that are looked at for its header. */
const BEGINNING = 2 ** 20;

function loadMember(file: InputFile, member: Member, fail: (what: string) => never): Tensor {
  const { begin, length, size, crc, deflated } = member;
  const content = deflated ? inflateBeginning(file.read(begin, Math.min(length, 4096))) : undefined;
  const read = (offset: number, count: number): Uint8Array => {
    if (!content) {
      const most = Math.max(0, Math.min(count, size - offset));
      return file.read(most === 0 ? begin : begin + offset, most);
    }
    if (offset + count <= content.length) return content.subarray(offset, offset + count);
    return inflateBeginning(file.read(begin, Math.min(length, BEGINNING))).subarray(offset, offset + count);
  };
  const header = readNpyHeader(read, fail);
  const { dtype, shape, dataStart } = header;
  const bytes = sizeOf(shape) * dtype.bytes;
  if (dataStart + bytes !== size) fail(`holds ${size} bytes: its header tells ${dataStart + bytes}`);
  const place = { path: file.resolve(), version: file.version };
  return deflated
    ? stored(header, { ...place, byteOffset: begin, deflated: { bytes: length, skip: dataStart, crc } })
    : stored(header, { ...place, byteOffset: begin + dataStart });
}

/**
 * The arrays of a .npz file by name; their values are read when they are needed.
 *
 * Throws an {@link ArrayError} with code "file" if that is no archive of .npy files, or is damaged.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const path = await Deno.makeTempFile({ suffix: ".npz" });
 * mx.savez(path, { a: mx.arange(3), b: mx.ones([2, 2]) });
 * mx.loadNpz(path).a.tolist(); // [0, 1, 2]
 * ```
 */
export function loadNpz(path: string): NamedTensors {
  return opened(path, (file, fail) =>
    byName(
      readZip(file, fail).map((member) => {
        const failMember = (what: string): never => fail(`member ${quoted(member.name)} ${what}`);
        if (!member.name.endsWith(".npy")) failMember("is no .npy file");
        return [member.name.slice(0, -".npy".length), loadMember(file, member, failMember)] as const;
      }),
    ));
}

function pieces(tensor: Tensor): NewMember["pieces"] {
  return function* () {
    yield npyHeader(tensor.dtype, tensor.shape);
    yield* tensorPieces(tensor);
  };
}

/** Saves an array in NumPy's format. The file appears whole or not at all. */
export function saveNpy(path: string, tensor: Tensor): void {
  writeFile(path, pieces(tensor)());
}

function saveArchive(op: string, path: string, arrays: readonly (Tensor | NamedTensors)[], deflate: boolean): void {
  const list = arrays.flatMap((x, i): [string, Tensor][] => x instanceof Tensor ? [[`arr_${i}`, x]] : namedList(op, x));
  checkNames(op, list);
  const members = list.map(([name, tensor]): NewMember => ({
    name: `${name}.npy`,
    size: npyHeader(tensor.dtype, tensor.shape).length + sizeOf(tensor.shape) * tensor.dtype.bytes,
    pieces: pieces(tensor),
  }));
  writeFile(path.endsWith(".npz") ? path : `${path}.npz`, zipPieces(members, deflate));
}

/**
 * Saves arrays as a .npz file: those in objects by their names, others as "arr_0", "arr_1" and so on. ".npz" is added to a path
 * that does not end so. The file appears whole or not at all.
 *
 * @example
 * ```ts
 * import * as mx from "@vkmx/vkmx";
 *
 * const path = await Deno.makeTempFile({ suffix: ".npz" });
 * mx.savez(path, mx.arange(3), { b: mx.ones([2, 2]) });
 * Object.keys(mx.loadNpz(path)); // ["arr_0", "b"]
 * ```
 */
export function savez(path: string, ...arrays: readonly (Tensor | NamedTensors)[]): void {
  saveArchive("savez", path, arrays, false);
}

/** As {@link savez}, with deflated members. */
export function savezCompressed(path: string, ...arrays: readonly (Tensor | NamedTensors)[]): void {
  saveArchive("savezCompressed", path, arrays, true);
}
