/**
 * Regular expressions as instructions for the matcher in regex.ts.
 *
 * @module
 */

import { CharSet } from "./char_set.ts";
import { type RegexNode, widthOf } from "./regex_tree.ts";

/** Instructions; the matcher documents the operands that follow each of them in the code. */
export const OP = {
  match: 0,
  char: 1,
  set: 2,
  span: 3,
  split: 4,
  jump: 5,
  save: 6,
  enter: 7,
  leaveIfEmpty: 8,
  cut: 9,
  cutAndFail: 10,
  goBackTo: 11,
  back: 12,
  lineStart: 13,
  lineEnd: 14,
  start: 15,
  end: 16,
  lastLineEnd: 17,
  boundary: 18,
  noBoundary: 19,
} as const;

/** Most numbers of code: groups that are repeated a number of times are written out. */
const MAX_CODE = 50_000;
/** Most sets of characters: each may have a table of a megabyte. */
const MAX_SETS = 48;
const NO_END = 2 ** 31 - 1;

/** A pattern that can be run. */
export interface RegexCode {
  readonly code: Int32Array;
  readonly sets: readonly CharSet[];
  /** Number of registers. */
  readonly registers: number;
}

/** Compiles a pattern; throws an `Error` if it is too large. */
export function compileRegex(node: RegexNode): RegexCode {
  const compiler = new Compiler();
  compiler.node(node);
  compiler.emit(OP.match);
  return { code: Int32Array.from(compiler.code), sets: [...compiler.sets.values()], registers: compiler.registers };
}

class Compiler {
  readonly code: number[] = [];
  readonly sets = new Map<string, CharSet>();
  registers = 0;

  /** Appends numbers; returns where the last one lies. */
  emit(...numbers: number[]): number {
    if (this.code.length + numbers.length > MAX_CODE) throw new Error("it is too large");
    return this.code.push(...numbers) - 1;
  }

  node(node: RegexNode): void {
    switch (node.kind) {
      case "char":
        return this.#char(node);
      case "sequence":
        return node.items.forEach((item) => this.node(item));
      case "choice":
        return this.#choice(node.items);
      case "repeat":
        return this.#repeat(node);
      case "atomic":
        return this.#atomic(() => this.node(node.item));
      case "look":
        return this.#look(node);
      case "assert":
        this.emit(OP[node.what]);
    }
  }

  /** Number of the set of a character's node. */
  #set({ test, key }: RegexNode & { kind: "char" }): number {
    if (!this.sets.has(key)) {
      if (this.sets.size === MAX_SETS) throw new Error(`it has more than ${MAX_SETS} classes`);
      this.sets.set(key, new CharSet(test));
    }
    return [...this.sets.keys()].indexOf(key);
  }

  #char(node: RegexNode & { kind: "char" }): void {
    const { code } = node;
    if (code === undefined || node.key.startsWith(" i")) this.emit(OP.set, this.#set(node));
    else for (const unit of String.fromCodePoint(code).split("")) this.emit(OP.char, unit.charCodeAt(0));
  }

  #choice(items: readonly RegexNode[]): void {
    const ends: number[] = [];
    items.forEach((item, i) => {
      const other = i < items.length - 1 ? this.emit(OP.split, 0) : undefined;
      this.node(item);
      if (other === undefined) return;
      ends.push(this.emit(OP.jump, 0));
      this.code[other] = this.code.length;
    });
    for (const end of ends) this.code[end] = this.code.length;
  }

  #repeat(node: RegexNode & { kind: "repeat" }): void {
    const { item, min, max, mode } = node;
    if (item.kind === "char" && mode !== "lazy") {
      const most = max === Infinity ? NO_END : max;
      this.emit(OP.span, this.#set(item), min, most, mode === "greedy" ? 1 : 0);
      return;
    }
    if (mode === "possessive") return this.#atomic(() => this.#repeat({ ...node, mode: "greedy" }));
    for (let i = 0, from = -1; i < min && from < this.code.length; i++) {
      from = this.code.length; // nothing, repeated, is nothing
      this.node(item);
    }
    const ends: number[] = [];
    const again = this.code.length;
    for (let i = min; i < max; i++) {
      ends.push(this.#option(mode === "lazy"));
      const register = widthOf(item) ? undefined : this.registers++;
      if (register !== undefined) this.emit(OP.save, register);
      this.node(item);
      if (register !== undefined) ends.push(this.emit(OP.leaveIfEmpty, register, 0)); // or it would never end
      if (max === Infinity) {
        this.emit(OP.jump, again);
        break;
      }
    }
    for (const end of ends) this.code[end] = this.code.length;
  }

  /** A choice between going on here and an end whose place is filled in later. */
  #option(lazy: boolean): number {
    if (!lazy) return this.emit(OP.split, 0);
    const other = this.emit(OP.split, 0);
    const end = this.emit(OP.jump, 0);
    this.code[other] = this.code.length;
    return end;
  }

  /** A match inside is final: no other way is tried. */
  #atomic(inside: () => void): void {
    const register = this.registers++;
    this.emit(OP.enter, register);
    inside();
    this.emit(OP.cut, register);
  }

  #look({ item, behind, negative }: RegexNode & { kind: "look" }): void {
    const inside = (): void => {
      if (behind) this.emit(OP.back, widthOf(item) ?? 0);
      this.node(item);
    };
    if (negative) {
      const register = this.registers++;
      this.emit(OP.enter, register);
      const other = this.emit(OP.split, 0);
      inside();
      this.emit(OP.cutAndFail, register);
      this.code[other] = this.code.length;
      return;
    }
    const place = this.registers++;
    this.emit(OP.save, place);
    this.#atomic(inside);
    this.emit(OP.goBackTo, place);
  }
}
