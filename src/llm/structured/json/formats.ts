/**
 * Formats of strings. Each is a grammar of some of the strings that its specification names: never of others.
 *
 * @module
 */

import { complement, pointsOf, union } from "../grammar/code_points.ts";
import { choice, EMPTY, type Expression, literal, oneOf, repeat, sequence } from "../grammar/expression.ts";
import type { Limits } from "./numbers.ts";
import { written } from "./text.ts";

const DAY = "(?:0[1-9]|1[0-9]|2[0-8])";
const LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const DATE =
  `(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-${DAY}|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|${LEAP_YEAR}-02-29)`;
const TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?";
const ZONE = "(?:[Zz]|[+\\-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const SHORT_LABEL = "[A-Za-z0-9]{1,30}";
const LABEL = `(?:[A-Za-z0-9]{1,63}|[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){1,2})`;
const HOST = `${LABEL}(?:\\.${SHORT_LABEL}){0,5}`;
const BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const IPV4 = `${BYTE}(?:\\.${BYTE}){3}`;
const GROUP = "[0-9A-Fa-f]{1,4}";
const IPV6 = [
  `(?:${GROUP}:){7}${GROUP}`,
  ...[1, 2, 3, 4, 5, 6].map((count) => `(?:${GROUP}:){1,${count}}(?::${GROUP}){1,${7 - count}}`),
  `(?:${GROUP}:){1,7}:`,
  `:(?:(?::${GROUP}){1,7}|:)`,
  `(?:${GROUP}:){6}${IPV4}`,
  `::(?:${GROUP}:){0,5}${IPV4}`,
  ...[1, 2, 3, 4, 5].map((count) => `(?:${GROUP}:){1,${count}}:(?:${GROUP}:){0,${5 - count}}${IPV4}`),
].join("|");
const ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-]";
const PATH_CHAR = "(?:[A-Za-z0-9\\-._~!$&()*+,;=:@]|%[0-9A-Fa-f]{2})";
const PATH = `(?:/${PATH_CHAR}*)*`;
const FRAGMENT = `#(?:${PATH_CHAR}|[/?])*`;
const QUERY = `(?:\\?(?:${PATH_CHAR}|[/?])*)?(?:${FRAGMENT})?`;
const AUTHORITY = `//(?:[A-Za-z0-9._~\\-]{1,64}@)?(?:${HOST}|\\[(?:${IPV6})\\])(?::[0-9]{1,5})?`;
const URI = `[A-Za-z][A-Za-z0-9+.\\-]*:(?:${AUTHORITY}${PATH}|/?${PATH_CHAR}+${PATH})${QUERY}`;
const POINTER = "(?:/(?:[^~/]|~[01])*)*";
const VARIABLE = "[A-Za-z0-9_]+(?::[1-9][0-9]{0,3}|\\*)?";
const COUNT = "[0-9]{1,9}";
const DURATION_OF_TIME = `T(?:${COUNT}H(?:${COUNT}M(?:${COUNT}S)?)?|${COUNT}M(?:${COUNT}S)?|${COUNT}S)`;
const DURATION_OF_DAYS = `(?:${COUNT}Y(?:${COUNT}M(?:${COUNT}D)?)?|${COUNT}M(?:${COUNT}D)?|${COUNT}D)`;

/** Regular expressions of whole strings, by format. */
export const FORMAT_PATTERNS: Readonly<Record<string, string>> = {
  "date": DATE,
  "time": TIME + ZONE,
  "date-time": `${DATE}[Tt]${TIME}${ZONE}`,
  "duration": `P(?:${COUNT}W|${DURATION_OF_DAYS}(?:${DURATION_OF_TIME})?|${DURATION_OF_TIME})`,
  "email": `(?:${ATOM}{1,64}|${ATOM}{1,15}(?:\\.${ATOM}{1,15}){1,3})@${LABEL}(?:\\.${SHORT_LABEL}){1,5}`,
  "hostname": HOST,
  "ipv4": IPV4,
  "ipv6": IPV6,
  "uuid": "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}",
  "uri": URI,
  "uri-reference": [
    URI,
    `${AUTHORITY}${PATH}${QUERY}`,
    `/(?:${PATH_CHAR}+${PATH})?${QUERY}`,
    `[A-Za-z0-9._~\\-]+${PATH}${QUERY}`,
    FRAGMENT,
  ].join("|"),
  "uri-template": `(?:${PATH_CHAR}|[/?#]|\\{[+#./;?&]?${VARIABLE}(?:,${VARIABLE})*\\})*`,
  "json-pointer": POINTER,
  "relative-json-pointer": `(?:0|[1-9][0-9]*)(?:#|${POINTER})`,
};

/** Limits of the formats of numbers. */
export const NUMBER_FORMATS: Readonly<Record<string, Limits>> = {
  int32: { min: -(2 ** 31), max: 2 ** 31 - 1 },
  int64: { min: -(2 ** 63), max: 2 ** 63 - 1024 }, // the doubles of that range
  float: {},
  double: {},
};

/** The format whose strings are regular expressions: these nest, which no regular expression says. */
export const REGEX_FORMAT = "regex";

const CONTROLS = union([0, 0x1f]);
const SYNTAX = "^$\\.*+?()[]{}|/";
const BACKSLASH = written(pointsOf("\\"));

/** The text between quotes of a string that is a regular expression; `self` is the rule that this is for. */
export function regexText(self: Expression): Expression {
  const escape = sequence(BACKSLASH, choice(oneOf("dDwWsStnrfv"), written(pointsOf(SYNTAX))));
  const member = choice(
    literal("a-z"),
    literal("A-Z"),
    literal("0-9"),
    sequence(BACKSLASH, oneOf("dws")),
    written(complement(union(CONTROLS, pointsOf("^-[]\\")))),
  );
  const atom = choice(
    written(complement(union(CONTROLS, pointsOf(SYNTAX)))),
    literal("."),
    escape,
    sequence(literal("["), choice(literal("^"), EMPTY), repeat(member, 1, Infinity), literal("]")),
    sequence(literal("("), choice(literal("?:"), EMPTY), self, literal(")")),
  );
  const digits = repeat(oneOf("0123456789"), 1, 3);
  const quantifier = sequence(
    choice(oneOf("*+?"), sequence(literal("{"), digits, choice(literal(","), EMPTY), literal("}"))),
    choice(literal("?"), EMPTY),
  );
  const branch = repeat(choice(oneOf("^$"), sequence(atom, choice(quantifier, EMPTY))), 0, Infinity);
  return sequence(branch, repeat(sequence(literal("|"), branch), 0, Infinity));
}
