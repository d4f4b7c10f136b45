/**
 * A program on a terminal of its own: types keys, reads what a person would see. For Linux, where libc is called directly.
 */

import { assert } from "@std/assert";

const LIBC = {
  posix_openpt: { parameters: ["i32"], result: "i32" },
  grantpt: { parameters: ["i32"], result: "i32" },
  unlockpt: { parameters: ["i32"], result: "i32" },
  ptsname_r: { parameters: ["i32", "buffer", "usize"], result: "i32" },
  open: { parameters: ["buffer", "i32"], result: "i32" },
  read: { parameters: ["i32", "buffer", "usize"], result: "isize" },
  write: { parameters: ["i32", "buffer", "usize"], result: "isize" },
  ioctl: { parameters: ["i32", "u64", "buffer"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

const O_RDWR = 2;
const O_NOCTTY = 0o400;
const O_NONBLOCK = 0o4000;
const TIOCSWINSZ = 0x5414n;
/** Milliseconds between two looks at what the program wrote, and before a wait has failed. */
const LOOK_MS = 5;
const WAIT_MS = 60_000;

/** How a program is started. */
export interface PtyOptions {
  readonly env?: Record<string, string>;
  readonly columns?: number;
  readonly rows?: number;
}

/** A running program. */
export class Pty implements AsyncDisposable {
  readonly #libc = Deno.dlopen("libc.so.6", LIBC);
  readonly #master: number;
  /** Stays open, so that the terminal keeps its modes when the program has ended. */
  readonly #slave: number;
  readonly #path: string;
  readonly #child: Deno.ChildProcess;
  readonly #buffer = new Uint8Array(65536);
  readonly #decoder = new TextDecoder();
  readonly #timer: ReturnType<typeof setInterval>;
  readonly screen: VirtualScreen;
  /** Everything that the program wrote. */
  output = "";
  #seen = 0;

  constructor(command: readonly string[], { env, columns = 80, rows = 24 }: PtyOptions = {}) {
    const { posix_openpt, grantpt, unlockpt, ptsname_r, open } = this.#libc.symbols;
    this.#master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    const name = new Uint8Array(100);
    const opened = this.#master >= 0 && grantpt(this.#master) === 0 && unlockpt(this.#master) === 0 &&
      ptsname_r(this.#master, name, BigInt(name.length)) === 0;
    assert(opened, "there is no pseudo terminal");
    this.#path = new TextDecoder().decode(name.subarray(0, name.indexOf(0)));
    this.#slave = open(name, O_RDWR | O_NOCTTY);
    this.screen = new VirtualScreen(columns, rows);
    this.resize(columns, rows);
    this.#child = new Deno.Command("sh", {
      args: ["-c", `exec setsid -c "$@" <>${this.#path} >&0 2>&1`, "sh", ...command],
      env,
      stdin: "null",
      stdout: "null",
      stderr: "inherit",
    }).spawn();
    this.#timer = setInterval(() => this.#read(), LOOK_MS);
  }

  /** Types. */
  type(text: string): void {
    let bytes = new TextEncoder().encode(text);
    while (bytes.length > 0) {
      const count = Number(this.#libc.symbols.write(this.#master, bytes, BigInt(bytes.length)));
      assert(count > 0, "nothing reads what is typed");
      bytes = bytes.subarray(count);
    }
  }

  /** Changes the size of the terminal; the program gets a SIGWINCH. */
  resize(columns: number, rows: number): void {
    this.#libc.symbols.ioctl(this.#master, TIOCSWINSZ, new Uint8Array(new Uint16Array([rows, columns, 0, 0]).buffer));
    this.screen.resize(columns, rows);
  }

  kill(signal: Deno.Signal): void {
    this.#child.kill(signal);
  }

  /** Waits for a text in the output after the text of the last wait; gives the output between them. */
  until(text: string): Promise<string> {
    return this.#wait(`${JSON.stringify(text)} written`, () => {
      const at = this.output.indexOf(text, this.#seen);
      if (at < 0) return undefined;
      const before = this.output.slice(this.#seen, at);
      this.#seen = at + text.length;
      return before;
    });
  }

  /** Waits until the last lines of the screen are these. */
  async untilScreen(...lines: string[]): Promise<void> {
    const expected = lines.join("\n");
    await this.#wait(`the screen to end with ${JSON.stringify(expected)}`, () => {
      const text = this.screen.text;
      return text === expected || text.endsWith(`\n${expected}`) ? true : undefined;
    });
    this.#seen = this.output.length;
  }

  /** The exit code. */
  async exit(): Promise<number> {
    const { code } = await this.#within("the program to end", this.#child.status);
    this.#read();
    return code;
  }

  /** Modes of the terminal, as stty tells them. */
  async modes(): Promise<string> {
    const { stdout } = await new Deno.Command("stty", { args: ["-F", this.#path, "-a"] }).output();
    return new TextDecoder().decode(stdout);
  }

  async #wait<T>(what: string, look: () => T | undefined): Promise<T> {
    const start = performance.now();
    for (;;) {
      this.#read();
      const found = look();
      if (found !== undefined) return found;
      if (performance.now() - start > WAIT_MS) {
        throw new Error(
          `waited for ${what}; the screen is\n${this.screen.text}\nand was written\n${
            JSON.stringify(this.output.slice(this.#seen))
          }`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  async #within<T>(what: string, promise: Promise<T>): Promise<T> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`waited for ${what}; the screen is\n${this.screen.text}`)), WAIT_MS);
    });
    return await Promise.race([promise, late]).finally(() => clearTimeout(timer));
  }

  #read(): void {
    for (;;) {
      const count = Number(this.#libc.symbols.read(this.#master, this.#buffer, BigInt(this.#buffer.length)));
      if (count <= 0) return;
      const text = this.#decoder.decode(this.#buffer.subarray(0, count), { stream: true });
      this.output += text;
      this.screen.write(text);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    try {
      this.#child.kill("SIGKILL");
    } catch { /* it has ended */ }
    await this.#child.status;
    this.#libc.symbols.close(this.#slave);
    this.#libc.symbols.close(this.#master);
    this.#libc.close();
  }
}

/** Characters of two columns, and of none, as far as tests type them. */
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uff00-\uff60\u{1f300}-\u{1faff}]/u;
const NONE = /[\u0300-\u036f\u200d\ufe0f]/u;

/** The text on a terminal that knows the sequences of the programs here; an unknown one throws. */
export class VirtualScreen {
  #columns: number;
  #height: number;
  /** Rows from the first ever; a character of two columns is followed by an empty cell. */
  readonly #rows: string[][] = [[]];
  #top = 0;
  #row = 0;
  #column = 0;
  #rest = "";

  constructor(columns: number, rows: number) {
    this.#columns = columns;
    this.#height = rows;
  }

  resize(columns: number, rows: number): void {
    this.#columns = columns;
    this.#height = rows;
    this.#top = Math.max(0, this.#row - rows + 1);
  }

  /** All rows, those that have left the screen too, without blanks at their ends. */
  get text(): string {
    return this.#rows.map((row) => Array.from(row, (cell) => cell ?? " ").join("").trimEnd()).join("\n").trimEnd();
  }

  /** Row of the {@link text} and column of the cursor. */
  get cursor(): readonly [row: number, column: number] {
    return [this.#row, this.#column];
  }

  write(text: string): void {
    this.#rest += text;
    while (this.#rest !== "") {
      // deno-lint-ignore no-control-regex
      const [sequence, query = "", count = "", final] = /^\x1b\[(\??)([0-9;]*)([A-Za-z])/.exec(this.#rest) ?? [];
      if (sequence === undefined && this.#rest[0] === "\x1b") {
        // deno-lint-ignore no-control-regex
        if (!/^\x1b(\[\??[0-9;]*)?$/.test(this.#rest)) {
          throw new Error(`unknown ${JSON.stringify(this.#rest.slice(0, 9))}`);
        }
        return;
      }
      const taken = sequence ?? String.fromCodePoint(this.#rest.codePointAt(0)!);
      this.#rest = this.#rest.slice(taken.length);
      if (sequence === undefined) this.#put(taken);
      else this.#control(`${query}${final}`, Number(count || 0));
    }
  }

  #control(name: string, count: number): void {
    if (name === "A") this.#row = Math.max(this.#top, this.#row - (count || 1));
    else if (name === "C") this.#column = Math.min(this.#columns - 1, this.#column + (count || 1));
    else if (name === "G") this.#column = (count || 1) - 1;
    else if (name === "H") [this.#row, this.#column] = [this.#top, 0];
    else if (name === "K") this.#cut();
    else if (name === "J") {
      if (count === 2) this.#rows.splice(this.#top);
      else this.#rows.splice(this.#row + 1);
      this.#cut();
    } else if (!["m", "?h", "?l"].includes(name)) throw new Error(`unknown sequence ${name}`);
  }

  #cut(): void {
    while (this.#rows.length <= this.#row) this.#rows.push([]);
    this.#rows[this.#row].length = Math.min(this.#rows[this.#row].length, this.#column);
  }

  #put(char: string): void {
    if (char === "\r") this.#column = 0;
    else if (char === "\n") this.#feed();
    else if (char < " ") throw new Error(`unknown control character ${JSON.stringify(char)}`);
    else if (NONE.test(char) && this.#column > 0) {
      const row = this.#rows[this.#row];
      row[row[this.#column - 1] === "" ? this.#column - 2 : this.#column - 1] += char;
    } else {
      const wide = WIDE.test(char);
      if (this.#column + (wide ? 2 : 1) > this.#columns) {
        this.#column = 0;
        this.#feed();
      }
      this.#rows[this.#row][this.#column++] = char;
      if (wide) this.#rows[this.#row][this.#column++] = "";
    }
  }

  #feed(): void {
    this.#row++;
    if (this.#row === this.#rows.length) this.#rows.push([]);
    this.#top = Math.max(this.#top, this.#row - this.#height + 1);
  }
}
