// The main function of kernels that have the phases of many layers in one dispatch. Each workgroup goes through all of them, and polls the
// words of the others until they are there. That needs all workgroups to run at the same time, which Vulkan does not promise.
// schedule/decoder/megakernel.ts decides whether it is tried. A workgroup that waits for too long sets the status. With one of PHASES a
// dispatch is that phase, after a barrier, for tests.

shared bool failed;
shared uint nothing; // 0

void look_again() {
    own_thread = (gl_LocalInvocationID.x | nothing) & (THREADS - 1u);
    own_workgroup = gl_WorkGroupID.x | nothing;
#ifdef RECURRENT
    own_tag = tag_of_kind();
#endif
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
#ifdef RECURRENT
    find_state();
#endif
    layer = pc.p.layer;
    all_phases();
    tell_lost();
}
