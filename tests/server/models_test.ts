/**
 * Models that come and go: loaded on demand, shared, unloaded when idle or when another one needs their memory.
 */

import { assertEquals, assertRejects } from "@std/assert";
import { lm } from "../../mod.ts";
import { Models } from "../../src/server/models.ts";
import type { Served } from "../../src/server/served.ts";
import { ScriptedEngine } from "../support/server/scripted_engine.ts";

/** Models of which one fits at a time, and what happens to them. */
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
