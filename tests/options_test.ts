/** Global options that tests change come back, and no test changes them in another way. */

import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { options } from "../src/schedule/plan/options.ts";
import { ROOT } from "../scripts/tools.ts";
import { withOptions } from "../scripts/support/options.ts";

const NAME = "VKMX_OPTIONS_TEST";

Deno.test("withOptions() holds for a scope, nests, and brings everything back", () => {
  const before = { ...options };
  {
    using _outer = withOptions({ fuse: false, regions: "on", env: { [NAME]: "outer" } });
    assertEquals(options, { ...before, fuse: false, regions: "on" });
    {
      using _inner = withOptions({ fuse: true, spinLimit: 1, env: { [NAME]: undefined } });
      assertEquals(options, { ...before, regions: "on", spinLimit: 1 });
      assertEquals(Deno.env.get(NAME), undefined);
    }
    assertEquals(options, { ...before, fuse: false, regions: "on" });
    assertEquals(Deno.env.get(NAME), "outer");
    options.batched = "off";
  }
  assertEquals(options, before);
  assertEquals(Deno.env.has(NAME), false);
});

Deno.test("withOptions() brings everything back when a body throws, now or later", async () => {
  const before = { ...options };
  assertThrows(() => {
    using _options = withOptions({ fuse: false, env: { [NAME]: "1" } });
    throw new TypeError("now");
  }, TypeError);
  assertEquals([options.fuse, Deno.env.has(NAME)], [before.fuse, false]);
  const later = async (): Promise<void> => {
    using _options = withOptions({ fuse: false, env: { [NAME]: "1" } });
    await Promise.resolve();
    assertEquals([options.fuse, Deno.env.get(NAME)], [false, "1"]);
    throw new TypeError("later");
  };
  await assertRejects(later, TypeError);
  assertEquals(options, before);
  assertEquals(Deno.env.has(NAME), false);
});

/** Changes of global options by hand. */
const BY_HAND = /(?<!typeof )\boptions\.\w+ = |Object\.assign\(options,|\bsetFusion\((?!\))|Deno\.env\.(set|delete)\(/;

Deno.test("tests and benchmarks change global options through withOptions() only", async () => {
  const found: string[] = [];
  const look = async (folder: string): Promise<void> => {
    for await (const { name, isDirectory } of Deno.readDir(ROOT + folder)) {
      const path = `${folder}/${name}`;
      if (isDirectory) await look(path);
      else if (name.endsWith(".ts") && path !== "tests/options_test.ts") {
        const lines = (await Deno.readTextFile(ROOT + path)).split("\n");
        lines.forEach((line, i) => BY_HAND.test(line) && found.push(`${path}:${i + 1} ${line.trim()}`));
      }
    }
  };
  for (const folder of ["tests", "scripts/bench"]) await look(folder);
  assertEquals(found, []);
});
