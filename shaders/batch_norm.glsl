// Products with the normalised residual of eight sequences: x / rms(x) * w in 16 bits, times columns of 16 rows of a matrix.
// HIDDEN is at most 1024.
//
// Lane 4s + t has sequence s of eight: it makes the 8 features of word t of a chunk of 32, and gets the sums of the four rows of
// task t. Each of 16 warps takes two chunks; the parts of all warps meet in shared memory. With MATRICES a row of 16 activations
// of a matrix is the high or the low halves of a sequence, all whole numbers, so that its float32 sums are exact. Without, 4x8-bit
// dot products give the same integers on every device, but slower than the kernels of one sequence: only tests take them.
//
// A kernel defines BLOCKS, the blocks of four tasks that it makes at once, and
//   uint64_t weight_row(uint task, uint r)     where row r of a task begins; with MATRICES instead
//   uint64_t fragments_of(uint block)          where a block begins whose words lie in the order of the lanes (batch_layouts.ts)
//   uvec4 affine_of(uint task, uint chunk)     scales and biases of its four rows

#define SLOTS 2 // chunks of a warp; the lanes of a warp take one each where there is one sequence
#define NORM_WARPS 16u

#ifdef MATRICES
MATRIX_A activations[2 * SLOTS];
struct Codes { uint first, second; }; // of columns lane / 4 and lane / 4 + 8
#else
uvec4 activations[SLOTS]; // the lane's word: high and low halves of even and odd features
struct Codes { uvec4 rows[4]; };
#endif
float chunk_scale[SLOTS], chunk_sum[SLOTS];

#ifndef STAGES
#define STAGES 1 // places for parts
#endif
shared vec4 partial[STAGES * BLOCKS * NORM_WARPS * 32u];
shared float chunk_squares[32u * ROWS];

uint chunk_of(uint slot) { return warp() + NORM_WARPS * slot; }

#ifndef MATRICES
Codes load_codes(uint block, uint chunk) {
    Codes c;
    [[unroll]] for (uint r = 0; r < 4u; r++) c.rows[r] = Weights4(weight_row(4u * block + (lane() & 3u), r)).v[min(chunk, CHUNKS - 1u)];
    return c;
}
#endif

uvec4 load_affine(uint block, uint chunk) { return affine_of(4u * block + (lane() & 3u), min(chunk, CHUNKS - 1u)); }

struct Features { vec4 x[2], w[2]; };

Features load_features(uint64_t norm, uint chunk) {
    uint at = min(chunk, CHUNKS - 1u) * 8u + 2u * (lane() & 3u);
    Features f;
    [[unroll]] for (uint i = 0; i < 2u; i++) {
        f.x[i] = CHUNKS == 32u || chunk < CHUNKS ? F32x4s(in_state(AT_X)).v[at + i] : vec4(0);
        f.w[i] = load_quad(norm, at + i, DTYPE_W);
    }
    return f;
}

#ifdef MATRICES
f16vec2 bytes_minus(uint u) { return unpackFloat2x16((u & 0x00ff00ffu) | 0x64006400u) - f16vec2(1152.0hf); }
f16vec2 low_nibbles(uint u) { return unpackFloat2x16((u & 0x000f000fu) | 0x64006400u) - f16vec2(1024.0hf); }
f16vec2 high_nibbles(uint u) { return unpackFloat2x16((u & 0x00f000f0u) | 0x54005400u) - f16vec2(64.0hf); }

MATRIX_A matrix_a(f16vec2 a, f16vec2 b, f16vec2 c, f16vec2 d) {
    MATRIX_A m;
    m[0] = a.x; m[1] = a.y; m[2] = b.x; m[3] = b.y;
    m[4] = c.x; m[5] = c.y; m[6] = d.x; m[7] = d.y;
    return m;
}
MATRIX_B matrix_b(f16vec2 a, f16vec2 b, f16vec2 c, f16vec2 d) {
    MATRIX_B m;
    m[0] = a.x; m[1] = a.y; m[2] = b.x; m[3] = b.y;
    m[4] = c.x; m[5] = c.y; m[6] = d.x; m[7] = d.y;
    return m;
}
#endif

// Scales a chunk to 16 bits.
#define QUANTISE(slot, f) { \
    vec4 v0 = f.x[0] * f.w[0], v1 = f.x[1] * f.w[1], a = max(abs(v0), abs(v1)); \
    precise float square = dot_on(f.x[0], f.x[0], 0.0) + dot_on(f.x[1], f.x[1], 0.0); \
    precise float s = dot_on(f.x[0], f.w[0], 0.0) + dot_on(f.x[1], f.w[1], 0.0); \
    float most = max(1e-20, max(max(a.x, a.y), max(a.z, a.w))); \
    [[unroll]] for (uint m = 1u; m < 4u; m <<= 1) { \
        most = max(most, lane_xor(most, m)); \
        square += lane_xor(square, m); \
        s += lane_xor(s, m); \
    } \
    if ((lane() & 3u) == 0u) chunk_squares[chunk_of(slot) * ROWS + (lane() >> 2)] = square; \
    chunk_scale[slot] = most * (1.0 / STEPS_16BIT); \
    chunk_sum[slot] = s; \
    float inverse = STEPS_16BIT / most; \
    uvec4 k0 = floatBitsToUint(fma(v0, vec4(inverse), vec4(WHOLE))), k1 = floatBitsToUint(fma(v1, vec4(inverse), vec4(WHOLE))); \
    KEEP(slot, k0, k1) \
}
#ifdef MATRICES
// Halves plus 128 are bytes; in the order in which the nibbles of a word are taken apart: 0 4 1 5, then 2 6 3 7.
#define KEEP(slot, k0, k1) \
    uvec4 even = ((k0 + 0x8080u) & 0xffffu) | ((k1 + 0x8080u) << 16); \
    activations[2 * slot] = matrix_a(bytes_minus(even.x >> 8), bytes_minus(even.y >> 8), bytes_minus(even.x), bytes_minus(even.y)); \
    activations[2 * slot + 1] = matrix_a(bytes_minus(even.z >> 8), bytes_minus(even.w >> 8), bytes_minus(even.z), bytes_minus(even.w));
#else
uint bytes_of(uint a, uint b, uint c, uint d) { return (a & 255u) | ((b & 255u) << 8) | ((c & 255u) << 16) | (d << 24); }
#define KEEP(slot, k0, k1) { \
    uvec4 h0 = (k0 + 128u) >> 8, h1 = (k1 + 128u) >> 8; \
    activations[slot] = uvec4(bytes_of(h0.x, h0.z, h1.x, h1.z), bytes_of(h0.y, h0.w, h1.y, h1.w), bytes_of(k0.x, k0.z, k1.x, k1.z), bytes_of(k0.y, k0.w, k1.y, k1.w)); \
}
#endif

// 32 weights of each of the task's four rows times the chunk in a slot.
#ifdef MATRICES
#define SUMS_OF(slot, c, sums) { \
    MATRIX_SUM m = MATRIX_SUM(0.0); \
    m = coopMatMulAdd(activations[2 * slot], matrix_b(low_nibbles(c.first), high_nibbles(c.first), low_nibbles(c.second), high_nibbles(c.second)), m); \
    m = coopMatMulAdd(activations[2 * slot + 1], matrix_b(low_nibbles(c.first >> 8), high_nibbles(c.first >> 8), low_nibbles(c.second >> 8), high_nibbles(c.second >> 8)), m); \
    sums = vec4(fma(m[0], 256.0, m[4]), fma(m[1], 256.0, m[5]), fma(m[2], 256.0, m[6]), fma(m[3], 256.0, m[7])); \
}
#else
#define SUMS_OF(slot, c, sums) { \
    ivec4 high = ivec4(0), low = ivec4(0); \
    [[unroll]] for (uint m = 0; m < 4u; m++) { \
        uvec4 a = activations[slot]; \
        if (m > 0u) [[unroll]] for (uint i = 0; i < 4u; i++) a[i] = lane_xor(a[i], m); \
        [[unroll]] for (uint r = 0; r < 4u; r++) { \
            uint w = c.rows[r][(lane() ^ m) & 3u], even = w & 0x0f0f0f0fu, odd = (w >> 4) & 0x0f0f0f0fu; \
            high[r] += dot4(even, a.x, 0) + dot4(odd, a.y, 0); \
            low[r] += dot4(even, a.z, 0) + dot4(odd, a.w, 0); \
        } \
    } \
    sums = vec4(high * 256 + low); \
}
#endif

#define ADD_SLOT(slot, acc, c, affine) \
    if (CHUNKS == 32u || chunk_of(slot) < CHUNKS) { \
        vec4 sums; \
        SUMS_OF(slot, c, sums) \
        [[unroll]] for (uint r = 0; r < 4u; r++) { \
            vec2 sb = pair_value(affine[r], DTYPE_W); \
            acc[r] += fma(sb.x * chunk_scale[slot], sums[r], sb.y * chunk_sum[slot]); \
        } \
    }

// What a block is multiplied with, as it lies in memory.
struct Weights { Codes codes[SLOTS]; uvec4 affine[SLOTS]; };

Weights load_weights(uint block) {
    Weights w;
#ifdef MATRICES
    uvec4 words = Weights4(fragments_of(block)).v[thread()];
    w.codes[0] = Codes(words.x, words.y);
    w.codes[1] = Codes(words.z, words.w);
#else
    [[unroll]] for (uint j = 0; j < SLOTS; j++) w.codes[j] = load_codes(block, chunk_of(j));
#endif
    [[unroll]] for (uint j = 0; j < SLOTS; j++) w.affine[j] = load_affine(block, chunk_of(j));
    return w;
}

// The warp's part of a block's sums. Lanes meet in the order of the sum over the lanes of one sequence: those 16 apart here, the
// others in sum_of_warps.
vec4 warp_sums(Weights w) {
    precise vec4 a = vec4(0), b = vec4(0), both;
    ADD_SLOT(0, a, w.codes[0], w.affine[0])
    ADD_SLOT(1, b, w.codes[1], w.affine[1])
    both = a + b;
    return both;
}

// Of row r of the task.
float sum_of_warps(uint at, uint r) {
    float p[16];
    [[unroll]] for (uint i = 0; i < 16u; i++) p[i] = partial[at + 32u * i][r];
    [[unroll]] for (uint i = 0; i < 8u; i++) p[i] += p[8u + i];
    [[unroll]] for (uint i = 0; i < 4u; i++) p[i] += p[4u + i];
    return (p[0] + p[2]) + (p[1] + p[3]);
}
vec4 sum_of_warps(uint at) { return vec4(sum_of_warps(at, 0u), sum_of_warps(at, 1u), sum_of_warps(at, 2u), sum_of_warps(at, 3u)); }

// Brings the activations to 16 bits, and squares to shared memory for norm_scale; to be called by all, in front of a barrier.
void normalise(uint64_t norm) {
    Features f0 = load_features(norm, chunk_of(0u)), f1 = load_features(norm, chunk_of(1u));
    QUANTISE(0, f0)
    QUANTISE(1, f1)
}

// 1 / rms(x) of the lane's sequence.
float norm_scale() {
    float total = 0.0;
    [[unroll]] for (uint i = 0; i < 8u; i++) {
        uint at = 4u * i * ROWS + (lane() >> 2);
        total += (chunk_squares[at] + chunk_squares[at + ROWS]) + (chunk_squares[at + 2u * ROWS] + chunk_squares[at + 3u * ROWS]);
    }
    return inversesqrt(fma(total, 1.0 / float(HIDDEN), pc.p.eps));
}

// Eight sequences and the norm of the lane's.
uint first_sequence() { return gl_WorkGroupID.y * ROWS; }
uint sequence_of_lane() { return first_sequence() + (lane() >> 2); }
// The last sequence stands in for those that are not there.
void take_sequence() { sequence = min(sequence_of_lane(), SEQUENCES - 1u); }
