/**
 * Which kernels serve, and why others do not: an ordered list of requirements, of which the first one that does not hold is the reason.
 *
 * @module
 */

/** A condition, and the reason to print if it does not hold. */
export type Requirement = readonly [holds: boolean, reason: string];

/** The reason of the first requirement that does not hold; undefined if all of them do. */
export function firstReason(requirements: readonly Requirement[]): string | undefined {
  return requirements.find(([holds]) => !holds)?.[1];
}
