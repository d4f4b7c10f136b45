/**
 * `vkmx serve` as a process: its line, its log, its key, and how signals end it.
 */

import { assert, assertEquals } from "@std/assert";
import { startServe as start } from "../support/processes/serve.ts";
import { testTable } from "../support/processes/table.ts";

/** Signals are not those of Windows. */
const ignore = Deno.build.os === "windows";

Deno.test("a line says where it serves, and SIGTERM lets answers end", { ignore }, async () => {
  const kvBytes = 3 * 2 * 64 * 8 * 2 * 128; // three pages of 8 bits, or one of 16
  const args = ["--kv-bits", "8", "--kv-bytes", String(kvBytes)];
  const { child, lines, ended, url } = await start(args, { VKMX_API_KEY: "secret" });
  assertEquals(lines, [`vkmx serves tiny-qwen3 on wasm at ${url}`]);
  const refused = await fetch(`${url}/v1/models`);
  assertEquals([refused.status, (await refused.json()).error.code], [401, "invalid_api_key"]);
  const metrics = await fetch(`${url}/metrics`, { headers: { authorization: "Bearer secret" } });
  assert(new RegExp(`^vkmx_kv_bytes(\\{.*\\})? ${kvBytes}$`, "m").test(await metrics.text()));
  const body = { prompt: "Once upon a time", max_tokens: 60, temperature: 0, stream: true };
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { authorization: "Bearer secret" },
    body: JSON.stringify(body),
  });
  child.kill("SIGTERM");
  const text = await response.text();
  assert(text.endsWith('"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'), text.slice(-200));
  assertEquals((await child.status).code, 0);
  await ended;
  assertEquals(lines.slice(1), ["[answers the requests that are there, and ends; a second signal ends at once]"]);
});

Deno.test("a second signal ends at once; the log is JSON", { ignore }, async () => {
  const { child, lines, ended, url } = await start(["--json"]);
  await (await fetch(`${url}/health`)).body?.cancel();
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    body: JSON.stringify({
      prompt: "Once",
      max_tokens: 4000,
      temperature: 0,
      stream: true,
      logit_bias: { 4089: -100, 4091: -100 },
    }),
  });
  const reader = response.body!.getReader();
  await reader.read();
  child.kill("SIGINT");
  while (!lines.some((line) => line.includes("second signal"))) await new Promise((resolve) => setTimeout(resolve, 20));
  child.kill("SIGINT");
  assertEquals((await child.status).code, 130);
  await reader.cancel().catch(() => {});
  await ended;
  const [ready, health] = lines.map((line) => line.startsWith("{") ? JSON.parse(line) : {});
  assertEquals([ready.event, ready.url, ready.models, ready.device], ["ready", url, ["tiny-qwen3"], "wasm"]);
  assertEquals([health.event, health.method, health.path, health.status], ["request", "GET", "/health", 200]);
  assert(health.milliseconds >= 0);
});

testTable("serve", [
  { args: ["serve", "story"], code: 2, stderr: 'error: Expected flags only, found "story" (--help lists all)\n' },
  {
    args: ["serve", "--port", "70000"],
    code: 2,
    stderr: 'error: --port is "70000", expected a whole number from 0 to 65535\n',
  },
  {
    args: ["serve", "--api-key", ""],
    code: 2,
    stderr: "error: The API key may have only visible ASCII characters, of which there must be one at least\n",
  },
  {
    args: ["serve", "--model", "org/a", "--model", "org/a"],
    code: 2,
    stderr: 'error: --model names "org/a" twice: names must differ\n',
  },
  { args: ["serve", "--kv-bits", "16"], code: 2, stderr: 'error: --kv-bits is "16", expected 8\n' },
  {
    args: ["serve", "--speculate", "suffix"],
    code: 2,
    stderr: 'error: --speculate is "suffix", expected ngrams or mtp\n',
  },
  {
    args: ["serve", "--num-draft-tokens", "3"],
    code: 2,
    stderr: "error: --num-draft-tokens needs --speculate ngrams or mtp, or a draft model\n",
  },
  {
    args: ["serve", "--speculate", "ngrams", "--draft-model", "x"],
    code: 2,
    stderr: "error: --speculate and --draft-model exclude each other\n",
  },
  {
    args: ["serve", "--device", "cpu,wasm-threads=1", "--speculate", "mtp"],
    code: 2,
    stderr: "error: --speculate mtp needs one device, and --device names 2\n",
  },
  {
    args: ["serve", "--speculate", "mtp", "--port", "0"],
    code: 1,
    stderr: "{text}error: {text}has no head that drafts tokens{text}\n",
  },
  { args: ["serve", "--model", "./nothing"], code: 1, stderr: "error: {text}nothing{text}\n" },
  {
    args: ["serve", "--replicas", "0"],
    code: 2,
    stderr: 'error: --replicas is "0", expected auto or a whole number from 1 to 64\n',
  },
  {
    args: ["serve", "--replicas", "2", "--model", "./nothing"],
    code: 1,
    stderr: "2 replicas share wasm\nerror: Replica {number} did not start: {text}nothing{text}\n",
  },
  {
    args: ["serve", "--host", "203.0.113.1"],
    code: 1,
    stderr: "error: 203.0.113.1:8080 cannot be listened on: this machine has no such address\n",
  },
]);
