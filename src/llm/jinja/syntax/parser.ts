/**
 * Expressions of the template language: tokens to the tree of ast.ts, with Jinja's precedence.
 *
 * Names of filters and tests are looked up here, so a template with an unknown one is refused when its model loads. After a
 * condition it is refused only when it is rendered and the condition holds, as in Jinja.
 *
 * @module
 */

import type { CallArgs, Comparison, Expr, ExprOf, Operator } from "./ast.ts";
import { quoted } from "../../../graph/error.ts";
import { Cursor } from "./cursor.ts";
import { FILTERS, TESTS } from "../registry.ts";
import { Str } from "../text.ts";
import { Float, type Value } from "../values.ts";

/** Levels of a tree, which grow with each operator of a chain too. */
const MAX_TREE = 300;

const COMPARISONS: ReadonlySet<string> = new Set<Comparison>(["==", "!=", "<", "<=", ">", ">="]);
const CONSTANTS: Readonly<Record<string, Value>> = {
  true: true,
  True: true,
  false: false,
  False: false,
  none: null,
  None: null,
};
const NO_ARGS: CallArgs = { positional: [], named: [] };

/** An expression without what every expression has. */
type Bare = Expr extends infer E ? E extends Expr ? Omit<E, "line" | "depth"> : never : never;

/** Reads expressions from tokens. */
export class ExprParser extends Cursor {
  /** Names that the template reads. */
  readonly names = new Set<string>();
  #conditions = 0;

  /** Reads something that is used only if a condition holds. */
  conditional<T>(read: () => T): T {
    this.#conditions++;
    const result = read();
    this.#conditions--;
    return result;
  }

  /** Refuses the name of a filter or test that is not there, unless a condition stands before it. */
  #known(rows: Readonly<Record<string, unknown>>, name: string, what: string, line: number): void {
    if (this.#conditions === 0 && !Object.hasOwn(rows, name)) this.fail(`there is no ${what} ${quoted(name)}`, line);
  }

  /** Makes a node above others. */
  make(bare: Bare, line: number, ...below: readonly (Expr | undefined)[]): Expr {
    const depth = 1 + below.reduce((most, expr) => Math.max(most, expr?.depth ?? 0), 0);
    if (depth > MAX_TREE) this.fail(`an expression of more than ${MAX_TREE} levels`, line);
    return { ...bare, line, depth } as Expr;
  }

  /** An expression; without `choose` it does not take up `if`. */
  expression(choose = true): Expr {
    return this.nested(() => choose ? this.#choose() : this.#or());
  }

  /** An expression, or a tuple of several without parentheses. */
  tuple(choose = true): Expr {
    const { line } = this.token;
    const first = this.expression(choose);
    if (!this.sees(",")) return first;
    const items = [first];
    while (this.skips(",") && !this.#endsTuple()) items.push(this.expression(choose));
    return this.make({ kind: "tuple", items }, line, ...items);
  }

  #endsTuple(): boolean {
    return this.token.type === "}}" || this.token.type === "%}" || this.sees(")") || this.sees("recursive");
  }

  #choose(): Expr {
    let { line } = this.token;
    let yes = this.#or();
    while (this.skips("if")) {
      const test = this.#or();
      const no = this.skips("else") ? this.conditional(() => this.expression()) : undefined;
      yes = this.make({ kind: "choose", test, yes, no }, line, test, yes, no);
      ({ line } = this.token);
    }
    return yes;
  }

  #or(): Expr {
    const { line } = this.token;
    let left = this.#and();
    while (this.skips("or")) {
      const right = this.#and();
      left = this.make({ kind: "or", left, right }, line, left, right);
    }
    return left;
  }

  #and(): Expr {
    const { line } = this.token;
    let left = this.#not();
    while (this.skips("and")) {
      const right = this.#not();
      left = this.make({ kind: "and", left, right }, line, left, right);
    }
    return left;
  }

  #not(): Expr {
    const { line } = this.token;
    if (!this.skips("not")) return this.#compare();
    const of = this.nested(() => this.#not());
    return this.make({ kind: "not", of }, line, of);
  }

  #compare(): Expr {
    const { line } = this.token;
    const first = this.#sum();
    const rest: [Comparison, Expr][] = [];
    for (;;) {
      if (this.token.type === "operator" && COMPARISONS.has(this.token.text)) {
        const operator = this.take().text as Comparison;
        rest.push([operator, this.#sum()]);
      } else if (this.skips("in")) rest.push(["in", this.#sum()]);
      else if (this.sees("not") && this.sees("in", 1)) {
        this.take();
        this.take();
        rest.push(["not in", this.#sum()]);
      } else break;
    }
    if (rest.length === 0) return first;
    return this.make({ kind: "compare", first, rest }, line, first, ...rest.map(([, expr]) => expr));
  }

  #binary(operators: readonly Operator[], operand: () => Expr): Expr {
    const { line } = this.token;
    let left = operand();
    while (this.token.type === "operator" && (operators as readonly string[]).includes(this.token.text)) {
      const operator = this.take().text as Operator;
      const right = operand();
      left = this.make({ kind: "binary", operator, left, right }, line, left, right);
    }
    return left;
  }

  #sum(): Expr {
    return this.#binary(["+", "-"], () => this.#concat());
  }

  #concat(): Expr {
    const { line } = this.token;
    const items = [this.#product()];
    while (this.skips("~")) items.push(this.#product());
    return items.length === 1 ? items[0] : this.make({ kind: "concat", items }, line, ...items);
  }

  #product(): Expr {
    return this.#binary(["*", "/", "//", "%"], () => this.#binary(["**"], () => this.#unary(true)));
  }

  #unary(filters: boolean): Expr {
    const { line } = this.token;
    let expr: Expr;
    if (this.sees("-") || this.sees("+")) {
      const kind = this.take().text === "-" ? "negative" : "positive";
      const of = this.nested(() => this.#unary(false));
      expr = this.make({ kind, of }, line, of);
    } else expr = this.primary();
    expr = this.postfix(expr);
    return filters ? this.#filtersAndTests(expr) : expr;
  }

  /** A name, a literal, or something in brackets. */
  primary(): Expr {
    const { token } = this;
    const { line, type } = token;
    if (type === "name") {
      this.take();
      if (Object.hasOwn(CONSTANTS, token.text)) return this.#constant(CONSTANTS[token.text], line);
      this.names.add(token.text);
      return this.make({ kind: "name", name: token.text }, line);
    }
    if (type === "string") {
      const pieces: string[] = [];
      while (this.token.type === "string") pieces.push(this.take().text);
      return this.#constant(Str.template(pieces.join("")), line);
    }
    if (type === "int" || type === "float") {
      this.take();
      return this.#constant(type === "int" ? token.number! : new Float(Number(token.number)), line);
    }
    if (this.skips("(")) {
      if (this.skips(")")) return this.make({ kind: "tuple", items: [] }, line);
      const expr = this.nested(() => this.tuple());
      this.expect(")");
      return expr;
    }
    if (this.skips("[")) {
      const items = this.#items("]", () => this.expression());
      return this.make({ kind: "list", items }, line, ...items);
    }
    if (this.skips("{")) {
      const entries = this.#items("}", () => {
        const key = this.expression();
        this.expect(":");
        return [key, this.expression()] as const;
      });
      return this.make({ kind: "dict", entries }, line, ...entries.flat());
    }
    return this.fail(`expected an expression, found ${this.found()}`);
  }

  #constant(value: Value, line: number): Expr {
    return this.make({ kind: "const", value }, line);
  }

  #items<T>(close: string, read: () => T): T[] {
    const items: T[] = [];
    while (!this.sees(close)) {
      if (items.length > 0) this.expect(",");
      if (this.sees(close)) break;
      items.push(read());
    }
    this.expect(close);
    return items;
  }

  /** Attributes, items and calls after an expression. */
  postfix(expr: Expr): Expr {
    for (;;) {
      const { line } = this.token;
      if (this.skips(".")) {
        const { type, number } = this.token;
        if (type !== "int") expr = this.make({ kind: "attribute", of: expr, name: this.name() }, line, expr);
        else {
          this.take();
          const index = this.#constant(number!, line);
          expr = this.make({ kind: "item", of: expr, index }, line, expr);
        }
      } else if (this.skips("[")) expr = this.nested(() => this.#subscript(expr, line));
      else if (this.sees("(")) expr = this.#call(expr);
      else return expr;
    }
  }

  #subscript(of: Expr, line: number): Expr {
    const first = this.sees(":") ? undefined : this.expression();
    if (first !== undefined && this.skips("]")) return this.make({ kind: "item", of, index: first }, line, of, first);
    const bounds = [first];
    while (bounds.length < 3 && this.skips(":")) {
      bounds.push(this.sees(":") || this.sees("]") ? undefined : this.expression());
    }
    this.expect("]");
    return this.make({ kind: "slice", of, bounds }, line, of, ...bounds);
  }

  #call(callee: Expr): ExprOf<"call"> {
    const { line } = this.token;
    const args = this.#args();
    return this.make({ kind: "call", callee, args }, line, callee, ...exprsOf(args)) as ExprOf<"call">;
  }

  #args(): CallArgs {
    this.expect("(");
    const positional: Expr[] = [];
    const named = new Map<string, Expr>();
    let rest: Expr | undefined;
    let namedRest: Expr | undefined;
    const ensure = (fits: boolean): void => {
      if (!fits) this.fail("the arguments of a call are in a wrong order");
    };
    this.#items(")", () => {
      if (this.skips("*")) {
        ensure(rest === undefined && namedRest === undefined);
        rest = this.expression();
      } else if (this.skips("**")) {
        ensure(namedRest === undefined);
        namedRest = this.expression();
      } else if (this.token.type === "name" && this.sees("=", 1)) {
        ensure(namedRest === undefined);
        const name = this.name();
        this.expect("=");
        if (named.has(name)) this.fail(`the argument ${quoted(name)} is given twice`);
        named.set(name, this.expression());
      } else {
        ensure(rest === undefined && namedRest === undefined && named.size === 0);
        positional.push(this.expression());
      }
    });
    return { positional, named: [...named], rest, namedRest };
  }

  #filtersAndTests(expr: Expr): Expr {
    for (;;) {
      if (this.sees("|")) expr = this.filters(expr);
      else if (this.sees("is")) expr = this.#test(expr);
      else if (this.sees("(")) expr = this.#call(expr);
      else return expr;
    }
  }

  /** Filters after an expression; in a block they come first, with `of` undefined. */
  filters(of: Expr | undefined, first = false): Expr {
    let expr = of;
    while (first || this.skips("|")) {
      const { line } = this.token;
      const name = this.name();
      this.#known(FILTERS, name, "filter", line);
      const args = this.sees("(") ? this.#args() : NO_ARGS;
      expr = this.make({ kind: "filter", of: expr, name, args }, line, expr, ...exprsOf(args));
      first = false;
    }
    return expr ?? this.fail(`expected a filter, found ${this.found()}`);
  }

  #test(of: Expr): Expr {
    this.expect("is");
    const { line } = this.token;
    const negated = this.skips("not");
    const name = this.name();
    this.#known(TESTS, name, "test", line);
    let args = NO_ARGS;
    if (this.sees("(")) args = this.#args();
    else if (this.#beginsOperand()) {
      if (this.sees("is")) this.fail("tests with is cannot be chained");
      args = { positional: [this.postfix(this.primary())], named: [] };
    }
    const test = this.make({ kind: "test", of, name, args }, line, of, ...exprsOf(args));
    return negated ? this.make({ kind: "not", of: test }, line, test) : test;
  }

  #beginsOperand(): boolean {
    const { type } = this.token;
    if (type === "name") return !["else", "or", "and"].some((word) => this.sees(word));
    return ["string", "int", "float"].includes(type) || this.sees("[") || this.sees("{");
  }
}

function exprsOf({ positional, named, rest, namedRest }: CallArgs): (Expr | undefined)[] {
  return [...positional, ...named.map(([, expr]) => expr), rest, namedRest];
}
