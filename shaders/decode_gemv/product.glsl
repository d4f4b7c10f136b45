// A product of a workgroup's rows with the vector in shared memory, included once for each. PRODUCT is the prefix of
// its functions, PRODUCT_FORMAT its format, DEPTH the features of a row, and ROWS how many rows there are. If some layers have fewer, OWN_ROWS
// says how many this one has. RUN is how many of them a team makes at once, which divides both. DEPTH is a multiple of 32. With ROW_DEPTH a
// matrix has more features to a row. In the last step some lanes may have nothing. They read what
// the last lane of a row reads, and count it for nothing. PRODUCT_place() gives the matrix of a row, its place there,
// and its place among the scales and biases. PRODUCT_matrix() gives the number of a run's matrix, and PRODUCT_first() the first chunk
// of what the run multiplies.
//
// Lanes exchange values only where all lanes of a workgroup do. If a condition on the thread guards an exchange,
// NVIDIA's compiler makes some 25 instructions of it.

#ifndef OWN_ROWS
#define OWN_ROWS ROWS
#endif
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define OWN(name) JOIN(JOIN(PRODUCT, _), name)
#define OWN_BITS CODE_BITS(PRODUCT_FORMAT)
#ifndef ROW_DEPTH
#define ROW_DEPTH DEPTH
#endif
#define OWN_WORDS GROUP_WORDS(PRODUCT_FORMAT, RUN) // beside the codes of a group of a run

// Where this lane finds step 0 of a run.
void OWN(find)(uint run, out uint64_t codes_at, out uint64_t scales_biases_at) {
    if (!EVEN(DEPTH, ROWS, RUN) || OWN_ROWS != ROWS) run = min(run, OWN_ROWS / RUN - 1u);
    uint64_t codes;
    uint at, scales_at;
    OWN(place)(run * RUN, codes, at, scales_at);
    codes_at = codes + uint64_t(at * (ROW_DEPTH / 32u) * (OWN_BITS * 4u) + thread_lane() * LANE_BYTES(OWN_BITS));
    scales_biases_at =
        OWN(scales_biases)() +
        uint64_t((scales_at / RUN * (ROW_DEPTH / GROUP_SIZE(PRODUCT_FORMAT)) + thread_lane() / (GROUP_SIZE(PRODUCT_FORMAT) / 32u)) *
                 (OWN_WORDS * 4u));
}

// How many lanes this one is after the last that has 32 features of a step.
uint OWN(behind)(uint step) {
    const uint last = DEPTH / 32u % 16u - 1u; // of the last step
    return step + 1u == STEPS_OF(DEPTH) && thread_lane() > last ? thread_lane() - last : 0u;
}
// Whether a step has the features of part `part` of four, or this lane's eight of them.
bool OWN(has)(uint step, uint part) {
    if (DEPTH % 128u != 0u) return step * 64u + part * 16u + thread_lane() < DEPTH / 8u;
    return DEPTH % 512u == 0u || step * 4u + part < DEPTH / 128u;
}

// Asks for a unit of this team.
void OWN(load)(uint unit, uint slot) {
    const uint row_words = ROW_DEPTH * OWN_BITS / 128u, unit_words = 4u * OWN_BITS, scales = 512u / GROUP_SIZE(PRODUCT_FORMAT) * OWN_WORDS;
    bool late = unit >= turn && HAS_TURN(DEPTH, ROWS, RUN);
    uint64_t codes_at = late ? late_codes : early_codes, from = late ? late_scales_biases : early_scales_biases;
    uint step = unit - turn + (late ? 0u : STEPS_OF(DEPTH)); // of the run
    if (OWN_BITS != 16u && DEPTH % 512u != 0u) {
        uint behind = OWN(behind)(step);
        codes_at -= uint64_t(behind * LANE_BYTES(OWN_BITS));
        from -=
            uint64_t((thread_lane() / (GROUP_SIZE(PRODUCT_FORMAT) / 32u) - (thread_lane() - behind) / (GROUP_SIZE(PRODUCT_FORMAT) / 32u)) *
                     (OWN_WORDS * 4u));
    }
    Weights4 codes = Weights4(codes_at);
    [[unroll]] for (uint i = 0; i < RUN; i++) {
        uint at = unit * unit_words + i * row_words, to = OWN_BITS == 16u ? 2u * (slot + i) % 8u : slot + i;
        if (OWN_BITS != 16u || DEPTH % 128u == 0u) ring[to].first = codes.v[at];
        else ring[to].first = OWN(has)(step, 0u) ? codes.v[at] : uvec4(0);
        if (OWN_BITS == 8u) ring[to].second = codes.v[at + 1u];
        if (OWN_BITS == 16u) {
            ring[to].second = OWN(has)(step, 1u) ? codes.v[at + 16u] : uvec4(0);
            ring[to + 1u].first = OWN(has)(step, 2u) ? codes.v[at + 32u] : uvec4(0);
            ring[to + 1u].second = OWN(has)(step, 3u) ? codes.v[at + 48u] : uvec4(0);
        }
    }
    if (OWN_BITS == 16u) { // no scales
    } else if (OWN_WORDS % 4u == 0u) {
        [[unroll]] for (uint i = 0; i < OWN_WORDS; i += 4u) {
            uvec4 w = Weights4(from).v[(unit * scales + i) / 4u];
            [[unroll]] for (uint j = 0; j < 4u; j++)
                ring_scales_biases[slot + i + j] = w[j];
        }
    } else if (OWN_WORDS % 2u == 0u) {
        [[unroll]] for (uint i = 0; i < OWN_WORDS; i += 2u) {
            uvec2 w = Weights2(from).v[(unit * scales + i) / 2u];
            ring_scales_biases[slot + i] = w.x;
            ring_scales_biases[slot + i + 1u] = w.y;
        }
    } else [[unroll]]
        for (uint i = 0; i < OWN_WORDS; i++) ring_scales_biases[slot + i] = Weights1(from).v[unit * scales + i];
}

// What chunk_dot() takes as the scales and biases of row `row` of the run whose words are from `slot` on.
uint OWN(beside)(uint slot, uint row) {
    if (!IS_E2M1(PRODUCT_FORMAT)) return ring_scales_biases[slot + row];
    return ROW_BYTES(ring_scales_biases, slot, row, PRODUCT_FORMAT);
}

// The first loads of a section, which do not depend on the vector.
void OWN(ahead)(uint section) {
    const uint each = SECTION(DEPTH, ROWS, RUN), flight = IN_FLIGHT(OWN_BITS) / RUN, steps = STEPS_OF(DEPTH);
    uint first = (team() * SECTIONS(DEPTH, ROWS, RUN) + section) * each, run = first / steps, step = first % steps;
    turn = steps - step;
    OWN(find)(run, early_codes, early_scales_biases);
    early_codes += uint64_t(step * (OWN_BITS * 64u));
    early_scales_biases += uint64_t(step * (512u / GROUP_SIZE(PRODUCT_FORMAT) * OWN_WORDS * 4u));
    if (HAS_TURN(DEPTH, ROWS, RUN)) {
        OWN(find)(run + 1u, late_codes, late_scales_biases);
        late_codes -= uint64_t(turn * (OWN_BITS * 64u));
        late_scales_biases -= uint64_t(turn * (512u / GROUP_SIZE(PRODUCT_FORMAT) * OWN_WORDS * 4u));
    }
    [[unroll]] for (uint slot = 0; slot < flight; slot++)
        if (slot < each) OWN(load)(slot, slot * RUN);
}
void OWN(ahead)() { OWN(ahead)(0u); }

// Ends with a barrier.
void OWN(multiply)() {
    const uint each = SECTION(DEPTH, ROWS, RUN), flight = IN_FLIGHT(OWN_BITS) / RUN, steps = STEPS_OF(DEPTH), folded = FOLDED(RUN);
    const uint runs = HAS_TURN(DEPTH, ROWS, RUN) ? 2u : 1u;
    [[dont_unroll]] for (uint section = 0; section < SECTIONS(DEPTH, ROWS, RUN); section++) {
        if (SECTIONS(DEPTH, ROWS, RUN) > 1u && section > 0u) OWN(ahead)(section);
        float sum[MAX_RUN], before[MAX_RUN]; // of the run at hand, and of the one before it
        [[unroll]] for (uint i = 0; i < MAX_RUN; i++)
            sum[i] = before[i] = 0.0;
        uint units = each > flight ? each + (pc.p.capacity >> 31) : each; // + 0: compilers unroll loops of a length that they know
        uint place = (steps - turn) * 16u + thread_lane();
        uint run = (team() * SECTIONS(DEPTH, ROWS, RUN) + section) * each / steps;
        uint matrix = OWN(matrix)(run), values = OWN(first)(run);
        for (uint first = 0; first < units; first += flight) {
            [[unroll]] for (uint slot = 0; slot < flight; slot++) {
                uint unit = first + slot;
                if (slot >= each) continue;
                if (each % flight != 0u && slot >= each % flight && unit >= units) continue;
                if (runs == 2u) {
                    bool turned = unit == turn;
                    [[unroll]] for (uint i = 0; i < RUN; i++) {
                        before[i] = turned ? sum[i] : before[i];
                        sum[i] = turned ? 0.0 : sum[i];
                    }
                    if (turned) {
                        place -= steps * 16u;
                        matrix = OWN(matrix)(run + 1u);
                        values = OWN(first)(run + 1u);
                    }
                }
                if (OWN_BITS == 16u) {
                    Eights e = eights_get(values, place, DEPTH);
                    [[unroll]] for (uint i = 0; i < RUN; i++) {
                        uint at = 2u * (slot * RUN + i) % 8u;
                        sum[i] += dense_dot(ring[at], ring[at + 1u], e);
                    }
                } else {
                    Chunk c = chunk_get(values + (DEPTH % 512u == 0u ? place : min(place, DEPTH / 32u - 1u)));
                    if (DEPTH % 512u != 0u && place >= DEPTH / 32u) c.scale = c.sum = 0.0;
                    [[unroll]] for (uint i = 0; i < RUN; i++)
                        sum[i] += chunk_dot(ring[slot * RUN + i], OWN(beside)(slot * RUN, i), c, PRODUCT_FORMAT, matrix);
                }
                place += 16u;
                if (each > flight && unit + flight < units) OWN(load)(unit + flight, slot * RUN);
            }
        }
        float x[2u * MAX_RUN];
        [[unroll]] for (uint i = 0; i < MAX_RUN; i++) {
            x[i] = runs == 2u && turn < each ? before[i] : sum[i];
            x[MAX_RUN + i] = 0.0;
        }
        if (runs == 2u && folded == 8u) {
            [[unroll]] for (uint i = 0; i < 8u; i++)
                x[8u + i] = sum[i];
        } else if (runs == 2u && folded == 4u) {
            [[unroll]] for (uint i = 0; i < 4u; i++)
                x[4u + i] = sum[i];
        } else if (runs == 2u && folded == 2u) {
            x[2] = sum[0];
            x[3] = sum[1];
        } else if (runs == 2u) x[1] = sum[0];
        leave(x, runs * folded, (team() * SECTIONS(DEPTH, ROWS, RUN) + section) * 2u * folded);
    }
    barrier();
}

// The sum of a row, by its parts in their order.
float OWN(sum)(uint row) {
    const uint each = SECTION(DEPTH, ROWS, RUN), steps = STEPS_OF(DEPTH), folded = FOLDED(RUN);
    uint run = row / RUN, of_run = row % RUN;
    uint first = run * steps / each, last = (run * steps + steps - 1u) / each;
    float x = 0.0;
    for (uint i = first; i <= last; i++) [[unroll]]
        for (uint piece = 0; piece < PIECES; piece++)
            x += sums[(i * 2u * folded + (run - i * each / steps) * folded + of_run) * PIECES + piece];
    return x;
}

#undef PRODUCT
#undef DEPTH
#undef ROW_DEPTH
#undef ROWS
#undef OWN_ROWS
#undef RUN
#undef OWN
#undef OWN_BITS
#undef OWN_WORDS
#undef PRODUCT_FORMAT
#undef JOIN
#undef JOIN2
