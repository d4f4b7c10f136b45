/**
 * Statements of the template language: tokens to the tree of ast.ts.
 *
 * @module
 */

import type { Expr, ExprOf, Signature, Statement, Target } from "./syntax/ast.ts";
import { quoted } from "../../graph/error.ts";
import { tokenize } from "./syntax/lexer.ts";
import { ExprParser } from "./syntax/parser.ts";
import { Str } from "./text.ts";

/** A template that has been read. */
export interface Parsed {
  /** Its statements. */
  readonly body: readonly Statement[];
  /** Names that it reads anywhere. */
  readonly names: ReadonlySet<string>;
}

/** Reads a template. Throws a TemplateFault if it is wrong or uses what is not supported. */
export function parseTemplate(source: string): Parsed {
  const parser = new StatementParser(tokenize(source));
  return { body: parser.statements([]), names: parser.names };
}

/** Tags that belong to Jinja but have no use in a chat template. */
const UNSUPPORTED: ReadonlySet<string> = new Set(
  ["block", "extends", "include", "import", "from", "autoescape", "do", "trans", "debug"],
);

class StatementParser extends ExprParser {
  #loops = 0;

  readonly #tags: Readonly<Record<string, (line: number) => Statement>> = {
    set: (line) => this.#set(line),
    if: (line) => this.#if(line),
    for: (line) => this.#for(line),
    with: (line) => this.#with(line),
    macro: (line) => this.#macro(line),
    call: (line) => this.#callBlock(line),
    filter: (line) => ({
      kind: "filterBlock",
      line,
      filter: this.filters(undefined, true),
      body: this.#body("endfilter"),
    }),
    generation: (line) => ({ kind: "generation", line, body: this.#body("endgeneration") }),
    break: (line) => this.#jump("break", line),
    continue: (line) => this.#jump("continue", line),
    print: (line) => this.#print(line),
  };

  /** Statements up to one of the tags `ends`, which is left as the next token, or to the end. */
  statements(ends: readonly string[]): Statement[] {
    const statements: Statement[] = [];
    for (;;) {
      const { type, text, line } = this.token;
      if (type === "end") {
        if (ends.length > 0) this.fail(`expected ${ends.join(" or ")}, found the end of the template`);
        return statements;
      }
      this.take();
      if (type === "data") {
        statements.push({ kind: "output", line, value: this.make({ kind: "const", value: Str.template(text) }, line) });
      } else if (type === "{{") {
        statements.push({ kind: "output", line, value: this.tuple() });
        this.#close("}}");
      } else {
        if (ends.some((end) => this.sees(end))) return statements;
        statements.push(this.#statement(ends));
        this.#close("%}");
      }
    }
  }

  #close(type: "}}" | "%}"): void {
    if (this.token.type !== type) this.fail(`expected ${type}, found ${this.found()}`);
    this.take();
  }

  #statement(ends: readonly string[]): Statement {
    const { line } = this.token;
    const tag = this.name();
    if (Object.hasOwn(this.#tags, tag)) return this.nested(() => this.#tags[tag](line));
    if (UNSUPPORTED.has(tag)) this.fail(`the tag ${quoted(tag)} is not supported in chat templates`, line);
    return this.fail(`unknown tag ${quoted(tag)}${ends.length > 0 ? `: expected ${ends.join(" or ")}` : ""}`, line);
  }

  /** The body of a block, with its end tag. */
  #body(...ends: readonly string[]): Statement[] {
    this.skips(":");
    this.#close("%}");
    const body = this.statements(ends);
    if (ends.length === 1) this.take();
    return body;
  }

  #print(line: number): Statement {
    const items = [this.expression()];
    while (this.skips(",")) items.push(this.expression());
    return { kind: "output", line, value: this.make({ kind: "concat", items }, line, ...items) };
  }

  #jump(kind: "break" | "continue", line: number): Statement {
    if (this.#loops === 0) this.fail(`${kind} is not in a loop`, line);
    return { kind, line };
  }

  #set(line: number): Statement {
    const target = this.#target(true);
    if (this.skips("=")) return { kind: "set", line, target, value: this.tuple() };
    const filter = this.sees("|") ? this.filters(undefined) : undefined;
    return { kind: "capture", line, target, filter, body: this.#body("endset") };
  }

  #target(fields = false): Target {
    const items = [this.#oneTarget(fields)];
    if (!this.sees(",")) return items[0];
    while (this.skips(",") && this.token.type !== "%}" && !this.sees("in") && !this.sees("=") && !this.sees(")")) {
      items.push(this.#oneTarget(fields));
    }
    return { kind: "targets", items };
  }

  #oneTarget(fields: boolean): Target {
    if (this.skips("(")) {
      const inner = this.nested(() => this.#target(fields));
      this.expect(")");
      return inner;
    }
    const name = this.#assignable();
    if (!fields || !this.skips(".")) return { kind: "name", name };
    this.names.add(name);
    return { kind: "field", of: name, name: this.name() };
  }

  #assignable(): string {
    const { line } = this.token;
    const name = this.name();
    if (["true", "false", "none", "True", "False", "None"].includes(name)) {
      this.fail(`${name} cannot be assigned to`, line);
    }
    return name;
  }

  #if(line: number): Statement {
    const branches: { test: Expr; body: Statement[] }[] = [];
    let otherwise: Statement[] = [];
    for (;;) {
      branches.push({ test: this.tuple(false), body: this.conditional(() => this.#body("elif", "else", "endif")) });
      if (this.skips("elif")) continue;
      if (this.skips("else")) otherwise = this.conditional(() => this.#body("endif"));
      else this.take();
      return { kind: "if", line, branches, otherwise };
    }
  }

  #for(line: number): Statement {
    const target = this.#target();
    this.expect("in");
    const over = this.tuple(false);
    const test = this.skips("if") ? this.expression() : undefined;
    const recursive = this.skips("recursive");
    this.#loops++;
    const body = this.#body("endfor", "else");
    this.#loops--;
    const otherwise = this.skips("else") ? this.#body("endfor") : (this.take(), []);
    return { kind: "for", line, target, over, test, recursive, body, otherwise };
  }

  #with(line: number): Statement {
    const values: [Target, Expr][] = [];
    while (this.token.type !== "%}" && !this.sees(":")) {
      if (values.length > 0) this.expect(",");
      const target = this.#oneTarget(false);
      this.expect("=");
      values.push([target, this.expression()]);
    }
    return { kind: "with", line, values, body: this.#body("endwith") };
  }

  #macro(line: number): Statement {
    const name = this.#assignable();
    const params = this.#params();
    return { kind: "macro", line, name, signature: this.#signature(params, "endmacro") };
  }

  #callBlock(line: number): Statement {
    const params = this.sees("(") ? this.#params() : [];
    const call = this.expression();
    if (call.kind !== "call") this.fail("a call block needs a call", line);
    return { kind: "callBlock", line, call: call as ExprOf<"call">, signature: this.#signature(params, "endcall") };
  }

  #params(): { name: string; fallback: Expr | undefined }[] {
    this.expect("(");
    const params: { name: string; fallback: Expr | undefined }[] = [];
    const names = new Set<string>();
    while (!this.sees(")")) {
      if (params.length > 0) this.expect(",");
      const name = this.#assignable();
      if (names.has(name)) this.fail(`the parameter ${quoted(name)} is there twice`);
      names.add(name);
      const fallback = this.skips("=") ? this.expression() : undefined;
      if (fallback === undefined && params.at(-1)?.fallback !== undefined) {
        this.fail(`the parameter ${quoted(name)} needs a default, since the one before it has one`);
      }
      params.push({ name, fallback });
    }
    this.expect(")");
    return params;
  }

  #signature(params: Signature["params"], end: string): Signature {
    const loops = this.#loops;
    this.#loops = 0;
    const before = new Set(["varargs", "kwargs", "caller"].filter((name) => this.names.delete(name)));
    const body = this.#body(end);
    const uses = new Set(["varargs", "kwargs", "caller"].filter((name) => this.names.has(name)));
    for (const name of before) this.names.add(name);
    this.#loops = loops;
    return { params, body, uses };
  }
}
