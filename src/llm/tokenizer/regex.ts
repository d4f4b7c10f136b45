/**
 * Regular expressions that come from a file: a backtracking matcher whose work is counted.
 *
 * JavaScript's own matcher cannot be stopped, and "(a+)+$" would run for ever. Here a pattern becomes instructions, and untried
 * alternatives wait on a stack in an array. Nothing recurses, and each character of the text allows a limited number of steps.
 * Published patterns take at most a tenth of the limit.
 *
 * @module
 */

import { type CharSet, INSIDE, isWord } from "./char_set.ts";
import { compileRegex, OP } from "./regex_compiler.ts";
import { parseRegex } from "./regex_parser.ts";

/** Most steps on a text: these, and some for each of its characters. */
const STEPS = 20_000;
const STEPS_PER_CHAR = 500;
/** Numbers on the stack: those it starts with, and most, 32 MiB. */
const SOME_STACK = 2 ** 10;
const MAX_STACK = 2 ** 23;

/** The limits were reached. */
export class RegexLimit extends Error {}

/** A pattern, ready to be searched for. */
export class Regex {
  readonly #code: Int32Array;
  readonly #sets: readonly CharSet[];
  readonly #registers: Int32Array;
  #stack = new Int32Array(SOME_STACK);
  #steps = 0;

  /** Reads a pattern in the syntax of Oniguruma; throws an `Error` that says what is not supported. */
  constructor(pattern: string) {
    const { code, sets, registers } = compileRegex(parseRegex(pattern));
    this.#code = code;
    this.#sets = sets;
    this.#registers = new Int32Array(registers);
  }

  /**
   * Where matches begin and end in a well-formed text, one after the other. A match of nothing counts unless it touches the
   * one before it. Throws {@link RegexLimit} if that takes too much work.
   */
  find(text: string): number[] {
    try {
      return this.#find(text);
    } finally {
      if (this.#stack.length > SOME_STACK) this.#stack = new Int32Array(SOME_STACK);
    }
  }

  #find(text: string): number[] {
    const found: number[] = [];
    this.#steps = STEPS + STEPS_PER_CHAR * text.length;
    let last = -1;
    for (let from = 0; from <= text.length;) {
      let start = from;
      let end = this.#match(text, start);
      while (end < 0 && start < text.length) {
        start += widthAt(text, start);
        end = this.#match(text, start);
      }
      if (end < 0) break;
      if (start === end && end === last) from += widthAt(text, from);
      else {
        found.push(start, end);
        from = last = end;
      }
    }
    return found;
  }

  /** Where the match that begins at `at` ends; -1 if there is none. */
  #match(text: string, at: number): number {
    const code = this.#code;
    const sets = this.#sets;
    const registers = this.#registers;
    const { length } = text;
    let stack = this.#stack;
    let steps = this.#steps;
    let depth = 0; // of the stack; an entry is an instruction, a place, and the first place that it may go back to
    let pc = 0;
    for (;;) {
      if (--steps < 0) throw new RegexLimit(`more than ${STEPS_PER_CHAR} steps a character`);
      if (depth + 6 > stack.length) stack = this.#grow();
      let fits = true;
      switch (code[pc]) {
        case OP.char:
          fits = at < length && text.charCodeAt(at) === code[pc + 1];
          at++;
          pc += 2;
          break;
        case OP.set: {
          const char = at < length ? text.codePointAt(at)! : -1;
          fits = char >= 0 && sets[code[pc + 1]].has(char);
          at += char > 0xffff ? 2 : 1;
          pc += 2;
          break;
        }
        case OP.span: { // set, least, most, whether it may give back
          const set = sets[code[pc + 1]];
          const { table } = set;
          const least = code[pc + 2];
          const most = code[pc + 3];
          const start = at;
          let low = at;
          let count = 0;
          while (count < most && at < length) {
            const char = text.codePointAt(at)!;
            const answer = char < 0x10000 ? table[char] : 0;
            if (answer === 0 ? !set.has(char) : answer !== INSIDE) break;
            at += char < 0x10000 ? 1 : 2;
            if (++count === least) low = at;
          }
          steps -= (at - start) >> 3; // a tight loop
          fits = count >= least;
          pc += 5;
          if (fits && at > low && code[pc - 1] === 1) {
            stack[depth++] = pc;
            stack[depth++] = at - backAt(text, at);
            stack[depth++] = low;
          }
          break;
        }
        case OP.split: // the other way
          stack[depth++] = code[pc + 1];
          stack[depth++] = at;
          stack[depth++] = at;
          pc += 2;
          break;
        case OP.jump:
          pc = code[pc + 1];
          break;
        case OP.save: // register: the place
        case OP.enter: { // register: the depth
          const register = code[pc + 1];
          stack[depth++] = ~register;
          stack[depth++] = registers[register];
          stack[depth++] = 0;
          registers[register] = code[pc] === OP.save ? at : depth;
          pc += 2;
          break;
        }
        case OP.leaveIfEmpty: // register, where to
          pc = registers[code[pc + 1]] === at ? code[pc + 2] : pc + 3;
          break;
        case OP.cut: // register
          depth = registers[code[pc + 1]];
          pc += 2;
          break;
        case OP.cutAndFail:
          depth = registers[code[pc + 1]];
          fits = false;
          break;
        case OP.goBackTo: // register
          at = registers[code[pc + 1]];
          pc += 2;
          break;
        case OP.back: { // characters
          let count = code[pc + 1];
          for (; count > 0 && at > 0; count--) at -= backAt(text, at);
          fits = count === 0;
          pc += 2;
          break;
        }
        case OP.lineStart:
          fits = at === 0 || (text.charCodeAt(at - 1) === 10 && at < length);
          pc++;
          break;
        case OP.lineEnd:
          fits = at === length ? at === 0 || text.charCodeAt(at - 1) !== 10 : text.charCodeAt(at) === 10;
          pc++;
          break;
        case OP.start:
          fits = at === 0;
          pc++;
          break;
        case OP.end:
          fits = at === length;
          pc++;
          break;
        case OP.lastLineEnd:
          fits = at === length || (at === length - 1 && text.charCodeAt(at) === 10);
          pc++;
          break;
        case OP.boundary:
        case OP.noBoundary: {
          const before = at > 0 && isWord(text.codePointAt(at - backAt(text, at))!);
          const behind = at < length && isWord(text.codePointAt(at)!);
          fits = (before !== behind) === (code[pc] === OP.boundary);
          pc++;
          break;
        }
        case OP.match:
          this.#steps = steps;
          return at;
      }
      while (!fits) {
        if (depth === 0) {
          this.#steps = steps;
          return -1;
        }
        const top = depth - 3;
        pc = stack[top];
        if (pc < 0) {
          registers[~pc] = stack[top + 1];
          depth = top;
          continue;
        }
        at = stack[top + 1];
        if (at > stack[top + 2]) stack[top + 1] = at - backAt(text, at);
        else depth = top;
        fits = true;
      }
    }
  }

  #grow(): Int32Array<ArrayBuffer> {
    if (this.#stack.length >= MAX_STACK) throw new RegexLimit("too much memory");
    const stack = new Int32Array(2 * this.#stack.length);
    stack.set(this.#stack);
    return this.#stack = stack;
  }
}

/** Code units of the character at a place; 1 at the end. */
function widthAt(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  return unit >= 0xd800 && unit < 0xdc00 ? 2 : 1;
}

/** Code units of the character before a place. */
function backAt(text: string, at: number): number {
  const unit = text.charCodeAt(at - 1);
  return unit >= 0xdc00 && unit < 0xe000 ? 2 : 1;
}
