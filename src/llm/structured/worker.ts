/**
 * The worker that compiles grammars and makes masks, by xgrammar in WebAssembly.
 *
 * It is a thread of its own for three reasons: what the package needs of globals stays here; a schema that takes forever or has the
 * module abort ends a worker and nothing else; and the mask of a step is made while the host submits the next one. It serves
 * one tokenizer. Between two tokens it looks for the next one for a moment and then sleeps.
 *
 * @module
 */

import { createRequire } from "node:module";
import { setImmediate } from "node:timers/promises";
import { parentPort } from "node:worker_threads";
import {
  ANSWER,
  ANSWERED,
  ASKED,
  type GrammarSource,
  MASK,
  type Message,
  POSTED,
  type Reply,
  type Request,
  SIGNAL,
  STATUS,
  TOKEN,
  type Vocabulary,
  type WorkerData,
  writeReply,
} from "./protocol.ts";

/** The package that compiles grammars and makes masks: {@link https://github.com/mlc-ai/xgrammar}. */
export const XGRAMMAR = "npm:@mlc-ai/web-xgrammar@0.1.27";

/** Compiled grammars that are kept. */
const MOST_GRAMMARS = 32;
/** Most memory of the module in bytes: what needs more is refused. */
const MOST_MEMORY = 1 << 29;
/** Milliseconds of looking for the next token before sleeping, and of sleeping before looking again. */
const LOOK_MS = 0.3;
const SLEEP_MS = 1000;

/** An object on the heap of the module. */
interface Handle {
  delete(): void;
}
interface Owner<H extends Handle = Handle> {
  readonly handle: H;
  dispose(): void;
}
interface MatcherHandle extends Handle {
  AcceptToken(token: number, verbose: boolean): boolean;
  IsTerminated(): boolean;
  Reset(): void;
}
interface PackageMatcher extends Owner<MatcherHandle> {
  getNextTokenBitmask(): Promise<Int32Array>;
}
interface Compiler extends Owner {
  compileJSONSchema(
    schema: string,
    anyWhitespace: boolean,
    indent: number,
    separators: undefined,
    strict: boolean,
  ): Promise<Owner>;
  compileGrammar(text: string): Promise<Owner>;
  compileStructuralTag(tag: string): Promise<Owner>;
}
/** The part of the package that is used. */
interface Package {
  readonly TokenizerInfo: {
    createTokenizerInfo(
      tokens: readonly (Uint8Array | string)[],
      type: "raw",
      prefix: boolean,
      size: number,
      stop: readonly number[],
    ): Promise<Owner>;
  };
  readonly GrammarCompiler: { createGrammarCompiler(info: Owner, cache: boolean): Promise<Compiler> };
  readonly GrammarMatcher: { createGrammarMatcher(compiled: unknown): Promise<PackageMatcher> };
}

/** A compiled grammar and matchers of it that wait for the next generation. */
interface Compiled {
  readonly grammar: Owner;
  readonly idle: PackageMatcher[];
  /** Matchers in use. */
  users: number;
}

/** A matcher in use. */
interface Open {
  readonly compiled: Compiled;
  readonly matcher: PackageMatcher;
  readonly shared: Int32Array;
}

/** What the module writes before it aborts. */
const lines: string[] = [];
/** Memories of the module: one. */
const memories: WebAssembly.Memory[] = [];

/** Serves until the thread ends. */
export async function serve({ signal, vocabulary }: WorkerData): Promise<void> {
  const messages: Message[] = [];
  parentPort!.on("message", (message: Message) => messages.push(message));
  let server: Server | undefined;
  let failure: string | undefined;
  try {
    server = await Server.make(await importPackage(), vocabulary);
  } catch (error) {
    failure = String(error instanceof Error ? error.message : error);
  }
  const control = new Int32Array(signal);
  for (let seen = 0, answered = 0;;) {
    const now = Atomics.load(control, SIGNAL);
    while (answered < Atomics.load(control, POSTED)) {
      const message = messages.shift();
      if (message) answered++;
      else await setImmediate(); // it is on its way
      if (message) writeReply(message.reply, await server?.reply(message.request) ?? { error: failure });
    }
    await server?.step();
    seen = now;
    const until = performance.now() + LOOK_MS;
    while (Atomics.load(control, SIGNAL) === seen && performance.now() < until);
    Atomics.wait(control, SIGNAL, seen, SLEEP_MS);
  }
}

/** The package, which was made for other places: it looks for globals of Node's older modules, and for where a page lies. */
async function importPackage(): Promise<Package> {
  const exports = {};
  Object.assign(globalThis, {
    exports,
    module: { exports },
    require: createRequire("file:///index.js"),
    __dirname: "/",
    __filename: "/index.js",
  });
  Reflect.deleteProperty(globalThis, "location");
  console.error = console.warn = console.log = (...words: unknown[]): void => void lines.push(words.join(" "));
  const { grow } = WebAssembly.Memory.prototype;
  WebAssembly.Memory.prototype.grow = function (pages: number): number {
    if (this.buffer.byteLength + 65536 * pages > MOST_MEMORY) throw new RangeError("too large");
    return grow.call(this, pages);
  };
  const { instantiate } = WebAssembly;
  WebAssembly.instantiate = (async (bytes: BufferSource, imports: WebAssembly.Imports) => {
    const result = await instantiate(bytes, imports);
    memories.push(...Object.values(result.instance.exports).filter((value) => value instanceof WebAssembly.Memory));
    return result;
  }) as typeof instantiate;
  const specifier: string = XGRAMMAR; // a variable: nobody downloads it before this line runs
  await import(specifier);
  return exports as Package;
}

/** What the module said of its last failure, without the paths of those who built it. */
function complaint(error: unknown): string {
  const fatal = lines.findLast((line) => line.startsWith("[FATAL]"));
  lines.length = 0;
  const text = fatal?.replace(/^\[FATAL\] \S+:\d+: /, "").replace(/^Check failed: .*? is false: /, "");
  if (text !== undefined) return text;
  const message = error instanceof Error ? error.message : String(error);
  return /stack|recursion/.test(message)
    ? "it is nested too deeply"
    : /Aborted|memory/.test(message)
    ? "it is too large"
    : message;
}

class Server {
  readonly #package: Package;
  readonly #compiler: Compiler;
  readonly #size: number;
  /** By their sources; the most recently used one comes last. */
  readonly #compiled = new Map<string, Compiled>();
  readonly #open = new Map<number, Open>();

  private constructor(xgrammar: Package, compiler: Compiler, size: number) {
    this.#package = xgrammar;
    this.#compiler = compiler;
    this.#size = size;
  }

  static async make(xgrammar: Package, { bytes, ends, stop, size }: Vocabulary): Promise<Server> {
    const tokens = Array.from(ends, (end, id) => bytes.subarray(id > 0 ? ends[id - 1] : 0, end));
    const info = await xgrammar.TokenizerInfo.createTokenizerInfo(tokens, "raw", false, size, [...stop]);
    return new Server(xgrammar, await xgrammar.GrammarCompiler.createGrammarCompiler(info, false), size);
  }

  async reply(request: Request): Promise<Reply> {
    try {
      if (request.ask === "open") await this.#openMatcher(request.source, request.matcher, request.shared);
      else if (request.ask === "close") this.#close(request.matcher);
      const value = request.ask === "memory" ? memories[0]?.buffer.byteLength ?? 0 : undefined;
      return { value };
    } catch (error) {
      return { error: complaint(error) };
    }
  }

  async #openMatcher(source: GrammarSource, id: number, buffer: SharedArrayBuffer): Promise<void> {
    const key = JSON.stringify(source);
    const compiled = this.#compiled.get(key) ?? { grammar: await this.#compile(source), idle: [], users: 0 };
    this.#compiled.delete(key);
    this.#compiled.set(key, compiled);
    this.#forget();
    // The package asks for the number of logits in a way that keeps memory.
    const { handle } = compiled.grammar;
    const grammar = { handle, tokenizerInfo: () => ({ getVocabSize: () => this.#size }) };
    const matcher = compiled.idle.pop() ?? await this.#package.GrammarMatcher.createGrammarMatcher(grammar);
    const shared = new Int32Array(buffer);
    compiled.users++;
    this.#open.set(id, { compiled, matcher, shared });
    shared.set(await matcher.getNextTokenBitmask(), MASK);
  }

  /** Throws what the compiler warns of too: it passes over what it does not know, and answers would not be what the source says. */
  async #compile(source: GrammarSource): Promise<Owner> {
    lines.length = 0;
    const grammar = await this.#compileAny(source);
    const warning = lines.find((line) => line.startsWith("[WARNING]"));
    if (warning === undefined) return grammar;
    grammar.dispose();
    throw new Error(warning.replace(/^\[WARNING\] (\S+:\d+: )?/, ""));
  }

  #compileAny(source: GrammarSource): Promise<Owner> {
    switch (source.kind) {
      case "json":
        // On one line, as Python's json.dumps() writes: where white space is free, small models write nothing else.
        return this.#compiler.compileJSONSchema(source.text, false, -1, undefined, source.strict);
      case "ebnf":
        return this.#compiler.compileGrammar(source.text);
      case "regex":
        return this.#compiler.compileStructuralTag(
          JSON.stringify({ type: "structural_tag", format: { type: "regex", pattern: source.text } }),
        );
    }
  }

  /** Frees grammars that were not used for long. */
  #forget(): void {
    for (const [key, { grammar, idle, users }] of this.#compiled) {
      if (this.#compiled.size <= MOST_GRAMMARS) return;
      if (users > 0) continue;
      for (const matcher of idle) matcher.dispose();
      grammar.dispose();
      this.#compiled.delete(key);
    }
  }

  #close(id: number): void {
    const open = this.#open.get(id);
    if (!open) return;
    this.#open.delete(id);
    open.compiled.users--;
    open.matcher.handle.Reset();
    open.compiled.idle.push(open.matcher);
  }

  /** Answers those that have a new token. */
  async step(): Promise<void> {
    for (const { matcher, shared } of this.#open.values()) {
      const asked = Atomics.load(shared, ASKED);
      if (asked === shared[ANSWERED]) continue;
      try {
        const accepted = matcher.handle.AcceptToken(shared[TOKEN], false);
        const ended = accepted && matcher.handle.IsTerminated();
        shared[ANSWER] = !accepted ? STATUS.refused : ended ? STATUS.ended : STATUS.goesOn;
        if (accepted && !ended) shared.set(await matcher.getNextTokenBitmask(), MASK);
      } catch {
        shared[ANSWER] = STATUS.failed;
      }
      Atomics.store(shared, ANSWERED, asked);
      Atomics.notify(shared, ANSWERED);
    }
  }
}
