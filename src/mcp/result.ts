/**
 * Results of calls as the text that a model reads.
 *
 * @module
 */

import type { CallResult, ContentPart } from "./sdk.ts";

/**
 * The text of a result, of at most `maxBytes` bytes of UTF-8; a line at its end says what was cut. Images, audio and files that are no
 * text are named in brackets. Without any part, it is the structured content as JSON.
 */
export function resultText({ content = [], structuredContent }: CallResult, maxBytes: number): string {
  const parts = content.length > 0 || structuredContent === undefined
    ? content.map(partText)
    : [JSON.stringify(structuredContent)];
  return cut(parts.join("\n"), maxBytes);
}

function partText(part: ContentPart): string {
  const { type, text, data, mimeType = "unknown type", name, uri } = part;
  if (type === "text" && typeof text === "string") return text;
  if (type === "resource" && isObject(part.resource)) {
    const { uri: from = "", text: inner, blob = "", mimeType: kind = "unknown type" } = part.resource;
    return typeof inner === "string" ? inner : `[resource ${from}: ${kind}, ${bytesOf(blob)} bytes, which is no text]`;
  }
  if (type === "resource_link") return `[resource ${name ?? ""}: ${uri ?? ""}]`;
  if (data !== undefined) return `[${type}: ${mimeType}, ${bytesOf(data)} bytes, which a model of text cannot read]`;
  return `[${type}, which a model of text cannot read]`;
}

/** Bytes of base64. */
function bytesOf(data: unknown): number {
  return typeof data === "string" ? Math.floor(data.replace(/=+$/, "").length * 3 / 4) : 0;
}

function cut(text: string, maxBytes: number): string {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= maxBytes) return text;
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes));
  return `${text.slice(0, read)}\n[cut: ${bytes.length} bytes, of which these are the first ${maxBytes}]`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
