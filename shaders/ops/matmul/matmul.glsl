// Operands of a batch row of MatmulPush, for matmul and matvec.

uint64_t operand_a, operand_b, operand_out;

void find_operands(uint batch) {
    int a = 0, b = 0;
    uint rest = batch;
    [[unroll]] for (int d = 2; d >= 0; d--) {
        int i = int(rest % pc.p.batch_shape[d]);
        rest /= pc.p.batch_shape[d];
        a += i * pc.p.a_batch_strides[d];
        b += i * pc.p.b_batch_strides[d];
    }
    operand_a = element_address(pc.address[0], a, DTYPE_BYTES(DTYPE_A));
    operand_b = element_address(pc.address[1], b, DTYPE_BYTES(DTYPE_B));
    operand_out = pc.address[2] + uint64_t(batch) * (pc.p.m * pc.p.n * DTYPE_BYTES(DTYPE_OUT));
}

uint a_bits(uint m, uint k) {
    int i = int(m) * pc.p.a_strides[0] + int(k) * pc.p.a_strides[1];
    return load_bits(element_address(operand_a, i, DTYPE_BYTES(DTYPE_A)), 0, DTYPE_A);
}

uint b_bits(uint k, uint n) {
    int i = int(k) * pc.p.b_strides[0] + int(n) * pc.p.b_strides[1];
    return load_bits(element_address(operand_b, i, DTYPE_BYTES(DTYPE_B)), 0, DTYPE_B);
}
