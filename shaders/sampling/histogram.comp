#version 460
// Adds the counts and masses of a slice of logits to the histogram of its row; see sample.glsl. One workgroup a slice.

#define BUFFERS 5
const uint LOGITS = 0u, BEST = 1u, SCRATCH = 2u, SETTINGS = 3u, MASK = 4u;
#include "sample.glsl"

void main() {
    uint slice = gl_WorkGroupID.x, row = gl_WorkGroupID.y;
    take_settings(row, pc.address[SETTINGS]);
    if (!draws() || few || !(by_count() || by_mass())) return;
    float x[MAX_PER_THREAD]; // on their way while the best is found
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++)
        x[n] = logit(row, min(slice * SLICE + n * THREADS + thread(), COLS - 1u));
    float most = value_of(largest(best_key(load_parts(row))));
    if (!is_finite(most)) return;
    clear_bins();
    [[unroll]] for (uint n = 0; n < PER_THREAD; n++) {
        if (slice * SLICE + n * THREADS + thread() >= COLS) continue;
        uint bin = distance_bin(x[n], most, SAMPLE_STEPS);
        if (by_count() && may_count(x[n])) atomicAdd(counts[bin], 1u);
        if (by_mass()) add_mass(bin, mass_of(token_weight(x[n], most, 1.0)));
    }
    barrier();
    U32s histogram = U32s(scratch(row));
    uint bin = thread();
    if (counts[bin] != 0u) atomicAdd(histogram.v[COUNTS + bin], counts[bin]);
    [[unroll]] for (uint l = 0; l < 4u; l++)
        if (limbs[l][bin] != 0u) atomicAdd(histogram.v[LIMBS + l * BINS + bin], limbs[l][bin]);
}
