// What workgroups of the kernels in shaders/decode_rows hand over: float32 whose two lowest bits, the tag, say in which layer they were
// written. A reader that waits spins until its words have the right tags, so there are neither counters nor fences, and nothing is
// zeroed: neighbouring layers have different tags, and so have the last layer and the first one of the next token. Nothing is
// overwritten before all its readers are done, since what takes its place comes from what all of them made.

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
#ifdef POLL
uint words_missing(uvec4 w, uint tag) {
    uvec4 d = (w ^ uvec4(tag)) & 3u;
    return (d.x | d.y) | (d.z | d.w);
}
uint wait_word(uint at, uint tag) {
    uint64_t from = state() + at;
    uint spins = 0u, w = Shared1(from).v[0];
    while (((w ^ tag) & 3u) != 0u && !give_up(spins)) w = Shared1(from).v[0];
    return w;
}
uvec4 wait_quad(uint at, uint tag) {
    uint64_t from = state() + at;
    uint spins = 0u;
    uvec4 w = Shared4(from).v[0];
    while (words_missing(w, tag) != 0u && !give_up(spins)) w = Shared4(from).v[0];
    return w;
}
void wait_eight(uint at, uint tag, out vec4 a, out vec4 b) {
    uint64_t from = state() + at;
    uint spins = 0u;
    uvec4 first = Shared4(from).v[0], second = Shared4(from).v[1];
    while ((words_missing(first, tag) | words_missing(second, tag)) != 0u && !give_up(spins)) {
        first = Shared4(from).v[0];
        second = Shared4(from).v[1];
    }
    a = word_value(first);
    b = word_value(second);
}
#else
uint wait_word(uint at, uint tag) { return Shared1(state() + at).v[0]; }
uvec4 wait_quad(uint at, uint tag) { return Shared4(state() + at).v[0]; }
void wait_eight(uint at, uint tag, out vec4 a, out vec4 b) {
    a = word_value(Shared4(state() + at).v[0]);
    b = word_value(Shared4(state() + at).v[1]);
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

// What layers hand over is marked as not written yet.
void clear_accumulators(uint kept, uint now, uint first, uint step) {
    for (uint i = first; i < (AT_END - AT_QKV) / 16u; i += step) Shared4(state() + AT_QKV).v[i] = uvec4(TAG_OPENED);
}
void clear_read(uint first, uint step) {}
