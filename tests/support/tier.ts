/**
 * The tier that `deno task test` runs (scripts/test/tiers.ts), and the seed of what it draws.
 *
 * @module
 */

/** VKMX_TEST_TIER: quick, gate or full. The default is full, so that a file that is run by hand runs whole. */
export const TIER: string = Deno.env.get("VKMX_TEST_TIER") ?? "full";

/** VKMX_TEST_SEED, printed by `deno task test`. */
export const SEED: string = Deno.env.get("VKMX_TEST_SEED") ?? "1";
