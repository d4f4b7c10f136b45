// Words that workgroups of the kernels in shaders/decode_gemv exchange: float32 whose two lowest bits, the tag, say in which
// layer they were written. A reader that waits spins until its words have the right tags. So there are neither counters
// nor fences, and nothing is zeroed. Neighbouring layers have different tags, and so have the last layer and the first
// one of the next token. Nothing is overwritten before all its readers are done, since what takes its place comes from
// what all of them made.

const uint TAG_OPENED = 3u; // of the embedding, and of what no layer wrote yet
uint tag_of(uint layer) { return layer == 0u ? 2u : layer & 1u; }
uint tag_before(uint layer) { return layer == 0u ? TAG_OPENED : tag_of(layer - 1u); }

uint word_of(float x, uint tag) { return (floatBitsToUint(x) & ~3u) | tag; }
float word_value(uint w) { return uintBitsToFloat(w & ~3u); }
vec4 word_value(uvec4 w) { return uintBitsToFloat(w & ~3u); }

// Stores a value with a tag, and gives it as all will read it.
float word_store(uint at, float x, uint tag) {
    uint w = word_of(x, tag);
    Shared1(state() + at).v[0] = w;
    return word_value(w);
}

// Words that lie at `at`, once they have a tag.
uint words_missing(uvec4 w, uint tag) {
    uvec4 d = (w ^ uvec4(tag)) & 3u;
    return (d.x | d.y) | (d.z | d.w);
}
#ifdef POLL
uint wait_word(uint at, uint tag) {
    uint spins = 0u, w;
    do w = Shared1(state() + at).v[0];
    while (((w ^ tag) & 3u) != 0u && !give_up(spins));
    return w;
}
uvec4 wait_quad(uint at, uint tag) {
    uint spins = 0u;
    uvec4 w;
    do w = Shared4(state() + at).v[0];
    while (words_missing(w, tag) != 0u && !give_up(spins));
    return w;
}
#else
uint wait_word(uint at, uint tag) { return Shared1(state() + at).v[0]; }
uvec4 wait_quad(uint at, uint tag) { return Shared4(state() + at).v[0]; }
#endif

// Waits for several words at once: repeats a block that loads the missing ones. The block sets `missing` if a word
// was not there yet. All loads are in flight together, so waiting takes one way to the cache and back after the last
// store, not one for each word.
#ifdef POLL
#define POLL_ALL(block) \
    { \
        uint spins = 0u; \
        bool missing; \
        do { \
            missing = false; \
            block \
        } while (missing && !give_up(spins)); \
    }
#else
#define POLL_ALL(block) \
    { \
        bool missing = false; \
        block \
    }
#endif

// ---- the residual, for what opens a token and for the head --------------------------------------------------------------------

uint64_t state_before(uint layer) { return state() + AT_RESIDUAL; }
vec4 residual_quad(uint64_t residual, uint quad) { return word_value(Shared4(residual).v[quad]); }
void open_residual(uint quad, vec4 x) {
    uvec4 w;
    [[unroll]] for (uint i = 0; i < 4u; i++)
        w[i] = word_of(x[i], TAG_OPENED);
    Shared4(state_before(0u)).v[quad] = w;
}

// The words that layers exchange are marked as not written yet.
void clear_accumulators(uint kept, uint now, uint first, uint step) {
    for (uint i = first; i < (AT_END - AT_QKV) / 16u; i += step) Shared4(state() + AT_QKV).v[i] = uvec4(TAG_OPENED);
}
void clear_read(uint first, uint step) {}
