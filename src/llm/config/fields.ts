/**
 * Checked access to the fields of a JSON file.
 *
 * A {@link Fields} collects every absent or wrong field before it throws, so that one message names them all.
 *
 * @module
 */

import { quoted, shownPath } from "../../graph/error.ts";
import { listed, LlmError } from "../error.ts";

const MAX_IDS = 1000;

/** Checked access to the fields of a JSON object; problems are collected and thrown together by {@link Fields.finish}. */
export class Fields {
  /** The object itself. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly #file: string;
  #problems: string[] = [];

  /** Wraps a parsed JSON object; `file` is what messages call it. */
  constructor(values: unknown, file: string) {
    if (typeof values !== "object" || values === null || Array.isArray(values)) {
      throw new LlmError("config", `${shownPath(file)} does not hold a JSON object`);
    }
    this.values = values as Record<string, unknown>;
    this.#file = file;
  }

  /** The same fields, with values of those that are absent. */
  withDefaults(values: Readonly<Record<string, unknown>>): Fields {
    return new Fields({ ...values, ...this.values }, this.#file);
  }

  /** The same fields but one, whose problems are those of this object. */
  without(name: string): Fields {
    const { [name]: _, ...values } = this.values;
    const fields = new Fields(values, this.#file);
    fields.#problems = this.#problems;
    return fields;
  }

  /** Other fields of the same file. */
  with(values: Readonly<Record<string, unknown>>): Fields {
    return new Fields(values, this.#file);
  }

  /** Parses the text of a JSON file. */
  static parse(text: string, file: string): Fields {
    let values: unknown;
    try {
      values = JSON.parse(text);
    } catch (cause) {
      throw new LlmError("config", `${shownPath(file)} is not valid JSON: ${quoted((cause as Error).message)}`);
    }
    return new Fields(values, file);
  }

  /** A whole number from 1 to `most`. */
  count(name: string, most: number, fallback?: number): number {
    return this.whole(name, 1, most, fallback);
  }

  /** A finite number above 0 and up to `most`. */
  positive(name: string, most: number, fallback?: number): number {
    return this.#number(name, (v) => v > 0 && v <= most, `a positive number up to ${most}`, fallback);
  }

  /** A finite number in a closed range. */
  within(name: string, low: number, high: number, fallback?: number): number {
    return this.#number(name, (v) => v >= low && v <= high, `a number from ${low} to ${high}`, fallback);
  }

  /** A whole number in a closed range. */
  whole(name: string, low: number, high: number, fallback?: number): number {
    const valid = (v: number): boolean => Number.isInteger(v) && v >= low && v <= high;
    return this.#number(name, valid, `a whole number from ${low} to ${high}`, fallback);
  }

  /** An object, empty when the field is absent. */
  record(name: string): Readonly<Record<string, unknown>> {
    const value = this.values[name] ?? {};
    if (typeof value === "object" && !Array.isArray(value)) return value as Record<string, unknown>;
    this.#expected(name, "an object");
    return {};
  }

  /** What is read of an object; its fields are named after it. */
  nested<T>(name: string, read: (fields: Fields) => T): T {
    const inner = new Fields(this.record(name), this.#file);
    const found = read(inner);
    for (const problem of inner.#problems) this.problem(problem.replace(/^"/, `"${name}.`));
    return found;
  }

  /** true or false. */
  flag(name: string, fallback?: boolean): boolean {
    const value = this.values[name] ?? fallback;
    if (typeof value === "boolean") return value;
    this.#expected(name, "true or false");
    return false;
  }

  /** Notes a problem where a flag is set that asks for what no code is there for. */
  refuse(name: string): void {
    if (this.flag(name, false)) this.problem(`"${name}" is true, which is not supported`);
  }

  /** A string. */
  string(name: string, fallback?: string): string {
    const value = this.values[name] ?? fallback;
    if (typeof value === "string") return value;
    this.#expected(name, "a string");
    return "";
  }

  /** A token id or a list of them; empty when the field is absent. */
  tokenIds(name: string): number[] {
    return this.#integers(name, "a token id or a list of token ids");
  }

  /** The numbers of some layers; empty when the field is absent. */
  layerNumbers(name: string): number[] {
    return this.#integers(name, "a list of layers, counted from 0");
  }

  #integers(name: string, expected: string): number[] {
    const value = this.values[name] ?? [];
    const ids: unknown[] = Array.isArray(value) ? value : [value];
    const valid = (id: unknown): boolean => Number.isSafeInteger(id) && (id as number) >= 0;
    if (ids.length <= MAX_IDS && ids.every(valid)) return ids as number[];
    this.#expected(name, `${expected}${ids.length > MAX_IDS ? `, at most ${MAX_IDS}` : ""}`);
    return [];
  }

  /** Whether the field is there and not null. */
  has(name: string): boolean {
    return (this.values[name] ?? undefined) !== undefined;
  }

  /** Notes a problem in words of the caller. */
  problem(text: string): void {
    this.#problems.push(text);
  }

  /** Throws when there were problems, naming all of them. */
  finish(): void {
    if (this.#problems.length > 0) {
      throw new LlmError("config", `${shownPath(this.#file)}: ${listed(this.#problems, 12)}`);
    }
  }

  #number(name: string, valid: (v: number) => boolean, expected: string, fallback: number | undefined): number {
    const value = this.values[name] ?? fallback;
    if (typeof value === "number" && valid(value)) return value;
    this.#expected(name, expected);
    return 1; // stands in until finish() throws
  }

  #expected(name: string, expected: string): void {
    const value = this.values[name];
    this.#problems.push(
      value === undefined || value === null
        ? `"${name}" is missing (expected ${expected})`
        : `"${name}" is ${quoted(value)}, expected ${expected}`,
    );
  }
}
