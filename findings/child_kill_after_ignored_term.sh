#!/usr/bin/env bash
# Deno's node:child_process sends nothing more to a child that has ignored a SIGTERM: kill("SIGKILL") returns false, and the child goes on.
#
# Software: deno 2.9.6 from npm. The child is a shell that ignores SIGTERM.
# Expected: kill() returns true while the child runs, as in Node.js, where "killed" says that a signal was sent and not that it was obeyed.
# Programs that escalate from SIGTERM to SIGKILL rely on it.
# Seen: the first kill() returns true, the second false, and the child is there a second later. Deno.kill() of its pid ends it.
#
# Exits 1 where that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund deno@2.9.6 >/dev/null
cat >kill.ts <<'TS'
import { spawn } from "node:child_process";
const child = spawn("bash", ["-c", "trap '' TERM; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; done"], {
  stdio: ["ignore", "pipe", "ignore"],
});
await new Promise((resolve) => child.stdout!.once("data", resolve));
const first = child.kill("SIGTERM");
await new Promise((resolve) => setTimeout(resolve, 500));
const second = child.kill("SIGKILL");
await new Promise((resolve) => setTimeout(resolve, 1000));
const runs = (): boolean => !Deno.readTextFileSync(`/proc/${child.pid}/stat`).includes(") Z ");
console.log(`SIGTERM ${first}, SIGKILL ${second}, still there ${runs()}`);
Deno.kill(child.pid!, "SIGKILL");
Deno.exit();
TS
found=$(npx deno run -A kill.ts)
echo "$found"
[ "$found" = "SIGTERM true, SIGKILL false, still there true" ]
