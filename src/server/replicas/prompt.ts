/**
 * The prompt of a request as the router compares it with others.
 *
 * @module
 */

import { blocksOf } from "./prefixes.ts";

/** A JSON object. */
type Fields = Readonly<Record<string, unknown>>;

/**
 * The blocks of the fields of a body that its endpoint has for the prompt. They are compared as JSON, so a conversation and the one that
 * goes on from it begin alike.
 */
export function promptBlocks(body: Fields, fields: readonly string[] = []): readonly number[] {
  return fields.length === 0 ? [] : blocksOf(JSON.stringify(fields.map((name) => body[name] ?? null)));
}

/** Whether a body lacks a field: it is absent, null, or empty. */
export function lacks(body: Fields, field: string): boolean {
  const value = body[field];
  return value === undefined || value === null || value === "" || Array.isArray(value) && value.length === 0;
}
