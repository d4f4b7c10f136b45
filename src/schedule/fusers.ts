/**
 * The table of fusers, in the order in which they are asked: a node goes to the first fusion that claims it.
 *
 * @module
 */

import { choiceFuser, decodeFuser, prefillFuser } from "./decoder/fuser.ts";
import { embeddingFuser } from "./ops/embedding.ts";
import type { Fuser } from "./plan/fusion.ts";

/** All fusers. */
export const FUSERS: readonly Fuser[] = [decodeFuser, choiceFuser, prefillFuser, embeddingFuser];
