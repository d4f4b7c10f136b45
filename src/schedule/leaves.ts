/**
 * Values that arrays read from files, straight to the device.
 *
 * An array knows its file from the header that was checked. By the time its values are needed another program may have written there,
 * or put something else in its place, so the file is looked at again.
 *
 * @module
 */

import { checkBooleans, checkVersion, FileError } from "../../ffi/file.ts";
import type { Backend, BufferHandle } from "../backend/backend.ts";
import { ArrayError, shownPath } from "../graph/error.ts";
import { attrsOf, type Node } from "../graph/node.ts";
import { sizeOf } from "../graph/shape.ts";

/**
 * Reads a leaf's values from its file to an offset of a buffer. Throws an {@link ArrayError} with code "file" where that is no longer
 * the file whose header was read, or holds booleans that are neither 0 nor 1.
 */
export function loadLeaf(node: Node, backend: Backend, buffer: BufferHandle, byteOffset: number): void {
  const { path, byteOffset: from, version } = attrsOf(node, "file");
  const bytes = sizeOf(node.shape) * node.dtype.bytes;
  try {
    checkVersion(path, version);
    if (node.dtype.kind === "bool") checkBooleans(path, from, bytes);
  } catch (cause) {
    if (cause instanceof FileError) throw new ArrayError("file", `${shownPath(path)} ${cause.message}`, { cause });
    throw cause;
  }
  backend.load(buffer, byteOffset, path, from, bytes);
}
