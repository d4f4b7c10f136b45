/**
 * How the cache of one sequence lies.
 *
 * @module
 */

import type { Backend } from "../../backend/backend.ts";
import { FUSED_LAYOUT, type KvLayout, plainLayout } from "../../graph/kv_layout.ts";
import { options } from "../plan/options.ts";
import { rowsUnsupportedReason } from "./emit_rows.ts";
import { type DecoderFeatures, type DecoderSizes, decoderUnsupportedReason, isDense } from "./spec.ts";

/** How a cache of one sequence should lie: as the fused step reads it where that serves, else plain. */
export function decoderLayout(backend: Backend, sizes: DecoderSizes, features: DecoderFeatures): KvLayout {
  const fused = options.fuse && options.regions !== "off" &&
    decoderUnsupportedReason(backend, sizes, features) === undefined &&
    !(isDense(sizes) && rowsUnsupportedReason(backend, { sizes, layers: [] }, "barriers"));
  return fused ? FUSED_LAYOUT : plainLayout(sizes.headDim);
}
