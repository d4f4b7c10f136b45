// residual += W h of eight sequences: h comes in blocks of 8 activations in 16 bits, one to a word of codes (batch.glsl).
//
// A tile is 8 rows, which lie in shared memory in the order of places. Each of 16 warps takes its places, two at once: lane 4s + t
// gets the sums of rows 2t and 2t + 1 with sequence s. With MATRICES a row of activations has both places, and each column the
// weights of one of them and zeros for the other, so one product gives the four sums apart.

const uint ROW_LOADS = (ROWS * (O_WORDS > DOWN_WORDS ? O_WORDS : DOWN_WORDS) + THREADS - 1u) / THREADS;
const uint MOST_GROUPS = (O_WORDS > DOWN_WORDS ? O_WORDS : DOWN_WORDS) * 8u / GROUP;
#define EIGHTS_AT_ONCE 3u // of places

shared uvec2 row_affine[4u * MOST_GROUPS]; // of two rows

// Codes of 8 rows and their scales and biases as they lie in memory.
struct Rows { uint codes[ROW_LOADS]; uvec4 affine; };

void load_rows(uint tile, uint64_t codes, uint64_t affine, uint words, inout Rows rows) {
    [[unroll]] for (uint i = 0; i < ROW_LOADS; i++)
        rows.codes[i] = Weights1(codes).v[tile * ROWS * words + min(thread() + i * THREADS, ROWS * words - 1u)];
    uint groups = words * 8u / GROUP;
    rows.affine = Weights4(affine).v[tile * 2u * groups + min(thread(), 2u * groups - 1u)];
}

// Brings them to shared memory; a barrier is to follow.
void keep_rows(uint words, uint run, inout Rows rows) {
    [[unroll]] for (uint i = 0; i < ROW_LOADS; i++) {
        uint at = thread() + i * THREADS;
        if (at < ROWS * words) pool[at / words * ROW_STRIDE + place_of(at % words, words, run)] = rows.codes[i];
    }
    uint groups = words * 8u / GROUP, pair = thread() / groups * 2u;
    if (thread() < 2u * groups) {
        row_affine[pair * groups + thread() % groups] = rows.affine.xy;
        row_affine[(pair + 1u) * groups + thread() % groups] = rows.affine.zw;
    }
}

// Of rows 2t and 2t + 1 at one place, then at the next.
vec4 pair_sums(uint place, uint word0, uint word1, uint block0, uint block1) {
#ifdef MATRICES
    uint shift = 4u * (lane() & 3u);
    MATRIX_A a = matrix_a(bytes_minus(block0 >> 8), bytes_minus(block1 >> 8), bytes_minus(block0), bytes_minus(block1));
    MATRIX_B b = matrix_b(low_nibbles(word0 >> shift), f16vec2(0), f16vec2(0), low_nibbles(word1 >> shift));
    MATRIX_SUM m = coopMatMulAdd(a, b, MATRIX_SUM(0.0));
    return vec4(fma(m[0], 256.0, m[4]), fma(m[1], 256.0, m[5]), fma(m[2], 256.0, m[6]), fma(m[3], 256.0, m[7]));
#else
    vec4 sums = vec4(0);
    [[unroll]] for (uint i = 0; i < 2u; i++) {
        [[unroll]] for (uint n = 0; n < 4u; n++) { // elements, of which each lane has one
            uint e = lane_xor(i == 0u ? block0 : block1, n), t = (lane() & 3u) ^ n;
            ivec2 x = ivec2(e & 0xffffu, e >> 16) - 0x8080;
            [[unroll]] for (uint r = 0; r < 2u; r++) {
                uint w = pool[(2u * (lane() & 3u) + r) * ROW_STRIDE + place + i] >> (4u * t);
                sums[2u * i + r] += float(x.x * int(w & 15u) + x.y * int(w >> 16 & 15u));
            }
        }
    }
    return sums;
#endif
}

// What lies in the residual of the row that a thread finishes.
uint64_t residual_before(uint tile, uint eight) {
    sequence = min(eight * ROWS + (thread() >> 5 & 7u), SEQUENCES - 1u);
    return pack64(Shared2(in_state(AT_SUMS)).v[tile * ROWS + (thread() >> 2 & 7u)]);
}

// Sums in 2^-24 of two rows, as floats of 2^-10 and of what is left, both of which are whole numbers beside WHOLE: conversions are
// slow. What is too large for that is added apart.
struct Totals { uvec2 high, low; uint64_t large[2]; };
const float MOST_QUICK = 4000.0;

void add_total(vec4 x, inout Totals total) {
    precise vec4 high = fma(x, vec4(1024.0), vec4(WHOLE)), whole = high - WHOLE;
    precise vec4 rest = fma(whole, vec4(-1.0 / 1024.0), x), low = fma(rest, vec4(SUM_STEPS), vec4(WHOLE));
    vec2 most = max(abs(x.xy), abs(x.zw));
    if (max(most.x, most.y) < MOST_QUICK) {
        total.high += floatBitsToUint(high.xy) + floatBitsToUint(high.zw) - 2u * floatBitsToUint(WHOLE);
        total.low += floatBitsToUint(low.xy) + floatBitsToUint(low.zw) - 2u * floatBitsToUint(WHOLE);
    } else {
        [[unroll]] for (uint i = 0; i < 4u; i++) total.large[i & 1u] += pack64(sum_of(x[i]));
    }
}
uint64_t total_of(Totals t, uint r) { return uint64_t((int64_t(int(t.high[r])) << 14) + int64_t(int(t.low[r]))) + t.large[r]; }

// The word at a place of the warp's: pair n of units, part, and which of the two.
uint word_of(uint pair, uint part, uint i, uint parts, uint run) {
    uint unit = warp() * WARP_UNITS;
    if (run == 1u) return unit * parts + (2u * pair + i) * parts + part;
    if (run % WARP_UNITS == 0u) return (unit / run * parts + part) * run + unit % run + 2u * pair + i;
    unit += 2u * pair + i;
    return (unit / run * parts + part) * run + unit % run;
}

// Adds products of the rows in shared memory with a group of eight sequences.
void add_rows(uint tile, uint eight, uint words, uint run, uint64_t before) {
    uint parts = parts_of(words), places = places_of_warp(words), groups = words * 8u / GROUP, t = lane() & 3u;
    sequence = min(eight * ROWS + (lane() >> 2), SEQUENCES - 1u);
    Totals total = Totals(uvec2(0), uvec2(0), uint64_t[2](0ul, 0ul));
    vec4 sums = vec4(0);
    [[unroll]] for (uint first = 0; first < places; first += 8u * EIGHTS_AT_ONCE) {
        uvec4 blocks[2u * EIGHTS_AT_ONCE], scales[EIGHTS_AT_ONCE];
        [[unroll]] for (uint i = 0; i < EIGHTS_AT_ONCE; i++) {
            if (first + 8u * i >= places) continue;
            uint at = warp() * places + first + 8u * i;
            blocks[2u * i] = Shared4(in_state(AT_BLOCKS)).v[at + t];
            blocks[2u * i + 1u] = Shared4(in_state(AT_BLOCKS)).v[at + 4u + t];
            scales[i] = Shared4(in_state(AT_SCALES)).v[at / 2u + t];
        }
        [[unroll]] for (uint j = 0; j < 8u * EIGHTS_AT_ONCE; j += 2u) {
            uint n = first + j, part = n / 2u % parts, pair = n / 2u / parts;
            if (pair >= WARP_UNITS / 2u) continue;
            uint place = warp() * places + n, row = (lane() >> 2) * ROW_STRIDE + place, from = (lane() & 28u) | (j / 2u & 3u);
            vec4 x = pair_sums(place, pool[row], pool[row + 1u], blocks[j / 4u][j & 3u], blocks[j / 4u][(j & 3u) + 1u]);
            [[unroll]] for (uint i = 0; i < 2u; i++) {
                vec2 scale = vec2(lane_get(uintBitsToFloat(scales[j / 8u][2u * i]), from), lane_get(uintBitsToFloat(scales[j / 8u][2u * i + 1u]), from));
                uint word = word_of(pair, part, i, parts, run);
                uvec2 affine = row_affine[t * groups + min(word, words - 1u) * 8u / GROUP];
                bool there = (UNITS % 32u == 0u || warp() * WARP_UNITS + 2u * pair + i < UNITS) && (words % UNITS == 0u || word < words);
                [[unroll]] for (uint r = 0; r < 2u; r++) {
                    vec2 sb = pair_value(affine[r], DTYPE_W);
                    float y = fma(sb.x * scale.x, x[2u * i + r], sb.y * scale.y);
                    if (there) sums[2u * i + r] += y;
                }
            }
            if (part + 1u == parts) {
                add_total(sums, total);
                sums = vec4(0);
            }
        }
    }
    // Sums of all warps for each sequence and row; four lanes add them up.
    [[unroll]] for (uint r = 0; r < 2u; r++) {
        uint at = ROW_WORDS + (warp() * 64u + (lane() >> 2) * ROWS + 2u * t + r) * 2u;
        uvec2 both = unpack32(total_of(total, r));
        pool[at] = both.x;
        pool[at + 1u] = both.y;
    }
    barrier();
    uint64_t sum = 0ul;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        uint at = ROW_WORDS + ((t + 4u * i) * 64u + (thread() >> 2 & 63u)) * 2u;
        sum += pack64(uvec2(pool[at], pool[at + 1u]));
    }
    sum += lane_xor64(sum, 1u);
    sum += lane_xor64(sum, 2u) + before;
    sequence = eight * ROWS + (thread() >> 5);
    if (t != 0u || thread() >= 4u * ROWS * ROWS || sequence >= SEQUENCES) return;
    uint row = tile * ROWS + (thread() >> 2 & 7u);
    Shared2(in_state(AT_SUMS)).v[row] = unpack32(sum);
    Shared1(in_state(AT_X)).v[row] = floatBitsToUint(sum_value(unpack32(sum)));
}
