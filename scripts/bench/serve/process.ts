/**
 * A server for benchmarks.
 *
 * @module
 */

/** A server in a process of its own, ready. */
export async function startServer(args: readonly string[]): Promise<AsyncDisposable & { readonly url: string }> {
  const main = new URL("../../../src/cli/mod.ts", import.meta.url).pathname;
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", main, "serve", "--port", "0", ...args],
    stderr: "piped",
  });
  const server = command.spawn();
  const lines = server.stderr.pipeThrough(new TextDecoderStream());
  let text = "";
  let url: string | undefined;
  for await (const piece of lines.values({ preventCancel: true })) {
    text += piece;
    url = /http:\S+/.exec(text)?.[0];
    if (url) break;
  }
  const end = async (): Promise<void> => {
    server.kill("SIGTERM");
    await Promise.all([lines.cancel(), server.status]);
  };
  if (url) return { url, [Symbol.asyncDispose]: end };
  await server.status;
  throw new Error(`the server did not start: ${text.trim()}`);
}
