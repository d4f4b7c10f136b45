/**
 * One replica of `vkmx serve --replicas`: the program that the front starts.
 *
 * It gets its options as a line of JSON on stdin, and says what happens as lines of JSON on stdout. It ends when stdin does: so it never
 * outlives its front. Signals are left to the front, since a terminal and a service manager send them to all processes.
 *
 * @module
 */

import { inputLines, printJson } from "../output.ts";
import { orExit } from "../program.ts";
import type { ServeValues } from "./flags.ts";
import type { Tell } from "./log.ts";
import { type OneServer, openServer } from "./one_server.ts";

/** The address of this program. */
export const REPLICA: string = import.meta.url;

/** The first line of stdin. */
export interface ReplicaOptions {
  readonly values: ServeValues;
  readonly sharers: number;
  readonly replicas: number;
  readonly memoryBytes: number | undefined;
}

/** A line of stdout. */
export type ReplicaLine =
  | ({ readonly is: "ready"; readonly url: string } & Pick<OneServer, "device" | "memoryBytes" | "tools">)
  | {
    readonly is: "event";
    readonly event: string;
    readonly fields: Readonly<Record<string, unknown>>;
    readonly line?: string | undefined;
  };

/** The line of stdin after which no user is asked for consent. */
export const CLOSE_QUESTIONS = "close questions";

/** Milliseconds after the end of stdin in which requests, whose client has gone, end. */
const END_MS = 10_000;

async function main(): Promise<number> {
  for (const signal of Deno.build.os === "windows" ? ["SIGINT"] as const : ["SIGINT", "SIGTERM"] as const) {
    Deno.addSignalListener(signal, () => {});
  }
  const lines = inputLines();
  const { values, ...rest }: ReplicaOptions = JSON.parse((await lines.next()).value ?? "null");
  const state: { opened?: OneServer } = {};
  const ended = (async () => {
    for await (const line of lines) if (line === CLOSE_QUESTIONS) state.opened?.server.closeQuestions();
    if (state.opened === undefined) Deno.exit(1);
    Deno.unrefTimer(setTimeout(() => Deno.exit(1), END_MS));
  })();
  const tell: Tell = (event, fields, line) => say({ is: "event", event, fields, line });
  const opened = state.opened = await openServer(values, { tell, ...rest });
  const { server: { url }, device, memoryBytes, tools } = opened;
  say({ is: "ready", url, device, memoryBytes, tools });
  await ended;
  await opened.drain();
  return 0;
}

function say(line: ReplicaLine): void {
  try {
    printJson(line);
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error; // the front is gone, and stdin says so too
  }
}

if (import.meta.main) await orExit(main);
