/**
 * While the CPU device computes with all its threads: timers fire, tokens stream, an abort and Ctrl-C are heard at once. And
 * its workers keep no process open and end with the device.
 */

import { assert, assertEquals } from "@std/assert";
import process from "node:process";
import * as mx from "../../mod.ts";
import { ROOT } from "../../scripts/tools.ts";
import { closeDevices } from "../../src/backend/devices.ts";
import { createWasmBackend } from "../../src/backend/wasm.ts";
import { GOLDEN, TINY_DIR } from "../support/models/models.ts";

/** A prompt that the CPU reads for half a second or more. */
const LONG = Array.from({ length: 1500 }, (_, i) => GOLDEN[0].ids[i % GOLDEN[0].ids.length]);

const sleep = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Milliseconds that this thread has computed. */
function busy(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

mx.setDefaultDevice("wasm");
const ballast = mx.zeros([17 << 20]); // so much on the device that workers are started
mx.eval(ballast);
const { model, tokenizer } = await mx.lm.load(TINY_DIR, { device: "wasm" });

Deno.test.afterAll(() => {
  ballast[Symbol.dispose]();
  model[Symbol.dispose]();
  closeDevices();
});

/** How long something took to be heard, in milliseconds; Infinity where it was not. And the most that it may take. */
interface Reaction {
  readonly milliseconds: number;
  readonly most: number;
  /** The event that happened instead. */
  readonly found?: string;
}

/** Fails unless one of a few tries is in time: a busy machine delays one, what does not listen delays them all. */
async function assertHeard(attempt: () => Promise<Reaction>): Promise<void> {
  const late: string[] = [];
  while (late.length < 5) {
    const { milliseconds, most, found = "" } = await attempt();
    if (milliseconds < most) return;
    late.push(`${milliseconds.toFixed()} of ${most.toFixed()} ${found}`);
  }
  assert(false, `heard too late each time, in milliseconds: ${late.join(", ")}`);
}

const read = (options: mx.lm.GenerateOptions = {}): Promise<string> =>
  mx.lm.generate(model, tokenizer, LONG, { maxTokens: 1, ...options });

Deno.test("the event loop turns while a prompt is read", async () => {
  await read(); // compiles
  await assertHeard(async () => {
    // The time that the thread was busy and not the time that passed: other programs run beside this one.
    const spells: number[] = [];
    let last = busy();
    const timer = setInterval(() => {
      const now = busy();
      spells.push(now - last);
      last = now;
    }, 1);
    await read();
    clearInterval(timer);
    assert(spells.length > 10, `${spells.length} turns`);
    return { milliseconds: Math.max(...spells), most: 100 };
  });
});

Deno.test("tokens stream while the next ones are computed", async () => {
  const seen = new Set<number>();
  let tokens = 0;
  const timer = setInterval(() => seen.add(tokens), 1);
  for await (const _ of mx.lm.streamGenerate(model, tokenizer, LONG.slice(0, 50), { maxTokens: 400 })) tokens++;
  clearInterval(timer);
  assert(seen.size > 10, `${tokens} tokens came in ${seen.size} pieces`);
});

Deno.test("an abort ends the wait for a long prompt at once, and memory comes back later", async () => {
  const before = mx.getActiveMemory();
  const start = performance.now();
  await read();
  const whole = performance.now() - start;
  await assertHeard(async () => {
    const controller = new AbortController();
    let aborted = 0;
    setTimeout(() => {
      aborted = performance.now();
      controller.abort(new Error("enough"));
    }, whole / 10);
    const reason = await read({ signal: controller.signal }).catch((error) => error.message);
    const milliseconds = reason === "enough" ? performance.now() - aborted : Infinity;
    for (let i = 0; i < 1000 && mx.getActiveMemory() > before; i++) await sleep(10);
    assertEquals(mx.getActiveMemory(), before);
    return { milliseconds, most: Math.max(50, whole / 4) };
  });
  assertEquals(await mx.lm.generate(model, tokenizer, GOLDEN[0].prompt, { maxTokens: 3 }), ", there was");
});

Deno.test("an abort between tokens gives one more token", async () => {
  const controller = new AbortController();
  let tokens = 0;
  let reason: string | null = null;
  const options = { maxTokens: 400, signal: controller.signal };
  for await (const { finishReason } of mx.lm.streamGenerate(model, tokenizer, GOLDEN[0].prompt, options)) {
    if (++tokens === 3) controller.abort();
    reason = finishReason;
  }
  assertEquals([tokens, reason], [4, "abort"]);
});

interface Finished {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly milliseconds: number;
}

/** Runs Deno with two threads; `interrupt` milliseconds after its start it gets Ctrl-C. A process that hangs fails the test. */
async function runDeno(args: readonly string[], stdin = "", interrupt?: number): Promise<Finished> {
  const child = new Deno.Command(Deno.execPath(), {
    args: [...args],
    env: { VKMX_THREADS: "2", VKMX_DEVICE: "wasm", NO_COLOR: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  let start = performance.now();
  const hung = setTimeout(() => child.kill("SIGKILL"), 60_000);
  const interrupted = interrupt && setTimeout(() => {
    start = performance.now();
    child.kill("SIGINT");
  }, interrupt);
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(stdin));
  await writer.close();
  const { code, stdout, stderr } = await child.output();
  clearTimeout(hung);
  clearTimeout(interrupted);
  const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
  return { code, stdout: text(stdout), stderr: text(stderr), milliseconds: performance.now() - start };
}

Deno.test("generate.ts ends on Ctrl-C while a long prompt is read", async () => {
  const args = ["run", "-A", "--no-check", `${ROOT}examples/generate.ts`, "--max-tokens", "1", "-"];
  const prompt = tokenizer.decode(LONG);
  const whole = await runDeno(args, prompt);
  assertEquals(whole.code, 0, whole.stderr);
  await assertHeard(async () => {
    const { code, stdout, stderr, milliseconds } = await runDeno(args, prompt, whole.milliseconds / 2);
    const most = Math.max(50, whole.milliseconds / 4);
    if (code === 130 && stdout + stderr === "") return { milliseconds, most };
    return { milliseconds: Infinity, most, found: `(${code}: ${stdout}${stderr})` }; // it may have been at its end already
  });
});

/** Runs code in which workers are up and `run` is the promise of a long computation. */
function runCode(code: string): Promise<Finished> {
  const prelude = `
    import * as mx from "${import.meta.resolve("../../mod.ts")}";
    import { closeDevices } from "${import.meta.resolve("../../src/backend/devices.ts")}";
    const ballast = mx.zeros([17 << 20]);
    mx.eval(ballast);
    const { model, tokenizer } = await mx.lm.load(new URL("${TINY_DIR}"));
    await new Promise((resolve) => setTimeout(resolve, 200));
    const run = mx.lm.generate(model, tokenizer, ${JSON.stringify(LONG)}, { maxTokens: 1 });
  `;
  return runDeno(["eval", "--no-lock", "--no-check", "--ext=ts", prelude + code]);
}

const LIVES: readonly (readonly [string, string, number])[] = [
  [
    "ends when everything was disposed",
    "await run; model[Symbol.dispose](); ballast[Symbol.dispose](); closeDevices();",
    0,
  ],
  ["ends when nothing was disposed", "await run;", 0],
  ["ends when its device goes in the middle of a run", "run.catch(() => {}); setTimeout(closeDevices, 50);", 0],
  ["exits in the middle of a run", "setTimeout(() => Deno.exit(3), 50); await run; Deno.exit(4);", 3],
  [
    "dies of an error in the middle of a run",
    "setTimeout(() => { throw new Error('x'); }, 50); await run; Deno.exit(4);",
    1,
  ],
];

for (const [what, code, expected] of LIVES) {
  Deno.test(`a process with workers ${what}`, async () => {
    const finished = await runCode(code);
    assertEquals(finished.code, expected, finished.stderr);
  });
}

Deno.test({
  name: "the threads of a device end with it",
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    // Its workers by name and number: other threads of the process, such as a driver's, come and go.
    const isWorker = (id: string): boolean => {
      try {
        return Deno.readTextFileSync(`/proc/self/task/${id}/comm`).startsWith("worker-");
      } catch {
        return false; // it ended meanwhile
      }
    };
    const workers = (): string[] =>
      Array.from(Deno.readDirSync("/proc/self/task"), ({ name }) => name).filter(isWorker);
    const others = new Set(workers());
    const own = (): number => workers().filter((id) => !others.has(id)).length;
    const until = async (count: number): Promise<void> => {
      for (let i = 0; i < 1000 && own() !== count; i++) await sleep(10);
      assertEquals(own(), count);
    };
    const backend = createWasmBackend(5);
    backend.free(backend.alloc(65 << 20));
    await until(4);
    backend[Symbol.dispose]();
    await until(0);
  },
});
