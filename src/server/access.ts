/**
 * Who may ask: keys, and web pages of other origins.
 *
 * @module
 */

import { createHash, timingSafeEqual } from "node:crypto";
import type { HttpRequest } from "../../ffi/http/server.ts";
import { ApiError } from "./errors.ts";

/** Headers that a web page may send and see. */
const CORS_HEADERS = {
  "access-control-allow-methods": "GET, POST, DELETE",
  "access-control-allow-headers": "authorization, content-type, x-api-key, anthropic-version, anthropic-beta",
  "access-control-max-age": "86400",
} as const;

/** Throws an ApiError unless a request has the key, which OpenAI's clients and Anthropic's send in different headers. */
export function checkKey(request: HttpRequest, key: string | undefined): void {
  if (key === undefined) return;
  const bearer = /^Bearer (.+)$/i.exec(request.header("authorization") ?? "")?.[1];
  const given = bearer ?? request.header("x-api-key");
  if (given !== undefined && isEqual(given, key)) return;
  const what = given === undefined ? "The request has no API key" : "The API key is wrong";
  throw new ApiError(401, `${what}: send it as "Authorization: Bearer KEY" or "x-api-key: KEY"`, {
    code: "invalid_api_key",
    headers: { "www-authenticate": "Bearer" },
  });
}

/** Whether two texts are equal, in a time that says nothing of where they differ. */
function isEqual(a: string, b: string): boolean {
  const digest = (text: string): Uint8Array => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/**
 * Headers that let a web page see the reply. Throws an ApiError for a page of an origin that is neither allowed nor this server's own.
 * Without that, any page that a user opens could ask the server. A name that a page's host gives to this address does not count as own.
 */
export function corsHeaders(request: HttpRequest, allowed: readonly string[]): Readonly<Record<string, string>> {
  const origin = request.header("origin");
  if (origin === undefined) return {};
  const any = allowed.includes("*");
  if (any || allowed.includes(origin)) {
    return { "access-control-allow-origin": any ? "*" : origin, ...CORS_HEADERS, ...(any ? {} : { vary: "origin" }) };
  }
  const host = request.header("host") ?? "";
  if (/^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/.test(host) && origin === `http://${host}`) return {};
  throw new ApiError(403, "Web pages of this origin may not ask: start the server with --cors ORIGIN", {
    code: "origin_not_allowed",
  });
}
