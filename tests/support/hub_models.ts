/**
 * A model on the hub of the tests, and what a cache looks like that it was downloaded into.
 *
 * @module
 */

import { COMMIT, large, type ServedModel, text } from "./hub_server.ts";

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
