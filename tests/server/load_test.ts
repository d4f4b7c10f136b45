/**
 * Many clients at once on the embedded model: none is lost, and each gets the answer that its prompt gets alone. `deno task soak` lets them
 * come again and again, and sees that memory stays flat.
 */

import { assert, assertRejects } from "@std/assert";
import { askAlone, askTogether } from "../../scripts/soak/clients.ts";
import { TestServer } from "../support/server/served.ts";
import { TIER } from "../support/tier.ts";

const COUNT = TIER === "full" ? 500 : 20;

Deno.test(`${COUNT} clients at once each get the answer that their prompt gets alone`, async () => {
  await using server = await TestServer.start();
  const alone = await askAlone(server.url, COUNT);
  assert(alone.slice(0, 20).every((answer, i) => answer === `The answer is ${20 + i}.`), alone.slice(0, 20).join("\n"));
  await askTogether(server.url, alone);
});

Deno.test("a mixed answer and a lost one are found", async () => {
  await using server = await TestServer.start();
  const alone = await askAlone(server.url, 3);
  await assertRejects(
    () => askTogether(server.url, alone.with(1, alone[2])),
    Error,
    "0 lost, 1 mixed: What is 11 + 10?",
  );
  await using gone = await TestServer.start({ apiKey: "k" });
  await assertRejects(() => askTogether(gone.url, alone), Error, "3 lost, 0 mixed: ");
});
