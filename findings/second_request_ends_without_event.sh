#!/usr/bin/env bash
# node:http in Deno: a later request of an agent with keepAlive that is destroyed before its response has neither "error" nor "close".
#
# Software: deno 2.9.6 from npm, beside the Node.js that is installed (20 or later). One file runs in both.
# Expected: request.destroy(error) is followed by "error" with that error and then "close", as Node.js documents it, also for the second request
# of an http.Agent with keepAlive.
# Seen: Node.js has both events in both cases. Deno has both for the first request of the agent, and none for the one after it, so what waits for
# the end of such a request waits for ever.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund deno@2.9.6 >/dev/null
cat >requests.mjs <<'JS'
import http from "node:http";
import process from "node:process";
const server = http.createServer((request, response) => request.url === "/quick" && response.end("ok"));
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const agent = new http.Agent({ keepAlive: true });
const base = `http://127.0.0.1:${server.address().port}`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const found = [];
for (const kept of [false, true]) {
  if (kept) {
    await new Promise((resolve) => http.get(`${base}/quick`, { agent }, (response) => response.resume().on("end", resolve)));
    await pause(100);
  }
  const events = [];
  const request = http.get(`${base}/slow`, { agent });
  request.on("error", () => events.push("error")).on("close", () => events.push("close"));
  await pause(200);
  request.destroy(new Error("stop"));
  await pause(800);
  found.push(`${kept ? "second" : "first"} request: ${events.join(" and ") || "no event"}`);
}
console.log(found.join(", "));
process.exit(0);
JS
node=$(node requests.mjs)
deno=$(./node_modules/.bin/deno run -A requests.mjs)
echo "Node.js: $node; Deno: $deno"
[ "$node" = "first request: error and close, second request: error and close" ] &&
  [ "$deno" = "first request: error and close, second request: no event" ]
