/**
 * Chat templates: those that the fuzzer starts from, mutations by the tokens of Jinja, and templates grown from its grammar.
 *
 * @module
 */

import type { Random } from "./random.ts";

/**
 * Templates that edit what people wrote, in the ways that published ones do and a few more. Each writes as many control tokens as the
 * conversation has turns, whatever the turns say.
 */
export const EDITING: readonly string[] = [
  "message.content",
  "message['content'] | trim",
  "message.content.split('</think>')[-1].lstrip('\\n')",
  "message.content.split('\\n') | join('|')",
  "message.content.replace('<', '').replace('|', '') | upper",
  "message.content[1:] ~ message.content[:1]",
  "(message.content.split('x') | join('')) ~ message.content | length",
  "message.content.strip().rstrip('>').title() if message.content.startswith('<') else message.content | lower",
  "[message.content, message.content | replace('_', '')] | join('\\n')",
  "message | tojson",
].map((expression) =>
  `{%- for message in messages %}{{- '<|im_start|>' ~ message.role ~ '\\n' }}{{- ${expression} }}{{- '<|im_end|>\\n' }}{%- endfor %}` +
  "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
);

/** Templates to mutate: those above, and others with the statements, tests, macros and tools of published ones. */
export const TEMPLATES: readonly string[] = [
  ...EDITING,
  "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}" +
  "{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}" +
  "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}{%- for message in messages[::-1] %}" +
  "{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step_tool and message.role == 'user' and message.content is " +
  "string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}" +
  "{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}{%- for message in messages %}" +
  "{%- if message.role == 'assistant' and message.tool_calls %}{%- for call in message.tool_calls %}{%- if call.function %}" +
  "{%- set call = call.function %}{%- endif %}{{- '<tool_call>' + call.name }}{{- call.arguments | tojson(indent=2) }}{%- endfor %}" +
  "{%- else %}{{- message.content }}{%- endif %}{%- if not loop.last %}{{- '\\n' }}{%- endif %}{%- endfor %}",
  "{{ bos_token }}{% macro turn(role, text='') -%}<|im_start|>{{ role }}\n{{ text | trim }}<|im_end|>\n{%- endmacro %}" +
  "{% for m in messages if m.role != 'system' %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}" +
  "{{ raise_exception('roles must alternate') }}{% elif m.content is not none and m.content is defined %}" +
  "{{ turn(m.role, text=m.content) }}{% else %}{{ turn(m.role) }}{% endif %}{% endfor %}" +
  "{{ strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' }}",
  "{% set loop_messages = messages[1:] if messages[0]['role'] == 'system' else messages %}{% for message in loop_messages %}" +
  "{% set content = message['content'] %}{% for part in content.split('\\n') | map('trim') | select | list %}{{ part }}" +
  "{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}{{ eos_token }}{% endfor %}{# done #}",
  "{% for key, value in messages[0].items() | sort %}{{ key }}={{ value | string | replace('\\n', ' ') | truncate(20) }}{% endfor %}" +
  "{% filter upper %}{{ messages | map(attribute='role') | unique | join(',') }}{% endfilter %}{% for i in range(3) %}{{ i ** 2 }}" +
  "{% if i is even %}{% continue %}{% endif %}{% break %}{% endfor %}{{ {'a': [1, 2.5, none, true], 'b': -1e-7} | tojson }}",
];

/** The parts of a template, for the lexer below. */
const TOKEN = /\{%-?|-?%\}|\{\{-?|-?\}\}|\{#|#\}|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\w+|\s+|[^\s\w]/gs;

const PIECES = [
  ..."{% {%- %} -%} {{ {{- }} -}} {# #} ( ) [ ] { } . , : | ~ + - * / // ** % = == != < > <= >=".split(" "),
  ..."for in if elif else endif endfor set endset macro endmacro call endcall filter endfilter break continue raw endraw"
    .split(" "),
  ..."generation endgeneration include import extends block recursive is not and or none true false defined string"
    .split(" "),
  ..."messages message tools loop namespace range cycler dict raise_exception self caller varargs kwargs __class__ constructor"
    .split(" "),
];
/** Those that published templates use, several times, beside others that Jinja has. */
const FILTERS =
  "trim trim upper lower title join join split length first last list tojson tojson replace string int items default trim upper lower title join split length first last list tojson replace string int float abs sort reverse map select reject selectattr unique items dictsort default batch slice indent center wordwrap truncate groupby safe escape format random sum min max round urlize xmlattr"
    .split(" ");
const METHODS =
  "split strip lstrip rstrip replace upper lower title startswith endswith join items keys values get append pop extend count index find format encode constructor __class__"
    .split(" ");
const TESTS =
  "defined undefined none string number mapping iterable sequence even odd true false boolean callable sameas".split(
    " ",
  );
const ATOMS = [
  ..."messages message message.content messages[0] messages[-1].content tools loop loop.index ns ns.x x y bos_token"
    .split(" "),
  ..."0 1 -1 2 300 99999 2147483648 1e308 0.1 '' 'a' 'ab' '<|im_end|>' '\\n' [] {} none true false range self".split(
    " ",
  ),
];

/**
 * The parts of a template that can stand for a value. They are literals and names, except names of statements and those
 * after a dot or bar.
 */
const VALUE =
  /(?<![.|]\s*|[{%#]-?\s*|\w)(?:'[^']*'|\b(?:message|messages|tools|content|loop|ns|true|false|none|\d+)\b)/g;

/** A template in which some values are other ones; its form stays. */
function exchangeValues(text: string, random: Random): string {
  const count = text.match(VALUE)?.length ?? 0;
  const chosen = new Set(Array.from({ length: 1 + random.below(3) }, () => random.below(count)));
  let i = 0;
  return text.replace(VALUE, (value) => chosen.has(i++) ? `(${expression(random, random.below(3))})` : value);
}

/** A template with other values, or its list of tokens with a few taken out, doubled, swapped or put in. */
export function mutateTemplate(text: string, random: Random): string {
  if (!random.once(3)) return exchangeValues(text, random);
  let tokens: string[] = text.match(TOKEN) ?? [];
  for (let count = 1 + random.small(3); count > 0; count--) {
    const at = random.below(tokens.length + 1);
    const length = 1 + random.small(4);
    const put: readonly (() => readonly string[])[] = [
      () => [],
      () => tokens.slice(at, at + 2 * length),
      () => [random.pick(PIECES)],
      () => [random.pick(tokens)],
      () => Array<string>(1 + random.small(2000)).fill(random.pick(PIECES)),
      () => [statement(random, 3)],
      () => [` ${expression(random, 3)} `],
      () => [random.pick(["\0", "\x1b[31m", "\ud800", "\u2028", "é", "'", '"', "\\", "{{", "{%"])],
    ];
    tokens = tokens.toSpliced(at, random.once(2) ? 0 : length, ...random.pick(put)());
  }
  return tokens.join("");
}

/** A template that no one wrote: statements and expressions of the grammar, each in each other. */
export function growTemplate(random: Random): string {
  const names =
    "{% set x = 1 %}{% set y = 'ab' %}{% set i = 0 %}{% set message = messages[0] %}{% set ns = namespace(x='') %}";
  return names + Array.from({ length: 1 + random.below(3) }, () => statement(random, random.below(4))).join("");
}

function statement(random: Random, depth: number): string {
  const inner = (): string => depth > 0 ? statement(random, depth - 1) : "x";
  const value = (): string => expression(random, depth);
  const make: readonly (() => string)[] = [
    () => `{{ ${value()} }}`,
    () => `{{- ${value()} -}}`,
    () => `{% for ${random.pick(["x", "x, y", "message", "i"])} in ${value()} %}${inner()}{% endfor %}`,
    () => `{% for x in ${value()} if ${value()} %}${inner()}{% else %}${inner()}{% endfor %}`,
    () => `{% for i in range(${random.pick(["3", "300", "99999", "10 ** 9"])}) %}${inner()}{% endfor %}`,
    () => `{% if ${value()} %}${inner()}{% elif ${value()} %}${inner()}{% else %}${inner()}{% endif %}`,
    () => `{% set x = ${value()} %}${inner()}${inner()}`,
    () =>
      `{% set ns = namespace(x=${value()}) %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}${inner()}`,
    () => `{% set x %}${inner()}{% endset %}${inner()}`,
    () =>
      `{% macro x(y${
        random.once(2) ? "=1" : ""
      }) %}${inner()}{{ x(y) if ${value()} }}{% endmacro %}{{ x(${value()}) }}`,
    () => `{% call(y) x() %}${inner()}{% endcall %}`,
    () => `{% filter ${random.pick(FILTERS)} %}${inner()}{% endfilter %}`,
    () => `{% generation %}${inner()}{% endgeneration %}`,
    () => random.pick(["text", "<|im_start|>", "<|im_end|>\n", "{# a #}", "{% raw %}{{ {% endraw %}"]),
  ];
  return random.pick(make)();
}

function expression(random: Random, depth: number): string {
  if (depth <= 0) return random.pick(ATOMS);
  const part = (): string => `(${expression(random, depth - 1)})`;
  const make: readonly (() => string)[] = [
    () => random.pick(ATOMS),
    () => `${part()} ${random.pick("+ - * / // % ** ~ == != < > and or in".split(" "))} ${part()}`,
    () => `${part()} | ${random.pick(FILTERS)}`,
    () => `${part()} | ${random.pick(FILTERS)}(${part()})`,
    () => `${part()} | ${random.pick(FILTERS)}(${part()}, attribute=${part()})`,
    () => `(${part()}).${random.pick(METHODS)}(${random.once(2) ? part() : `${part()}, ${part()}`})`,
    () => `(${part()})[${part()}]`,
    () => `(${part()})[${part()}:${part()}${random.once(2) ? `:${part()}` : ""}]`,
    () => `${part()} if ${part()} else ${part()}`,
    () => `${part()} is ${random.once(4) ? "not " : ""}${random.pick(TESTS)}`,
    () => `not (${part()})`,
    () => `[${part()}, ${part()}]`,
    () => `{${part()}: ${part()}}`,
    () => `('${"ab ".repeat(1 + random.small(200))}' * ${random.pick(["1", "1000", "10 ** 9"])})`,
    () => `range(${part()}) | list`,
    () => `('a' * 1000).replace('a', 'a' * 1000).replace('a', 'a' * ${random.pick(["2", "1000"])})`,
  ];
  return random.pick(make)();
}

const WORDS = [
  ..."<|im_start|> <|im_end|> <|endoftext|> <think> </think> <tool_call> <tool_response> < > | <| |> im_end im_ end"
    .split(" "),
  ..."x xx _ user assistant system {{ }} {% %} role content \\n \\ ' \"".split(" "),
  ...[
    "\n",
    " ",
    "",
    "\0",
    "\u2028",
    "\ufdd0",
    "\ufdd1",
    "\ufeff",
    "\ud83c",
    "\udff4",
    "🏴‍☠️",
    "İ",
    "ß",
    "ﬁ",
    "　",
    "｜",
    "＜",
  ],
];

/** A user's text: words, and control tokens whole, cut, doubled, with letters between, in other cases. */
export function userText(random: Random): string {
  let text = "";
  for (let count = 1 + random.small(24); count > 0; count--) {
    const word = random.pick(WORDS);
    const at = random.below(word.length + 1);
    const make: readonly (() => string)[] = [
      () => word,
      () => word,
      () => word.slice(0, at) + random.pick(WORDS) + word.slice(at),
      () => Array.from(word).join(random.pick(["x", "_", "\n", "<", "|", "\ufdd0", "</think>"])),
      () => word.slice(at) + word.slice(0, at),
      () => word.toUpperCase(),
      () => `${word.slice(0, -1)}${random.pick(["\n", " ", "x"])}${word.slice(-1)}`,
    ];
    text += random.pick(make)();
  }
  return text;
}
