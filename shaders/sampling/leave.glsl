// The token of a row ends a step of a loop, whose state is advanced. `next` becomes the token, and `position` counts on. `log` and
// `recent` are rings that get the token at position modulo their size.

void leave_token(uint row, uint token) {
    if (pc.address[NEXT] != 0ul) U32s(pc.address[NEXT]).v[row] = token;
    if (pc.address[POSITION] == 0ul) return;
    uint position = U32s(pc.address[POSITION]).v[row] + 1u;
    U32s(pc.address[POSITION]).v[row] = position;
    if (pc.address[LOG] != 0ul) U32s(pc.address[LOG]).v[row * pc.p.log_size + position % pc.p.log_size] = token;
    if (pc.address[RECENT] != 0ul) U32s(pc.address[RECENT]).v[row * pc.p.recent_size + position % pc.p.recent_size] = token;
}
