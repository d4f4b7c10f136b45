#version 460
// The phases of many layers in one dispatch. Each workgroup goes through all of them, and polls the accumulators of the
// others until they are complete. That needs all workgroups to run at the same time, which Vulkan does not promise.
// schedule/decoder/megakernel.ts decides whether it is tried. A workgroup that waits for too long sets the status, after
// which no workgroup waits or works any more.
//
// `phases` has a bit each for qkv, attention and mlp. So a dispatch may also be a single phase, after a barrier, if
// workgroups do not run together. The addresses of a layer's buffers stand in rows of a table.
//
// With PREFETCH some warps of a workgroup only prefetch weights into L2, as prefetch.glsl says. They meet the others in
// barriers that stand elsewhere, which goes beyond Vulkan too: for devices that are known to count arrivals.

#ifdef PREFETCH
#define PREFETCH_THREADS_ID 27
#endif
#define BUFFERS 4
#define POLL
#define PUSH DecodeLayersPush

const uint STATE = 0u, STATUS = 1u, PAGES = 2u, TABLE = 3u;

// Columns of the table.
const uint NORMS = 0u, Q = 1u, K = 2u, V = 3u, QKV_SCALES_BIASES = 4u, KEYS = 5u, VALUES = 6u, O = 7u, O_SCALES_BIASES = 8u, GATE = 9u,
           UP = 10u, MLP_SCALES_BIASES = 11u, DOWN = 12u, DOWN_SCALES_BIASES = 13u, COLUMNS = 14u;

#define LAYER layer
#define ADDRESS(which) (pack64(addresses[(layer - pc.p.layer) * COLUMNS + which]))
#define ADDRESS_AHEAD(which) (pack64(addresses[(layer + 1u - pc.p.layer) * COLUMNS + which])) // in the next layer
uint layer;

#include "decode.glsl"
layout(constant_id = 18) const uint PAGE = 0; // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 19
#define NORMS_ID 24
#include "ropes.glsl"
#include "layer.glsl"
#include "row_products.glsl"

const uint MAX_LAYERS = 64u;
shared uvec2 addresses[MAX_LAYERS * COLUMNS];
shared bool failed;

void prefetch_attention(uint pair, uint now); // which qkv calls
#include "qkv.glsl"
#include "attention.glsl"
#include "mlp.glsl"
#ifdef PREFETCH
#include "prefetch.glsl"
#endif

void main() {
    if (thread() == 0u) failed = Shared1(pc.address[STATUS]).v[0] != 0u;
    for (uint i = thread(); i < pc.p.layers * COLUMNS; i += gl_WorkGroupSize.x) addresses[i] = Weights2(pc.address[TABLE]).v[i];
    barrier();
    if (failed) return;
    the_position = U32s(state_position()).v[0];
#ifdef PREFETCH
    if (thread() >= THREADS) {
        prefetch_layers();
        return;
    }
#endif
    for (layer = pc.p.layer; layer < pc.p.layer + pc.p.layers; layer++) {
        if ((pc.p.phases & 1u) != 0u) qkv();
        else if ((pc.p.phases & 2u) != 0u) prefetch_attention(0u, kv_seen(the_position));
        if ((pc.p.phases & 2u) != 0u) attention();
        if ((pc.p.phases & 4u) != 0u) mlp();
    }
    tell_lost();
}
