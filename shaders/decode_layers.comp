#version 460
// The phases of many layers in one dispatch: each workgroup goes through all of them and waits for the sums of the others by
// looking at them. That needs all workgroups to run at the same time, which Vulkan does not promise: schedule/fast.ts decides
// where it is tried, and a workgroup that waits for too long sets the status, after which nobody waits or works any more.
//
// `phases` has a bit each for qkv, attend and mlp, so that a dispatch may also be a single phase, behind a barrier, where
// workgroups do not run together. The addresses of a layer's buffers stand in rows of a table.
//
// HELPERS of a workgroup's threads do nothing of that: decode_near.glsl. They meet the others in barriers that stand elsewhere, which
// goes beyond Vulkan too: devices are known to count arrivals only, or have no helpers.

#define HELPERS_ID 13
#define BUFFERS 3
#define POLL
#define PUSH DecodeLayersPush

const uint STATE = 0u, STATUS = 1u, TABLE = 2u;

// Columns of the table.
const uint NORM = 0u, Q = 1u, K = 2u, V = 3u, QKV_AFFINE = 4u, Q_NORM = 5u, K_NORM = 6u, KEYS = 7u, VALUES = 8u, O = 9u, O_AFFINE = 10u,
           MLP_NORM = 11u, GATE = 12u, UP = 13u, MLP_AFFINE = 14u, DOWN = 15u, DOWN_AFFINE = 16u, COLUMNS = 17u;

#define LAYER layer
#define ADDRESS(which) (pack64(addresses[(layer - pc.p.layer) * COLUMNS + which]))
#define ADDRESS_AHEAD(which) (pack64(addresses[(layer + 1u - pc.p.layer) * COLUMNS + which])) // in the next layer
uint layer;

#include "decode.glsl"
#include "decode_rows.glsl"

const uint MOST_LAYERS = 64u;
shared uvec2 addresses[MOST_LAYERS * COLUMNS];
shared bool failed;

void attend_ahead(uint pair); // which qkv calls
#include "decode_qkv.glsl"
#include "decode_attend.glsl"
#include "decode_mlp.glsl"

#include "decode_near.glsl"

// What helpers do: in each layer they meet the others as often as these meet each other below.
void help() {
    for (layer = pc.p.layer; layer < pc.p.layer + pc.p.layers; layer++) {
        bool ahead = layer + 1u < pc.p.layer + pc.p.layers;
        if ((pc.p.phases & 1u) != 0u) {
            if (ahead) near_down();
            barrier();
            barrier();
        }
        if ((pc.p.phases & 2u) != 0u)
            for (uint pair = 0; pair < PAIRS; pair++) {
                if (pair > 0u) barrier();
                barrier();
            }
        if ((pc.p.phases & 4u) != 0u) {
            if (ahead) near_gate_up();
            barrier();
            if (ahead) near_qkv();
            barrier();
        }
    }
    if (touched == 1u) Shared1(pc.address[STATUS]).v[1] = touched; // or compilers would see that nobody needs what was touched
}

void main() {
    if (thread() == 0u) failed = Shared1(pc.address[STATUS]).v[0] != 0u;
    for (uint i = thread(); i < pc.p.layers * COLUMNS; i += gl_WorkGroupSize.x) addresses[i] = Weights2(pc.address[TABLE]).v[i];
    barrier();
    if (failed) return;
    now = position();
    if (HELPERS > 0u && thread() >= THREADS) {
        help();
        return;
    }
    for (layer = pc.p.layer; layer < pc.p.layer + pc.p.layers; layer++) {
        if ((pc.p.phases & 1u) != 0u) {
            qkv_norm();
            barrier();
            qkv_rows();
            barrier();
            qkv_scores();
        } else if ((pc.p.phases & 2u) != 0u) attend_ahead(0u);
        if ((pc.p.phases & 2u) != 0u) {
            attend_begin();
            for (uint pair = 0; pair < PAIRS; pair++) {
                if (pair > 0u) barrier(); // the parts of the pair before were read
                attend_values(pair);
                barrier();
                attend_rows(pair);
            }
            attend_end();
        }
        if ((pc.p.phases & 4u) != 0u) {
            mlp_norm();
            barrier();
            mlp_hidden();
            barrier();
            mlp_rows();
        }
    }
}
