/**
 * Mutations of JSON that keep its form: values become hostile ones, members are doubled, renamed, moved and wrapped.
 *
 * The tree keeps what `JSON.parse` loses: the order of members, names that occur twice, and how a number is written. It
 * can hold what no parser accepts: leaves are any bytes.
 *
 * @module
 */

import { join, MAX_INPUT } from "./bytes.ts";
import type { Random } from "./random.ts";

/** A value: JSON text as it stands, a list, or members by name (the JSON text of a string) in their order. */
export type Json =
  | { readonly leaf: Uint8Array }
  | { readonly items: readonly Json[] }
  | { readonly members: readonly (readonly [name: Uint8Array, value: Json])[] };

const UTF8 = new TextEncoder();

/** A leaf of JSON text. */
export function leaf(text: string): Json {
  return { leaf: UTF8.encode(text) };
}

/** The tree of a value. */
export function treeOf(value: unknown): Json {
  if (Array.isArray(value)) return { items: value.map(treeOf) };
  if (typeof value !== "object" || value === null) return leaf(JSON.stringify(value));
  return { members: Object.entries(value).map(([name, part]) => [UTF8.encode(JSON.stringify(name)), treeOf(part)]) };
}

/** The bytes of a tree, none of them white space between tokens. */
export function bytesOf(tree: Json): Uint8Array {
  const pieces: Uint8Array[] = [];
  const [BRACE, BRACE_END, BRACKET, BRACKET_END, COMMA, COLON] = Array.from("{}[],:", (char) => UTF8.encode(char));
  const write = (node: Json): void => {
    if ("leaf" in node) pieces.push(node.leaf);
    else if ("items" in node) {
      pieces.push(BRACKET);
      node.items.forEach((item, i) => (i > 0 && pieces.push(COMMA), write(item)));
      pieces.push(BRACKET_END);
    } else {
      pieces.push(BRACE);
      node.members.forEach(([name, value], i) => {
        if (i > 0) pieces.push(COMMA);
        pieces.push(name, COLON);
        write(value);
      });
      pieces.push(BRACE_END);
    }
  };
  write(tree);
  const bytes = join(pieces);
  return bytes.length > MAX_INPUT ? bytes.slice(0, MAX_INPUT) : bytes;
}

const NUMBERS = [
  ..."0 1 -1 2 3 7 8 64 255 256 257 65535 65536 100001 1000000 0.5 -0 1e-7 1e-400 4e8 1e12 1e308 1e400 -1e400".split(
    " ",
  ),
  ..."2147483647 2147483648 4294967295 4294967296 9007199254740991 9007199254740993 18446744073709551616".split(" "),
  ..."NaN Infinity -Infinity 0x10 01 1. .5 +1 1e".split(" "),
];
/** Regular expressions that take for ever, that are none, or that match nothing. */
export const REGEXES: readonly string[] = [
  ...[
    "(a+)+$",
    "(a|a)*$",
    "(\\s*)*x",
    "(\\s+\\n?)+!",
    "(?<=a{1,1000}){1000}",
    "(a|aa|aaa){1,99}$",
    "a{99999}",
    ".*.*.*.*!",
    "(.*)\\1\\1!",
  ],
  ...[
    "(",
    "[",
    "\\p{Foo}",
    "(?:)",
    "",
    "\\",
    "(?i)a",
    "(?i:a",
    "(?>a)",
    "\\G",
    "\\h",
    "[[:alpha:]]",
    "(?<name>a)\\k<name>",
    "\\b",
  ],
];
const STRINGS = [
  ...REGEXES,
  ...[
    "",
    " ",
    "\0",
    "\x1b]0;title\x07\x1b[31m",
    "line\nline",
    "\u2028\u202e\u200f",
    "\ud800",
    "\ufdd0",
    "🏴‍☠️",
    "__proto__",
  ],
  ...["constructor", "toString", "length", "default", "null", "../../etc/passwd", "/dev/zero", "<|im_end|>", "Ġ", "ĠĠ"],
  ...[
    "BPE",
    "WordPiece",
    "Unigram",
    "Sequence",
    "Split",
    "ByteLevel",
    "NFC",
    "NFKC",
    "Replace",
    "TemplateProcessing",
    "yarn",
  ],
  ...[
    "(a+)+$",
    "(a|a)*$",
    "(\\s*)*x",
    "(?<=a{1,1000}){1000}",
    "(",
    "[",
    "\\p{Foo}",
    "(?:)",
    ".*",
    "\\",
    "(?i)a",
    "a{99999}",
  ],
  ...[
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 99999999 }}",
    "{% if %}",
  ],
  ...["F32", "F64", "BOOL", "BF16", "Isolated", "Removed", "affine", "mxfp4", "qwen3", "llama"],
];

/** JSON texts that readers stumble over, made where they are used: some are long. */
const HOSTILE: readonly ((random: Random) => string | Uint8Array)[] = [
  (random) => random.pick(NUMBERS),
  (random) => String(random.bits()),
  (random) => JSON.stringify(random.pick(STRINGS)),
  (random) =>
    random.pick([
      "null",
      "true",
      "false",
      "[]",
      "{}",
      '""',
      "[null]",
      "[[]]",
      "[-1]",
      '{"":0}',
      '{"__proto__":{}}',
      "",
      "nul",
    ]),
  // long strings: letters, spaces, escapes, control tokens
  (random) =>
    JSON.stringify(random.pick(["a", " ", "\x1b[0m", "é", "<|im_start|>", "aA1 "]).repeat(1 + random.small(20_000))),
  (random) => `"${random.pick(["\\u0061", "\\n", "\\ud83d\\ude00", "\\udc00", "\\/"]).repeat(1 + random.small(5000))}"`,
  // nested deeply, closed or not
  (random) =>
    nested(
      random.pick(["[", '{"a":', '{"type":"Sequence","normalizers":[', '[{"a":']),
      1 + random.small(20_000),
      !random.once(4),
    ),
  // long lists
  (random) =>
    `[${Array(1 + random.small(20_000)).fill(random.pick(["0", "[]", "{}", '""', "null", "1e9"])).join(",")}]`,
  // many members
  (random) => {
    const value = random.pick(["0", "{}", "[]", '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}']);
    const same = random.once(4);
    return `{${Array.from({ length: 1 + random.small(4000) }, (_, i) => `"k${same ? 0 : i}":${value}`).join(",")}}`;
  },
  // strings that are no UTF-8, with an escape and without
  (random) => join([UTF8.encode('"'), random.pick(INVALID), UTF8.encode(random.pick(['"', '\\u0041"', '\\n"', "\\"]))]),
];
const INVALID = [[0xff], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0x80], [0xf8, 0x88, 0x80, 0x80, 0x80]].map((b) =>
  Uint8Array.from(b)
);

function nested(open: string, depth: number, closed: boolean): string {
  const close = Array.from(open).reverse().map((char) => ({ "[": "]", "{": "}" })[char] ?? "").join("");
  return open.repeat(depth) + (closed ? `0${close.repeat(depth)}` : "");
}

/** A hostile value. */
export function hostile(random: Random): Json {
  const made = random.pick(HOSTILE)(random);
  return typeof made === "string" ? leaf(made) : { leaf: made };
}

/** The result of a mutation of a node; `donor` is a node from elsewhere in the tree. */
type Mutation = (node: Json, random: Random, donor: Json) => Json;

const MUTATIONS: readonly Mutation[] = [
  (_, random) => hostile(random),
  (_, random) => hostile(random),
  (node, random) => nearbyLeaf(node, random),
  (node, random) => nearbyLeaf(node, random),
  (_, __, donor) => donor,
  // into lists and objects of lists
  (node, random) => random.once(2) ? { items: [node] } : { members: [[UTF8.encode('"type"'), node]] },
  // without a part
  (node, random) => withParts(node, (parts) => parts.toSpliced(random.below(parts.length), 1)),
  // a part twice, or many times, or moved
  (node, random) =>
    withParts(node, (parts) => {
      const part = random.pick(parts);
      return parts.toSpliced(random.below(parts.length + 1), 0, ...Array(1 + random.small(4000)).fill(part));
    }),
  (node, random) => withParts(node, (parts) => parts.toSorted(() => random.below(3) - 1)),
  // a name that is another's, or hostile, with the value that it had
  (node, random) => {
    if (!("members" in node) || node.members.length === 0) return hostile(random);
    const [other] = random.pick(node.members);
    const name = random.once(2) ? other : bytesOf(hostile(random));
    const i = random.below(node.members.length);
    return { members: node.members.with(i, [name, node.members[i][1]]) };
  },
  // a member more under a name that is there
  (node, random) => {
    if (!("members" in node) || node.members.length === 0) return hostile(random);
    return { members: [...node.members, [random.pick(node.members)[0], hostile(random)]] };
  },
];

function withParts(node: Json, change: <T>(parts: readonly T[]) => readonly T[]): Json {
  if ("items" in node && node.items.length > 0) return { items: change(node.items) };
  if ("members" in node && node.members.length > 0) return { members: change(node.members) };
  return node;
}

/** A number beside the one that is there; other leaves keep their kind with a small change. */
function nearbyLeaf(node: Json, random: Random): Json {
  if (!("leaf" in node)) return hostile(random);
  const text = new TextDecoder().decode(node.leaf);
  const number = Number(text);
  if (text !== "" && !Number.isNaN(number)) {
    return leaf(
      random.pick([number + 1, number - 1, -number, number * 2, number / 2, number * 1e9, number + 2 ** 32]).toString(),
    );
  }
  if (text === "true" || text === "false") return leaf(text === "true" ? "false" : "true");
  if (!text.startsWith('"')) return hostile(random);
  const content = text.slice(1, -1);
  const at = random.below(content.length + 1);
  return leaf(
    `"${content.slice(0, at)}${random.pick(["", " ", "\\n", "\\u0000", "x", "Ġ", "\\"])}${
      content.slice(at + random.below(3))
    }"`,
  );
}

/** All nodes with the paths that lead to them. */
function pathsOf(tree: Json): (readonly number[])[] {
  const paths: (readonly number[])[] = [];
  const walk = (node: Json, path: readonly number[]): void => {
    paths.push(path);
    if ("items" in node) node.items.forEach((item, i) => walk(item, [...path, i]));
    else if ("members" in node) node.members.forEach(([, value], i) => walk(value, [...path, i]));
  };
  walk(tree, []);
  return paths;
}

function valueAt(tree: Json, path: readonly number[]): Json {
  return path.reduce(
    (node, i) => "items" in node ? node.items[i] : "members" in node ? node.members[i][1] : node,
    tree,
  );
}

function replaced(node: Json, [i, ...rest]: readonly number[], change: (node: Json) => Json): Json {
  if (i === undefined) return change(node);
  if ("items" in node) return { items: node.items.with(i, replaced(node.items[i], rest, change)) };
  if (!("members" in node)) return node;
  const [name, value] = node.members[i];
  return { members: node.members.with(i, [name, replaced(value, rest, change)]) };
}

/** A tree with another value at a path of names and numbers, if there is one. */
export function put(tree: Json, path: readonly (string | number)[], change: (node: Json) => Json): Json {
  const [first, ...rest] = path;
  if (first === undefined) return change(tree);
  if ("leaf" in tree) return tree;
  const i = "items" in tree
    ? Number(first)
    : tree.members.findIndex(([name]) => new TextDecoder().decode(name) === JSON.stringify(first));
  return valueAt(tree, [i]) === undefined ? tree : replaced(tree, [i], (node) => put(node, rest, change));
}

/** A path that goes down one random step at a time, so that what lies high is met as often as what lies deep. */
function randomPath(tree: Json, random: Random): readonly number[] {
  if (random.once(3)) return random.pick(pathsOf(tree));
  const path: number[] = [];
  for (let node = tree; !random.once(8);) {
    const parts = "items" in node ? node.items.length : "members" in node ? node.members.length : 0;
    if (parts === 0) break;
    path.push(random.below(parts));
    node = valueAt(node, path.slice(-1));
  }
  return path;
}

/** A tree with one to four mutations at random places. */
export function mutateJson(tree: Json, random: Random): Json {
  for (let count = 1 + random.small(4); count > 0; count--) {
    const donor = valueAt(tree, randomPath(tree, random));
    tree = replaced(tree, randomPath(tree, random), (node) => random.pick(MUTATIONS)(node, random, donor));
  }
  return tree;
}
