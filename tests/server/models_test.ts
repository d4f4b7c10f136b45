/**
 * Models that come and go: loaded on demand, shared, unloaded when idle or when another one needs their memory.
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { deviceMemory, lm } from "../../mod.ts";
import { Models, type Room } from "../../src/server/models.ts";
import { openModel } from "../../src/server/open.ts";
import type { Served } from "../../src/server/served.ts";
import { collect } from "../../src/schedule/plan/garbage.ts";
import { whenReleased } from "../support/devices/released.ts";
import { tinyPage } from "../support/models/engine_requests.ts";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";
import { TestServer } from "../support/server/served.ts";

/** Models of which so many fit at a time, and what happens to them. */
function modelsOf(
  options: { readonly room?: number; readonly unloadAfterMs?: number; readonly fail?: Set<string> } = {},
) {
  const { room = Infinity, unloadAfterMs, fail = new Set() } = options;
  const events: string[] = [];
  let loaded = 0;
  const open = async (id: string): Promise<Served> => {
    await Promise.resolve();
    if (fail.delete(id)) throw new Error(`${id} is damaged`);
    if (loaded >= room) throw new lm.LlmError("memory", `${id} does not fit`);
    loaded++;
    events.push(`load ${id}`);
    const model = {
      [Symbol.dispose]: () => {
        loaded--;
        events.push(`free ${id}`);
      },
    };
    return {
      id,
      bytes: 1,
      engine: new ScriptedEngine(() => []),
      model,
      tokenizer: {},
      generationConfig: {},
    } as unknown as Served;
  };
  const models = new Models(["a", "b", "c"], { open, ...(unloadAfterMs !== undefined && { unloadAfterMs }) });
  return { models, events };
}

Deno.test("a model is loaded once for all requests that wait for it", async () => {
  const { models, events } = modelsOf();
  const leases = await Promise.all([models.lease("b"), models.lease("b"), models.lease(undefined)]);
  assertEquals(events.toSorted(), ["load a", "load b"]);
  assertEquals(leases[0].served, leases[1].served);
  for (const lease of leases) lease[Symbol.dispose]();
  await models[Symbol.asyncDispose]();
  assertEquals(events.slice(2).toSorted(), ["free a", "free b"]);
});

Deno.test("an idle model is unloaded after its time, not one in use, and comes back on demand", async () => {
  const { models, events } = modelsOf({ unloadAfterMs: 30 });
  const first = await models.lease("a");
  const second = await models.lease("a");
  first[Symbol.dispose]();
  first[Symbol.dispose](); // again: counts once
  await new Promise((resolve) => setTimeout(resolve, 80));
  assertEquals(events, ["load a"]);
  second[Symbol.dispose]();
  await new Promise((resolve) => setTimeout(resolve, 120));
  assertEquals(events, ["load a", "free a"]);
  (await models.lease("a"))[Symbol.dispose]();
  assertEquals(events, ["load a", "free a", "load a"]);
  await models[Symbol.asyncDispose]();
});

Deno.test("a model that does not fit takes the place of the one that was used longest ago", async () => {
  const { models, events } = modelsOf({ room: 2 });
  for (const id of ["a", "b", "a", "c"]) (await models.lease(id))[Symbol.dispose]();
  assertEquals(events, ["load a", "load b", "free b", "load c"]);
  const busy = [await models.lease("a"), await models.lease("c")];
  await assertRejects(() => models.lease("b"), lm.LlmError, "b does not fit");
  for (const lease of busy) lease[Symbol.dispose]();
  (await models.lease("b"))[Symbol.dispose]();
  assertEquals(events.slice(4), ["free a", "load b"]);
  await models[Symbol.asyncDispose]();
});

Deno.test("a load that fails is tried again by the next request", async () => {
  const { models, events } = modelsOf({ fail: new Set(["a"]) });
  const both = await Promise.allSettled([models.lease("a"), models.lease("a")]);
  assertEquals(both.map(({ status }) => status), ["rejected", "rejected"]);
  (await models.lease("a"))[Symbol.dispose]();
  assertEquals(events, ["load a"]);
  await models[Symbol.asyncDispose]();
  assertEquals(events, ["load a", "free a"]);
});

Deno.test("a model whose engine failed is loaded again by the next request, once", async () => {
  const { models, events } = modelsOf();
  const lease = await models.lease("a");
  Object.assign(lease.served.engine, { failure: new Error("the device was lost") });
  const next = await Promise.all([models.lease("a"), models.lease("a")]);
  assertEquals(events, ["load a", "free a", "load a"]);
  assert(next.every(({ served }) => served === next[0].served && served !== lease.served));
  for (const one of [lease, ...next]) one[Symbol.dispose]();
  await models[Symbol.asyncDispose]();
  assertEquals(events, ["load a", "free a", "load a", "free a"]);
});

Deno.test("models are loaded one after the other, each into the room that the others leave", async () => {
  const rooms: (readonly [id: string, room: Room])[] = [];
  let loading = 0;
  const open = async (id: string, room: Room): Promise<Served> => {
    assertEquals(++loading, 1);
    rooms.push([id, room]);
    await new Promise((resolve) => setTimeout(resolve, 5));
    loading--;
    if (room.bytes < 40) throw new lm.LlmError("memory", `${id} does not fit`);
    const engine = new ScriptedEngine(() => []);
    return { id, bytes: 40, engine, model: { [Symbol.dispose]() {} } } as unknown as Served;
  };
  const models = new Models(["a", "b", "c"], { open, memoryBytes: 100 });
  const leases = await Promise.all([models.lease("a"), models.lease("b")]);
  await assertRejects(() => models.lease("c"), lm.LlmError, 'c does not fit, or try again when "a", "b" answers no');
  leases[1][Symbol.dispose]();
  leases.push(await models.lease("c"));
  assertEquals(rooms, [
    ["a", { bytes: 100, models: 3, isAll: true }],
    ["b", { bytes: 60, models: 2, isAll: false }],
    ["c", { bytes: 20, models: 1, isAll: false }],
    ["c", { bytes: 20, models: 1, isAll: false }],
    ["c", { bytes: 60, models: 2, isAll: false }],
  ]);
  for (const lease of leases) lease[Symbol.dispose]();
  await models[Symbol.asyncDispose]();
});

const DEVICE = "wasm";
const PAGES = 64; // the whole context
const KV_BYTES = PAGES * tinyPage(DEVICE);

/** Opens the embedded model with few pages. */
const openTiny = (id: string, room: Room): Promise<Served> =>
  openModel(id, lm.EMBEDDED_MODEL, room, { load: { device: DEVICE }, kvBytes: KV_BYTES });

Deno.test("an opened model takes the bytes of the device that it says", async () => {
  const used = (): number => deviceMemory(DEVICE).active;
  collect(); // what earlier tests forgot
  const before = used();
  const { bytes, model, engine } = await openTiny("tiny", { bytes: Infinity, models: 1, isAll: true });
  const weights = await whenReleased(used, before + bytes - KV_BYTES) - before; // pages are taken by the first request
  assertEquals(bytes, weights + KV_BYTES);
  for await (const _ of engine.add({ prompt: "Once", maxTokens: 1 }));
  assert(used() >= before + bytes);
  await engine[Symbol.asyncDispose]();
  model[Symbol.dispose]();
  assertEquals(await whenReleased(used, before), before);
});

Deno.test("without a number of bytes, models that may come share what the weights leave", async () => {
  const whole = await openTiny("tiny", { bytes: Infinity, models: 1, isAll: true });
  const weights = whole.bytes - KV_BYTES;
  await whole.engine[Symbol.asyncDispose]();
  whole.model[Symbol.dispose]();
  const free = 2 * 8 * 5 * tinyPage(DEVICE); // for two models; an eighth of each half is five pages
  const { bytes, model, engine } = await openModel("tiny", lm.EMBEDDED_MODEL, {
    bytes: weights + free,
    models: 2,
    isAll: true,
  }, {
    load: { device: DEVICE },
  });
  assertEquals(bytes, weights + 5 * tinyPage(DEVICE));
  await engine[Symbol.asyncDispose]();
  model[Symbol.dispose]();
});

Deno.test("two models in the memory of one take turns; one in use stays, and the request for the other is told so", async () => {
  const { bytes, engine, model } = await openTiny("tiny", { bytes: Infinity, models: 1, isAll: true });
  await engine[Symbol.asyncDispose]();
  model[Symbol.dispose]();
  const engines = { one: () => engine, two: () => engine };
  await using server = await TestServer.start({ engines, open: openTiny, memoryBytes: 1.5 * bytes });
  const ask = (model: string) => ({ model, prompt: "Once upon a time", max_tokens: 3, temperature: 0 });
  for (const name of ["one", "two", "one"]) {
    assertEquals((await server.ask("/v1/completions", ask(name))).choices[0].text, ", there was");
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    assertEquals([...metrics.matchAll(/^vkmx_requests_running\{model="(.*)"\}/gm)].map(([, id]) => id), [name]);
  }
  const gone = new AbortController();
  const endless = { ...ask("one"), max_tokens: 4000, logit_bias: { 4089: -100, 4091: -100 }, stream: true }; // no EOS token
  const stream = await server.post("/v1/completions", endless, { signal: gone.signal });
  const reader = stream.body!.getReader();
  const refused = await server.post("/v1/completions", ask("two"));
  const { error } = await refused.json();
  assertEquals([refused.status, error.code, refused.headers.get("retry-after")], [503, "out_of_memory", "1"]);
  assertMatch(error.message, /needs .* or try again when "one" answers no request$/);
  for (let i = 0; i < 3; i++) assertEquals((await reader.read()).done, false); // the one in use goes on
  gone.abort();
  await reader.read().catch(() => {});
  let [found, tries] = [refused, 0];
  while (found.status === 503 && tries++ < 500) {
    await new Promise((resolve) => setTimeout(resolve, 5)); // its model is idle a step after the abort
    found = await server.post("/v1/completions", ask("two"));
    if (found.status === 503) await found.body?.cancel();
  }
  assertEquals((await found.json()).choices[0].text, ", there was");
});

Deno.test("a model that no unload makes room for is refused before its weights are read", async () => {
  const engines = { one: () => new ScriptedEngine(() => []) };
  await assertRejects(
    () => TestServer.start({ engines, open: openTiny, memoryBytes: KV_BYTES + 1000 }),
    lm.LlmError,
    "has only 1.00 kB free",
  );
});
