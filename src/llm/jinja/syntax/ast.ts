/**
 * The syntax tree of a template, as parser.ts builds it and interpreter.ts walks it.
 *
 * @module
 */

import type { Value } from "../values.ts";

/** The fields of every node. */
interface Node {
  /** Line of the template, from 1. */
  readonly line: number;
}

/** The fields of every expression. */
interface ExprNode extends Node {
  /** Levels of expressions below and including this one. */
  readonly depth: number;
}

/** Arguments of a call, a filter or a test. */
export interface CallArgs {
  /** By position. */
  readonly positional: readonly Expr[];
  /** By name. */
  readonly named: readonly (readonly [string, Expr])[];
  /** After `*`. */
  readonly rest?: Expr;
  /** After `**`. */
  readonly namedRest?: Expr;
}

/** Binary operators on numbers, strings and lists. */
export type Operator = "+" | "-" | "*" | "/" | "//" | "%" | "**";

/** Comparisons. */
export type Comparison = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in";

/** An expression. */
export type Expr =
  & ExprNode
  & (
    | { readonly kind: "const"; readonly value: Value }
    | { readonly kind: "name"; readonly name: string }
    | { readonly kind: "list" | "tuple"; readonly items: readonly Expr[] }
    | { readonly kind: "dict"; readonly entries: readonly (readonly [Expr, Expr])[] }
    | { readonly kind: "attribute"; readonly of: Expr; readonly name: string }
    | { readonly kind: "item"; readonly of: Expr; readonly index: Expr }
    | { readonly kind: "slice"; readonly of: Expr; readonly bounds: readonly (Expr | undefined)[] }
    | { readonly kind: "call"; readonly callee: Expr; readonly args: CallArgs }
    | { readonly kind: "filter"; readonly of: Expr | undefined; readonly name: string; readonly args: CallArgs }
    | { readonly kind: "test"; readonly of: Expr; readonly name: string; readonly args: CallArgs }
    | { readonly kind: "not" | "negative" | "positive"; readonly of: Expr }
    | { readonly kind: "and" | "or"; readonly left: Expr; readonly right: Expr }
    | { readonly kind: "binary"; readonly operator: Operator; readonly left: Expr; readonly right: Expr }
    | { readonly kind: "concat"; readonly items: readonly Expr[] }
    | { readonly kind: "compare"; readonly first: Expr; readonly rest: readonly (readonly [Comparison, Expr])[] }
    | { readonly kind: "choose"; readonly test: Expr; readonly yes: Expr; readonly no: Expr | undefined }
  );

/** One kind of expression. */
export type ExprOf<K extends Expr["kind"]> = Expr extends infer E
  ? E extends Expr ? K extends E["kind"] ? E & { readonly kind: K } : never : never
  : never;

/** A target of an assignment. */
export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "field"; readonly of: string; readonly name: string }
  | { readonly kind: "targets"; readonly items: readonly Target[] };

/** Parameters and body of a macro or a call block. */
export interface Signature {
  /** Names and defaults. */
  readonly params: readonly { readonly name: string; readonly fallback: Expr | undefined }[];
  /** The statements to render. */
  readonly body: readonly Statement[];
  /** Which of "varargs", "kwargs" and "caller" the body speaks of. */
  readonly uses: ReadonlySet<string>;
}

/** A statement. */
export type Statement =
  & Node
  & (
    | { readonly kind: "output"; readonly value: Expr }
    | { readonly kind: "set"; readonly target: Target; readonly value: Expr }
    | {
      readonly kind: "capture";
      readonly target: Target;
      readonly filter: Expr | undefined;
      readonly body: readonly Statement[];
    }
    | {
      readonly kind: "if";
      readonly branches: readonly { readonly test: Expr; readonly body: readonly Statement[] }[];
      readonly otherwise: readonly Statement[];
    }
    | {
      readonly kind: "for";
      readonly target: Target;
      readonly over: Expr;
      readonly test: Expr | undefined;
      readonly recursive: boolean;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
    | {
      readonly kind: "with";
      readonly values: readonly (readonly [Target, Expr])[];
      readonly body: readonly Statement[];
    }
    | { readonly kind: "macro"; readonly name: string; readonly signature: Signature }
    | { readonly kind: "callBlock"; readonly call: ExprOf<"call">; readonly signature: Signature }
    | { readonly kind: "filterBlock"; readonly filter: Expr; readonly body: readonly Statement[] }
    | { readonly kind: "generation"; readonly body: readonly Statement[] }
    | { readonly kind: "break" | "continue" }
  );

/** One kind of statement. */
export type StatementOf<K extends Statement["kind"]> = Statement extends infer S
  ? S extends Statement ? K extends S["kind"] ? S & { readonly kind: K } : never : never
  : never;
