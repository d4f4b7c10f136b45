/**
 * A Hugging Face Hub on localhost. It has the two questions of the API, files that redirect to a store on another port,
 * ranges, and failures of all these.
 *
 * @module
 */

import { createHash } from "node:crypto";

/** A file of a model. */
export interface ServedFile {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Whether it is in Git LFS: it is named by SHA-256 then, and comes from the store. */
  readonly lfs: boolean;
}

/** A model. */
export interface ServedModel {
  commit: string;
  /** Commits of other revisions than the commit itself. */
  readonly revisions: readonly string[];
  readonly files: Readonly<Record<string, ServedFile>>;
  /** The only token that may read it. */
  readonly token?: string;
  readonly gated?: boolean;
}

/** A request that came. */
export interface Seen {
  readonly host: "hub" | "store";
  readonly path: string;
  readonly range: string | null;
  readonly authorization: string | null;
}

/** Answers a request in place of the server, or leaves it to it. */
export type Fault = (seen: Seen, request: Request) => Response | undefined | Promise<Response | undefined>;

export const COMMIT = "c0ffee0123456789abcdef0123456789abcdef01";

/** The hash that the hub names a file by. */
export function hashOf({ bytes, lfs }: ServedFile): string {
  return lfs ? createHash("sha256").update(bytes).digest("hex") : gitId(bytes);
}

function gitId(bytes: Uint8Array): string {
  return createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");
}

/** A file of text outside of Git LFS. */
export function text(content: string): ServedFile {
  return { bytes: new TextEncoder().encode(content), lfs: false };
}

/** A file of `size` bytes in Git LFS that no other one is equal to. */
export function large(size: number, seed = 1): ServedFile {
  const bytes = new Uint8Array(size);
  for (let i = 0, x = seed; i < size; i++) bytes[i] = (x = (Math.imul(x, 1103515245) + 12345) >>> 0) >>> 16;
  return { bytes, lfs: true };
}

/** A body that ends without its end: the connection is cut after so many bytes. */
export function cut(bytes: Uint8Array, after: number, status: number, headers: HeadersInit): Response {
  const body = new ReadableStream<Uint8Array>({
    async start(controller): Promise<void> {
      controller.enqueue(bytes.slice(0, after));
      await new Promise((resolve) => setTimeout(resolve, 20));
      controller.error(new Error("cut"));
    },
  });
  return new Response(body, { status, headers });
}

/** The hub and its store. */
export class HubServer implements AsyncDisposable {
  readonly models: Map<string, ServedModel> = new Map();
  readonly seen: Seen[] = [];
  /** Asked before every answer. */
  fault: Fault = () => undefined;
  /** Entries of a list of files that come together. */
  pageSize = 1000;
  readonly #hub: Deno.HttpServer<Deno.NetAddr>;
  readonly #store: Deno.HttpServer<Deno.NetAddr>;

  constructor() {
    const options = {
      port: 0,
      hostname: "127.0.0.1",
      onListen: () => {},
      onError: () => new Response(null, { status: 500 }),
    };
    this.#hub = Deno.serve(options, (request) => this.#answer("hub", request));
    this.#store = Deno.serve(options, (request) => this.#answer("store", request));
  }

  /** Address for HF_ENDPOINT. */
  get endpoint(): string {
    return `http://127.0.0.1:${this.#hub.addr.port}`;
  }

  /** Address of the store. */
  get store(): string {
    return `http://127.0.0.1:${this.#store.addr.port}`;
  }

  /** Paths of the files that were asked for, without those of the API. */
  get downloads(): string[] {
    return this.seen.filter(({ host, path }) => host === "hub" && path.includes("/resolve/")).map(({ path }) =>
      path.split("/resolve/")[1].split("/").slice(1).join("/")
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.#hub.shutdown(), this.#store.shutdown()]);
  }

  async #answer(host: Seen["host"], request: Request): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url);
    const seen: Seen = {
      host,
      path: decodeURIComponent(pathname),
      range: request.headers.get("range"),
      authorization: request.headers.get("authorization"),
    };
    this.seen.push(seen);
    const fault = await this.fault(seen, request);
    if (fault !== undefined) return fault;
    return host === "store" ? this.#stored(seen) : this.#asked(seen, searchParams, request);
  }

  #asked({ path, authorization, range }: Seen, params: URLSearchParams, request: Request): Response {
    const api = /^\/api\/models\/([^/]+\/[^/]+)\/(revision|tree)\/(.+)$/.exec(path);
    const file = /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/.exec(path);
    const repo = api?.[1] ?? file?.[1] ?? "";
    const model = this.models.get(repo);
    const refuse = (status: number, code: string): Response =>
      Response.json({ error: code }, { status, headers: { "x-error-code": code, "x-error-message": `says ${code}` } });
    if (authorization !== null && authorization !== "Bearer hf_good") return refuse(401, "");
    if (model === undefined) return authorization === null ? refuse(401, "RepoNotFound") : refuse(404, "RepoNotFound");
    const may = model.token === undefined || authorization === `Bearer ${model.token}`;
    if (!may && (!model.gated || file)) {
      return model.gated ? refuse(authorization === null ? 401 : 403, "GatedRepo") : refuse(401, "RepoNotFound");
    }
    const revision = (api?.[3] ?? file?.[2])!;
    if (revision !== model.commit && !model.revisions.includes(revision)) return refuse(404, "RevisionNotFound");
    if (api?.[2] === "revision") return Response.json({ id: repo, sha: model.commit, gated: model.gated ?? false });
    if (api) return this.#list(model, Number(params.get("cursor") ?? 0), request);
    const found = model.files[file![3]];
    if (found === undefined) return refuse(404, "EntryNotFound");
    const hash = hashOf(found);
    const headers = { "x-repo-commit": model.commit, "accept-ranges": "bytes" };
    if (!found.lfs) return ranged(found.bytes, range, { ...headers, etag: `"${hash}"` });
    return new Response(null, {
      status: 302,
      headers: {
        ...headers,
        location: `${this.store}/${hash}?signature=secret`,
        "x-linked-etag": `"${hash}"`,
        "x-linked-size": String(found.bytes.length),
        etag: '"of the store"',
      },
    });
  }

  #list({ files }: ServedModel, start: number, request: Request): Response {
    const entries = Object.entries(files).map(([path, file]) => ({
      type: "file",
      oid: file.lfs ? gitId(new TextEncoder().encode(`version ${hashOf(file)}`)) : hashOf(file),
      size: file.bytes.length,
      path,
      ...(file.lfs && { lfs: { oid: hashOf(file), size: file.bytes.length, pointerSize: 134 } }),
    }));
    const end = start + this.pageSize;
    const next = new URL(request.url);
    next.searchParams.set("cursor", String(end));
    return Response.json([
      { type: "directory", oid: "0".repeat(40), size: 0, path: "onnx" },
      ...entries.slice(start, end),
    ], {
      headers: end < entries.length ? { link: `<${next.href}>; rel="next"` } : {},
    });
  }

  #stored({ path, range }: Seen): Response {
    const files = [...this.models.values()].flatMap(({ files }) => Object.values(files));
    const found = files.find((file) => hashOf(file) === path.slice(1));
    return found ? ranged(found.bytes, range, {}) : new Response(null, { status: 404 });
  }
}

/** The part of a file that a Range header asks for. */
export function ranged(
  bytes: Uint8Array<ArrayBuffer>,
  range: string | null,
  headers: Record<string, string>,
): Response {
  const [, from] = /^bytes=(\d+)-$/.exec(range ?? "") ?? [];
  if (from === undefined) {
    return new Response(bytes, { headers: { ...headers, "content-length": String(bytes.length) } });
  }
  if (Number(from) >= bytes.length) {
    return new Response(null, { status: 416, headers: { ...headers, "content-range": `bytes */${bytes.length}` } });
  }
  const part = bytes.slice(Number(from));
  return new Response(part, {
    status: 206,
    headers: {
      ...headers,
      "content-length": String(part.length),
      "content-range": `bytes ${from}-${bytes.length - 1}/${bytes.length}`,
    },
  });
}
