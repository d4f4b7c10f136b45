// 1 / rms(x) of every row, from the sums of squares that the writers of the residual left. The includer says whether it
// WAITS for those.

const uint WARP_FOURS = WARPS * 4u, SQUARE_SLOTS = (HIDDEN / 32u + WARP_FOURS - 1u) / WARP_FOURS;

// Each of 32 columns of the lane's row, four to a warp.
struct Squares {
    uvec4 s[SQUARE_SLOTS * ROW_BLOCKS];
};

shared vec4 squares[16u * (WARPS / 4u + 1u)]; // of each row and warp; one more, so that rows lie in different banks

bool has_square(uint i) { return has_row(i % ROW_BLOCKS) && warp() * 4u + lane_column() + i / ROW_BLOCKS * WARP_FOURS < HIDDEN / 32u; }

void read_squares(uint part, inout Squares s) {
    [[unroll]] for (uint i = 0; i < SQUARE_SLOTS * ROW_BLOCKS; i++) {
        uint eight = (warp() * 4u + lane_column() + i / ROW_BLOCKS * WARP_FOURS) * 4u;
        uint64_t at = in_state(square_at(part, i % ROW_BLOCKS * 8u + lane_row(), eight));
        s.s[i] = uvec4(0);
        if (has_square(i)) s.s[i] = WAITS ? Shared4(at).v[0] : Weights4(at).v[0];
    }
}

// To be followed by a barrier.
void share_squares(inout Squares s) {
    [[unroll]] for (uint rows = 0; rows < ROW_BLOCKS; rows++) {
        float sum = 0.0;
        [[unroll]] for (uint i = 0; i < SQUARE_SLOTS; i++)
            sum += dot(uintBitsToFloat(s.s[i * ROW_BLOCKS + rows]), vec4(1));
        sum = four_sum(sum);
        if (lane_column() == 0u) squares[(rows * 8u + lane_row()) * (WARPS / 4u + 1u) + warp() / 4u][warp() & 3u] = sum;
    }
}

// 1 / rms(x) of a row, times NORM_SCALE, which undoes the factor of values before a norm; to be called by four
// neighbours.
float scale_of(uint row) {
    uint quarter = thread() & 3u;
    float sum = quarter < WARPS / 4u ? dot(squares[row * (WARPS / 4u + 1u) + min(quarter, WARPS / 4u - 1u)], vec4(1)) : 0.0;
    return inversesqrt(four_sum(sum) * (1.0 / float(HIDDEN)) + pc.p.eps) * NORM_SCALE;
}
