/**
 * Messages of Jupyter: reading those that pass by, and writing signed ones.
 *
 * @module
 */

import { createHmac, timingSafeEqual } from "node:crypto";

/** The connection file that Jupyter writes for a kernel. */
export interface Connection {
  readonly ip: string;
  readonly transport: string;
  readonly shell_port: number;
  readonly control_port: number;
  /** The key that signs messages; "" if they are not signed. */
  readonly key: string;
}

/** The header of a message. */
export interface Header {
  readonly msg_id: string;
  readonly msg_type: string;
  readonly session: string;
}

const DELIMITER = "<IDS|MSG>";
const UTF8 = new TextEncoder();
const TEXT = new TextDecoder();

function signature(key: string, parts: readonly Uint8Array[]): string {
  if (key === "") return "";
  const hmac = createHmac("sha256", key);
  for (const part of parts) hmac.update(part);
  return hmac.digest("hex");
}

/** The header of a message whose signature is right; undefined for other bytes. */
export function headerOf(frames: readonly Uint8Array[], key: string): Header | undefined {
  const at = frames.findIndex((frame) => TEXT.decode(frame) === DELIMITER);
  if (at < 0 || frames.length < at + 6) return undefined;
  const signed = frames.slice(at + 2, at + 6);
  const [found, expected] = [frames[at + 1], UTF8.encode(signature(key, signed))];
  if (found.length !== expected.length || !timingSafeEqual(found, expected)) return undefined;
  try {
    return JSON.parse(TEXT.decode(signed[0]));
  } catch {
    return undefined;
  }
}

/** The frames of a message. */
export function framesOf(type: string, content: object, key: string, parent: object = {}): Uint8Array[] {
  const header = {
    msg_id: crypto.randomUUID(),
    msg_type: type,
    session: crypto.randomUUID(),
    username: "vkmx",
    date: new Date().toISOString(),
    version: "5.3",
  };
  const parts = [header, parent, {}, content].map((part) => UTF8.encode(JSON.stringify(part)));
  return [UTF8.encode(DELIMITER), UTF8.encode(signature(key, parts)), ...parts];
}
