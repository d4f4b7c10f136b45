/**
 * What the endpoints of ollama's API share: names of models and durations.
 *
 * @module
 */

import type { ModelNames } from "../model_names.ts";

/** What ollama's clients add to a name without a tag. */
const LATEST = ":latest";

/** The name of a model, with or without ":latest"; default the first. Throws an ApiError if there is no such model. */
export function modelName(models: ModelNames, given: string | undefined): string {
  const isThere = models.all.some(({ id }) => id === given);
  return models.resolve(isThere || !given?.endsWith(LATEST) ? given : given.slice(0, -LATEST.length));
}

/** Milliseconds as whole nanoseconds, which ollama counts in. */
export function nanoseconds(milliseconds: number): number {
  return Math.round(milliseconds * 1e6);
}
