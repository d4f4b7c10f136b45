/**
 * The table of fusers, in the order in which they are asked. A node goes to the last fusion that claims it, so larger ones come last.
 *
 * @module
 */

import { decoderFuser } from "./decoder/fuser.ts";
import { embeddingFuser } from "./ops/embedding.ts";
import { slotStatesFuser } from "./ops/slot_states.ts";
import type { Fuser } from "./plan/fusion.ts";

/** All fusers. */
export const FUSERS: readonly Fuser[] = [embeddingFuser, slotStatesFuser, decoderFuser];
