/**
 * Where a model directory has the head that drafts tokens: among the other weights, or in a file of its own. Tools for MLX call that file
 * mtp.safetensors. mlx-lm does not read it, and earlier versions took these tensors for a sign of the makers' layout.
 *
 * @module
 */

import { join } from "node:path";
import { readHeader } from "../../array/files/safetensors.ts";
import { ArrayError, quoted, shownPath } from "../../graph/error.ts";
import { DRAFT_HEAD } from "../config/decoder.ts";
import { LlmError } from "../error.ts";
import { weightFiles } from "./shards.ts";
import type { CheckpointNames, Weights } from "./weights.ts";

/** The file of the head that drafts tokens. */
export const DRAFT_FILE = "mtp.safetensors";

/** How a family names its tensors, and whether its models may have such a head. */
interface DraftNames {
  readonly mayDraft: boolean;
  nameOf(stored: string): string | undefined;
}

/** The files of a directory that hold weights, with {@link DRAFT_FILE} if it is there. */
export function filesWithDraft(dir: string, names: readonly string[]): string[] {
  const files = weightFiles(dir, names);
  return files.includes(DRAFT_FILE) || !names.includes(DRAFT_FILE) ? files : [...files, DRAFT_FILE];
}

/** Whether files of a directory hold the head that drafts tokens, by their headers. */
export function storesDraftHead(dir: string, files: readonly string[], { mayDraft, nameOf }: DraftNames): boolean {
  if (!mayDraft) return false;
  try {
    return files.some((file) =>
      readHeader(join(dir, file)).entries.some(({ name }) => nameOf(name) === `${DRAFT_HEAD}.fc.weight`)
    );
  } catch (cause) {
    if (cause instanceof ArrayError) throw new LlmError("weights", cause.message);
    throw cause;
  }
}

/** Throws an {@link LlmError} unless the weights of a model have a head that drafts tokens. */
export function checkDraftHead(
  dir: string,
  weights: Weights,
  { mayDraft, config }: DraftNames & Pick<CheckpointNames, "config">,
): void {
  if (mayDraft && weights.has(`${DRAFT_HEAD}.fc.weight`)) return;
  const why = mayDraft
    ? `it stores no ${DRAFT_HEAD}.fc.weight. Conversions by mlx-lm leave the head out: vkmx convert keeps it`
    : `models of type ${quoted(config.modelType)} have none here`;
  throw new LlmError("weights", `${shownPath(dir)} has no head that drafts tokens: ${why}`);
}
