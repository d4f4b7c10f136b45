/**
 * Chromium without a window, driven over the DevTools protocol.
 *
 * @module
 */

/** Programs that may be Chromium. */
const PROGRAMS = ["chromium", "chromium-browser", "google-chrome"];
/** Milliseconds that something in a page may take. */
const MAX_WAIT = 30_000;

/** The program that runs here; undefined if there is none. */
export async function findChromium(): Promise<string | undefined> {
  for (const program of PROGRAMS) {
    try {
      const { success } = await new Deno.Command(program, { args: ["--version"], stdout: "null", stderr: "null" })
        .output();
      if (success) return program;
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
  return undefined;
}

interface Reply {
  readonly id?: number;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

/** A page of a browser of its own, with a profile of its own. */
export class BrowserPage implements AsyncDisposable {
  readonly #process: Deno.ChildProcess;
  readonly #folder: string;
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (reply: Reply) => void>();
  #session: string | undefined;
  #last = 0;
  /** What the page's console and its policy complained of. */
  readonly complaints: string[] = [];

  private constructor(process: Deno.ChildProcess, folder: string, socket: WebSocket) {
    this.#process = process;
    this.#folder = folder;
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => this.#take(JSON.parse(data)));
  }

  /** Starts a browser with an empty page. */
  static async open(program: string): Promise<BrowserPage> {
    const folder = await Deno.makeTempDir({ prefix: "vkmx-chromium-" });
    const process = new Deno.Command(program, {
      args: ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        .concat("--remote-debugging-port=0", `--user-data-dir=${folder}`, "about:blank"),
      stdout: "null",
      stderr: "piped",
    }).spawn();
    const address = await listeningAddress(process.stderr);
    const socket = new WebSocket(address);
    await new Promise((resolve, reject) => {
      socket.addEventListener("open", resolve, { once: true });
      socket.addEventListener("error", reject, { once: true });
    });
    const page = new BrowserPage(process, folder, socket);
    const { targetInfos } = await page.send("Target.getTargets") as {
      targetInfos: { targetId: string; type: string }[];
    };
    const { targetId } = targetInfos.find(({ type }) => type === "page")!;
    const { sessionId } = await page.send("Target.attachToTarget", { targetId, flatten: true });
    page.#session = sessionId as string;
    for (const domain of ["Page", "Runtime", "Log"]) await page.send(`${domain}.enable`);
    return page;
  }

  /** Asks the browser. */
  async send(method: string, params: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    const id = ++this.#last;
    const reply = await new Promise<Reply>((resolve) => {
      this.#waiting.set(id, resolve);
      this.#socket.send(JSON.stringify({ id, method, params, ...(this.#session && { sessionId: this.#session }) }));
    });
    if (reply.error) throw new Error(`${method}: ${reply.error.message}`);
    return reply.result!;
  }

  #take(reply: Reply): void {
    if (reply.id !== undefined) {
      this.#waiting.get(reply.id)?.(reply);
      this.#waiting.delete(reply.id);
    } else if (reply.method === "Runtime.exceptionThrown" || reply.method === "Log.entryAdded") {
      this.complaints.push(JSON.stringify(reply.params));
    }
  }

  /** Goes to an address, and waits until it is loaded. */
  async go(url: string): Promise<void> {
    await this.send("Page.navigate", { url });
    await this.until(`document.readyState === "complete" && location.href.startsWith(${JSON.stringify(url)})`);
  }

  /** The value of an expression in the page. */
  async evaluate(expression: string): Promise<unknown> {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    }) as { result: { value?: unknown }; exceptionDetails?: { exception?: { description?: string } } };
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? "The page threw");
    return result.value;
  }

  /** Waits until an expression in the page is true. */
  async until(expression: string): Promise<void> {
    const late = performance.now() + MAX_WAIT;
    while (await this.evaluate(`Boolean(${expression})`).catch(() => false) !== true) {
      if (performance.now() > late) throw new Error(`The page never was: ${expression}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Types a text where the focus is. */
  async type(text: string): Promise<void> {
    await this.send("Input.insertText", { text });
  }

  /** Presses a key; `modifiers` is 8 for Shift. */
  async press(key: string, modifiers: number = 0): Promise<void> {
    const codes: Readonly<Record<string, number>> = { Enter: 13, Escape: 27, Tab: 9 };
    const event = { key, code: key, windowsVirtualKeyCode: codes[key], modifiers };
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...event, ...(key === "Enter" && { text: "\r" }) });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  /** Sets the size of the window, and the scheme that the system prefers. */
  async show(width: number, height: number, scheme: "light" | "dark"): Promise<void> {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  /** A picture of the page, a PNG file. */
  async picture(): Promise<Uint8Array> {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    return Uint8Array.from(atob(data as string), (char) => char.charCodeAt(0));
  }

  /** Ends the browser and removes its profile. */
  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#socket.addEventListener("close", resolve, { once: true }));
    this.#session = undefined;
    this.#socket.send(JSON.stringify({ id: ++this.#last, method: "Browser.close" }));
    await closed;
    await this.#process.status;
    // Its helpers may still write for a moment.
    for (let tries = 0; tries < 50; tries++) {
      try {
        return await Deno.remove(this.#folder, { recursive: true });
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }
}

/** The address that a browser prints; what it prints later is read away. */
async function listeningAddress(stderr: ReadableStream<Uint8Array>): Promise<string> {
  const reader = stderr.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let next; !(next = await reader.read()).done;) {
    text += next.value;
    const [, address] = /DevTools listening on (ws:\S+)/.exec(text) ?? [];
    if (address === undefined) continue;
    (async () => {
      while (!(await reader.read()).done);
    })();
    return address;
  }
  throw new Error(`Chromium ended:\n${text}`);
}
