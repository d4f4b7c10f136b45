/**
 * Shapes of JSON bodies: tables of fields by name, which say what each one may be.
 *
 * Clients send `null` for what they leave out, and fields that belong to later versions of an API. So `null` counts as absent, and
 * unknown fields are ignored. A known field of a wrong kind is an error that names it.
 *
 * @module
 */

import { quoted } from "../graph/error.ts";
import { fieldError } from "./errors.ts";

/** What a value may be. */
export interface Kind<T> {
  /** Whether an object must have the field. */
  readonly isRequired?: boolean;
  /** The value as a request gives it; throws an ApiError that names `at`. */
  read(value: unknown, at: string): T;
}

/** A kind whose field an object must have. */
export interface RequiredKind<T> extends Kind<T> {
  readonly isRequired: true;
}

/** What a kind reads. */
export type Read<K> = K extends Kind<infer T> ? T : never;

/** Kinds by the names of fields. */
export type Fields = Readonly<Record<string, Kind<unknown>>>;

/** An object of such fields. */
export type ReadFields<F extends Fields> = {
  readonly [K in keyof F]: F[K] extends RequiredKind<infer T> ? T : Read<F[K]> | undefined;
};

function wrong(value: unknown, at: string, expected: string): never {
  throw fieldError(at, `${at === "" ? "The body" : at} is ${quoted(value)}, expected ${expected}`, "invalid_type");
}

function kind<T>(expected: string, test: (value: unknown) => boolean): Kind<T> {
  return { read: (value, at) => test(value) ? value as T : wrong(value, at, expected) };
}

/** Any JSON value. */
export const any: Kind<unknown> = kind("a value", () => true);
/** Any object, whose fields are not looked at. */
export const anyObject: Kind<Readonly<Record<string, unknown>>> = kind("an object", isObject);
/** true or false. */
export const boolean: Kind<boolean> = kind("true or false", (value) => typeof value === "boolean");
/** A text. */
export const text: Kind<string> = kind("a string", (value) => typeof value === "string");

/** A number within limits. */
export function number(low: number, high: number): Kind<number> {
  return kind(`a number from ${low} to ${high}`, (value) => typeof value === "number" && value >= low && value <= high);
}

/** A whole number within limits. */
export function whole(low: number, high: number = Number.MAX_SAFE_INTEGER): Kind<number> {
  const limits = high === Number.MAX_SAFE_INTEGER ? `of at least ${low}` : `from ${low} to ${high}`;
  return kind(
    `a whole number ${limits}`,
    (value) => Number.isSafeInteger(value) && value as number >= low && value as number <= high,
  );
}

/** One of some texts. */
export function oneOf<const T extends string>(...texts: readonly T[]): Kind<T> {
  return kind(`one of ${texts.map(quoted).join(", ")}`, (value) => texts.includes(value as T));
}

/** A list of one kind. */
export function list<T>(
  of: Kind<T>,
  { min = 0, max = Infinity }: { min?: number; max?: number } = {},
): Kind<readonly T[]> {
  return {
    read: (value, at) => {
      if (!Array.isArray(value)) wrong(value, at, "a list");
      if (value.length < min) throw fieldError(at, `${at} has ${value.length} items, at least ${min}`);
      if (value.length > max) throw fieldError(at, `${at} has ${value.length} items, at most ${max}`);
      return value.map((item, i) => of.read(item, `${at}[${i}]`));
    },
  };
}

/** An object with values of one kind under any name. */
export function record<T>(of: Kind<T>): Kind<Readonly<Record<string, T>>> {
  return {
    read: (value, at) => {
      if (!isObject(value)) wrong(value, at, "an object");
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, of.read(item, `${at}.${name}`)]));
    },
  };
}

/** An object with fields by name, which may be absent unless they are {@link required}. */
export function object<F extends Fields>(fields: F): Kind<ReadFields<F>> {
  return {
    read: (value, at) => {
      if (!isObject(value)) wrong(value, at, "an object");
      const read: Record<string, unknown> = {};
      for (const [name, of] of Object.entries(fields)) {
        const path = at === "" ? name : `${at}.${name}`;
        const found = Object.hasOwn(value, name) ? value[name] ?? undefined : undefined;
        if (found !== undefined) read[name] = of.read(found, path);
        else if (of.isRequired) throw fieldError(path, `${path} is missing`, "missing_required_parameter");
      }
      return read as ReadFields<F>;
    },
  };
}

/** An object whose fields its `type` tells; without one it has the first type. */
export function union<T>(types: Readonly<Record<string, Kind<T>>>): Kind<T> {
  const names = Object.keys(types);
  return {
    read: (value, at) => {
      if (!isObject(value)) wrong(value, at, "an object");
      const type = value.type ?? names[0];
      if (typeof type === "string" && Object.hasOwn(types, type)) return types[type].read(value, at);
      throw fieldError(`${at}.type`, `${at}.type is ${quoted(type)}, expected one of ${names.map(quoted).join(", ")}`);
    },
  };
}

/** A text, or a value of another kind. */
export function textOr<T>(other: Kind<T>): Kind<string | T> {
  return { read: (value, at) => typeof value === "string" ? value : other.read(value, at) };
}

/** A field that must be there. */
export function required<T>(of: Kind<T>): RequiredKind<T> {
  return { ...of, isRequired: true };
}

/** A field of the API that this server has no use for: `why` tells a client that gives it. */
export function refused(why: string): Kind<never> {
  return {
    read: (_, at) => {
      throw fieldError(at, `${at} is not supported: ${why}`, "unsupported_parameter");
    },
  };
}

/** A value that is read and then made into another. */
export function mapped<T, U>(of: Kind<T>, map: (value: T, at: string) => U): Kind<U> {
  return { read: (value, at) => map(of.read(value, at), at) };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
