/**
 * What a notebook's kernelspec starts: Deno's kernel behind a control channel whose interrupts it survives.
 *
 * Deno's kernel ends whatever JavaScript runs at an interrupt. That frees a cell in an endless loop, but one that awaits something never
 * gets an answer then, and no cell after it. So interrupts stop here first. The kernel is asked, over a connection that a first silent
 * cell opens, to abort what may be aborted: generating, loading and whatever listens to the signal. Only where it does not answer, since
 * its thread computes without a pause, the interrupt goes on to Deno.
 *
 * All other channels lead to Deno's kernel directly.
 *
 * @module
 */

import { type Connection, framesOf, headerOf } from "./messages.ts";
import { message, opening, passed, writeAll } from "./zmtp.ts";

/** The address of this program. */
export const LAUNCHER: string = import.meta.url;

/** Milliseconds in which a kernel whose event loop turns has answered. */
const ANSWER_MS = 1000;
/** Milliseconds between two tries to reach a kernel that is starting. */
const RETRY_MS = 20;

const HOST = "127.0.0.1";

/**
 * The first cell, which nobody sees. It keeps the signal that running work listens to where `ffi/notebook.ts` finds it, and ends the
 * kernel when its launcher is gone.
 */
function firstCell(port: number, token: string): string {
  return `void (async () => {
    const interrupts = { controller: new AbortController(), running: 0 };
    globalThis[Symbol.for("vkmx.interrupts")] = interrupts;
    const launcher = await Deno.connect({ hostname: "${HOST}", port: ${port} });
    await launcher.write(new TextEncoder().encode("${token}"));
    const sent = new Float64Array(1);
    while (await launcher.read(new Uint8Array(sent.buffer)).catch(() => null) !== null) {
      if (Date.now() - sent[0] > ${ANSWER_MS}) continue; // heard too late: Deno ended the cell
      const { controller, running } = interrupts;
      interrupts.controller = new AbortController();
      controller.abort(new DOMException("The cell was interrupted", "AbortError"));
      await launcher.write(Uint8Array.of(1));
      if (running > 0) continue;
      const text = "Nothing that can be interrupted is running: a cell that awaits something else goes on\\n";
      await Deno.jupyter.broadcast("stream", { name: "stderr", text });
    }
    Deno.exit(0);
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
    const interrupts = new Interrupts();
    void serveControl(connection, controlPort, interrupts);
    void interrupts.introduce(connection);
    return (await kernel.status).code;
  } finally {
    await Deno.remove(own);
  }
}

function stop(kernel: Deno.ChildProcess): void {
  try {
    kernel.kill("SIGTERM");
  } catch { /* it has ended */ }
}

/** A port that nobody listens on. */
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

/** The connection by which the kernel hears of interrupts. */
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
    await writeAll(shell, opening());
    await writeAll(shell, message(framesOf("execute_request", content, key)));
    for await (const _ of passed(shell)) { /* answers go unread */ }
  }

  async #accept(): Promise<void> {
    for await (const conn of this.#listener) void this.#admit(conn);
  }

  /** Takes the kernel's connection, which says the token, and hears its answers. */
  async #admit(conn: Deno.Conn): Promise<void> {
    using _ = conn;
    const found = new Uint8Array(this.#token.length);
    for (let at = 0; at < found.length;) {
      const read = await conn.read(found.subarray(at)).catch(() => null);
      if (read === null) return;
      at += read;
    }
    if (new TextDecoder().decode(found) !== this.#token) return;
    this.#kernel = conn;
    while (await conn.read(new Uint8Array(1)).catch(() => null) !== null) this.#answered(true);
    this.#kernel = undefined;
  }

  /** Tells the kernel. False where its event loop does not turn, or nobody listens. */
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
