/**
 * Values of leaves: content of the host is uploaded, and values in files are read straight to the device.
 *
 * An array knows its file from the header that was checked. By the time its values are needed another program may have written there, or
 * replaced the file. So the file is checked again.
 *
 * @module
 */

import { checkBooleanBytes, checkBooleans, checkVersion, FileError, inflateRange } from "../../ffi/file.ts";
import type { Backend, BufferHandle } from "../backend/backend.ts";
import { ArrayError, shownPath } from "../graph/error.ts";
import { attrsOf, type Node } from "../graph/node.ts";
import { contiguousStrides, sizeOf } from "../graph/shape.ts";
import type { Lowering } from "./plan/context.ts";
import { Storage } from "./plan/storage.ts";
import type { Value } from "./plan/value.ts";

/** Writes the values of a leaf to an offset of a buffer. */
export type LeafLoader = (backend: Backend, buffer: BufferHandle, byteOffset: number) => void;

/**
 * The loader of a leaf's values from its file. The file is checked before anything is allocated. Throws an {@link ArrayError} with
 * code "file" if it is no longer the file whose header was read. The same if it ends too early, or holds booleans that are neither 0 nor 1.
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

/** Makes device storage of a leaf with host or file content. */
function upload(node: Node, backend: Backend): void {
  const bytes = contiguousBytes(node);
  if (node.op === "data") {
    const { bytes: content, hostVisible } = attrsOf(node, "data");
    const storage = new Storage(backend, bytes, hostVisible ? "visible" : undefined);
    // Batches of a training loop count as results. Keys and values of a cache have no content and are disposed by their owner: looking for
    // forgotten ones would take milliseconds of every prompt.
    if (content) storage.countAsResult();
    if (content && bytes > 0) backend.write(storage.buffer, 0, content);
    node.settle({ storage, offset: 0, strides: contiguousStrides(node.shape) });
    return;
  }
  const load = bytes > 0 ? openLeaf(node) : undefined;
  const storage = new Storage(backend, bytes);
  try {
    load?.(backend, storage.buffer, 0);
  } catch (error) {
    storage.release();
    throw error;
  }
  node.settle({ storage, offset: 0, strides: contiguousStrides(node.shape) });
}

function contiguousBytes(node: Node): number {
  return sizeOf(node.shape) * node.dtype.bytes;
}

/** Settles leaves that only need their content on the device. */
export function uploadLeaf(node: Node, backend: Backend): boolean {
  if (node.op !== "data" && node.op !== "file") return false;
  upload(node, backend);
  return true;
}

/** Where a leaf lies, uploaded if it is not yet on the device; undefined if the node is none. */
export function leafValue(l: Lowering, node: Node): Value | undefined {
  if (node.op === "parameter") {
    const { index } = attrsOf(node, "parameter");
    return {
      slot: l.parameterSlot(index),
      offset: 0,
      strides: contiguousStrides(node.shape),
      shape: node.shape,
      dtype: node.dtype,
    };
  }
  uploadLeaf(node, l.backend);
  if (node.op !== "stored") return undefined;
  const { storage, offset, strides, packing } = node.stored!;
  return { slot: l.storageSlot(storage as Storage), offset, strides, shape: node.shape, dtype: node.dtype, packing };
}
