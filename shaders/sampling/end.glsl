// The token of a row from its logits and the largest of its parts, and then the loop's state, for the kernels that
// draw. The workgroup that is done last chooses; no workgroup waits.

const bool DRAWS = true;
#include "slices.glsl"
#include "select.glsl"
#include "include/math/threefry.h"

// The number that a token is drawn with: at address `uniforms`, or out of the key at address `key`. That key becomes
// the half of it that is not for this draw. The workgroup after those of the slices finds the number, while the others
// look at logits.
float take_uniform(uint row, uint64_t uniforms, uint64_t key) {
    if (key == 0ul) return F32s(uniforms).v[row];
    uvec2 whole = U32x2s(key).v[row];
    uvec2 a = unpack32(threefry(whole.x, whole.y, 0u, 2u)), b = unpack32(threefry(whole.x, whole.y, 1u, 3u));
    U32x2s(key).v[row] = uvec2(a.x, b.x);
    uint word = uint(threefry(a.y, b.y, 0u, 0u));
    return min(float(word) * (1.0 / 4294967296.0), 1.0 - 1.0 / 16777216.0);
}

// Whether this is the workgroup that chooses, and then the token. Of a row that draws nothing it is the first one.
bool choose(uint row, uint slice, uint64_t settings, uint64_t uniforms, uint64_t key, out uint token) {
    take_settings(row, settings);
    Parts parts = load_parts(row);
    uint64_t row_scratch = scratch(row);
    bool counted = COUNTED != 0u && !few && (by_count() || by_mass());
    Slice own;
    uint count = 0u;
    uvec4 sums = uvec4(0);
    if (draws()) { // all that is read is asked for before anything is waited for
        own = load_slice(row, slice);
        if (counted) {
            U32s words = U32s(row_scratch);
            count = words.v[COUNTS + thread()];
            [[unroll]] for (uint l = 0; l < 4u; l++)
                sums[l] = words.v[LIMBS + l * BINS + thread()];
        }
    }
    if (slice == slices() && thread() == 0u) Left1s(row_scratch).v[UNIFORM] = floatBitsToUint(take_uniform(row, uniforms, key));
    uvec2 extremes = begin_slice(parts);
    bool drawn = draws() && is_finite(most);
    Bounds bounds = no_bounds();
    if (drawn) {
        if (few) bounds = few_bounds(parts, value_of(extremes.y));
        else if (counted) bounds = histogram_bounds(count, mass_of_limbs(sums));
        leave_slice(row_scratch, slice, own, bounds);
    }
    if (draws() ? !finish_slice(row_scratch) : slice > 0u) return false;
    if (!drawn) {
        token = best_index(parts, extremes.x);
        if (CHECKED != 0u && !is_finite_key(extremes.x)) token = NO_TOKEN;
        return true;
    }
    float uniform01 = uintBitsToFloat(Left1s(row_scratch).v[UNIFORM]);
    uint64_t slice_mass = take_slices(row_scratch);
    if (few) bounds.count_target = min(bounds.count_target, uint64_t(list_size - 1u)); // fewer than top_k may count
    if (few && by_mass()) {
        uint64_t total;
        running_sum(slice_mass, total);
        bounds.mass_target = max(mass_fraction(total, top_p), 1ul) - 1ul;
    }
    if (few && list_size <= THREADS) token = draw_from_list(bounds, uniform01);
    else token = draw_from_slices(row, few ? 0ul : slice_mass, bounds, uniform01);
    clear_list(row_scratch);
    return true;
}
