/**
 * Programs of users: blocks of docs/server.md, and clients. Each runs in a process of its own, so that no client is a part of the tests.
 *
 * @module
 */

import { assert } from "@std/assert";
import { providePythonClients } from "../../../scripts/setup/python_clients.ts";
import { ROOT } from "../../../scripts/tools.ts";
import { ScriptedEngine } from "./scripted_engine.ts";
import { ENGINE, TestServer, TINY } from "./served.ts";

/** The text of docs/server.md. */
export const DOCUMENT: string = await Deno.readTextFile(`${ROOT}docs/server.md`);
/** The address of servers in it. */
export const LOCAL = "http://127.0.0.1:8080";

/** Blocks of a language in the document. */
export function blocks(language: string): string[] {
  return Array.from(DOCUMENT.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\`$`, "gm")), ([, text]) => text);
}

/** A server of the embedded model, and of one that calls a function and then says what it got. */
export function startCaller(): Promise<TestServer> {
  const weather = { function: { name: "weather", arguments: { city: "Paris" } } };
  const engine = new ScriptedEngine(({ prompt }) => {
    const last = (prompt as readonly { readonly role: string; readonly content: unknown }[]).at(-1)!;
    return last.role === "tool" ? [{ text: "It is " }, { text: `${last.content}.` }] : [{ toolCalls: [weather] }];
  });
  return TestServer.start({ engines: { [TINY]: ENGINE, caller: () => engine } });
}

/** What a program of Deno prints; its requests go to `server`. */
export async function runProgram(code: string, server?: TestServer): Promise<string> {
  const args = ["run", "-A", "--quiet", "--no-check", "--no-lock", "--no-config"];
  return await runFile(Deno.execPath(), args, "program.ts", code, server);
}

/** What a program of Deno prints in Node.js, with its packages from npm. */
export async function runInNode(code: string, server: TestServer): Promise<string> {
  const packages = Array.from(code.matchAll(/"npm:(@?[^@"]+@[\d.]+)"/g), ([, name]) => name);
  const install = ["npm", "install", "--silent", "--no-audit", "--no-fund", ...packages].join(" ");
  const program = code.replaceAll(/"npm:(@?[^@"]+)@[\d.]+"/g, '"$1"').replaceAll(LOCAL, server.url);
  const script = `${install} >&2 && cat > program.mjs && node program.mjs`;
  const folder = await Deno.makeTempDir();
  try {
    const child = new Deno.Command("sh", {
      args: ["-c", script],
      cwd: folder,
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    })
      .spawn();
    const writer = child.stdin.getWriter();
    await writer.write(new TextEncoder().encode(program));
    await writer.close();
    const { success, stdout, stderr } = await child.output();
    assert(success, new TextDecoder().decode(stderr));
    return new TextDecoder().decode(stdout);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** What a program of Python prints; its requests go to `server`. */
export async function runPython(code: string, server: TestServer): Promise<string> {
  const { command, env } = (await providePythonClients())!;
  return await runFile(command, [], "program.py", code, server, env);
}

async function runFile(
  command: string,
  args: readonly string[],
  name: string,
  code: string,
  server?: TestServer,
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${folder}/${name}`, server ? code.replaceAll(LOCAL, server.url) : code);
    const { success, stdout, stderr } = await new Deno.Command(command, {
      args: [...args, name],
      cwd: folder,
      env: { NO_COLOR: "1", ...env },
    }).output();
    assert(success, new TextDecoder().decode(stderr));
    return new TextDecoder().decode(stdout);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
