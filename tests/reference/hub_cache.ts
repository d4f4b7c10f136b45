/**
 * Writes tests/golden/models/hub_cache.json, the cache that Python's huggingface_hub leaves of the tests' model, and sees that it finds what
 * vkmx downloads. Needs a Python with huggingface_hub 2:
 *
 *     deno run -A tests/reference/hub_cache.ts [PYTHON]
 */

import * as mx from "../../mod.ts";
import { entriesOf, NAME, PATTERNS, smallModel } from "../support/models/hub_models.ts";
import { HubServer } from "../support/processes/hub_server.ts";
import { withOptions } from "../../scripts/support/options.ts";

const [python = "python3"] = Deno.args;
const script = new URL("hub_cache.py", import.meta.url).pathname;

async function inPython(endpoint: string, cache: string): Promise<Record<string, unknown>> {
  const { success, stdout, stderr } = await new Deno.Command(python, {
    args: [script, endpoint, cache, NAME, ...PATTERNS],
  }).output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  return JSON.parse(new TextDecoder().decode(stdout));
}

await using server = new HubServer();
server.models.set(NAME, smallModel());
const [theirs, ours] = [await Deno.makeTempDir(), await Deno.makeTempDir()];
const golden = await inPython(server.endpoint, theirs);
{
  using _options = withOptions({ env: { HF_ENDPOINT: server.endpoint } });
  await mx.lm.hub.pull(NAME, { cacheDir: ours });
}
const found = await inPython("none", ours); // without a connection: it must be whole for Python
const same = JSON.stringify(found) === JSON.stringify(golden);
const states = (await mx.lm.hub.verify(NAME, { cacheDir: theirs }))[0].verified.map(({ state }) => state);
console.log(`Python finds what vkmx downloads: ${same}; vkmx verifies what Python downloads: ${states}`);
console.log(Object.keys(entriesOf(ours)).length, "entries");
await Deno.writeTextFile(
  new URL("../golden/models/hub_cache.json", import.meta.url),
  JSON.stringify(golden, null, 1) + "\n",
);
