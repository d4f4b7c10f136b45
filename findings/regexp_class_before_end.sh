#!/usr/bin/env bash
# A class of code points of which the last is an arbitrary one beyond the basic plane does not match a surrogate pair before `$`.
#
# Software: Deno 2.9.6 from npm (V8 15.0.245). Node.js, as it is installed, stands beside it.
# Expected by ECMA-262: with the flag u a pattern is matched by code points, so all three tests of U+1F601 are true.
# Seen: /[a-\u{9ca72}]$/u.test("\u{1F601}") is false. The same class after `^`, or without `$`, is true. Node.js 20 says true three times.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y >/dev/null 2>&1
npm install --silent --no-audit --no-fund deno@2.9.6 >/dev/null 2>&1
cat >classes.mjs <<'JS'
const text = "\u{1F601}";
console.log([/[a-\u{9ca72}]$/u.test(text), /^[a-\u{9ca72}]$/u.test(text), /[a-\u{9ca72}]/u.test(text)].join());
JS
seen=$(npx --no-install deno run --quiet classes.mjs)
echo "Deno 2.9.6: before the end, from begin to end, anywhere: $seen (expected true,true,true)"
echo "Node.js $(node --version): $(node classes.mjs)"
[ "$seen" = "false,true,true" ] || { echo "this has changed"; exit 1; }
