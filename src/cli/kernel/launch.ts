/**
 * The program that a notebook's kernelspec starts: Deno's kernel with a control channel before it, so that interrupts do not end it.
 *
 * Deno's kernel ends whatever JavaScript runs at an interrupt. That frees a cell in an endless loop. But a cell that awaits something
 * then never gets an answer, and no cell after it does. So interrupts stop here first. A first silent cell opens a connection, over
 * which the kernel is asked to abort: generating, loading and all work that listens to the signal. A kernel that computes without a
 * pause does not answer. Only then the interrupt goes on to Deno.
 *
 * All other channels lead to Deno's kernel directly. When the program that started this launcher is gone, both end. A worker ends
 * the kernel when the launcher is gone, whatever the kernel computes.
 *
 * @module
 */

import { type Connection, framesOf, headerOf } from "./messages.ts";
import { message, openingMessage, passed, writeAll } from "./zmtp.ts";

/** The address of this program. */
export const LAUNCHER: string = import.meta.url;

/** Milliseconds in which a kernel whose event loop turns has answered. */
const ANSWER_MS = 2000;
/** Milliseconds between two tries to reach a kernel that is starting. */
const RETRY_MS = 20;

/** Milliseconds between two looks at whether the program that started this one is there. */
const PARENT_MS = 1000;
/** Milliseconds that the kernel has to end by itself. */
const END_MS = 2000;

const HOST = "127.0.0.1";
/** The purpose of a kernel's connection; the first byte that it sends. */
const INTERRUPTS = "i", WATCH = "w";

/** A worker of the kernel, which no computation of a cell holds up: ends the process when the launcher is gone. */
function watcher(port: number, token: string): string {
  return `try {
      const launcher = await Deno.connect({ hostname: "${HOST}", port: ${port} });
      await launcher.write(new TextEncoder().encode("${WATCH}${token}"));
      while (await launcher.read(new Uint8Array(1)) !== null);
    } finally {
      Deno.kill(Deno.pid, "SIGKILL");
    }`;
}

/**
 * The first cell, which has no output. It keeps the signal for running work at the place where `ffi/notebook.ts` looks. Its worker
 * ends the kernel when its launcher is gone.
 */
function firstCell(port: number, token: string): string {
  const worker = `data:application/javascript,${encodeURIComponent(watcher(port, token))}`;
  return `void (async () => {
    new Worker("${worker}", { type: "module" });
    const interrupts = { controller: new AbortController(), running: 0 };
    globalThis[Symbol.for("vkmx.interrupts")] = interrupts;
    const launcher = await Deno.connect({ hostname: "${HOST}", port: ${port} });
    await launcher.write(new TextEncoder().encode("${INTERRUPTS}${token}"));
    const sent = new Float64Array(1);
    while (await launcher.read(new Uint8Array(sent.buffer)).catch(() => null) !== null) {
      if (Date.now() - sent[0] > ${ANSWER_MS}) continue; // heard too late: Deno ended the cell
      const { controller, running } = interrupts;
      interrupts.controller = new AbortController();
      controller.abort(new DOMException("The cell was interrupted", "AbortError"));
      await launcher.write(Uint8Array.of(1));
      if (running > 0) continue;
      const text = "This cell awaits something that cannot be stopped, such as a timer: it goes on. " +
        "Restarting the kernel ends it; what vkmx computes, loads and downloads ends at Stop.\\n";
      await Deno.jupyter.broadcast("stream", { name: "stderr", text });
    }
  })(); undefined;`;
}

/** Runs a kernel for the connection file that Jupyter wrote, until it ends; gives its exit code. */
export async function launch(path: string): Promise<number> {
  const connection: Connection = JSON.parse(await Deno.readTextFile(path));
  if (connection.transport !== "tcp") {
    throw new Error(`the kernel is reached over tcp only: ${path} asks for ${JSON.stringify(connection.transport)}`);
  }
  const controlPort = freePort();
  const own = await Deno.makeTempFile({ prefix: "vkmx-kernel-", suffix: ".json" }); // only its owner may read it
  await Deno.writeTextFile(own, JSON.stringify({ ...connection, control_port: controlPort }));
  const kernel = new Deno.Command(Deno.execPath(), { args: ["jupyter", "--kernel", "--conn", own] }).spawn();
  try {
    for (const signal of Deno.build.os === "windows" ? [] : ["SIGTERM", "SIGINT"] as const) {
      Deno.addSignalListener(signal, () => stop(kernel));
    }
    const parent = Deno.ppid; // another one takes its place when it ends
    Deno.unrefTimer(setInterval(() => Deno.ppid === parent || stop(kernel), PARENT_MS));
    const interrupts = new Interrupts();
    void serveControl(connection, controlPort, interrupts);
    void interrupts.introduce(connection);
    return (await kernel.status).code;
  } finally {
    await Deno.remove(own);
  }
}

/** Ends the kernel, by force where it does not end by itself. */
function stop(kernel: Deno.ChildProcess): void {
  const kill = (signal: Deno.Signal): void => {
    try {
      kernel.kill(signal);
    } catch { /* it has ended */ }
  };
  kill("SIGTERM");
  Deno.unrefTimer(setTimeout(() => kill("SIGKILL"), END_MS));
}

/** A port without a listener. */
function freePort(): number {
  using listener = Deno.listen({ hostname: HOST, port: 0 });
  return listener.addr.port;
}

/** A connection to a kernel that may be starting. */
async function connect(hostname: string, port: number): Promise<Deno.Conn> {
  for (;;) {
    try {
      return await Deno.connect({ hostname, port });
    } catch {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** The connection by which the kernel gets interrupts. */
class Interrupts {
  readonly #listener = Deno.listen({ hostname: HOST, port: 0 });
  readonly #token: string = crypto.randomUUID();
  #kernel: Deno.Conn | undefined;
  /** Called when the kernel answers. */
  #answered: (yes: boolean) => void = () => {};

  constructor() {
    void this.#accept();
  }

  /** Has the kernel run the cell that opens the connection. */
  async introduce({ ip, shell_port, key }: Connection): Promise<void> {
    const shell = await connect(ip, shell_port);
    const code = firstCell(this.#listener.addr.port, this.#token);
    const content = { code, silent: true, store_history: false, user_expressions: {}, allow_stdin: false };
    await writeAll(shell, openingMessage());
    await writeAll(shell, message(framesOf("execute_request", content, key)));
    for await (const _ of passed(shell)) { /* answers go unread */ }
  }

  async #accept(): Promise<void> {
    for await (const conn of this.#listener) void this.#admit(conn);
  }

  /** Takes a connection of the kernel, which sends its purpose and the token; reads the answers to interrupts. */
  async #admit(conn: Deno.Conn): Promise<void> {
    using _ = conn;
    const found = new Uint8Array(1 + this.#token.length);
    for (let at = 0; at < found.length;) {
      const read = await conn.read(found.subarray(at)).catch(() => null);
      if (read === null) return;
      at += read;
    }
    const said = new TextDecoder().decode(found);
    if (said.slice(1) !== this.#token) return;
    if (said[0] === WATCH) {
      while (await conn.read(new Uint8Array(1)).catch(() => null) !== null); // open as long as both are there
      return;
    }
    this.#kernel = conn;
    while (await conn.read(new Uint8Array(1)).catch(() => null) !== null) this.#answered(true);
    this.#kernel = undefined;
  }

  /** Tells the kernel. False if its event loop does not turn, or without a listener. */
  async tell(): Promise<boolean> {
    if (this.#kernel === undefined) return false;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.#answered = resolve;
    const timer = setTimeout(() => resolve(false), ANSWER_MS);
    await this.#kernel.write(new Uint8Array(Float64Array.of(Date.now()).buffer)).catch(() => resolve(false));
    return await promise.finally(() => clearTimeout(timer));
  }
}

/** Serves the control channel: everything goes on to the kernel but interrupts that it has heard of. */
async function serveControl(
  { ip, control_port, key }: Connection,
  port: number,
  interrupts: Interrupts,
): Promise<void> {
  const forward = async (client: Deno.Conn): Promise<void> => {
    using kernel = await connect(ip, port);
    using _ = client;
    const back = async (): Promise<void> => {
      for await (const { bytes } of passed(kernel)) await writeAll(client, bytes);
    };
    const forth = async (): Promise<void> => {
      for await (const { bytes, frames } of passed(client)) {
        const header = headerOf(frames, key);
        if (header?.msg_type === "interrupt_request" && await interrupts.tell()) {
          await writeAll(client, message(framesOf("interrupt_reply", { status: "ok" }, key, header)));
        } else await writeAll(kernel, bytes);
      }
    };
    await Promise.race([back(), forth()]).catch(() => {}); // one of them has gone
  };
  for await (const client of Deno.listen({ hostname: ip, port: control_port })) void forward(client);
}

if (import.meta.main) Deno.exit(await launch(Deno.args[0]));
