#!/usr/bin/env bash
# Deno.serve's `info.completed` resolves, as after a whole reply, if the client goes in the middle of a streamed body.
#
# Software: Deno 2.9.6 from npm.
# Expected: the promise tells whole replies from broken ones, since it rejects for requests that failed.
# Seen: the client closes its connection after some of a body without end. `completed` resolves, and the stream's `cancel` is called. Only
# `cancel` tells that the client did not get all. A reply that was sent to its end resolves too, without `cancel`.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y >/dev/null 2>&1
npm install --silent --no-audit --no-fund deno@2.9.6 >/dev/null 2>&1
cat >serve.ts <<'TS'
const text = new TextEncoder();
let completed = Promise.resolve();
let cancelled = false;
const server = Deno.serve({ port: 0, onListen() {} }, (request, info) => {
  completed = info.completed;
  cancelled = false;
  let left = request.url.endsWith("/short") ? 3 : Infinity;
  const body = new ReadableStream({
    async pull(controller) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      if (left-- > 0) controller.enqueue(text.encode("x".repeat(1000)));
      else controller.close();
    },
    cancel() {
      cancelled = true;
    },
  });
  return new Response(body);
});
const outcome = (): Promise<string> => completed.then(() => "resolved", () => "rejected");
const { port } = server.addr;
await (await fetch(`http://127.0.0.1:${port}/short`)).text();
console.log(`whole: ${await outcome()}, cancel ${cancelled}`);
const connection = await Deno.connect({ port });
await connection.write(text.encode("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
await connection.read(new Uint8Array(2000));
connection.close();
console.log(`client left: ${await outcome()}, cancel ${cancelled}`);
Deno.exit(0);
TS
seen=$(timeout 60 npx --no-install deno run --quiet --no-check --allow-net serve.ts)
echo "Deno 2.9.6, $(echo "$seen" | paste -sd';')"
expected='whole: resolved, cancel false
client left: resolved, cancel true'
[ "$seen" = "$expected" ] || { echo "this has changed"; exit 1; }
