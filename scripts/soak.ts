/**
 * `deno task soak`: does the same thing for a long time and sees that nothing grows.
 *
 *     deno task soak            10,000 decoding steps and 5,000 requests of an engine on the CPU, 2,000 and 500 by Vulkan, 100 model loads,
 *                               100 opened devices, 10,000 clients of a server, 100 at once
 *     deno task soak --quick    fewer and shorter rounds, as a test runs them
 *
 * Each row is a process of its own that does equal rounds. It is asked how much memory the process and its devices use
 * after 20 rounds of warm-up, and again after the measured ones. Garbage is collected before both. Growth beyond 1 %
 * and 1 MB, again and again, is a leak. Decoding must not become slower either.
 *
 * @module
 */

import process from "node:process";
import { type Flags, UsageError } from "../src/cli/flags.ts";
import { note, print } from "../src/cli/output.ts";
import { runMain } from "../src/cli/program.ts";
import { settled } from "../src/array/compile/loop.ts";
import { devices, openBackends } from "../src/backend/devices.ts";
import { importArguments } from "./imports.ts";
import { writeResult } from "./reliability/results.ts";
import type { SoakKind } from "./soak/kinds.ts";

/** Rounds before anything is measured, in which caches fill, pipelines are made and code is compiled, and rounds that are. */
const ROUNDS = { full: { warm: 20, measured: 80 }, quick: { warm: 20, measured: 10 } } as const;
/**
 * Equal work must find equal room. The young generation of the heap has a fixed size, and glibc keeps one pool of
 * memory for all threads. Otherwise both grow by many megabytes with the number of rounds, whatever the rounds do.
 */
const STEADY = {
  flags: "--v8-flags=--expose-gc,--min-semi-space-size=4,--max-semi-space-size=4",
  env: { MALLOC_ARENA_MAX: "1" },
};
/** Processes at once. */
const PROCESSES = 2;
/** How often the measured rounds are done again where something grew: a leak grows every time, code that was compiled late once. */
const WINDOWS = 4;
/** The same with those in which steps were made for the first time. On a GPU those have pipelines, which are made late and stay. */
const ALL_WINDOWS = 12;
/** Measurements of memory at either end; the least counts, since what waits to be freed is no leak. */
const LOOKS = 4;
/** Growth that is allowed, the larger of both. */
const [SHARE, BYTES] = [0.01, 2 ** 20];
/** How much longer the quickest of the last rounds may take than that of the first. */
const SLOWER = 0.05;

/** The measurements of a process. */
interface Soak {
  readonly units: number;
  /** Bytes of the process and of its devices after the warm-up and at the end. */
  readonly rss: readonly [number, number];
  readonly device: readonly [number, number];
  /** Processor time of the quickest round of the first and of the last ones, in milliseconds. */
  readonly quickest: readonly [number, number];
}

/** Hands pages that glibc keeps for later back to the system; elsewhere nothing. */
const trim: () => void = (() => {
  try {
    const { symbols } = Deno.dlopen("libc.so.6", { malloc_trim: { parameters: ["usize"], result: "i32" } });
    return () => void symbols.malloc_trim(0n);
  } catch {
    return () => {};
  }
})();

/** Frees unreferenced objects, and lets finalizers run. */
async function collect(): Promise<void> {
  const { gc } = globalThis as { gc?: () => void };
  for (let i = 0; i < 3; i++) {
    gc?.();
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  trim();
}

async function soak(kind: SoakKind, device: string, quick: boolean): Promise<Soak> {
  const round = await kind.start(device);
  const units = quick ? kind.units.quick : device === "wasm" ? kind.units.wasm : kind.units.vulkan;
  const { warm, measured } = ROUNDS[quick ? "quick" : "full"];
  const times: number[] = [];
  const run = async (): Promise<void> => {
    const cpu = process.cpuUsage();
    await round(units);
    const { user, system } = process.cpuUsage(cpu);
    times.push((user + system) / 1000);
  };
  const look = async (): Promise<[number, number]> => {
    await settled(); // pipelines that are still being made
    let [rss, held] = [Infinity, Infinity];
    for (let i = 0; i < LOOKS; i++) {
      await collect();
      rss = Math.min(rss, Deno.memoryUsage().rss);
      held = Math.min(held, openBackends().reduce((sum, backend) => sum + backend.memory().active, 0));
    }
    return [rss, held];
  };
  for (let i = 0; i < warm; i++) {
    await run();
    if (i % 4 === 3) await collect(); // the collector has to be warm too
  }
  const part = Math.floor(measured / 4);
  let done = warm;
  let counted = 0;
  for (let windows = 1;; windows++) {
    const before = await look();
    const made = round.made?.();
    times.length = 0;
    for (let i = 0; i < measured; i++, done++) await run();
    const after = await look();
    const row: Soak = {
      units: units * done,
      rss: [before[0], after[0]],
      device: [before[1], after[1]],
      quickest: [Math.min(...times.slice(0, part)), Math.min(...times.slice(-part))],
    };
    if (round.made?.() === made) counted++;
    if (faults(row, kind, quick).length > 0 && counted < WINDOWS && windows < ALL_WINDOWS) continue;
    await round[Symbol.asyncDispose]?.();
    return row;
  }
}

const FLAGS = {
  "quick": { help: "fewer and shorter rounds" },
  "only": { value: "ROWS", help: "rows, separated by commas: decode, engine, server, load, device (all)" },
  "device": { value: "NAMES", help: "devices, separated by commas (wasm and the first Vulkan device)" },
  "rows": { value: "FILE", help: "module that exports other rows as KINDS" },
  "child": { help: "measure one row on one device in this process and print it as JSON" },
} as const satisfies Flags;

const PROGRAM = {
  name: "soak",
  about: "Does the same thing for a long time and sees that nothing grows.",
  flags: FLAGS,
};

const grew = ([before, after]: readonly [number, number]): boolean => after - before > Math.max(BYTES, SHARE * before);
const megabytes = (bytes: number): string => (bytes / 2 ** 20).toFixed(2);

/** The fault of a row, in words. */
function faults({ rss, device, quickest }: Soak, kind: SoakKind, quick: boolean): string[] {
  const slower = quickest[1] / quickest[0] - 1;
  return [
    grew(rss) ? "the process grew" : "",
    grew(device) ? "the device grew" : "",
    kind.check === 11 && !quick && slower > SLOWER ? `${(100 * slower).toFixed(0)} % slower` : "",
  ].filter((text) => text !== "");
}

/** One row of the table, and the same in words. */
function describe(
  { units, rss, device, quickest }: Soak,
  kind: SoakKind,
  name: string,
): { line: string; words: string } {
  const columns = [
    kind.name.padEnd(7),
    name.padEnd(10),
    String(units).padStart(10),
    ...[...rss, ...device].map((bytes, i) => megabytes(bytes).padStart(i < 2 ? 11 : 14)),
    ...quickest.map((ms) => ms.toFixed(1).padStart(10)),
  ];
  const change = (of: readonly [number, number]): string => `${megabytes(of[1] - of[0])} MB`;
  const slower = kind.check === 11 ? `, time ${(100 * (quickest[1] / quickest[0] - 1)).toFixed(1)} %` : "";
  const words = `${units.toLocaleString("en")} ${kind.each} on ${name}: process ${change(rss)}, device ${
    change(device)
  }${slower}`;
  return { line: columns.join(" "), words };
}

/** Measures a row in a process of its own; a text is why that failed. */
async function measure(kind: SoakKind, device: string, quick: boolean, rows: string): Promise<Soak | string> {
  const script = ["--no-check", ...await importArguments(), import.meta.url];
  const args = ["--child", "--only", kind.name, "--device", device, "--rows", rows, ...(quick ? ["--quick"] : [])];
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", STEADY.flags, ...script, ...args],
    env: STEADY.env,
    stdin: "null",
  }).output();
  return code === 0 ? JSON.parse(new TextDecoder().decode(stdout)) : new TextDecoder().decode(stderr).trim();
}

if (import.meta.main) {
  await runMain(PROGRAM, async ({ quick = false, only, device, child, rows }) => {
    const module = rows ?? new URL("soak/kinds.ts", import.meta.url).href;
    const { KINDS }: { KINDS: readonly SoakKind[] } = await import(module);
    const unknown = only?.split(",").find((name) => !KINDS.some((kind) => kind.name === name));
    if (unknown !== undefined) {
      throw new UsageError(`--only is "${unknown}", expected one of ${KINDS.map(({ name }) => name).join(", ")}`);
    }
    const kinds = KINDS.filter(({ name }) => only === undefined || only.split(",").includes(name));
    if (child) {
      print(`${JSON.stringify(await soak(kinds[0], device!, quick))}\n`);
      return 0;
    }
    const vulkan = device === undefined ? devices().find((row) => row.usable && row.type !== "wasm")?.name : undefined;
    const names = device?.split(",") ?? ["wasm", ...(vulkan ? [vulkan] : [])];
    if (names.length === 1 && device === undefined) {
      note("soak: there is no Vulkan device: only the CPU is tried, and no result is kept\n");
    }
    print(
      "row     device          count   MB before    MB after  device before   device after   ms before  ms after\n",
    );
    let failed = 0;
    const results: { check: number; measured: string; ok: boolean }[] = [];
    const jobs = kinds.flatMap((kind) => names.map((name) => ({ kind, name })));
    const count = jobs.length;
    const work = async (): Promise<void> => {
      for (let job = jobs.shift(); job; job = jobs.shift()) {
        const { kind, name } = job;
        const row = await measure(kind, name, quick, module);
        const { line, words } = typeof row === "string"
          ? { line: `${kind.name.padEnd(7)} ${name}`, words: "" }
          : describe(row, kind, name);
        const wrong = typeof row === "string" ? [row] : faults(row, kind, quick);
        if (wrong.length > 0) failed++;
        print(`${line}${wrong.length > 0 ? `   FAILED: ${wrong.join(", ")}` : ""}\n`);
        results.push({ check: kind.check, measured: words, ok: wrong.length === 0 });
      }
    };
    await Promise.all(Array.from({ length: PROCESSES }, work));
    if (!quick && vulkan !== undefined && rows === undefined) {
      // Rows of docs/reliability.md of which all kinds ran, on the CPU and by Vulkan.
      const whole = results.filter(({ check }) => KINDS.every((kind) => kind.check !== check || kinds.includes(kind)));
      const found = Object.entries(Object.groupBy(whole, ({ check }) => check)).map(([check, list]) => ({
        check: Number(check),
        measured: list!.map(({ measured }) => measured).join("; "),
        ok: list!.every(({ ok }) => ok),
      }));
      await writeResult("soak", "deno task soak", found);
    }
    print(`${count - failed} passed, ${failed} failed\n`);
    return failed > 0 ? 1 : 0;
  });
}
