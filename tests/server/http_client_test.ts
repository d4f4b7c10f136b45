/** The client of replicas: a request that ends before its answer is seen by the server as one that was given up, once. */

import { assertEquals, assertRejects } from "@std/assert";
import { HttpClient } from "../../ffi/http/client.ts";
import { serveHttp } from "../../ffi/http/server.ts";

Deno.test("a request that is given up reaches the server once, also after others", async () => {
  const seen: string[] = [];
  const arrived: (() => void)[] = [];
  const server = await serveHttp({ hostname: "127.0.0.1", port: 0 }, async ({ path, signal, body }) => {
    await body(100);
    seen.push(path);
    arrived.shift()?.();
    if (path === "/quick") return { status: 200, body: "done" };
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    seen.push("given up");
    arrived.shift()?.();
    return { status: 200 };
  });
  const next = (): Promise<void> => new Promise((resolve) => arrived.push(resolve));
  {
    using client = new HttpClient();
    for (const method of ["GET", "POST"]) {
      const body = method === "POST" ? "{}" : undefined;
      for (let i = 0; i < 2; i++) {
        const { pieces } = await client.call({ method, url: `${server.url}/quick`, body });
        for await (const piece of pieces) assertEquals(piece, "done");
      }
    }
    const stop = new AbortController();
    const [came, gone] = [next(), next()];
    const call = client.call({ method: "POST", url: `${server.url}/slow`, body: "{}", signals: [stop.signal] });
    await came;
    stop.abort(new Error("stop"));
    await assertRejects(() => call, Error, "stop");
    await gone;
    const again = await Promise.race([next().then(() => true), new Promise((r) => setTimeout(r, 150))]);
    assertEquals(again, undefined, "it came again");
  }
  assertEquals(seen, ["/quick", "/quick", "/quick", "/quick", "/slow", "given up"]);
  await server.close();
});
