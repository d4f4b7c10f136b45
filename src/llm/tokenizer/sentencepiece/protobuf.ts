/**
 * Reads the wire format of protocol buffers, as far as sentencepiece's models use it.
 *
 * @module
 */

import type { Fail } from "../pipeline.ts";

/** A value of a message: a number, or the bytes of a text or of another message. */
export type WireValue = number | Uint8Array;

/** How a value is written. */
const WIRE = { varint: 0, fixed64: 1, bytes: 2, fixed32: 5 } as const;

/** Calls `read` for every field of a message with its number and value. Numbers of 32 bits are floats. */
export function readMessage(bytes: Uint8Array, fail: Fail, read: (field: number, value: WireValue) => void): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const skip = (count: number): number => {
    if (count > bytes.length - at) fail(`a value at byte ${bytes.byteOffset + at} is longer than the file`);
    at += count;
    return at - count;
  };
  const varint = (): number => {
    let value = 0;
    for (let scale = 1; scale <= 2 ** 63; scale *= 128) {
      const byte = bytes[skip(1)];
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
    return fail(`a number at byte ${bytes.byteOffset + at} has more than 64 bits`);
  };
  while (at < bytes.length) {
    const tag = varint();
    const field = Math.floor(tag / 8);
    const wire = tag % 8;
    if (wire === WIRE.varint) read(field, varint());
    else if (wire === WIRE.bytes) {
      const length = varint();
      const from = skip(length);
      read(field, bytes.subarray(from, from + length));
    } else if (wire === WIRE.fixed32) read(field, view.getFloat32(skip(4), true));
    else if (wire === WIRE.fixed64) read(field, view.getFloat64(skip(8), true));
    else fail(`byte ${bytes.byteOffset + at} begins a value of the unknown wire type ${wire}`);
  }
}
