/** Ordinary programs of MLX and numpy users: `deno check` takes them without casts, and each says itself that its results are right. */

import { assert } from "@std/assert";
import * as mx from "../../mod.ts";
import { anyDevice } from "../support/devices/devices.ts";

const FOLDER = new URL("programs/", import.meta.url);
const PROGRAMS = Array.from(Deno.readDirSync(FOLDER), ({ name }) => name).sort();

Deno.test("the programs use no casts, and none is missing", () => {
  assert(PROGRAMS.length >= 20, `${PROGRAMS.length} programs`);
  for (const name of PROGRAMS) {
    const code = Deno.readTextFileSync(new URL(name, FOLDER)).replaceAll(/\/\*\*[^]*?\*\/|import \* as|as const/g, "");
    const cast = /\bas [\w{[]|[:<] ?any\b|@ts-/.exec(code);
    assert(!cast, `${name}: ${cast}`);
  }
});

for (const name of PROGRAMS) {
  Deno.test(`the program ${name} gives what it says`, async () => {
    mx.setDefaultDevice(anyDevice());
    await import(new URL(name, FOLDER).href);
  });
}
