#version 460
// out[row] = log probabilities: that of the row's token, those of the `top` most probable tokens, and then their
// indices as floats. More probable tokens come first, and lower indices first among equals. With `position`, `out` is a
// ring of log_size such lists for each row, written at position modulo its size. One workgroup a slice, and the one of
// a row that is done last writes; see sample.glsl. top < cols.

#define BUFFERS 7
const bool DRAWS = false;
const uint LOGITS = 0u, BEST = 1u, SCRATCH = 2u, TOKENS = 3u, POSITION = 4u, OUT = 5u, MASK = 6u;
#include "sample.glsl"
#include "slices.glsl"
#include "select.glsl"

// The most probable of the list's entries after `last`, as (key, index upside down), which it is ordered by.
uvec2 next_of_list(uvec2 last) {
    uvec2 next = uvec2(0);
    for (uint n = thread(); n < list_size; n += THREADS) {
        uvec2 e = Left2s(list).v[n];
        uvec2 own = uvec2(key_of(uintBitsToFloat(e.y)), ~e.x);
        bool behind = own.x < last.x || (own.x == last.x && own.y < last.y);
        if (behind && (own.x > next.x || (own.x == next.x && own.y > next.y))) next = own;
    }
    uint key = largest(next.x);
    return uvec2(key, largest(next.x == key ? next.y : 0u));
}

void main() {
    uint row = gl_WorkGroupID.y, slice = gl_WorkGroupID.x, top = pc.p.top;
    temperature = 1.0;
    top_k = top;
    few = true;
    Parts parts = load_parts(row);
    uint64_t row_scratch = scratch(row);
    Slice own = load_slice(row, slice);
    uint token = min(U32s(pc.address[TOKENS]).v[row], COLS - 1u);
    uvec2 extremes = begin_slice(parts);
    Bounds bounds = no_bounds();
    if (top > pc.p.bests) bounds.first = 0u; // all are listed: the largest of parts do not tell enough
    else if (top > 0u) bounds = few_bounds(parts, value_of(extremes.y));
    leave_slice(row_scratch, slice, own, bounds);
    if (!finish_slice(row_scratch)) return;

    uint64_t slice_mass = take_slices(row_scratch), total;
    running_sum(slice_mass, total);
    // Where the largest is infinite or NaN, differences from it say it all.
    float rest = is_finite(most) ? m_log((float(uint(total >> 32)) * 4294967296.0 + float(uint(total))) * 4.5474735e-13) : 0.0;
    uint at = row;
    if (pc.address[POSITION] != 0ul) at = at * pc.p.log_size + U32s(pc.address[POSITION]).v[row] % pc.p.log_size;
    F32s out_ = F32s(pc.address[OUT] + uint64_t(at) * (1u + 2u * top) * 4ul);
    if (thread() == 0u) out_.v[0] = logit(row, token) - most - rest;
    if (top > 0u && list_size <= THREADS) {
        float x = uintBitsToFloat(own_entry.y);
        Rank r = rank_in_list(key_of(x), own_entry.x);
        if (thread() < list_size && r.ahead < top) {
            out_.v[1u + r.ahead] = x - most - rest;
            out_.v[1u + top + r.ahead] = float(own_entry.x);
        }
    } else {
        uvec2 last = uvec2(0xffffffffu);
        for (uint n = 0u; n < top; n++) {
            last = next_of_list(last);
            if (thread() > 0u) continue;
            out_.v[1u + n] = value_of(last.x) - most - rest;
            out_.v[1u + top + n] = float(~last.y);
        }
    }
    barrier();
    clear_list(row_scratch);
}
