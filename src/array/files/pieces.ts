/**
 * Bytes of arrays on their way into files. Arrays that already lie in a file are copied piece by piece; others are computed, one at a
 * time.
 *
 * @module
 */

import { checkVersion, FileError, InputFile, writeWhole } from "../../../ffi/file.ts";
import { ArrayError } from "../../graph/error.ts";
import { attrsOf } from "../../graph/node.ts";
import { sizeOf } from "../../graph/shape.ts";
import { failFile } from "./safetensors.ts";
import { storedBytes } from "./stored.ts";
import { nodeOf, type Tensor } from "../tensor/tensor.ts";

/** Bytes that are copied from file to file at once. */
const PIECE = 2 ** 26;

/** The bytes of an array as a file holds them. An array that nothing has read from its file yet stays there. */
export function* tensorPieces(tensor: Tensor): Generator<Uint8Array> {
  const node = nodeOf(tensor);
  if (node.op !== "file" || attrsOf(node, "file").deflated) {
    yield storedBytes(tensor);
    return;
  }
  const { path, byteOffset, version } = attrsOf(node, "file");
  const bytes = sizeOf(node.shape) * node.dtype.bytes;
  try {
    checkVersion(path, version, byteOffset + bytes);
    using file = new InputFile(path);
    for (let at = 0; at < bytes; at += PIECE) yield file.read(byteOffset + at, Math.min(PIECE, bytes - at));
  } catch (error) {
    if (error instanceof FileError) failFile(path, error.message);
    throw error;
  }
}

/** Writes a file under another name, which then becomes `path`. Throws an {@link ArrayError} with code "file". */
export function writeFile(path: string, pieces: Iterable<Uint8Array>): void {
  try {
    writeWhole(path, pieces);
  } catch (error) {
    if (error instanceof ArrayError) throw error;
    const reason = error instanceof Error ? error.message.split("\n")[0] : String(error);
    failFile(path, `cannot be written: ${reason}`);
  }
}
