/**
 * A validator of JSON schema, written from the specification for tests: it shares nothing with what it checks.
 *
 * @module
 */

type Schema = boolean | Readonly<Record<string, unknown>>;

/** Why a value is not valid, `undefined` where it is. */
export function invalid(value: unknown, schema: Schema, root: Schema = schema, path: string = "#"): string | undefined {
  if (typeof schema === "boolean") return schema ? undefined : `${path}: nothing is valid`;
  // deno-lint-ignore no-explicit-any
  const s = schema as any;
  const fail = (why: string): string => `${path}: ${JSON.stringify(value)} ${why}`;
  if (s.$ref !== undefined) {
    const target = s.$ref.split("/").slice(1).reduce((at: Record<string, unknown>, name: string) => at[name], root);
    return invalid(value, target, root, `${path} ${s.$ref}`);
  }
  const same = (other: unknown): boolean => JSON.stringify(other) === JSON.stringify(value);
  if ("const" in s && !same(s.const)) return fail("is not the constant");
  if (s.enum && !s.enum.some(same)) return fail("is not in the list");
  const any: readonly Schema[] | undefined = s.anyOf ?? s.oneOf;
  if (any && any.every((one) => invalid(value, one, root, path))) return fail("fits none");
  for (const one of s.allOf ?? []) {
    const why = invalid(value, one, root, path);
    if (why) return why;
  }
  const types: readonly string[] = s.type === undefined ? [] : [s.type].flat();
  const found = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  if (types.length > 0 && !types.some((t) => t === found || (t === "integer" && Number.isInteger(value)))) {
    return fail(`is not of type ${types}`);
  }
  if (typeof value === "string") {
    const length = [...value].length;
    if (length < (s.minLength ?? 0) || length > (s.maxLength ?? Infinity)) return fail(`has ${length} characters`);
    if (s.pattern && !new RegExp(s.pattern, "u").test(value)) return fail(`does not match ${s.pattern}`);
    if (s.format === "date" && !/^\d{4}-\d\d-\d\d$/.test(value)) return fail("is no date");
  }
  if (typeof value === "number") {
    if (value < (s.minimum ?? -Infinity) || value > (s.maximum ?? Infinity)) return fail("is out of range");
    if (value <= (s.exclusiveMinimum ?? -Infinity) || value >= (s.exclusiveMaximum ?? Infinity)) {
      return fail("is outside");
    }
  }
  if (Array.isArray(value)) {
    if (value.length < (s.minItems ?? 0) || value.length > (s.maxItems ?? Infinity)) {
      return fail("has the wrong length");
    }
    for (const [i, item] of value.entries()) {
      const why = invalid(item, s.prefixItems?.[i] ?? s.items ?? true, root, `${path}/${i}`);
      if (why) return why;
    }
  } else if (found === "object") {
    const object = value as Record<string, unknown>;
    for (const name of s.required ?? []) if (!Object.hasOwn(object, name)) return fail(`has no ${name}`);
    for (const [name, child] of Object.entries(object)) {
      const why = invalid(child, s.properties?.[name] ?? s.additionalProperties ?? true, root, `${path}/${name}`);
      if (why) return why;
    }
  }
  return undefined;
}
