// The rows of the residual that a workgroup of the gemv kernels owns: a thread each.

float carried; // the residual of the row that a thread owns, as all read it

bool owns() { return thread() < O_ROWS && (EVEN_RESIDUAL || workgroup() * O_ROWS + thread() < HIDDEN); }
uint own_place(uint at) { return at + (workgroup() * O_ROWS + thread()) * 4u; }

void take_carried(uint at) {
    if (!owns()) return;
    carried = word_value(Shared1(state() + own_place(at)).v[0]);
    note_lost(carried);
}

void add_to_residual(uint at, float x) {
    if (!owns()) return;
    carried =
        word_store(own_place(at), RESIDUAL_SCALE == ONE ? carried + x : fma(uintBitsToFloat(RESIDUAL_SCALE), x, carried), tag_of(LAYER));
    note_lost(carried);
}
