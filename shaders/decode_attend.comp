#version 460
// The second phase of a layer, as decode_attend.glsl says.

#define BUFFERS 5
#include "decode.glsl"

const uint STATE = 0u, O = 1u, O_AFFINE = 2u, KEYS = 3u, VALUES = 4u;

#include "decode_attend.glsl"

void main() {
    attend_begin();
    for (uint pair = 0; pair < PAIRS; pair++) {
        if (pair > 0u) barrier(); // the parts of the pair before were read
        attend_values(pair);
        barrier();
        attend_rows(pair);
    }
    attend_end();
}
