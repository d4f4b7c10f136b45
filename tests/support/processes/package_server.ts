/**
 * A registry on localhost that has this tree as the package of a release. It has the library of this machine in it, and
 * a stand-in for plug. Programs run against it as users of the package do: JSR_URL names it, or they import by URL.
 *
 * Each variant of the package has a name of its own. "full" has the packaged library, "bare" has none, "damaged" one
 * with a flipped bit, "slow" one that takes its time.
 *
 * @module
 */

import { createHash } from "node:crypto";
import type { Target } from "../../../scripts/release.ts";
import { writeRelease } from "../../../scripts/release.ts";
import { ROOT } from "../../../scripts/tools.ts";
import { target, VERSION } from "../../../ffi/version.ts";
import type { Finished } from "./programs.ts";

/** A variant of the package. */
export type Variant = "full" | "bare" | "damaged" | "slow";

/** How a server answers. */
export type Answer = "good" | "cut" | "flipped" | "404" | "refused";

const SLOW_MS = 1300;

/** Answers as plug 1.1.0 does, its line on stdout included, from the server in place of GitHub. STAND_IN says how. */
const PLUG = `
export async function download({ url, location }) {
  const [origin, answer] = Deno.env.get("STAND_IN").split(" ");
  console.log("Downloading " + url);
  const response = await fetch(answer === "refused" ? "http://localhost:2/" : origin + "assets/" + answer + "/" + url.split("/").at(-1));
  if (!response.ok) throw new Error("Could not find " + url);
  await Deno.writeFile(location + "/library", new Uint8Array(await response.arrayBuffer()));
  return location + "/library";
}
`;

/** How {@link PackageServer.run} runs a program. */
export interface RunOptions {
  readonly variant: Variant;
  /** The cache folder; default a temporary one. */
  readonly cache?: string;
  readonly answer?: Answer;
  readonly env?: Record<string, string>;
  readonly flags?: readonly string[];
}

/** The server, the release that it has, and a cache of Deno for the programs. */
export class PackageServer {
  /** Paths that were asked for, without the variant. */
  readonly requests: string[] = [];
  /** The released library; empty if there is none. */
  readonly library: Uint8Array<ArrayBuffer>;
  /** How files of the embedded model are answered. */
  model: Answer = "good";
  readonly #folder: string;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;

  private constructor(
    folder: string,
    files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>,
    library: Uint8Array<ArrayBuffer>,
  ) {
    this.#folder = folder;
    this.#files = files;
    this.library = library;
    const options = { hostname: "localhost", port: 0, onListen: () => {} };
    this.#server = Deno.serve(options, (request) => this.#answer(new URL(request.url).pathname));
  }

  /** Serves the tree, with a release of a library for this machine alone if there is one. */
  static async start(library?: string): Promise<PackageServer> {
    const folder = await Deno.makeTempDir();
    const { publish } = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
    const files = new Map<string, Uint8Array<ArrayBuffer>>();
    for (const path of publish.include) await collect(ROOT, path, files);
    if (library === undefined) return new PackageServer(folder, files, new Uint8Array());
    const name = library.split(/[\\/]/).at(-1);
    await Deno.mkdir(`${folder}/cross/${target()}`, { recursive: true });
    await Deno.copyFile(library, `${folder}/cross/${target()}/${name}`);
    await writeRelease({ from: `${folder}/cross`, to: folder, targets: [target() as Target], quality: 3 });
    for (const path of ["ffi/releases.ts", "ffi/packaged"]) await collect(`${folder}/`, path, files);
    return new PackageServer(folder, files, await Deno.readFile(library));
  }

  /** Where the server is. */
  get origin(): string {
    return `http://localhost:${this.#server.addr.port}/`;
  }

  /** The folder where the release was written. */
  get released(): string {
    return this.#folder;
  }

  /** A fresh folder. */
  folder(): string {
    return Deno.makeTempDirSync({ dir: this.#folder });
  }

  /** Runs module code that imports from `jsr:@vkmx/vkmx` or, by URL, from the tree at "TREE/". */
  async run(code: string, options: RunOptions): Promise<Finished> {
    const path = `${this.folder()}/program.ts`;
    await Deno.writeTextFile(path, code.replaceAll("TREE/", `${this.origin}${options.variant}/tree/`));
    return await this.#start([path], options);
  }

  /** Runs a file of the tree, by URL, with arguments. */
  async runFile(path: string, args: readonly string[], options: RunOptions): Promise<Finished> {
    return await this.#start([`${this.origin}${options.variant}/tree/${path}`, ...args], options);
  }

  async #start(args: readonly string[], options: RunOptions): Promise<Finished> {
    const { variant, answer = "404", env = {}, flags = ["-A"] } = options;
    const { code: status, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "--no-lock", "--quiet", ...flags, ...args],
      env: {
        NO_COLOR: "1",
        DENO_DIR: `${this.#folder}/deno`,
        JSR_URL: `${this.origin}${variant}/`,
        STAND_IN: `${this.origin} ${answer}`,
        VKMX_DEVICE: "",
        VKMX_LIBRARY: "",
        VKMX_CACHE: options.cache ?? this.folder(),
        ...env,
      },
    }).output();
    const decoder = new TextDecoder();
    return { code: status, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
  }

  /** Ends the server and removes all folders. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
    await Deno.remove(this.#folder, { recursive: true });
  }

  async #answer(pathname: string): Promise<Response> {
    const [, variant, ...rest] = pathname.split("/");
    const path = rest.join("/");
    this.requests.push(path);
    if (variant === "assets") return asset(rest[0] as Answer, this.library);
    if (path.startsWith("@denosaurs/plug/")) return registryFile(path, "1.1.0", PLUG_FILES, { ".": "./mod.ts" });
    const packaged = path.includes("/packaged/");
    if (packaged && variant === "bare") return new Response("", { status: 404 });
    if (packaged && variant === "slow") await new Promise((resolve) => setTimeout(resolve, SLOW_MS));
    if (packaged && variant === "damaged") {
      const text = new TextDecoder().decode(this.#files.get(`ffi/packaged/${target()}.ts`));
      const at = text.length >> 1;
      const damaged = `${text.slice(0, at)}${text[at] === "A" ? "B" : "A"}${text.slice(at + 1)}`;
      return sourceFile(new TextEncoder().encode(damaged));
    }
    if (this.model !== "good" && path.includes("/tiny-qwen3/")) {
      return asset(this.model, this.#files.get(path.slice(5))!);
    }
    if (path.startsWith("tree/")) return sourceFile(this.#files.get(path.slice(5)));
    return registryFile(path, VERSION, this.#files, JSON.parse(decode(this.#files.get("deno.json")!)).exports);
  }
}

const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
const PLUG_FILES = new Map([["mod.ts", new TextEncoder().encode(PLUG)]]);

/** Reads a file or all files of a folder. */
async function collect(root: string, path: string, into: Map<string, Uint8Array<ArrayBuffer>>): Promise<void> {
  if ((await Deno.stat(root + path)).isFile) {
    into.set(path, await Deno.readFile(root + path));
    return;
  }
  for (const { name } of Deno.readDirSync(root + path)) await collect(root, `${path}/${name}`, into);
}

/** A file, or what became of it. */
function asset(answer: Answer, bytes: Uint8Array<ArrayBuffer>): Response {
  if (answer === "404") return new Response("", { status: 404 });
  return new Response(answer === "cut" ? bytes.slice(0, -100) : answer === "flipped" ? flipped(bytes) : bytes);
}

/** A copy with one bit changed. */
export function flipped(bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const copy = bytes.slice();
  copy[copy.length >> 1] ^= 1;
  return copy;
}

/** The answer of a registry to `@scope/name/…`. */
function registryFile(
  path: string,
  version: string,
  files: ReadonlyMap<string, Uint8Array<ArrayBuffer>>,
  exports: unknown,
): Response {
  const rest = path.split("/").slice(2).join("/");
  if (rest === "meta.json") return Response.json({ latest: version, versions: { [version]: {} } });
  if (rest === `${version}_meta.json`) {
    const entries = Array.from(files, ([name, bytes]) => {
      const checksum = `sha256-${createHash("sha256").update(bytes).digest("hex")}`;
      return [`/${name}`, { size: bytes.length, checksum }];
    });
    return Response.json({ manifest: Object.fromEntries(entries), exports });
  }
  return sourceFile(files.get(rest.slice(version.length + 1)));
}

function sourceFile(bytes: Uint8Array<ArrayBuffer> | undefined): Response {
  if (bytes === undefined) return new Response("", { status: 404 });
  return new Response(bytes, { headers: { "content-type": "application/typescript" } });
}
