/**
 * Jinja templates as published models have them. This is an interpreter of the language that Hugging Face renders chat templates in,
 * within the limits of limits.ts. Its strings know which of their parts users wrote (text.ts).
 *
 * @module
 */

import { GLOBALS } from "./globals.ts";
import { execute, Scope } from "./interpreter.ts";
import { type InputSize, metered } from "./limits.ts";
import { parseTemplate } from "./statements.ts";
import { Builder, type TextPart } from "./text.ts";
import type { Value } from "./values.ts";

/** Most characters of what a template renders to. */
const MAX_OUTPUT = 16 * 2 ** 20;

/** A template that can be rendered. */
export interface Template {
  /** Names that it reads. */
  readonly names: ReadonlySet<string>;
  /** Renders it, as parts by writer, with variables that come from a conversation of a size. Throws a TemplateFault. */
  render(variables: Readonly<Record<string, Value>>, size: InputSize): TextPart[];
}

/** Reads a template. Throws a TemplateFault that says what is wrong and in which line. */
export function compileTemplate(source: string): Template {
  const { body, names } = metered({ values: 0, chars: source.length }, () => parseTemplate(source));
  const render = (variables: Readonly<Record<string, Value>>): TextPart[] => {
    const globals = new Scope();
    for (const func of GLOBALS) globals.set(func.name, func);
    for (const [name, value] of Object.entries(variables)) globals.set(name, value);
    const out = new Builder(MAX_OUTPUT);
    execute(body, new Scope(globals), out);
    return out.parts();
  };
  return { names, render: (variables, size) => metered(size, () => render(variables)) };
}
