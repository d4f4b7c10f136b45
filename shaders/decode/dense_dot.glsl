// Dense weights of 16 bits of a row times activations. A lane takes 32 features of a step as four eights. Neighbouring
// lanes take neighbouring eights, so their loads are contiguous.

// Activations: four times 8 whole numbers of 16 bits and the scales of their chunks.
struct Eights {
    uvec4 x[4];
    vec4 scales;
};

float eight_dot(uvec4 weights, uvec4 x) {
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < 4u; i++) {
        vec2 w = pair_value(weights[i], DTYPE_W);
        sum = fma(w.x, float(int(x[i] << 16) >> 16), sum);
        sum = fma(w.y, float(int(x[i]) >> 16), sum);
    }
    return sum;
}

// The weights of eights 0 and 1, and of 2 and 3.
float dense_dot(Codes32 a, Codes32 b, Eights e) {
    float sum = e.scales.x * eight_dot(a.first, e.x[0]);
    sum = fma(e.scales.y, eight_dot(a.second, e.x[1]), sum);
    sum = fma(e.scales.z, eight_dot(b.first, e.x[2]), sum);
    return fma(e.scales.w, eight_dot(b.second, e.x[3]), sum);
}

// Whole numbers of two activations in a word.
uint pair_of(uint a, uint b) { return (a & 0xffffu) | b << 16; }
