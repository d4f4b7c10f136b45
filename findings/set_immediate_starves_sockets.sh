#!/usr/bin/env bash
# A loop of setImmediate() in Deno hardly looks at sockets: a server that works in slices of 8 ms answers in hundreds of milliseconds.
#
# Software: deno 2.9.6 from npm, beside the Node.js that is installed (20 or later). One file runs in both.
# Expected: a turn of setImmediate() lets the event loop poll, as in Node.js. So a request waits for a slice or two.
# Seen: the same server, whose work is cut into slices of 8 ms with setImmediate() between them, answers in the median within 100 ms in
# Node.js. In Deno a request takes more than three times as long, most of them hundreds of milliseconds. A timer between slices helps there.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund deno@2.9.6 >/dev/null
cat >server.mjs <<'JS'
import { createServer } from "node:http";
import process from "node:process";
const server = createServer((_, response) => response.end("here"));
server.listen(0, "127.0.0.1", async () => {
  console.log(server.address().port);
  const end = performance.now() + 20_000;
  while (performance.now() < end) {
    for (const slice = performance.now() + 8; performance.now() < slice;);
    await new Promise((resolve) => setImmediate(resolve));
  }
  process.exit();
});
JS
cat >client.mjs <<'JS'
const times = [];
for (let i = 0; i < 15; i++) {
  const start = performance.now();
  await (await fetch(`http://127.0.0.1:${process.argv[2]}/`)).text();
  times.push(performance.now() - start);
  await new Promise((resolve) => setTimeout(resolve, 20));
}
console.log(Math.round(times.sort((a, b) => a - b)[7]));
JS
median() {
  "$@" server.mjs >port 2>/dev/null &
  local server=$!
  for _ in $(seq 100); do
    [ -s port ] && break
    sleep 0.1
  done
  timeout 19 node client.mjs "$(cat port)" || echo 99999
  kill "$server" 2>/dev/null || true
  rm -f port
}
node=$(median node)
deno=$(median ./node_modules/.bin/deno run -A)
echo "median of 15 requests: Node.js $node ms, Deno $deno ms"
[ "$node" -lt 100 ] && [ "$deno" -gt $((3 * node)) ]
