/**
 * Downloads from a hub on localhost that behaves as the real one does, well and badly. Afterwards a file in the cache
 * is whole, or it does not look complete.
 */

import { assert, assertEquals, assertMatch, assertRejects, assertThrows } from "@std/assert";
import * as mx from "../../../mod.ts";
import { LlmError } from "../../../src/llm/error.ts";
import { HubClient } from "../../../src/llm/hub/http.ts";
import { hubName, isFileName, parseName } from "../../../src/llm/hub/name.ts";
import { select } from "../../../src/llm/hub/patterns.ts";
import { type DownloadProgress, Meter } from "../../../src/llm/hub/progress.ts";
import { PassingError, Retries, retryAfter } from "../../../src/llm/hub/retry.ts";
import { entriesOf, HubBench, NAME, smallModel } from "../../support/models/hub_models.ts";
import { COMMIT, cut, hashOf, large, ranged, type Seen, text } from "../../support/processes/hub_server.ts";

mx.devices(); // opens the Vulkan library outside of any test

const WEIGHTS = "model.safetensors";

/** Asserts that a promise fails with an LlmError of one line that holds no token, and returns its message. */
async function fails(promise: Promise<unknown>, code = "hub"): Promise<string> {
  const { message, code: found } = await assertRejects(() => promise, LlmError);
  assertEquals(found, code, message);
  assert(!/\n|hf_|secret/.test(message), message);
  return message;
}

Deno.test("names of models, revisions and files: only what is one passes", () => {
  const revision = undefined;
  assertEquals(parseName("Qwen/Qwen3-0.6B-MLX-4bit"), { repo: "Qwen/Qwen3-0.6B-MLX-4bit", revision });
  assertEquals(parseName("a/b.c_d@refs/pr/4"), { repo: "a/b.c_d", revision: "refs/pr/4" });
  assertEquals(parseName(`a/b@${COMMIT}`), { repo: "a/b", revision: COMMIT });
  const none = [
    "",
    "a",
    "a/",
    "/a",
    "./a",
    "../a",
    "a/..",
    "a/b/c",
    "a b/c",
    "a\\b/c",
    "a/b.git",
    "a/b--c",
    "-a/b",
    "a/b\n",
  ];
  const bad = [
    "",
    "../..",
    "a..b",
    "/a",
    "a/",
    "a//b",
    ".a",
    "a/.b",
    "a.lock",
    "a b",
    "-a",
    "a\0",
    "ä",
    "a@b",
    "x".repeat(201),
  ];
  for (const name of [...none, "a/con", "con/a", `a/${"b".repeat(99)}`, ...bad.map((one) => `a/b@${one}`)]) {
    assertEquals(parseName(name), undefined, name);
    assertThrows(() => hubName("load", name), LlmError, "expected a model of the hub");
  }
  for (const one of bad) assertThrows(() => hubName("load", "a/b", one), LlmError, "expected a revision");
  assertThrows(() => hubName("load", "a/b@x", "y"), LlmError, "two revisions");
  for (const name of ["a", "a.json", "a/b/c.txt", "ä b (1).json", "...json", "console.json"]) {
    assert(isFileName(name), name);
  }
  const unsafe = [
    "",
    "/a",
    "a/",
    "a//b",
    ".",
    "../..",
    "a/..",
    "../a",
    "a/../b",
    "a\\b",
    "C:a",
    "a\0",
    "a\x1b[2J",
    "a\x85b",
    "\ud800",
  ];
  for (const name of [...unsafe, "nul", "a/COM1.json", "x".repeat(256), "x/".repeat(600)]) {
    assert(!isFileName(name), name);
  }
});

Deno.test("a download leaves what Python's huggingface_hub leaves, byte for byte", async () => {
  await using bench = new HubBench();
  const golden = JSON.parse(await Deno.readTextFile(new URL("../../golden/models/hub_cache.json", import.meta.url)));
  const told: DownloadProgress[] = [];
  const model = await mx.lm.hub.pull(NAME, { onProgress: (progress) => told.push(progress) });
  assertEquals(entriesOf(bench.cache), golden.entries);
  assertEquals(model.path, `${bench.cache}/${golden.snapshot}`);
  assertEquals([model.commit, model.revisions, model.missing], [COMMIT, ["main"], []]);
  assertEquals(bench.server.downloads.sort(), ["config.json", "model.safetensors", "tokenizer.json"]);
  const [first, last] = [told[0], told.at(-1)!];
  const total = 3000 + smallModel().files["config.json"].bytes.length + 3;
  assertEquals([first.bytesDone, first.bytesTotal, first.secondsLeft], [0, total, undefined]);
  assertEquals([last.bytesDone, last.bytesTotal, last.secondsLeft], [total, total, 0]);
  assert(last.files.every(({ bytesDone, bytesTotal }) => bytesDone === bytesTotal) && last.rate > 0);

  const before = bench.server.seen.length;
  await mx.lm.hub.pull(NAME);
  assertEquals(bench.server.seen.slice(before).map(({ path }) => path), [`/api/models/${NAME}/revision/main`]);
  await mx.lm.hub.pull(`${NAME}@refs/pr/1`);
  await mx.lm.hub.pull(NAME, { revision: COMMIT });
  assertEquals(Deno.readTextFileSync(`${bench.cache}/models--org--name/refs/refs/pr/1`), COMMIT);
  assertEquals(bench.server.downloads.length, 3);
});

Deno.test("patterns choose files; pickles and programs are never downloaded", async () => {
  const listed = [
    "a.json",
    "b/a.json",
    WEIGHTS,
    "consolidated.safetensors",
    "x.bin",
    "x.py",
    "x.PT",
    "tokenizer.model",
    "merges.txt",
  ];
  const files = listed.map((name, i) => ({ name, size: listed.length - i, hash: "", gitId: "" }));
  const names = (patterns?: string[]): string[] => select(files, patterns).map(({ name }) => name).sort();
  assertEquals(names(), ["a.json", "merges.txt", WEIGHTS, "tokenizer.model"]);
  assertEquals(names(["**"]), [
    "a.json",
    "b/a.json",
    "consolidated.safetensors",
    "merges.txt",
    WEIGHTS,
    "tokenizer.model",
  ]);
  assertEquals(names(["?.json", "*/*"]), ["a.json", "b/a.json"]);
  assertEquals(names(["x.bin", "x.*", "[a].json", "a.jso"]), []);
  assertEquals(select(files).map(({ size }) => size), [1, 2, 7, 9]); // small ones first

  await using bench = new HubBench();
  await mx.lm.hub.pull(NAME, { files: ["onnx/*", "*.bin"] });
  assertEquals(bench.server.downloads, ["onnx/config.json"]);
  assertMatch(await fails(mx.lm.hub.pull(NAME, { files: ["*.bin"] })), /^org\/name has no file that fits "\*\.bin"$/);
  await fails(mx.lm.hub.pull(NAME, { files: "*.json" as never }), "option");
  assertMatch(await fails(mx.lm.hub.pull(NAME, { file: [] } as never), "option"), /did you mean "files"/);
});

Deno.test("the token is sent to the hub and to nobody else; a list comes in pages", async () => {
  await using bench = new HubBench({ HF_TOKEN: " hf_good\n" });
  bench.server.models.set(NAME, { ...smallModel(), token: "hf_good" });
  bench.server.pageSize = 2;
  await bench.pull();
  const sent = (host: Seen["host"]): Set<string | null> =>
    new Set(bench.server.seen.filter((seen) => seen.host === host).map(({ authorization }) => authorization));
  assertEquals([...sent("hub")], ["Bearer hf_good"]);
  assertEquals([...sent("store")], [null]);
  assertEquals(bench.server.seen.filter(({ path }) => path.includes("/tree/")).length, 4);
});

Deno.test("the token comes from a file, may be switched off, and must be one", async () => {
  await using bench = new HubBench();
  bench.server.models.set(NAME, { ...smallModel(), token: "hf_good" });
  await Deno.mkdir(`${bench.cache}/home`);
  await Deno.writeTextFile(`${bench.cache}/home/token`, "hf_good\n");
  const inEnv = async (env: Readonly<Record<string, string>>): Promise<string> => {
    await using other = new HubBench({ HF_HOME: `${bench.cache}/home`, HF_ENDPOINT: bench.server.endpoint, ...env });
    return await other.pull().then(() => "good", (error) => fails(Promise.reject(error)));
  };
  assertEquals(await inEnv({}), "good");
  assertMatch(
    await inEnv({ HF_HUB_DISABLE_IMPLICIT_TOKEN: "1" }),
    /knows no model org\/name: check the name; .* needs HF_TOKEN$/,
  );
  assertMatch(await inEnv({ HF_TOKEN: "hf_wrong" }), /refuses the token for org\/name: check the name, and HF_TOKEN/);
  assertMatch(await inEnv({ HF_TOKEN: "hf_\u00e4" }), /^HF_TOKEN has characters that no token has/);
  for (const address of ["hub", "ftp://hub", "http://hf_me:hf_pass@hub", "http://hub/?x"]) {
    assertMatch(await inEnv({ HF_ENDPOINT: address }), /^HF_ENDPOINT is no address such as/);
  }
});

Deno.test("what the hub refuses is said in one line with what to do", async () => {
  await using bench = new HubBench();
  const host = new URL(bench.server.endpoint).host;
  const gated = { ...smallModel(), gated: true, token: "hf_other" };
  bench.server.models.set("org/gated", gated);
  bench.server.models.set("org/gguf", { ...smallModel(), files: { "config.json": text("{}"), "a.gguf": large(9) } });
  bench.server.models.set("org/empty", { ...smallModel(), files: { "README.md": text("") } });
  assertEquals(
    await fails(bench.pull({}, "org/none")),
    `${host} knows no model org/none: check the name; a private or gated one needs HF_TOKEN`,
  );
  assertEquals(
    (await fails(bench.pull({}, "org/gated"))).replace(/^"\w+/, '"X'), // whichever was first
    `"X.json" of org/gated is gated: ask for access at http://${host}/org/gated, then set HF_TOKEN to a token of that account`,
  );
  assertEquals(
    await fails(bench.pull({}, NAME, "v9")),
    `${host} has no revision "v9" of org/name: see the branches and tags at http://${host}/org/name`,
  );
  assertMatch(
    await fails(bench.pull({}, "org/gguf")),
    /^org\/gguf has no weights in safetensors: load one of its files, such as "org\/gguf\/a.gguf"$/,
  );
  assertMatch(await fails(bench.pull({}, "org/empty")), /^org\/empty has no config.json: take/);
  bench.server.fault = () => new Response(null, { status: 403, headers: { "x-error-message": "no\u00a0\u0085more" } });
  assertMatch(await fails(bench.pull()), /forbids org\/name \("no.*more"\): ask for access/);
  bench.server.fault = () => new Response(null, { status: 418 });
  assertMatch(await fails(bench.pull()), /answers HTTP 418 for org\/name: check HF_ENDPOINT/);
  bench.server.fault = () => new Response("<html>", { headers: { "content-type": "text/html" } });
  assertMatch(await fails(bench.pull()), /does not answer as the hub does: check HF_ENDPOINT/);
  bench.server.fault = () => Response.json({ sha: "../../../x" });
  assertMatch(await fails(bench.pull()), /tells no commit of org\/name/);
  bench.server.fault = () => new Response(new Uint8Array(2 ** 24 + 1));
  assertMatch(await fails(bench.pull()), /answers with more than 16777216 bytes of JSON/);
  assertEquals(bench.whole, []);
});

Deno.test("a download goes on where it ended, whatever the server makes of ranges", async () => {
  const { bytes } = smallModel().files[WEIGHTS];
  const behaviours: Record<string, (range: string | null) => Response | undefined> = {
    "continues": () => undefined,
    "sends everything": () => ranged(bytes, null, {}),
    "has no such range": (range) => range === null ? undefined : new Response(null, { status: 416 }),
  };
  const partials: Record<string, Uint8Array> = {
    "half": bytes.slice(0, 1500),
    "all but the name": bytes,
    "other bytes": new Uint8Array(1500),
    "too long": new Uint8Array(4000),
  };
  for (const [behaviour, answer] of Object.entries(behaviours)) {
    for (const [partial, content] of Object.entries(partials)) {
      await using bench = new HubBench();
      bench.server.fault = ({ host, range }) => host === "store" ? answer(range) : undefined;
      Deno.mkdirSync(`${bench.cache}/models--org--name/blobs`, { recursive: true });
      Deno.writeFileSync(`${bench.blob(WEIGHTS)}.incomplete`, content);
      const { path } = await bench.pull();
      assertEquals(Deno.readFileSync(`${path}/${WEIGHTS}`), bytes, `${behaviour}, ${partial}`);
      assert(!bench.entries.some((entry) => entry.endsWith(".incomplete")));
      const ranges = bench.server.seen.filter(({ host }) => host === "store").map(({ range }) => range);
      if (behaviour === "continues" && partial === "half") assertEquals(ranges, ["bytes=1500-"]);
      if (partial === "all but the name") assertEquals(ranges, []);
      if (partial === "too long") assertEquals(ranges, [null]);
    }
  }
});

Deno.test("cut connections, silence and busy servers are borne, and bytes that came are not asked for again", async () => {
  const { bytes } = smallModel().files[WEIGHTS];
  await using bench = new HubBench();
  const ranges: (string | null)[] = [];
  bench.server.fault = ({ host, range, path }) => {
    const count = bench.server.seen.filter((seen) => seen.path === path).length;
    if (host === "hub") return path.endsWith("/main") && count < 3 ? new Response(null, { status: 503 }) : undefined;
    ranges.push(range);
    const from = Number(/\d+/.exec(range ?? "0")![0]);
    const headers = { "content-range": `bytes ${from}-2999/3000`, "content-length": String(3000 - from) };
    const status = from === 0 ? 200 : 206;
    if (count === 1) return new Response(null, { status: 500 });
    if (count === 2 || count === 3) return cut(bytes.subarray(from), 700, status, headers);
    if (count === 4) return new Response(null, { status: 429, headers: { "retry-after": "0" } });
    if (count === 5) return new Response(new ReadableStream(), { status, headers }); // never says a byte
    return undefined;
  };
  const { path } = await bench.pull({ policy: { tries: 3, delay: 1, longest: 2000, idle: 400 } });
  assertEquals(Deno.readFileSync(`${path}/${WEIGHTS}`), bytes);
  assertEquals(ranges, [null, null, "bytes=700-", "bytes=1400-", "bytes=1400-", "bytes=1400-"]);
});

Deno.test("a server that never gets better is given up, and one that asks for long is not waited for", async () => {
  await using bench = new HubBench();
  const host = new URL(bench.server.store).host;
  const { bytes } = smallModel().files[WEIGHTS];
  const inStore = (answer: (seen: Seen) => Response) => (seen: Seen) =>
    seen.host === "store" ? answer(seen) : undefined;
  const tries = (): number => bench.server.seen.filter((seen) => seen.host === "store").length;
  bench.server.fault = inStore(() => new Response(null, { status: 503 }));
  assertMatch(await fails(bench.pull()), /fails \(HTTP 503\), 4 times: check the network and try again$/);
  assertEquals(tries(), 4);
  bench.server.fault = inStore(() => new Response(null, { status: 429, headers: { "retry-after": "3600" } }));
  assertMatch(await fails(bench.pull()), /too many requests \(HTTP 429; .*\): try again in 3600 seconds$/);
  assertEquals(tries(), 5);
  // Beginning again and again at the same place is no progress.
  bench.server.fault = inStore(() => cut(bytes, 700, 200, { "content-length": "3000" }));
  assertMatch(await fails(bench.pull()), new RegExp(`^${host} cut the connection \\(.*\\), 4 times`));
  assertEquals(bench.whole.filter((path) => path.includes(hashOf(bench.model.files[WEIGHTS]))), []);
  assert(bench.entries.some((path) => path.endsWith(".incomplete")));
  bench.server.fault = () => undefined;
  await bench.pull();
  assertEquals(bench.server.seen.at(-1)!.range, "bytes=700-");
});

Deno.test("no network: a question is given up soon", async () => {
  await using bench = new HubBench({ HF_ENDPOINT: "http://127.0.0.1:1" });
  assertMatch(
    await fails(bench.pull()),
    /^127\.0\.0\.1:1 cannot be reached \(.*\), 3 times: check the network and try again$/,
  );
  assertEquals(bench.entries, []);
});

Deno.test("wrong bytes get no name, in Git LFS or outside", async () => {
  for (const name of [WEIGHTS, "tokenizer.json"]) {
    await using bench = new HubBench();
    const { bytes } = bench.model.files[name];
    const flipped = bytes.slice();
    flipped[1] ^= 1;
    bench.server.fault = ({ host, path, range }) =>
      (host === "store") === (name === WEIGHTS) && (host === "store" || path.endsWith(name))
        ? ranged(flipped, range, {})
        : undefined;
    const message = await fails(bench.pull(), "checksum");
    assertMatch(message, /sends other bytes than published for "\S+" of org\/name: the (SHA-256|git object id) is/);
    assert(message.includes(hashOf(bench.model.files[name])));
    assertEquals(bench.entries.filter((path) => path.includes(hashOf(bench.model.files[name]))).length, 1); // the lock
    assertEquals(bench.whole.filter((path) => path.endsWith(name) || path.includes("refs")), []);
    bench.server.fault = () => undefined;
    const { path } = await bench.pull();
    assertEquals(Deno.readFileSync(`${path}/${name}`), bytes);
  }
});

Deno.test("a hub that serves something else than it listed is refused before a byte is written", async () => {
  const headers: Record<string, [string, string]> = {
    "serves commit": ["x-repo-commit", "f".repeat(40)],
    "serves hash": ["x-linked-etag", `"${"f".repeat(64)}"`],
    'serves "9" bytes': ["x-linked-size", "9"],
    'sends "9" bytes': ["content-length", "9"],
  };
  for (const [what, [name, value]] of Object.entries(headers)) {
    await using bench = new HubBench();
    bench.server.fault = ({ path }) =>
      path.endsWith(WEIGHTS) ? new Response(new Uint8Array(9), { headers: { [name]: value } }) : undefined;
    const message = await fails(bench.pull());
    assert(
      message.includes(`${what}`) && message.includes(`for "${WEIGHTS}" of org/name, expected 3000 bytes`),
      message,
    );
    assertEquals(bench.whole.filter((path) => path.includes(hashOf(bench.model.files[WEIGHTS]))), []);
  }
  await using bench = new HubBench();
  const body = () => new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(2 ** 16)) });
  bench.server.fault = ({ host }) => host === "store" ? new Response(body()) : undefined;
  assertMatch(await fails(bench.pull()), /sends more bytes than it lists/);
  bench.server.fault = ({ host, range }) =>
    host === "store" ? ranged(bench.model.files[WEIGHTS].bytes, range === null ? null : "bytes=9-", {}) : undefined;
  Deno.writeFileSync(`${bench.blob(WEIGHTS)}.incomplete`, new Uint8Array(5));
  assertMatch(await fails(bench.pull()), /sends bytes "bytes 9-2999\/3000"/);
});

Deno.test("lists that mean harm are refused, and nothing is written", async () => {
  await using bench = new HubBench();
  const entry = { type: "file", oid: "a".repeat(40), size: 3, path: "a.json" };
  const refused: [unknown, RegExp][] = [
    [
      [{ ...entry, path: "../../evil.json" }],
      /names "..\/..\/evil.json", which is no name of a file: nothing is downloaded/,
    ],
    [[{ ...entry, path: "/etc/evil.json" }], /no name of a file/],
    [[{ ...entry, path: "a\\..\\evil.json" }], /no name of a file/],
    [[{ ...entry, path: "a\u001b[2J.json" }], /names "a\\u001b\[2J.json"/],
    [[{ ...entry, path: 7 }], /names 7/],
    [[{ ...entry, size: -1 }], /says that "a.json" has -1 bytes/],
    [[{ ...entry, size: 1e300 }], /has 1e\+300 bytes/],
    [[{ ...entry, oid: "../x" }], /has no hash of "a.json"/],
    [[{ ...entry, lfs: { oid: "../../x", size: 3 } }], /has no hash of "a.json"/],
    [
      [{ ...entry, path: "config.json", size: 2 ** 29 }],
      /"config.json" of org\/name has 536870912 bytes, more than such/,
    ],
    [
      [{ ...entry, path: "config.json" }, { ...entry, path: "m.safetensors", size: 2 ** 40 }],
      /needs 1099.51 GB and \S+ has \d/,
    ],
    [[null], /names undefined/],
    [{ files: [] }, /tells no files of org\/name/],
  ];
  for (const [list, message] of refused) {
    bench.server.fault = ({ path }) => path.includes("/tree/") ? Response.json(list) : undefined;
    assertMatch(await fails(bench.pull()), message);
    assertEquals(bench.whole, []);
    await Deno.remove(`${bench.cache}/models--org--name`, { recursive: true }).catch(() => {});
  }
  const link = `<${bench.server.endpoint}/api/models/x/y/tree/z?cursor=same>; rel="next"`;
  bench.server.fault = ({ path }) =>
    path.includes("/tree/") ? Response.json([entry], { headers: { link } }) : undefined;
  assertMatch(await fails(bench.pull()), /The list of files of org\/name has no end/);
});

Deno.test("redirects are followed a few times, and to the web only", async () => {
  await using bench = new HubBench();
  const to = (location: string) => () => new Response(null, { status: 302, headers: { location } });
  bench.server.fault = to("/again");
  assertMatch(await fails(bench.pull()), /redirects more than 6 times/);
  bench.server.fault = to("file:///etc/passwd");
  assertMatch(await fails(bench.pull()), /redirects to "file:\/\/", which is not followed: check HF_ENDPOINT/);
  bench.server.fault = () => new Response(null, { status: 307 });
  assertMatch(await fails(bench.pull()), /redirects to nowhere/);
  // A model that moved: the hub's own redirects keep the token.
  bench.server.fault = ({ path }) => path.includes("old/name") ? to(`${path.replace("old", "org")}`)() : undefined;
  const { commit } = await bench.pull({}, "old/name");
  assertEquals(commit, COMMIT);
});

Deno.test("behind another host a redirect back to the hub carries no token", async () => {
  await using bench = new HubBench();
  const client = new HubClient({ endpoint: new URL(bench.server.endpoint), token: "hf_good" });
  bench.server.fault = ({ host, path }) =>
    path === "/start"
      ? new Response(null, { status: 302, headers: { location: `${bench.server.store}/middle` } })
      : host === "store"
      ? new Response(null, { status: 302, headers: { location: `${bench.server.endpoint}/end` } })
      : new Response("x");
  await (await client.open(client.url("start"))).close();
  assertEquals(bench.server.seen.map(({ path, authorization }) => [path, authorization]), [
    ["/start", "Bearer hf_good"],
    ["/middle", null],
    ["/end", null],
  ]);
});

Deno.test("an aborted download ends at once, with the reason of the signal, and can be resumed", async () => {
  await using bench = new HubBench();
  const { bytes } = bench.model.files[WEIGHTS];
  let send = (_: Uint8Array): void => {};
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => void (send = (piece) => controller.enqueue(piece)),
  });
  bench.server.fault = ({ host }) => {
    if (host !== "store") return undefined;
    send(bytes.slice(0, 1000));
    return new Response(body, { headers: { "content-length": "3000" } });
  };
  const controller = new AbortController();
  const reason = new Error("enough");
  const start = performance.now();
  const error = await assertRejects(() =>
    bench.pull({
      signal: controller.signal,
      policy: { tries: 3, delay: 1, longest: 100, idle: 60_000 },
      onProgress: ({ files }) => files.find(({ name }) => name === WEIGHTS)!.bytesDone > 0 && controller.abort(reason),
    })
  );
  assertEquals(error, reason);
  assert(performance.now() - start < 30_000);
  bench.server.fault = () => undefined;
  await bench.pull();
  assertEquals(bench.server.seen.at(-1)!.range, "bytes=1000-");
  assertEquals(await assertRejects(() => bench.pull({ signal: AbortSignal.abort(reason) })), reason);
});

Deno.test("a failed file ends the others", async () => {
  await using bench = new HubBench();
  bench.server.models.set(NAME, {
    ...bench.model,
    files: { ...bench.model.files, "model-2.safetensors": large(5000, 9) },
  });
  let cancelled = false;
  const started = Promise.withResolvers<void>();
  bench.server.fault = async ({ host, path }) => {
    if (host !== "store") return undefined;
    if (path.slice(1) === hashOf(bench.model.files[WEIGHTS])) {
      await started.promise;
      return new Response(null, { status: 404 });
    }
    started.resolve();
    return new Response(new ReadableStream({ cancel: () => void (cancelled = true) }));
  };
  const policy = { tries: 1, delay: 1, longest: 100, idle: 60_000 };
  const start = performance.now();
  assertMatch(await fails(bench.pull({ policy })), /does not have "model\.safetensors" of org\/name/);
  assert(performance.now() - start < 20_000);
  for (let i = 0; i < 100 && !cancelled; i++) await new Promise((resolve) => setTimeout(resolve, 10));
  assert(cancelled, "the other download goes on");
});

Deno.test("waits double, and end with the signal", async () => {
  assertEquals([retryAfter("3"), retryAfter(" 0 "), retryAfter("x"), retryAfter(null)], [
    3000,
    0,
    undefined,
    undefined,
  ]);
  assertEquals(retryAfter("Thu, 01 Jan 1970 00:00:09 GMT", 4000), 5000);
  assertEquals(retryAfter("Thu, 01 Jan 1970 00:00:01 GMT", 4000), 0);
  const controller = new AbortController();
  const retries = new Retries({ tries: 2, delay: 20, longest: 1e6, idle: 1 }, controller.signal);
  const start = performance.now();
  await retries.wait(new PassingError("x fails"));
  await retries.wait(new PassingError("x fails"));
  assert(performance.now() - start >= 55);
  await fails(retries.wait(new PassingError("x fails")));
  retries.reset();
  setTimeout(() => controller.abort(new Error("enough")), 10);
  await assertRejects(() => retries.wait(new PassingError("x fails", 1e5)), Error, "enough");
  await assertRejects(
    () => new Retries({ tries: 2, delay: 1, longest: 1, idle: 1 }, undefined).wait(new TypeError("no")),
    TypeError,
  );
});

Deno.test("progress tells the rate of the last seconds and the time that is left", () => {
  let now = 1000;
  const told: DownloadProgress[] = [];
  const files = [{ name: "a", size: 1000 }, { name: "b", size: 9000 }];
  const meter = new Meter(files, (progress) => told.push(progress), () => now);
  meter.set("a", 500); // was there before
  meter.tell();
  assertEquals([told[0].bytesDone, told[0].bytesTotal, told[0].rate, told[0].secondsLeft], [500, 10000, 0, undefined]);
  now += 1000;
  meter.set("a", 1000, 500);
  meter.tell();
  assertEquals([told[1].rate, told[1].secondsLeft], [500, 18]);
  now += 50;
  meter.set("b", 1000, 1000);
  now += 9950;
  meter.set("b", 6000, 5000);
  meter.tell();
  assertEquals([told[2].rate, told[2].secondsLeft], [1000, 3]);
  assertEquals(told[2].files, [{ name: "a", bytesDone: 1000, bytesTotal: 1000 }, {
    name: "b",
    bytesDone: 6000,
    bytesTotal: 9000,
  }]);
  now += 10000; // nothing comes any more
  meter.tell();
  assertEquals([told[3].rate, told[3].secondsLeft], [0, undefined]);
});

Deno.test("an error of onProgress ends the download", async () => {
  await using bench = new HubBench();
  bench.server.fault = ({ host }) => host === "store" ? new Response(new ReadableStream()) : undefined;
  let calls = 0;
  const onProgress = (): void => {
    if (++calls > 1) throw new RangeError("no room on the terminal");
  };
  await assertRejects(() => bench.pull({ onProgress }), RangeError, "no room");
  assertEquals(calls, 2);
});
