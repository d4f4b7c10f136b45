/**
 * Files of a model directory that mean harm or come from another tool: every one is refused at once with one line that names it, or
 * loads as its maker meant it.
 */

import { assert, assertEquals, assertThrows } from "@std/assert";
import { FileError, InputFile, readFile } from "../ffi/file.ts";
import { LlmError } from "../src/llm/error.ts";
import { readModelBytes, readModelFile } from "../src/llm/weights.ts";

/** Runs `fn` with a folder that is gone afterwards. */
function withFolder(fn: (folder: string) => void): void {
  const folder = Deno.makeTempDirSync();
  try {
    fn(folder);
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

/** A file of `size` bytes that takes no room on the disk. */
function sparse(path: string, size: number): void {
  using file = Deno.openSync(path, { write: true, create: true });
  file.truncateSync(size);
}

Deno.test("readFile() reads regular files up to a size, and refuses everything else at once", () => {
  withFolder((folder) => {
    Deno.writeFileSync(`${folder}/x`, Uint8Array.of(1, 2, 3));
    Deno.writeFileSync(`${folder}/none`, new Uint8Array(0));
    Deno.symlinkSync(`${folder}/x`, `${folder}/link`);
    assertEquals([...readFile(`${folder}/x`, 3)], [1, 2, 3]);
    assertEquals([...readFile(`${folder}/link`, 3)], [1, 2, 3]);
    assertEquals(readFile(`${folder}/none`, 0).length, 0);
    sparse(`${folder}/big`, 1.5e9);
    const refused = [
      [`${folder}/x`, "size", "has 3 bytes, at most 2 are allowed"],
      [`${folder}/big`, "size", "has 1500000000 bytes, at most 2 are allowed"],
      [`${folder}`, "kind", "is a directory, expected a regular file"],
      [`${folder}/y`, "missing", "does not exist"],
      [`${folder}/x/y`, "missing", "does not exist"],
    ];
    if (Deno.build.os !== "windows") {
      const { success } = new Deno.Command("mkfifo", { args: [`${folder}/fifo`] }).outputSync();
      assert(success);
      Deno.symlinkSync(`${folder}/fifo`, `${folder}/link to fifo`);
      refused.push([`${folder}/fifo`, "kind", "is a FIFO, expected a regular file"]);
      refused.push([`${folder}/link to fifo`, "kind", "is a FIFO, expected a regular file"]);
      refused.push(["/dev/zero", "kind", "is a device, expected a regular file"]);
    }
    for (const [path, code, message] of refused) {
      const start = performance.now();
      const error = assertThrows(() => readFile(path, 2), FileError, message);
      assertEquals([error.code, error.message], [code, message]);
      assert(performance.now() - start < 100, path);
    }
  });
});

Deno.test("InputFile reads ranges, and none that the file has not", () => {
  withFolder((folder) => {
    Deno.writeTextFileSync(`${folder}/x`, "0123456789");
    using file = new InputFile(`${folder}/x`);
    assertEquals(new TextDecoder().decode(file.read(3, 4)), "3456");
    assertEquals(file.read(10, 0).length, 0);
    assertThrows(() => file.read(8, 2 ** 50), FileError, "ends at byte 10");
    Deno.truncateSync(`${folder}/x`, 5);
    assertThrows(() => file.read(3, 4), FileError, "became shorter while it was read");
  });
});

Deno.test("readModelBytes() has a limit for every file, and an error that names it", () => {
  withFolder((folder) => {
    assertEquals(readModelBytes(folder, "config.json"), undefined);
    for (
      const [name, code, most] of [
        ["config.json", "config", 2 ** 20],
        ["generation_config.json", "config", 2 ** 20],
        ["tokenizer.json", "tokenizer", 2 ** 27],
        ["tokenizer_config.json", "tokenizer", 2 ** 24],
        ["chat_template.jinja", "template", 2 ** 18],
      ] as const
    ) {
      const path = `${folder}/${name}`;
      sparse(path, most + 1);
      const error = assertThrows(() => readModelBytes(folder, name), LlmError);
      assertEquals([error.code, error.message], [code, `${path} has ${most + 1} bytes, at most ${most} are allowed`]);
      Deno.writeFileSync(path, Uint8Array.of(0x22, 0xff, 0x22));
      assertThrows(() => readModelFile(folder, name), LlmError, `${path} is not valid UTF-8`);
    }
  });
});
