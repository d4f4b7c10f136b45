/**
 * Pixels as a PNG file.
 *
 * @module
 */

import { crc32, deflateSync } from "node:zlib";
import { Buffer } from "node:buffer";

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

function chunk(type: string, data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(data.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(new TextEncoder().encode(type), 4);
  bytes.set(data, 8);
  view.setUint32(data.length + 8, crc32(bytes.subarray(4, data.length + 8)));
  return bytes;
}

/** A PNG of `width` by `height` pixels of red, green, blue and opacity. */
export function encodePng(rgba: Uint8Array, width: number, height: number): Uint8Array {
  const header = new Uint8Array(13);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header.set([8, 6], 8); // eight bits, with opacity
  const rows = new Uint8Array(height * (width * 4 + 1)); // each row begins with its filter, none
  for (let y = 0; y < height; y++) rows.set(rgba.subarray(y * width * 4, (y + 1) * width * 4), y * (width * 4 + 1) + 1);
  const chunks = [chunk("IHDR", header), chunk("IDAT", deflateSync(rows)), chunk("IEND", new Uint8Array(0))];
  return Buffer.concat([Uint8Array.from(SIGNATURE), ...chunks]);
}

/** The same as an address that holds it. */
export function pngUrl(rgba: Uint8Array, width: number, height: number): string {
  return `data:image/png;base64,${Buffer.from(encodePng(rgba, width, height)).toString("base64")}`;
}
