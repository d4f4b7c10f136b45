/**
 * Starts the process of a replica, and stands for it in the front.
 *
 * @module
 */

import type { ReplicaProcess } from "../../server/replicas/fleet.ts";
import type { Tell } from "./log.ts";
import { CLOSE_QUESTIONS, REPLICA, type ReplicaLine, type ReplicaOptions } from "./replica_process.ts";

/** A replica to be started. */
export interface SpawnOptions {
  readonly replica: number;
  readonly options: ReplicaOptions;
  readonly key: string;
  /** Further environment variables. */
  readonly env: Readonly<Record<string, string>>;
  /** Says what the replica does. */
  readonly tell: Tell;
  /** Ends the start. */
  readonly signal: AbortSignal;
}

/** What a replica said when it was ready. */
export type Ready = Extract<ReplicaLine, { readonly is: "ready" }>;

/** Starts a process, and waits until it serves. Throws an Error with the reason if it ends before. */
export async function spawnReplica(
  { replica, options, key, env, tell, signal }: SpawnOptions,
): Promise<ReplicaProcess & { readonly ready: Ready }> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", "--quiet", REPLICA],
    env: { ...env },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const kill = (): void => {
    try {
      child.kill("SIGKILL");
    } catch { /* it has ended */ }
  };
  signal.addEventListener("abort", kill);
  const input = child.stdin.getWriter();
  const write = (text: string): void => void input.write(new TextEncoder().encode(text)).catch(() => {});
  const ready = Promise.withResolvers<Ready>();
  ready.promise.catch(() => {}); // awaited below
  const outside = (event: string, fields: Readonly<Record<string, unknown>>, line?: string): void =>
    tell(event, { ...fields, replica }, line && `replica ${replica}: ${line}`);
  let reason: string | undefined;
  const warn = (text: string): void => outside("warning", { message: text }, text);
  const said = eachLine(child.stdout, (text) => {
    if (!text.startsWith('{"is":')) return warn(text); // a library may print
    const line: ReplicaLine = JSON.parse(text);
    if (line.is === "ready") ready.resolve(line);
    else outside(line.event, line.fields, line.line);
  });
  const warned = eachLine(child.stderr, (text) => {
    const [, error] = /^error: (.*)$/.exec(text) ?? [];
    if (error === undefined) warn(text);
    else reason = error;
  });
  const ended = Promise.all([child.status, said, warned]).then(([{ code, signal }]) => {
    const how = reason ?? (signal === null ? `it ended with code ${code}` : `it was ended by ${signal}`);
    input.close().catch(() => {});
    ready.reject(new Error(`Replica ${replica} did not start: ${how}`));
    return how;
  });
  write(`${JSON.stringify(options)}\n`);
  try {
    const found = await ready.promise;
    return {
      url: found.url,
      key,
      device: found.device,
      ended,
      ready: found,
      kill,
      closeQuestions: () => write(`${CLOSE_QUESTIONS}\n`),
      drain: () => void input.close().catch(() => {}),
    };
  } finally {
    signal.removeEventListener("abort", kill);
  }
}

async function eachLine(stream: ReadableStream<Uint8Array>, take: (line: string) => void): Promise<void> {
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    lines.filter((line) => line !== "").forEach(take);
  }
  if (rest !== "") take(rest);
}
