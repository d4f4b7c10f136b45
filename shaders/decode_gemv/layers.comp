#version 460
// The phases of many layers in one dispatch. Each workgroup goes through all of them, and polls the words of the others
// until they are there. That needs all workgroups to run at the same time, which Vulkan does not promise.
// schedule/decoder/megakernel.ts decides whether it is tried. A workgroup that waits for too long sets the status. With
// one of PHASES a dispatch is that phase, after a barrier, for tests. The addresses of a layer's buffers stand in rows
// of a table.

#extension GL_GOOGLE_include_directive : require
#define BUFFERS 4
#define POLL
#define PUSH DecodeLayersPush

const uint STATE = 0u, STATUS = 1u, PAGES = 2u, TABLE = 3u;

// Columns of the table.
const uint NORMS = 0u, Q = 1u, K = 2u, V = 3u, QKV_SCALES_BIASES = 4u, KEYS = 5u, VALUES = 6u, O = 7u, O_SCALES_BIASES = 8u, GATE = 9u,
           UP = 10u, GATE_UP_SCALES_BIASES = 11u, DOWN = 12u, DOWN_SCALES_BIASES = 13u, ROUTER = 14u, ROUTER_SCALES_BIASES = 15u,
           TABLE_COLUMNS = 16u;

layout(constant_id = 25) const uint EXPERTS = 0u;    // of a layer, see experts.glsl
layout(constant_id = 38) const uint DOWN_PARTS = 1u; // see gemv.glsl
// Gates of heads and an expert of all tokens are known to phase.comp alone.
const uint GATED = 0u, SHARED = 0u, SHARED_ROUTER = 0u, SHARED_GATE = 0u, SHARED_UP = 0u, SHARED_DOWN = 0u;

const uint COLUMNS = EXPERTS == 0u ? ROUTER : TABLE_COLUMNS; // that layers need
#define LAYER layer
#define ADDRESS(which) (pack64(addresses[(layer - pc.p.layer) * COLUMNS + which]))
uint layer;

layout(constant_id = 37) const uint LAYERS = 64u; // rows of the table at most
shared uvec2 addresses[LAYERS * COLUMNS];

// Which thread this is, and which workgroup, as compilers know them for one layer only. Otherwise compilers would
// compute what follows from them before all layers, which takes registers that the products need.
#define OWN_INVOCATION
uint own_thread, own_workgroup;
uint thread() { return own_thread; }
uint workgroup() { return own_workgroup; }
void look_again();

#include "gemv.glsl"
layout(constant_id = 30) const uint PAGE = 0; // positions of a page of the cache; 0 where it has none
#define PAGE_TABLE pc.address[PAGES]
#define KINDS_ID 31
#include "decode/ropes.glsl"
#include "attention.glsl"
#include "phases.glsl"

shared bool failed;
shared uint nothing; // 0

void look_again() {
    own_thread = (gl_LocalInvocationID.x | nothing) & (THREADS - 1u);
    own_workgroup = gl_WorkGroupID.x | nothing;
}

void main() {
    own_thread = gl_LocalInvocationID.x;
    own_workgroup = gl_WorkGroupID.x;
    if (thread() == 0u) nothing = 0u;
    if (thread() == 0u) failed = Shared1(pc.address[STATUS]).v[0] != 0u;
    for (uint i = thread(); i < pc.p.layers * COLUMNS; i += THREADS)
        addresses[i] = Weights2(pc.address[TABLE]).v[i / COLUMNS * TABLE_COLUMNS + i % COLUMNS];
    barrier();
    if (failed) return;
    the_position = U32s(state_position()).v[0];
    layer = pc.p.layer;
    all_phases();
    tell_lost();
}
