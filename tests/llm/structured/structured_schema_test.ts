/**
 * JSON schemas of `responseFormat`, with ajv as judge. No answer is one that a schema forbids, and valid values may be
 * written. Unsupported keywords are refused by name. `VKMX_CASES=1000` takes 20,000 random walks through masks.
 */

import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import type { Judge } from "../../support/oracles/ajv.ts";
import { lack, needing } from "../../support/needs.ts";
import { masksOf, randomFrom, statesOf, takes, walk } from "../../support/oracles/grammars.ts";
import type { States } from "../../../src/llm/structured/automaton/states.ts";

const WALKS = Number(Deno.env.get("VKMX_CASES") ?? 40) * 20;

interface Group {
  readonly name: string;
  readonly schema: unknown;
  readonly tests: readonly (readonly [value: unknown, valid: boolean])[];
}

/** The JSON-Schema-Test-Suite. */
const SUITE: readonly Group[] = JSON.parse(
  Deno.readTextFileSync(new URL("../../golden/json_schema_suite.json", import.meta.url)),
);

/** Values whose members come in other orders, as lists of members: a grammar has those of its schema. */
type Ordered = { readonly members: readonly (readonly [string, Ordered])[] } | readonly Ordered[] | string;
const MAX_ORDERS = 1000;

function orders(value: unknown): readonly Ordered[] {
  if (Array.isArray(value)) return product(value.map(orders));
  if (typeof value !== "object" || value === null) return [JSON.stringify(value)];
  const of = new Map(Object.entries(value));
  return permutations([...of.keys()]).flatMap((names) =>
    product(names.map((name) => orders(of.get(name)))).map((values) => ({
      members: values.map((member, i) => [names[i], member] as const),
    }))
  ).slice(0, MAX_ORDERS);
}

function product<T>(lists: readonly (readonly T[])[]): readonly (readonly T[])[] {
  const all = lists.reduce<readonly (readonly T[])[]>(
    (before, list) => before.flatMap((values) => list.map((value) => [...values, value])),
    [[]],
  );
  return all.slice(0, MAX_ORDERS);
}

function permutations(names: readonly string[]): readonly (readonly string[])[] {
  if (names.length === 0) return [[]];
  return names.flatMap((name) => permutations(names.filter((other) => other !== name)).map((rest) => [name, ...rest]));
}

function textOf(value: Ordered): string {
  if (typeof value === "string") return value;
  if ("members" in value) {
    return `{${value.members.map(([name, v]) => `${JSON.stringify(name)}: ${textOf(v)}`).join(", ")}}`;
  }
  return `[${value.map(textOf).join(", ")}]`;
}

/** Whether a grammar takes a value in some order of its members. */
function takesValue(states: States, value: unknown): boolean {
  return orders(value).some((ordered) => takes(states, textOf(ordered)));
}

function grammarOf(schema: unknown, strict: boolean): States | string {
  try {
    return statesOf({ kind: "json", text: JSON.stringify(schema), strict });
  } catch (error) {
    return (error as Error).message;
  }
}

/** The reason why a schema is refused. */
const REFUSALS = [
  /has "(unevaluated(Properties|Items)|(min|max)?[cC]ontains|if|then|else|patternProperties|not|propertyNames)", which is not held/,
  /has "(dependent(Schemas|Required)|multipleOf|(min|max)Properties|uniqueItems|\$dynamicRef)", which is not held/,
  /has "allOf" of several schemas/,
  /has "oneOf" of schemas of which a value may fit two/,
  /has "\w+" beside "(\$ref|anyOf|oneOf|allOf)", which is not held/,
  /has the "\$ref" "[^#"]+", which is not in the schema/, // relative to a "$id"
  /has a "\$id" of its own/,
  /has the format "(idn-hostname|idn-email|iri|iri-reference|unknown)", which is not held/,
  /"\w+" in "required" but not in "properties"/,
  /has a pattern that cannot be used: /,
  /^the pattern/,
];

/** Formats are annotations in these, and are held here. */
const AS_ANNOTATIONS = /^format: /;
/** Strings of formats that are valid, and that no grammar here gives: docs/structured-output.md names them. */
const FORMAT_LIMITS = [
  /:\d\d:60/, // seconds that are added to some days
  /^"\\"/, // quoted names before the @ of an address
  /@\[/, // addresses as hosts of mail
  /xn--/, // international names
  /-\.~_!\$/, // names and passwords before a host
];

/** The judge, loaded where the machine has it. */
const { judgeOf } = await lack("ajv") === ""
  ? await import("../../support/oracles/ajv.ts")
  : { judgeOf: (): Judge => () => "there is no judge on this machine" };

const TAKEN = SUITE.flatMap((group) =>
  [false, true].flatMap((strict) => {
    const states = grammarOf(group.schema, strict);
    return typeof states === "string" ? [] : [{ ...group, strict, states }];
  })
);

Deno.test("schemas of the suite are held or refused by name", () => {
  const refused = SUITE.map(({ name, schema }) => [name, grammarOf(schema, false)] as const)
    .filter(([, why]) => typeof why === "string") as unknown as readonly (readonly [string, string])[];
  for (const [name, why] of refused) assert(REFUSALS.some((known) => known.test(why)), `${name}: ${why}`);
  assert(TAKEN.length > 330, `${TAKEN.length} grammars`);
});

Deno.test("valid values of the suite may be written, and no others", () => {
  let checked = 0;
  for (const { name, strict, states, tests } of TAKEN) {
    for (const [value, valid] of tests) {
      const note = `${name}${strict ? ", strict" : ""}: ${JSON.stringify(value)}`;
      if (!valid) assert(!takesValue(states, value), note);
      if (!valid || strict || AS_ANNOTATIONS.test(name)) continue;
      if (FORMAT_LIMITS.some((limit) => limit.test(JSON.stringify(value)))) continue;
      assert(takesValue(states, value), note);
      checked++;
    }
  }
  assert(checked > 480, `${checked} values`);
});

Deno.test(await needing("random walks through masks give what ajv takes", "ajv"), () => {
  const random = randomFrom(3);
  const possible = TAKEN.filter(({ states }) => states.possible).map((one) => ({ ...one, masks: masksOf(one.states) }));
  let ended = 0;
  for (let i = 0; i < WALKS; i++) {
    const { name, schema, strict, states, masks } = possible[i % possible.length];
    const text = walk(states, masks, random);
    if (text === undefined) continue;
    ended++;
    const why = judgeOf(schema)(JSON.parse(text));
    assertEquals(why, undefined, `${name}${strict ? ", strict" : ""}: ${text}`);
  }
  assert(ended > 0.95 * WALKS, `${ended} of ${WALKS} walks came to an end`);
});

/** Schemas of what people ask for, beyond those of the suite. */
const MORE: Readonly<Record<string, unknown>> = {
  person: {
    type: "object",
    properties: {
      name: { type: "string", minLength: 1, maxLength: 20 },
      age: { type: "integer", minimum: 0, maximum: 120 },
    },
    required: ["name", "age"],
  },
  decimals: { type: "array", items: { type: "number", minimum: -1.5, exclusiveMaximum: 0.25 }, minItems: 2 },
  tiny: { type: "number", exclusiveMinimum: 0, maximum: 1e-7 },
  huge: { type: "array", items: { type: "number", minimum: 1e25 }, maxItems: 3 },
  wide: { type: "integer", exclusiveMinimum: 9007199254740992 },
  alternatives: {
    oneOf: [
      {
        type: "object",
        properties: { kind: { const: "a" }, n: { type: "integer", format: "int32" } },
        required: ["kind"],
      },
      { type: "object", properties: { kind: { enum: ["b", "c"] } }, required: ["kind"] },
      { type: ["null", "boolean"] },
      { type: "integer", maximum: 3 },
      { type: "integer", minimum: 4 },
    ],
  },
  strings: { type: "string", pattern: '^[^a]*"?\\n?$', minLength: 2, maxLength: 5 },
  tree: {
    $ref: "#/$defs/node",
    $defs: {
      node: { anyOf: [{ type: "null" }, { $ref: "#/$defs/pair" }] },
      pair: {
        type: "array",
        prefixItems: [{ $ref: "#/$defs/node" }, { $ref: "#/$defs/node" }],
        items: false,
        minItems: 2,
      },
    },
  },
  byList: { type: "object", properties: { a: { $ref: "#/anyOf/0" } }, additionalProperties: { type: "null" } },
  names: {
    type: "object",
    properties: { 'é"\n': { type: "null" }, a: { type: "boolean" }, ab: true },
    additionalProperties: { type: "integer" },
  },
};

Deno.test(await needing("random walks of other schemas give what ajv takes", "ajv"), () => {
  const random = randomFrom(4);
  const formats = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
  const more = ["uri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex"];
  const schemas = [
    ...Object.values(MORE).filter((schema) => schema !== MORE.byList),
    ...[...formats, ...more].map((format) => ({ type: "string", format })),
  ];
  for (const schema of schemas) {
    const judge = judgeOf(schema);
    for (const strict of [true, false]) {
      const states = statesOf({ kind: "json", text: JSON.stringify(schema), strict });
      const masks = masksOf(states);
      let ended = 0;
      for (let i = 0; i < WALKS / 100; i++) {
        const text = walk(states, masks, random);
        if (text === undefined) continue;
        ended++;
        assertEquals(judge(JSON.parse(text)), undefined, `${JSON.stringify(schema)}: ${text}`);
      }
      assert(ended > 0, JSON.stringify(schema));
    }
  }
});

Deno.test("integers are those between the limits, for 256 pairs of limits and one of them", () => {
  const limits = [-1000, -121, -100, -99, -12, -10, -1, 0, 1, 5, 9, 10, 99, 105, 120, 1000];
  const near = limits.flatMap((limit) => [-2, -1, 0, 1, 2].map((step) => limit + step));
  const values = [...new Set([...near, ...Array.from({ length: 30 }, (_, i) => i * 13 - 200)])];
  const check = (schema: Record<string, unknown>, fits: (value: number) => boolean): void => {
    const states = grammarOf({ type: "integer", ...schema }, true);
    assert(typeof states !== "string");
    for (const value of values) {
      assertEquals(takes(states, String(value)), fits(value), `${JSON.stringify(schema)} ${value}`);
    }
    for (const text of ["-", "", "00", "-0", "1.0", "+1", "01"]) {
      assert(!takes(states, text), `${JSON.stringify(schema)} ${text}`);
    }
  };
  for (const minimum of limits) {
    check({ minimum }, (value) => value >= minimum);
    check({ exclusiveMaximum: minimum + 0.5 }, (value) => value <= minimum);
    for (const maximum of limits) check({ minimum, maximum }, (value) => value >= minimum && value <= maximum);
  }
});

Deno.test("numbers with limits are those whose value fits, to the last digit", () => {
  const random = randomFrom(5);
  const number = (): number =>
    Number((((random() - 0.5) * 10 ** Math.floor(random() * 4)) || 0).toFixed(Math.floor(random() * 4)));
  for (let i = 0; i < WALKS / 8; i++) {
    const [a, b] = [number(), number()];
    const schema = { minimum: Math.min(a, b), exclusiveMaximum: Math.max(a, b) };
    const states = grammarOf({ type: "number", ...schema }, true);
    assert(typeof states !== "string");
    const near = [a, b].flatMap((limit) =>
      [-0.001, -1e-10, 0, 1e-10, 0.001, 0.5].map((step) => (limit + step).toFixed(12))
    );
    for (const text of [...near, ...Array.from({ length: 20 }, () => number().toString())]) {
      const short = text.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
      const value = Number(text);
      const fits = value >= schema.minimum && value < schema.exclusiveMaximum;
      for (const form of [text, short]) assertEquals(takes(states, form), fits, `${JSON.stringify(schema)} ${form}`);
    }
  }
});

Deno.test("a text is held to its schema in each of these cases", () => {
  const cases:
    readonly (readonly [schema: unknown, strict: boolean, taken: readonly string[], refused: readonly string[]])[] = [
      [{ type: "string", maxLength: 2 }, true, ['""', '"\\"\\\\"', '"\\n😀"', '"\\ud83d\\ude00x"'], [
        '"abc"',
        '"\n"',
        '"\\ud83d"',
      ]],
      [{ type: "string", pattern: "a|b" }, true, ['"a"', '"b"'], ['"a', '"ab"']],
      [{ type: "string", pattern: "^a|b$" }, false, ['"ax"', '"xb"'], ['"xa"']],
      [MORE.names, false, ['{"é\\"\\n": null, "a": true}', '{"ac": 1}'], [
        '{"ac": true}',
        '{"a": true, "a": 1}',
        '{"\\u0061": 1}',
      ]],
      [{ type: "array", prefixItems: [{ const: 1 }, { const: 2 }] }, true, ["[]", "[1]", "[1, 2]"], [
        "[2]",
        "[1, 2, 3]",
      ]],
      [{ type: "array", prefixItems: [{ const: 1 }] }, false, ["[]", "[1, null]"], ["[2]"]],
      [{ anyOf: [{ type: "null" }, { type: "array", items: { $ref: "#/anyOf/0" } }] }, true, ["[null]"], ["[[]]"]],
      [{ type: "integer" }, true, ["9".repeat(20), `-${"9".repeat(20)}`], ["1".repeat(21)]],
      [{ minLength: 2 }, true, ['"ab"'], ["1", '"a"']],
      [{ minLength: 2 }, false, ['"ab"', "1", "{}"], ['"a"']],
      [{ type: "object", required: ["a"] }, false, ['{"a": 1, "b": 2}'], ["{}", '{"b": 2}']],
      [{ enum: [false, 0, "", null] }, true, ["false", "0", '""', "null"], ["true", "1"]],
    ];
  for (const [schema, strict, taken, refused] of cases) {
    const states = grammarOf(schema, strict);
    assert(typeof states !== "string", String(states));
    for (const text of taken) assert(takes(states, text), `${JSON.stringify(schema)} refuses ${text}`);
    for (const text of refused) assert(!takes(states, text), `${JSON.stringify(schema)} takes ${text}`);
  }
});

Deno.test("what a schema may not say is refused with its place", () => {
  const cases: readonly (readonly [schema: unknown, why: string])[] = [
    [{ properties: { a: { not: {} } } }, 'at "#/properties/a" has "not"'],
    [{ items: { minItems: -1 } }, 'at "#/items" has minItems "-1"'],
    [{ type: "string", maxLength: 1e9 }, "at most 100000"],
    [{ type: "integer", minimum: "5" }, "expected a number"],
    [{ type: "integer", exclusiveMinimum: true }, "expected a number"],
    [{ enum: [] }, "no list of values"],
    [{ type: "string", enum: ["a", false] }, "not of its type"],
    [{ items: [{}] }, "a list where a schema belongs"],
    [{ $ref: "#/$defs/none" }, "not in the schema"],
    [{ oneOf: [{ type: "integer" }, { type: "number" }] }, "may fit two"],
    [{ oneOf: [{ properties: { a: { const: 1 } } }, { properties: { a: { const: 2 } } }] }, "may fit two"],
    [{ type: "string", format: "regex", maxLength: 3 }, 'beside the format "regex"'],
  ];
  for (const [schema, why] of cases) {
    const error = assertThrows(() => statesOf({ kind: "json", text: JSON.stringify(schema), strict: true }), Error);
    assertStringIncludes(error.message, why);
  }
});
