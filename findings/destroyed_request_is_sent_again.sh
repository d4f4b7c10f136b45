#!/usr/bin/env bash
# node:http in Deno: a request over a connection that was used before is sent again when it is destroyed before its response, a POST too.
#
# Software: deno 2.9.6 from npm, beside the Node.js that is installed (20 or later). One file runs in both.
# Expected: the server sees a request once, and that its client went, after request.destroy(): as in Node.js, and in Deno where the connection is
# new. RFC 9110, 9.2.2: a client should not automatically retry a request with a method that is not idempotent.
# Seen: with an http.Agent with keepAlive whose connection has served a request, Deno's server sees the destroyed POST end, and then a second one.
# That one is answered to its end, for no client. request.abort() and request.socket.destroy() do the same.
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
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const found = [];
for (const keepAlive of [false, true]) {
  let seen = 0;
  const server = http.createServer((request, response) => {
    request.resume();
    if (request.url === "/quick") response.end("ok");
    else seen++;
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const agent = new http.Agent({ keepAlive });
  const post = (path) => http.request(`http://127.0.0.1:${server.address().port}${path}`, { method: "POST", agent });
  await new Promise((resolve) => post("/quick").on("response", (response) => response.resume().on("end", resolve)).end("{}"));
  await pause(100);
  const request = post("/slow").on("error", () => {});
  request.end("{}");
  await pause(200);
  request.destroy();
  await pause(500);
  found.push(`${keepAlive ? "used" : "new"} connection: seen ${seen} times`);
}
console.log(found.join(", "));
process.exit(0);
JS
node=$(node requests.mjs)
deno=$(./node_modules/.bin/deno run -A requests.mjs)
echo "Node.js: $node; Deno: $deno"
[ "$node" = "new connection: seen 1 times, used connection: seen 1 times" ] &&
  [ "$deno" = "new connection: seen 1 times, used connection: seen 2 times" ]
