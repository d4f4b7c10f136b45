/**
 * `vkmx serve --replicas` as processes: replicas that are killed, a drain, and a front that is killed. Requests are the embedded model's.
 */

import { assert, assertEquals } from "@std/assert";
import type * as mx from "../../mod.ts";
import { candidateDevices, replicaDevices } from "../../src/cli/serving/replicas.ts";
import { type Serving, startServe } from "../support/processes/serve.ts";
import { until } from "../support/server/fake_replicas.ts";
import { eventsOf } from "../support/server/served.ts";

/** Processes are found in /proc. */
const ignore = Deno.build.os !== "linux";

/** Processes that a process has started, the oldest first. */
function childrenOf(pid: number): readonly number[] {
  const text = Deno.readTextFileSync(`/proc/${pid}/task/${pid}/children`).trim();
  return text === "" ? [] : text.split(" ").map(Number).sort((a, b) => a - b);
}

/** Whether a process runs: one that has ended may wait for its parent. */
function runs(pid: number): boolean {
  try {
    return !/^State:\tZ/m.test(Deno.readTextFileSync(`/proc/${pid}/status`));
  } catch {
    return false;
  }
}

/** An answer that ends at its limit only. */
const long = { prompt: "Once", temperature: 0, logit_bias: { 4089: -100, 4091: -100 } };

const post = (url: string, body: unknown): Promise<Response> =>
  fetch(`${url}/v1/completions`, { method: "POST", body: JSON.stringify(body) });

/** Events of the log, by the name of the event. */
function logged({ lines }: Serving, event: string): Record<string, unknown>[] {
  return lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line)).filter((one) =>
    one.event === event
  );
}

Deno.test(
  "requests outlive a replica that is killed; SIGTERM lets answers end, and all processes",
  { ignore },
  async () => {
    const serving = await startServe(["--replicas", "2", "--json"]);
    const { child, url, ended } = serving;
    assertEquals(logged(serving, "ready").map(({ devices }) => devices), [["wasm", "wasm"]]);
    assertEquals(logged(serving, "shared").map(({ device, replicas }) => [device, replicas]), [["wasm", 2]]);
    const [first, second] = childrenOf(child.pid);
    const busy = async (): Promise<string[]> => {
      const metrics = await (await fetch(`${url}/metrics`)).text();
      return Array.from(metrics.matchAll(/^vkmx_replica_requests_running\{replica="(\d)".*\} 1$/gm), ([, one]) => one);
    };
    const kvBytes = async (): Promise<string[]> => {
      const metrics = await (await fetch(`${url}/metrics`)).text();
      return Array.from(metrics.matchAll(/^vkmx_replica_kv_bytes\{.*\} (\d+)$/gm), ([, bytes]) => bytes);
    };
    const before = await kvBytes();
    assertEquals(before.length, 2);
    const alone = await (await post(url, { ...long, max_tokens: 150 })).json();
    // The next replica is 1, where a whole reply is on its way, and then 0, which streams.
    const whole = post(url, { ...long, max_tokens: 150 });
    await until("the request runs", async () => (await busy()).join() === "1");
    const stream = await post(url, { ...long, max_tokens: 4000, stream: true });
    const pieces = stream.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = (await pieces.read()).value!;
    Deno.kill(second, "SIGKILL");
    const reply = await whole;
    assertEquals([reply.status, (await reply.json()).choices], [200, alone.choices]);
    Deno.kill(first, "SIGKILL");
    for (let next = await pieces.read(); !next.done; next = await pieces.read()) text += next.value;
    const events = eventsOf(text);
    assert(events.length > 2 && "choices" in events[0].data);
    assertEquals(events.at(-1)!.data.error.code, "server_unavailable");

    await until("both serve again", async () => {
      const { replicas } = await (await fetch(`${url}/health`)).json();
      return replicas.every(({ status, restarts }: { status: string; restarts: number }) =>
        status === "ok" && restarts > 0
      );
    });
    const states = logged(serving, "replica").map(({ replica, state }) => `${replica} ${state}`).sort();
    assertEquals(states, ["0 ended", "0 restarted", "1 ended", "1 restarted"]);
    const replicas = childrenOf(child.pid);
    assertEquals(replicas.length, 2);
    assertEquals(await kvBytes(), before, "the memory is shared as at the first start");
    const last = await post(url, { ...long, max_tokens: 60, stream: true });
    // A terminal and a service manager send signals to all processes.
    for (const pid of [...replicas, child.pid]) Deno.kill(pid, "SIGTERM");
    assert((await last.text()).endsWith('"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'));
    assertEquals((await child.status).code, 0);
    await ended;
    assertEquals(replicas.filter(runs), []);
    assertEquals(logged(serving, "end").length, 1);
    const requests = logged(serving, "request").filter(({ path }) => path === "/v1/completions");
    assertEquals(requests.map(({ replica }) => typeof replica), ["number", "number", "number", "number"]);
  },
);

Deno.test("replicas end when their front is killed", { ignore }, async () => {
  const kvBytes = 3 * 2 * 64 * 8 * 2 * 128; // three pages of 8 bits
  const flags = ["--kv-bits", "8", "--kv-bytes", String(kvBytes)];
  const { child, url, ended, lines } = await startServe(["--replicas", "2", ...flags]);
  assertEquals(lines, ["2 replicas share wasm", `vkmx serves tiny-qwen3 by 2 replicas on wasm at ${url}`]);
  const metrics = await (await fetch(`${url}/metrics`)).text();
  const found = Array.from(metrics.matchAll(/^vkmx_replica_kv_bytes\{.*\} (\d+)$/gm), ([, bytes]) => Number(bytes));
  assertEquals(found, [kvBytes, kvBytes], "flags of the server are those of each replica");
  const replicas = childrenOf(child.pid);
  const answers = [1, 2].map(() => post(url, { ...long, max_tokens: 4000, stream: true }));
  await Promise.all(answers);
  child.kill("SIGKILL");
  for (const answer of answers) await (await answer).text().catch(() => {});
  await child.status;
  await until("they end", () => !replicas.some(runs));
  await ended;
});

Deno.test("replicas are on the GPUs of the best one's kind, or on the device that is named", () => {
  const device = (name: string, type: mx.DeviceInfo["type"], usable = true): mx.DeviceInfo => ({
    name,
    type,
    usable,
    description: name,
  });
  const wasm = device("wasm", "wasm");
  const software = device("vulkan:0", "cpu");
  const [small, one, other] = [
    device("vulkan:0", "integrated"),
    device("vulkan:1", "discrete"),
    device("vulkan:2", "discrete"),
  ];
  const broken = device("vulkan:3", "discrete", false);
  const of = (all: readonly mx.DeviceInfo[], best: mx.DeviceInfo, name?: string): readonly string[] =>
    candidateDevices(name, () => all, () => best);
  assertEquals(of([small, one, other, broken, wasm], one), ["vulkan:1", "vulkan:2"]);
  assertEquals(of([small, one, other, wasm], one, "gpu"), ["vulkan:1", "vulkan:2"]);
  assertEquals(of([small, one, other, wasm], one, "vulkan:0"), ["vulkan:0"]);
  assertEquals(of([small, one, other, wasm], one, "vulkan:0,cpu"), ["vulkan:0", "wasm"]);
  assertEquals(of([software, wasm], wasm), ["wasm"]);
  assertEquals(of([software, wasm], wasm, "cpu"), ["wasm"]);
  assertEquals(replicaDevices("auto", ["a", "b"]), ["a", "b"]);
  assertEquals(replicaDevices(1, ["a", "b"]), ["a"]);
  assertEquals(replicaDevices(5, ["a", "b"]), ["a", "b", "a", "b", "a"]);
});
