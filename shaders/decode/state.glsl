// Where the state of a token has its parts, the position, numbers that were lost, and waits that are given up.

// The state of one token; those of the sequences are contiguous. Offsets have 32 bits: a state has less than 4 GB.
#if ACCUMULATORS == 3
#include "generated/gemv_state.glsl"
#define state_bytes() AT_END
#else
const uint POLLED = ACCUMULATORS == 2 ? 1u : 0u;
#include "generated/decode_state.glsl"
#endif

uint64_t state() { return pc.address[0] + uint64_t(SEQUENCE) * state_bytes(); }
uint64_t state_position() { return state() + AT_POSITION; }
uint64_t state_counter() { return state() + AT_COUNTER; }
uint64_t state_best() { return state() + AT_BEST; }
uint64_t state_lost() { return state() + AT_LOST; }
uint64_t state_rope_angles(uint rope) { return state() + (AT_ROPE_ANGLES + rope * BYTES_ROPE_ANGLES); }
uint64_t state_frequencies() { return state() + AT_FREQUENCIES; }

#ifdef POLL
uint the_position;
uint position() { return the_position; }
#else
uint position() { return U32s(state_position()).v[0]; }
#endif

// Integers, of sums or of activations, cannot hold NaN, infinities and numbers as large. The state says that such a
// number was lost, and the head gives NaN. Bits are compared, since compilers may assume that NaN does not occur. Of
// floats, squares still have to add up.
const uint LOST_BITS = ACCUMULATORS == 3 ? 0x5c000000u : ACCUMULATORS == 1 ? 0x4c000000u : 0x4e000000u;

// The largest magnitude that this thread came across, reported once at the end of a kernel. A test of each number,
// followed by a store, would keep the compiler from moving the code around it.
uint noted_bits = 0u;
void note_lost(float x) { noted_bits = max(noted_bits, floatBitsToUint(x) & 0x7fffffffu); }
void tell_lost() {
    if (noted_bits >= LOST_BITS) U32s(state_lost()).v[0] = 1u;
}

#ifdef POLL
// Counts a poll that came too early. Beyond the spin limit something is wrong: the status says so, and all workgroups leave.
bool give_up(inout uint spins) {
    if (++spins >= pc.p.spin_limit) Shared1(pc.address[STATUS]).v[0] = 1u;
    else if ((spins & 63u) != 0u) return false;
    return Shared1(pc.address[STATUS]).v[0] != 0u;
}
#endif
