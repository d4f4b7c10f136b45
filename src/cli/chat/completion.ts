/**
 * Completion by Tab: names of commands, words that they take, and files.
 *
 * @module
 */

import { environment } from "../../../ffi/environment.ts";
import { dirname } from "node:path";
import type { Completion } from "./editor.ts";

/** The kind of a command's argument. */
export type Argument = "file" | "folder" | "text" | readonly string[] | FirstWord;

/** One of some words, which more may follow. */
export interface FirstWord {
  readonly first: readonly string[];
}

function isFirstWord(argument: Argument): argument is FirstWord {
  return typeof argument === "object" && "first" in argument;
}

/** Commands by name. */
export type Completable = Readonly<Record<string, { readonly takes?: Argument }>>;

/** Texts that could follow a text. */
export function complete(commands: Completable, text: string): Completion {
  const [, name, space, argument = ""] = /^\/(\S*)(\s+)?([^]*)$/.exec(text) ?? [];
  if (name === undefined || name.startsWith("/")) return { start: text.length, candidates: [] };
  if (space === undefined) {
    const names = Object.keys(commands).filter((command) => command.startsWith(name));
    return {
      start: 1,
      candidates: names.map((command) => commands[command].takes === undefined ? command : `${command} `),
    };
  }
  const start = text.length - argument.length;
  const { takes = "text" } = Object.hasOwn(commands, name) ? commands[name] : {};
  if (takes === "text") return { start, candidates: [] };
  if (isFirstWord(takes)) {
    return { start, candidates: takes.first.filter((word) => word.startsWith(argument)).map((word) => `${word} `) };
  }
  if (typeof takes === "string") return { start, candidates: paths(argument, takes === "folder") };
  return { start, candidates: takes.filter((word) => word.startsWith(argument)) };
}

/** Paths that begin so, folders with a slash after them. */
function paths(text: string, foldersOnly: boolean): string[] {
  const folder = text === "" || text.endsWith("/") ? text : dirname(`${text}x`);
  const before = text.slice(0, text.lastIndexOf("/") + 1);
  const start = text.slice(before.length);
  try {
    return Array.from(Deno.readDirSync(expanded(folder || ".")))
      .filter(({ name }) => name.startsWith(start) && (start !== "" || !name.startsWith(".")))
      .map((entry) => ({
        ...entry,
        isFolder: entry.isDirectory || (entry.isSymlink && isFolder(expanded(before) + entry.name)),
      }))
      .filter((entry) => entry.isFolder || !foldersOnly)
      .map((entry) => `${before}${entry.name}${entry.isFolder ? "/" : ""}`).sort();
  } catch {
    return []; // no such folder, or none that may be read
  }
}

function isFolder(path: string): boolean {
  try {
    return Deno.statSync(path).isDirectory;
  } catch {
    return false;
  }
}

/** A path with the home folder in place of "~". */
export function expanded(path: string): string {
  const home = path === "~" || path.startsWith("~/") ? environment("HOME") : undefined;
  return home === undefined ? path : home + path.slice(1);
}
