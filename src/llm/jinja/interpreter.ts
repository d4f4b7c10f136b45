/**
 * Renders templates: walks the tree of ast.ts over scopes of variables.
 *
 * Scopes are those of Jinja: a loop, a macro, a call block, a filter block and `with` have their own, `if` has none. A variable that
 * `set` sets inside a scope is gone after it.
 *
 * @module
 */

import { compare, contains, equal } from "./compare.ts";
import { attributeOf, call, itemOf, percent, sliceOf } from "./access.ts";
import type { CallArgs, Comparison, Expr, ExprOf, Signature, Statement, StatementOf, Target } from "./syntax/ast.ts";
import { known, NO_ARGS } from "./functions.ts";
import { atLine, enter, leave, step, TemplateFault } from "./limits.ts";
import { Loop } from "./loop.ts";
import { added } from "./markup.ts";
import { arithmetic, negated } from "./numbers.ts";
import { str } from "./print.ts";
import { FILTERS, TESTS } from "./registry.ts";
import { Builder, EMPTY, Str } from "./text.ts";
import {
  type Args,
  Dict,
  itemsOf,
  iterate,
  List,
  Namespace,
  numberOf,
  Thing,
  truthy,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";
import { quoted } from "../../graph/error.ts";

/** Variables, and where those are looked for that are not here. */
export class Scope {
  readonly #values = new Map<string, Value>();

  /** A scope inside of another one. */
  constructor(readonly outer?: Scope) {}

  /** Value of a variable. */
  get(name: string): Value {
    const value = this.#values.get(name);
    if (value !== undefined) return value;
    return this.outer === undefined ? new Undefined(`${quoted(name)} is undefined`) : this.outer.get(name);
  }

  /** Sets a variable here. */
  set(name: string, value: Value): void {
    this.#values.set(name, value);
  }
}

/** How a run of statements ended: at its end, or at a `break` or `continue` of a loop around it. */
type Ending = "end" | "break" | "continue";

/** Evaluates an expression. */
export function evaluate(expr: Expr, scope: Scope): Value {
  step();
  enter();
  const value = (EXPRESSIONS[expr.kind] as (expr: Expr, scope: Scope) => Value)(expr, scope);
  leave();
  return value;
}

const EXPRESSIONS: { readonly [K in Expr["kind"]]: (expr: ExprOf<K>, scope: Scope) => Value } = {
  const: ({ value }) => value,
  name: ({ name }, scope) => scope.get(name),
  list: ({ items }, scope) => new List(items.map((item) => evaluate(item, scope))),
  tuple: ({ items }, scope) => new Tuple(items.map((item) => evaluate(item, scope))),
  dict: ({ entries }, scope) => new Dict(entries.map(([key, value]) => [evaluate(key, scope), evaluate(value, scope)])),
  attribute: ({ of, name, line }, scope) => {
    const value = evaluate(of, scope);
    atLine(line);
    return attributeOf(value, name);
  },
  item: ({ of, index, line }, scope) => {
    const [value, key] = [evaluate(of, scope), evaluate(index, scope)];
    atLine(line);
    return itemOf(value, key);
  },
  slice: ({ of, bounds, line }, scope) => {
    const value = evaluate(of, scope);
    const [start = null, stop = null, by = null] = bounds.map((bound) =>
      bound === undefined ? null : evaluate(bound, scope)
    );
    atLine(line);
    return sliceOf(value, start, stop, by);
  },
  call: ({ callee, args, line }, scope) => {
    const [value, given] = [evaluate(callee, scope), evaluateArgs(args, scope)];
    atLine(line);
    return call(value, given);
  },
  filter: ({ of, name, args, line }, scope) => {
    const [value, given] = [of === undefined ? EMPTY : evaluate(of, scope), evaluateArgs(args, scope)];
    atLine(line);
    return known(FILTERS, name, "filter")(value, given);
  },
  test: ({ of, name, args, line }, scope) => {
    const [value, given] = [evaluate(of, scope), evaluateArgs(args, scope)];
    atLine(line);
    return known(TESTS, name, "test")(value, given);
  },
  not: ({ of }, scope) => !truthy(evaluate(of, scope)),
  negative: ({ of }, scope) => negated(evaluate(of, scope)),
  positive: ({ of }, scope) => {
    const value = evaluate(of, scope);
    if (numberOf(value) === undefined) negated(value);
    return typeof value === "boolean" ? Number(value) : value;
  },
  and: ({ left, right }, scope) => {
    const value = evaluate(left, scope);
    return truthy(value) ? evaluate(right, scope) : value;
  },
  or: ({ left, right }, scope) => {
    const value = evaluate(left, scope);
    return truthy(value) ? value : evaluate(right, scope);
  },
  binary: ({ operator, left, right, line }, scope) => {
    const [a, b] = [evaluate(left, scope), evaluate(right, scope)];
    atLine(line);
    if (operator === "%" && a instanceof Str) return percent(a, b);
    return operator === "+" && a instanceof Str && b instanceof Str ? added(a, b) : arithmetic(operator, a, b);
  },
  concat: ({ items }, scope) =>
    items.reduce((text: Str, item) => text.plus(str(evaluate(item, scope)).withMarkup(false)), EMPTY),
  compare: ({ first, rest, line }, scope) => {
    let left = evaluate(first, scope);
    for (const [operator, expr] of rest) {
      const right = evaluate(expr, scope);
      atLine(line);
      if (!COMPARISONS[operator](left, right)) return false;
      left = right;
    }
    return true;
  },
  choose: ({ test, yes, no }, scope) => {
    if (truthy(evaluate(test, scope))) return evaluate(yes, scope);
    return no === undefined
      ? new Undefined("the inline if-expression evaluated to false and has no else")
      : evaluate(no, scope);
  },
};

const COMPARISONS: Readonly<Record<Comparison, (a: Value, b: Value) => boolean>> = {
  "==": equal,
  "!=": (a, b) => !equal(a, b),
  "<": (a, b) => compare(a, b, "<") < 0,
  "<=": (a, b) => compare(a, b, "<=") <= 0,
  ">": (a, b) => compare(a, b, ">") > 0,
  ">=": (a, b) => compare(a, b, ">=") >= 0,
  in: (a, b) => contains(b, a),
  "not in": (a, b) => !contains(b, a),
};

function evaluateArgs(args: CallArgs, scope: Scope): Args {
  const { positional, named, rest, namedRest } = args;
  if (positional.length === 0 && named.length === 0 && rest === undefined && namedRest === undefined) return NO_ARGS;
  const values = positional.map((expr) => evaluate(expr, scope));
  const byName = new Map(named.map(([name, expr]) => [name, evaluate(expr, scope)]));
  if (rest !== undefined) { for (const item of itemsOf(evaluate(rest, scope))) values.push(item); }
  if (namedRest !== undefined) {
    const more = evaluate(namedRest, scope);
    if (!(more instanceof Dict)) throw new TemplateFault(`the argument after ** is a dict, not ${typeName(more)}`);
    for (const [key, value] of more.entries()) byName.set(str(key).text, value);
  }
  return { positional: values, named: byName };
}

/** Runs statements, which write to `out`. */
export function execute(statements: readonly Statement[], scope: Scope, out: Builder): Ending {
  for (const statement of statements) {
    step();
    atLine(statement.line);
    const run = STATEMENTS[statement.kind] as (statement: Statement, scope: Scope, out: Builder) => Ending | void;
    const ending = run(statement, scope, out) ?? "end";
    if (ending !== "end") return ending;
  }
  return "end";
}

const STATEMENTS: {
  readonly [K in Statement["kind"]]: (statement: StatementOf<K>, scope: Scope, out: Builder) => Ending | void;
} = {
  output: ({ value }, scope, out) => void out.add(str(evaluate(value, scope))),
  set: ({ target, value }, scope) => assign(target, evaluate(value, scope), scope),
  capture: ({ target, filter, body }, scope) => {
    const [text, ending] = captured(body, new Scope(scope));
    if (ending !== "end") return ending;
    assign(target, filter === undefined ? text : filterText(filter, text, scope), scope);
  },
  if: ({ branches, otherwise }, scope, out) => {
    const branch = branches.find(({ test }) => truthy(evaluate(test, scope)));
    return execute(branch?.body ?? otherwise, scope, out);
  },
  for: (statement, scope, out) => {
    const over = evaluate(statement.over, scope);
    atLine(statement.line);
    return loop(statement, over, scope, out, 0);
  },
  with: ({ values, body }, scope, out) => {
    const inner = new Scope(scope);
    const given = values.map(([, expr]) => evaluate(expr, scope));
    values.forEach(([target], i) => assign(target, given[i], inner));
    return nested(body, inner, out);
  },
  macro: ({ name, signature }, scope) => scope.set(name, new Macro(name, signature, scope)),
  callBlock: ({ call: { callee, args, line }, signature }, scope, out) => {
    const { positional, named } = evaluateArgs(args, scope);
    const caller = new Macro("caller", signature, scope);
    const value = evaluate(callee, scope);
    atLine(line);
    out.add(str(call(value, { positional, named: new Map([...named, ["caller", caller]]) })));
  },
  filterBlock: ({ filter, body }, scope, out) => {
    const [text, ending] = captured(body, new Scope(scope));
    if (ending !== "end") return ending;
    out.add(str(filterText(filter, text, scope)));
  },
  generation: ({ body }, scope, out) => nested(body, new Scope(scope), out),
  break: () => "break",
  continue: () => "continue",
};

function nested(body: readonly Statement[], scope: Scope, out: Builder): Ending {
  enter();
  const ending = execute(body, scope, out);
  leave();
  return ending;
}

function captured(body: readonly Statement[], scope: Scope): [Str, Ending] {
  const out = new Builder();
  const ending = nested(body, scope, out);
  return [out.done(), ending];
}

/** Applies the filters of a block, the first of which has no expression in front. */
function filterText(filter: Expr, text: Str, scope: Scope): Value {
  const { of, name, args, line } = filter as ExprOf<"filter">;
  const value = of === undefined ? text : filterText(of, text, scope);
  atLine(line);
  return known(FILTERS, name, "filter")(value, evaluateArgs(args, scope));
}

function assign(target: Target, value: Value, scope: Scope): void {
  if (target.kind === "name") return scope.set(target.name, value);
  if (target.kind === "field") {
    const namespace = scope.get(target.of);
    if (!(namespace instanceof Namespace)) throw new TemplateFault("cannot assign attribute on non-namespace object");
    if (target.name.startsWith("_")) {
      throw new TemplateFault(`a namespace cannot have the attribute ${quoted(target.name)}`);
    }
    namespace.fields.set(target.name, value);
    return;
  }
  const items = itemsOf(value);
  const { length } = target.items;
  if (items.length !== length) {
    const many = items.length < length ? "not enough" : "too many";
    throw new TemplateFault(`${many} values to unpack (expected ${length}, got ${items.length})`);
  }
  target.items.forEach((inner, i) => assign(inner, items[i], scope));
}

function loop(statement: StatementOf<"for">, over: Value, scope: Scope, out: Builder, depth: number): Ending | void {
  const { target, test, recursive, body, otherwise } = statement;
  const recurse = (value: Value): Value => {
    const inner = new Builder();
    enter();
    loop(statement, value, scope, inner, depth + 1);
    leave();
    return inner.done();
  };
  const items = test === undefined ? iterate(over) : kept(iterate(over), target, test, scope);
  const state = new Loop(items, test === undefined ? over : undefined, depth, recursive ? recurse : undefined);
  let empty = true;
  enter();
  for (let item = state.advance(); item !== undefined; item = state.advance()) {
    step();
    empty = false;
    const inner = new Scope(scope);
    inner.set("loop", state);
    assign(target, item, inner);
    if (execute(body, inner, out) === "break") break;
  }
  leave();
  if (empty) return nested(otherwise, new Scope(scope), out);
}

/** Items of a loop that pass its `if`. */
function* kept(items: Iterable<Value>, target: Target, test: Expr, scope: Scope): Generator<Value> {
  for (const item of items) {
    step();
    const inner = new Scope(scope);
    assign(target, item, inner);
    if (truthy(evaluate(test, inner))) yield item;
  }
}

/** A macro, or the body of a call block. */
class Macro extends Thing {
  readonly typeName = "Macro";
  readonly #signature: Signature;
  readonly #scope: Scope;

  constructor(readonly name: string, signature: Signature, scope: Scope) {
    super();
    this.#signature = signature;
    this.#scope = scope;
  }

  override get text(): string {
    return `<Macro '${this.name}'>`;
  }

  override attribute(name: string): Value | undefined {
    return name === "name" ? Str.template(this.name) : undefined;
  }

  override call({ positional, named }: Args): Value {
    const { params, body, uses } = this.#signature;
    const scope = new Scope(this.#scope);
    const rest = new Map(named);
    params.forEach(({ name, fallback }, i) => {
      let value = i < positional.length ? positional[i] : rest.get(name);
      if (i >= positional.length) rest.delete(name);
      if (value === undefined) {
        value = fallback === undefined
          ? new Undefined(`parameter ${quoted(name)} was not provided`)
          : evaluate(fallback, scope);
      }
      scope.set(name, value);
    });
    if (uses.has("caller") && !params.some(({ name }) => name === "caller")) {
      scope.set("caller", rest.get("caller") ?? new Undefined("No caller defined"));
      rest.delete("caller");
    }
    if (uses.has("kwargs")) {
      scope.set("kwargs", new Dict([...rest].map(([name, value]) => [Str.user(name), value])));
    } else if (rest.size > 0) {
      throw new TemplateFault(`macro ${quoted(this.name)} takes no keyword argument ${quoted([...rest.keys()][0])}`);
    }
    if (uses.has("varargs")) scope.set("varargs", new Tuple(positional.slice(params.length)));
    else if (positional.length > params.length) {
      throw new TemplateFault(`macro ${quoted(this.name)} takes not more than ${params.length} argument(s)`);
    }
    return captured(body, scope)[0];
  }
}
