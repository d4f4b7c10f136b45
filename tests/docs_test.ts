/** The examples in the README and in the documentation comments run. */

import { assert } from "@std/assert";

const ROOT = new URL("../", import.meta.url);

Deno.test("the examples of the documentation run", async () => {
  const map = await Deno.makeTempFile({ suffix: ".json" });
  try {
    const { imports } = JSON.parse(await Deno.readTextFile(new URL("deno.json", ROOT)));
    for (const name of Object.keys(imports)) if (imports[name].startsWith("jsr:")) delete imports[name]; // no example uses them
    imports["@vkmx/vkmx"] = new URL("mod.ts", ROOT).href;
    await Deno.writeTextFile(map, JSON.stringify({ imports }));
    const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["test", "-A", "--doc", "--no-lock", `--import-map=${map}`, "README.md", "mod.ts", "src/array", "src/llm"],
      cwd: ROOT,
      env: { VKMX_DEVICE: "wasm", NO_COLOR: "1" },
    }).output();
    const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
    assert(success, text);
    assert(/\b[1-9]\d* passed/.test(text), `no example ran:\n${text}`);
  } finally {
    await Deno.remove(map);
  }
});
