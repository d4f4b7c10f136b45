/**
 * The few file operations of the layers above.
 *
 * @module
 */

/** The absolute path of an existing file, links resolved. */
export function resolveFile(path: string): string {
  return Deno.realPathSync(path);
}

/** Size of a file in bytes. */
export function fileSize(path: string): number {
  return Deno.statSync(path).size;
}

/** Bytes `offset` to `offset + length` of a file; fewer where the file ends before. */
export function readRange(path: string, offset: number, length: number): Uint8Array {
  using file = Deno.openSync(path);
  file.seekSync(offset, Deno.SeekMode.Start);
  const out = new Uint8Array(length);
  let filled = 0;
  while (filled < length) {
    const n = file.readSync(out.subarray(filled));
    if (n === null) break;
    filled += n;
  }
  return out.subarray(0, filled);
}

/** Writes a file piece by piece under a temporary name beside it and renames it, so that no half of it is ever seen. */
export function writeWhole(path: string, pieces: Iterable<Uint8Array>): void {
  const temporary = `${path}.${crypto.randomUUID().slice(0, 8)}.tmp`;
  try {
    {
      using file = Deno.openSync(temporary, { write: true, createNew: true });
      for (const piece of pieces) {
        for (let at = 0; at < piece.length;) at += file.writeSync(piece.subarray(at));
      }
      file.syncDataSync();
    }
    Deno.renameSync(temporary, path);
  } catch (error) {
    try {
      Deno.removeSync(temporary);
    } catch { /* it was never made */ }
    throw error;
  }
}
