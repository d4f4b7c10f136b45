/**
 * Models of the Hugging Face Hub on the command line: their names and their descriptions.
 *
 * @module
 */

import * as mx from "../../mod.ts";
import { quoted, shownPath } from "../graph/error.ts";
import { UsageError } from "./flags.ts";

/** The one operand of a command that takes the name of a model. Throws a {@link UsageError} if it is no such name. */
export function modelName(call: string, operands: readonly string[]): string {
  const name = oneOperand(call, operands);
  if (mx.lm.hub.isName(name)) return name;
  throw new UsageError(`${quoted(name)} is no model of the hub${expectedName(name)}`);
}

/** The advice for a text that is no name of a model. */
export function expectedName(text: string): string {
  const meant = mx.lm.hub.nameInAddress(text);
  return meant === undefined ? ", expected a name such as Qwen/Qwen3-0.6B-MLX-4bit" : `: did you mean ${meant}?`;
}

/** The one operand of a command that takes a model. */
export function oneOperand(call: string, operands: readonly string[]): string {
  if (operands.length === 0) throw new UsageError(`Expected a model: ${call} NAME`);
  if (operands.length > 1) throw new UsageError(`Expected one model, found ${operands.length}`);
  return operands[0];
}

/** "org/name@revision" of a model of the cache; the commit if no branch or tag is there. */
export function revisionOf({ revisions, commit }: mx.lm.hub.CachedModel): string {
  return revisions.length > 0 ? revisions.map(shownPath).join(",") : commit.slice(0, 12);
}

/** A model of the cache as --json prints it. */
export function jsonOf(model: mx.lm.hub.CachedModel): Record<string, unknown> {
  const { name, commit, revisions, path, size, lastUsed, files, missing } = model;
  return {
    name,
    commit,
    revisions,
    path,
    size_bytes: size,
    last_used: lastUsed.toISOString(),
    files: files.map(({ name, size, hash }) => ({ name, size_bytes: size, hash: hash ?? null })),
    missing,
  };
}
