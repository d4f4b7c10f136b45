#!/usr/bin/env bash
# AbortSignal.any() over a timeout never aborts in Node.js 20 once garbage was collected, although something listens to it.
#
# Software: node 20.19.5, beside node 22.23.3, both from npm.
# Expected: AbortSignal.any([AbortSignal.timeout(300)]) aborts after 300 ms, as a timeout alone does, while it has a listener.
# Seen: in 20.19.5 nothing holds the timeout of a composite signal. After a garbage collection its listener is never called. A timeout alone aborts.
# In 22.23.3 both abort. So a limit of time that is joined with the signal of a caller may never end anything.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for version in 20.19.5 22.23.3; do
  mkdir "$version"
  (cd "$version" && npm init -y >/dev/null && npm install --silent --no-audit --no-fund "node@$version" >/dev/null 2>&1)
done
cat >signals.mjs <<'JS'
const signals = {
  alone: () => AbortSignal.timeout(300),
  joined: () => AbortSignal.any([new AbortController().signal, AbortSignal.timeout(300)]),
};
const found = [];
for (const [name, make] of Object.entries(signals)) {
  const result = await new Promise((resolve) => {
    (() => void make().addEventListener("abort", () => resolve("aborts")))();
    setTimeout(() => globalThis.gc(), 100);
    setTimeout(() => resolve("never aborts"), 1500);
  });
  found.push(`${name} ${result}`);
}
console.log(found.join(", "));
JS
old=$(20.19.5/node_modules/.bin/node --expose-gc signals.mjs)
new=$(22.23.3/node_modules/.bin/node --expose-gc signals.mjs)
echo "a timeout in Node.js 20.19.5: $old; in 22.23.3: $new"
[ "$old" = "alone aborts, joined never aborts" ] && [ "$new" = "alone aborts, joined aborts" ]
