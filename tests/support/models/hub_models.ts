/**
 * A model on the hub of the tests, and what a cache looks like that it was downloaded into.
 *
 * @module
 */

import { type FetchOptions, fetchSnapshot, type Snapshot } from "../../../src/llm/hub/pull.ts";
import { COMMIT, hashOf, HubServer, large, type ServedModel, text } from "../processes/hub_server.ts";
import { withOptions } from "../../../scripts/support/options.ts";

/** Variables that say where the hub and its cache are. */
const VARIABLES = [
  "HF_TOKEN",
  "HF_TOKEN_PATH",
  "HUGGING_FACE_HUB_TOKEN",
  "HF_HUB_DISABLE_IMPLICIT_TOKEN",
  "HUGGINGFACE_HUB_CACHE",
  "HF_HUB_OFFLINE",
  "TRANSFORMERS_OFFLINE",
  "VKMX_OFFLINE",
];

/** A model with files of every kind; nothing in it can be loaded. */
export const NAME = "org/name";

/** Files that Python is asked for to get what vkmx downloads. */
export const PATTERNS = ["config.json", "tokenizer.json", "model.safetensors"];

/** The model of that name. */
export function smallModel(): ServedModel {
  return {
    commit: COMMIT,
    revisions: ["main", "refs/pr/1"],
    files: {
      ".gitattributes": text("*.safetensors filter=lfs\n"),
      "README.md": text("# name\n"),
      "config.json": text('{ "model_type": "none" }\n'),
      "model.safetensors": large(3000),
      "onnx/config.json": text("{}\n"),
      "pytorch_model.bin": large(50, 2),
      "tokenizer.json": text("{}\n"),
    },
  };
}

/** Every entry of a folder by its path: what it holds, or where it links to. */
export function entriesOf(folder: string): Record<string, string> {
  const found: Record<string, string> = {};
  const look = (path: string): void => {
    for (const { name, isSymlink, isDirectory } of Deno.readDirSync(`${folder}${path}`)) {
      const entry = `${path}/${name}`;
      if (isDirectory) look(entry);
      found[entry.slice(1)] = isSymlink
        ? `link to ${Deno.readLinkSync(folder + entry)}`
        : isDirectory
        ? "folder"
        : contentOf(folder + entry);
    }
  };
  look("");
  return Object.fromEntries(Object.entries(found).sort(([a], [b]) => a < b ? -1 : 1));
}

function contentOf(path: string): string {
  const { size } = Deno.statSync(path);
  return size < 1000 ? Deno.readTextFileSync(path) : `${size} bytes`;
}

/** A hub with the model, and an empty cache, which the environment names for as long as this lives. */
export class HubBench implements AsyncDisposable {
  readonly server: HubServer = new HubServer();
  readonly model: ServedModel = smallModel();
  readonly cache: string = Deno.makeTempDirSync({ prefix: "hub" });
  readonly #options: Disposable;

  constructor(env: Readonly<Record<string, string | undefined>> = {}) {
    this.server.models.set(NAME, this.model);
    const none = Object.fromEntries(VARIABLES.map((name) => [name, undefined]));
    this.#options = withOptions({
      env: {
        ...none,
        HF_HOME: `${this.cache}/home`,
        HF_ENDPOINT: this.server.endpoint,
        HF_HUB_CACHE: this.cache,
        ...env,
      },
    });
  }

  /** Downloads the model with little patience, so that failures do not take long. */
  pull(options: FetchOptions = {}, name = NAME, revision?: string): Promise<Snapshot> {
    const policy = { tries: 3, delay: 1, longest: 2000, idle: 20_000 };
    return fetchSnapshot({ repo: name, revision }, { policy, ...options });
  }

  /** Path of a file's bytes. */
  blob(name: string): string {
    return `${this.cache}/models--org--name/blobs/${hashOf(this.model.files[name])}`;
  }

  /** The contents of the cache. */
  get entries(): string[] {
    return Object.keys(entriesOf(this.cache));
  }

  /** Snapshots and blobs that look whole. */
  get whole(): string[] {
    return this.entries.filter((path) => /blobs\/[0-9a-f]+$|snapshots\/.*\/|refs\/./.test(path));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#options[Symbol.dispose]();
    await this.server[Symbol.asyncDispose]();
    await Deno.remove(this.cache, { recursive: true });
  }
}
