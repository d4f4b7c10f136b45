/**
 * Values that arrays read from files, straight to the device.
 *
 * An array knows its file from the header that was checked. By the time its values are needed another program may have written there,
 * or put something else in its place, so the file is looked at again.
 *
 * @module
 */

import { checkBooleanBytes, checkBooleans, checkVersion, FileError, inflateRange } from "../../ffi/file.ts";
import type { Backend, BufferHandle } from "../backend/backend.ts";
import { ArrayError, shownPath } from "../graph/error.ts";
import { attrsOf, type Node } from "../graph/node.ts";
import { sizeOf } from "../graph/shape.ts";

/** Writes the values of a leaf to an offset of a buffer. */
export type LeafLoader = (backend: Backend, buffer: BufferHandle, byteOffset: number) => void;

/**
 * What loads a leaf's values from its file, which is looked at before anything is allocated for them. Throws an {@link ArrayError}
 * with code "file" where that is no longer the file whose header was read, ends too early, or holds booleans that are neither 0
 * nor 1.
 */
export function openLeaf(node: Node): LeafLoader {
  const { path, byteOffset: from, version, deflated } = attrsOf(node, "file");
  const bytes = sizeOf(node.shape) * node.dtype.bytes;
  try {
    checkVersion(path, version, from + (deflated?.bytes ?? bytes));
    if (deflated) {
      const { bytes: length, skip, crc } = deflated;
      const content = inflateRange(path, { offset: from, length, expected: skip + bytes, crc }).subarray(skip);
      if (node.dtype.kind === "bool") checkBooleanBytes(content, from);
      return (backend, buffer, byteOffset) => backend.write(buffer, byteOffset, content);
    }
    if (node.dtype.kind === "bool") checkBooleans(path, from, bytes);
  } catch (cause) {
    if (cause instanceof FileError) throw new ArrayError("file", `${shownPath(path)} ${cause.message}`);
    throw cause;
  }
  return (backend, buffer, byteOffset) => backend.load(buffer, byteOffset, path, from, bytes);
}
