/**
 * Switches of the scheduler.
 *
 * @module
 */

/** What the scheduler may do; change it between evaluations only. */
export const options: { fuse: boolean } = { fuse: true };

/**
 * Switches fusion: off, fused ops run as their composites of primitives and every elementwise op is a dispatch of its own.
 * Results are the same within the accuracy of the dtype; it is there to compare both ways.
 */
export function setFusion(on: boolean): void {
  options.fuse = on;
}
