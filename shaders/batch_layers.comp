#version 460
// The phases of many layers of several sequences in one dispatch: each workgroup goes through all of them, takes tiles of each, and
// waits until those that it depends on are done. That needs all workgroups to run at the same time, which Vulkan does not promise:
// schedule/fast.ts decides where it is tried, and a workgroup that waits for too long sets the status.
//
// `phases` has a bit for each of them, so that a dispatch may also be a single phase, behind a barrier, where workgroups do not run
// together. There are as many workgroups as qkv has. The addresses of a layer's buffers stand in rows of a table.

#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "coopmat.glsl"
#define BUFFERS 3
#define POLL
#define PUSH DecodeLayersPush

const uint STATE = 0u, STATUS = 1u, TABLE = 2u;

// Columns of the table.
const uint NORM = 0u, KEYS = 1u, VALUES = 2u, QKV_AFFINE = 3u, O = 4u, O_AFFINE = 5u, MLP_AFFINE = 6u, DOWN = 7u, DOWN_AFFINE = 8u;
const uint QKV_CODES = 9u, MLP_CODES = 10u, COLUMNS = 11u;

#define LAYER layer
#define ADDRESS(which) (pack64(addresses[(layer & 1u) * COLUMNS + which]))
uint layer;
shared uvec2 addresses[2u * COLUMNS]; // of this layer and the next one

#define POOL LAYERS_WORDS
#include "batch.glsl"

const uint QKV_PHASE = 0u, ATTEND_PHASE = 1u, O_PHASE = 2u, GATE_UP_PHASE = 3u, DOWN_PHASE = 4u;
const uint ALL_PHASES = 31u;
shared bool failed;
bool leaves; // since somebody waited for too long

// ---- waiting: the last warp looks at the counters --------------------------------------------------------------------------

void wait_until(uint phase, uint first, uint heads, uint count) {
    if (pc.p.phases == ALL_PHASES && warp() == WARPS - 1u) {
        uint looks = 0u;
        for (uint from = first; from < first + heads; from += 32u) {
            uint head = min(from + lane(), first + heads - 1u);
            // Lanes look together, so that they are together behind it.
            while (!failed && subgroupMin(Shared1(counter_at(phase, head)).v[0]) < count) {
                if (subgroupMax(uint(give_up(looks))) != 0u) failed = true;
            }
        }
    }
    barrier();
    leaves = failed;
}
void wait_for(uint phase) { wait_until(phase, 0u, KV_HEADS, (layer + 1u) * SLICES); }
void wait_for_head(uint phase, uint head) { wait_until(phase, head, 1u, (layer + 1u) * SLICES); }
void wait_behind(uint phase) { wait_until(phase, 0u, KV_HEADS, layer * SLICES); } // of the layer before

// What all threads of the workgroup wrote is there for those who see that it was counted.
void arrive(uint phase) {
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    if (thread() == 0u) atomicAdd(Shared1(counter_at(phase, kv_head())).v[0], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease);
}

#include "batch_norm.glsl"
#include "batch_qkv.glsl"
#include "batch_attend.glsl"
#include "batch_project.glsl"
#include "batch_gate_up.glsl"

const uint ATTEND_TILES = KV_HEADS * HEAD_PARTS * SEQUENCES;
const uint EIGHTS = (SEQUENCES + ROWS - 1u) / ROWS;

void project(uint codes, uint affine, uint words, uint run, uint behind) {
    [[dont_unroll]] for (uint tile = gl_WorkGroupID.x; tile < HIDDEN / ROWS; tile += gl_NumWorkGroups.x) {
        Rows rows;
        load_rows(tile, ADDRESS(codes), ADDRESS(affine), words, rows);
        uint64_t before = residual_before(tile, 0u);
        keep_rows(words, run, rows);
        wait_for(behind);
        add_rows(tile, 0u, words, run, before);
        [[dont_unroll]] for (uint eight = 1; eight < EIGHTS; eight++) {
            barrier(); // the sums of warps were read
            add_rows(tile, eight, words, run, residual_before(tile, eight));
        }
    }
}

void load_addresses(uint of) {
    if (thread() < COLUMNS && of < pc.p.layer + pc.p.layers)
        addresses[(of & 1u) * COLUMNS + thread()] = Weights2(pc.address[TABLE]).v[(of - pc.p.layer) * COLUMNS + thread()];
}

void main() {
    if (thread() == 0u) failed = Shared1(pc.address[STATUS]).v[0] != 0u;
    load_addresses(pc.p.layer);
    barrier();
    if (failed) return;
    leaves = false;
    for (layer = pc.p.layer; layer < pc.p.layer + pc.p.layers && !leaves; layer++) {
        load_addresses(layer + 1u);
        if ((pc.p.phases & 1u) != 0u) {
            qkv(0u, EIGHTS);
            arrive(QKV_PHASE);
        }
        if ((pc.p.phases & 2u) != 0u) {
            [[dont_unroll]] for (uint tile = gl_WorkGroupID.x; tile < ATTEND_TILES; tile += gl_NumWorkGroups.x) {
                if (tile != gl_WorkGroupID.x) keep_new();
                attend(tile % (KV_HEADS * HEAD_PARTS), tile / (KV_HEADS * HEAD_PARTS));
            }
            arrive(ATTEND_PHASE);
            if (gl_WorkGroupID.x < ATTEND_TILES) keep_new(); // nobody waits for that
        }
        if ((pc.p.phases & 4u) != 0u) {
            project(O, O_AFFINE, O_WORDS, O_RUN, ATTEND_PHASE);
            arrive(O_PHASE);
        }
        if ((pc.p.phases & 8u) != 0u) {
            gate_up(0u, EIGHTS);
            arrive(GATE_UP_PHASE);
        }
        if ((pc.p.phases & 16u) != 0u) {
            project(DOWN, DOWN_AFFINE, DOWN_WORDS, DOWN_RUN, GATE_UP_PHASE);
            arrive(DOWN_PHASE);
        }
    }
}
