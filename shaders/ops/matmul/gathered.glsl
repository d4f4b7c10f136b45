// Operands of a batch row of gathered_matmul.

layout(constant_id = 10) const uint HAS_LEFT = 0;
layout(constant_id = 11) const uint HAS_RIGHT = 0;
layout(constant_id = 12) const uint HAS_RANGES = 0;

uint chosen(uint64_t indices, uint i, uint count) { return min(U32s(indices).v[i], count - 1u); }

uvec2 gathered_depths(uint batch) {
    if (HAS_RANGES == 0) return uvec2(0, pc.p.k);
    uint end = min(U32s(pc.address[5]).v[2u * batch + 1u], pc.p.k);
    return uvec2(min(U32s(pc.address[5]).v[2u * batch], end), end);
}

void find_gathered(uint batch, uint start) {
    int a = HAS_LEFT != 0 ? int(chosen(pc.address[3], batch, pc.p.batch_shape[1])) * pc.p.a_batch_strides[0] : 0;
    int b = HAS_RIGHT != 0 ? int(chosen(pc.address[4], batch, pc.p.batch_shape[2])) * pc.p.b_batch_strides[0] : 0;
    operand_a = element_address(pc.address[0], a + int(start) * pc.p.a_strides[1], DTYPE_BYTES(DTYPE_A));
    operand_b = element_address(pc.address[1], b + int(start) * pc.p.b_strides[0], DTYPE_BYTES(DTYPE_B));
    operand_out = pc.address[2] + uint64_t(batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
}
