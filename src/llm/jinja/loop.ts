/**
 * The variable `loop` of a loop's body.
 *
 * @module
 */

import { sameOrEqual } from "./compare.ts";
import { binder } from "./functions.ts";
import { TemplateFault } from "./limits.ts";
import { type Args, Func, lengthOf, Thing, Tuple, Undefined, type Value } from "./values.ts";

/** Where a loop is, and what it runs over. It reads one item ahead where a template asks for `last` or `nextitem`. */
export class Loop extends Thing {
  /** Its type. */
  readonly typeName = "LoopContext";
  #items: Iterator<Value>;
  #length: number | undefined;
  readonly #depth: number;
  readonly #recurse: ((value: Value) => Value) | undefined;
  #index = -1;
  #before: Value | undefined;
  #current: Value | undefined;
  /** The item that was read ahead, or `null` if none was. */
  #ahead: { readonly item: Value | undefined } | null = null;
  #seen: Value | undefined;

  /** Runs over `items`; `over` is what they come from, where it knows its length. */
  constructor(
    items: Iterator<Value>,
    over: Value | undefined,
    depth: number,
    recurse: ((value: Value) => Value) | undefined,
  ) {
    super();
    this.#items = items;
    this.#length = over === undefined ? undefined : lengthOf(over);
    this.#depth = depth;
    this.#recurse = recurse;
  }

  /** The next item, or `undefined` at the end. */
  advance(): Value | undefined {
    const item = this.#peek();
    this.#ahead = null;
    if (item === undefined) return undefined;
    this.#index++;
    this.#before = this.#current;
    return this.#current = item;
  }

  #peek(): Value | undefined {
    if (this.#ahead === null) {
      const { done, value } = this.#items.next();
      this.#ahead = { item: done ? undefined : value };
    }
    return this.#ahead.item;
  }

  #count(): number {
    if (this.#length !== undefined) return this.#length;
    const rest: Value[] = [];
    const first = this.#peek();
    if (first !== undefined) {
      rest.push(first);
      for (let next = this.#items.next(); !next.done; next = this.#items.next()) rest.push(next.value);
    }
    this.#ahead = null;
    this.#items = rest.values();
    return this.#length = this.#index + 1 + rest.length;
  }

  readonly #attributes: Readonly<Record<string, () => Value>> = {
    index: () => this.#index + 1,
    index0: () => this.#index,
    revindex: () => this.#count() - this.#index,
    revindex0: () => this.#count() - this.#index - 1,
    first: () => this.#index === 0,
    last: () => this.#peek() === undefined,
    length: () => this.#count(),
    depth: () => this.#depth + 1,
    depth0: () => this.#depth,
    previtem: () => this.#index > 0 ? this.#before! : new Undefined("there is no previous item"),
    nextitem: () => {
      const item = this.#peek();
      return item === undefined ? new Undefined("there is no next item") : item;
    },
    cycle: () =>
      new Func("cycle", ({ positional }) => {
        if (positional.length === 0) throw new TemplateFault("no items for cycling given");
        return positional[this.#index % positional.length];
      }),
    changed: () =>
      new Func("changed", ({ positional }) => {
        const value = new Tuple(positional);
        if (this.#seen !== undefined && sameOrEqual(this.#seen, value)) return false;
        this.#seen = value;
        return true;
      }),
  };

  /** Where the loop is. */
  override attribute(name: string): Value | undefined {
    return Object.hasOwn(this.#attributes, name) ? this.#attributes[name]() : undefined;
  }

  /** Renders the body over other items, in a recursive loop. */
  override call(args: Args): Value {
    if (this.#recurse === undefined) {
      throw new TemplateFault("the loop must have the 'recursive' marker to be called recursively");
    }
    const [over] = bindRecursion(args);
    return this.#recurse(over!);
  }

  /** Its printed form. */
  override get text(): string {
    return `<LoopContext ${this.#index + 1}/${this.#count()}>`;
  }
}

const bindRecursion = binder("loop", "iterable");
