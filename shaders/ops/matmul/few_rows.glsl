// The sums of products of few rows. All threads of a workgroup lie along k, each with a separate sum for every one of
// ROWS x COLUMNS results. Shared memory joins them. Subgroups may have any size.
//
// Weights are read once for all rows. VALUES * (THREADS + PARTS) words of shared memory, at most 32 KiB. Sums are the 32 bits
// of a register, SUM_FLOAT tells which arithmetic they mean.

const uint VALUES = ROWS * COLUMNS;
const uint PARTS = VALUES < THREADS ? THREADS / VALUES : 1u; // threads that add up a value
const uint STRIDE = THREADS + PARTS;

shared uint partial[VALUES * STRIDE];
uint sums[VALUES]; // [row][column]

uint add(uint a, uint b) { return SUM_FLOAT ? floatBitsToUint(uintBitsToFloat(a) + uintBitsToFloat(b)) : a + b; }

uint multiply_add(uint a, uint b, uint sum) {
    return SUM_FLOAT ? floatBitsToUint(fma(uintBitsToFloat(a), uintBitsToFloat(b), uintBitsToFloat(sum))) : a * b + sum;
}

// Adds eight products each of the rows of x and one column.
void add_vec8s(const Vec8 x[ROWS], Vec8 w, uint column) {
    [[unroll]] for (uint row = 0; row < ROWS; row++) {
        uint sum = sums[row * COLUMNS + column];
        [[unroll]] for (uint i = 0; i < 4u; i++)
            sum = multiply_add(x[row].first[i], w.first[i], sum);
        [[unroll]] for (uint i = 0; i < 4u; i++)
            sum = multiply_add(x[row].second[i], w.second[i], sum);
        sums[row * COLUMNS + column] = sum;
    }
}

// Brings the sums of all threads together, for joined().
void join_sums() {
    uint thread = gl_LocalInvocationID.x, part = thread % PARTS;
    barrier(); // those before have been read
    [[unroll]] for (uint i = 0; i < VALUES; i++)
        partial[i * STRIDE + thread] = sums[i];
    barrier();
    for (uint value = thread / PARTS; value < VALUES; value += THREADS / PARTS) {
        uint sum = partial[value * STRIDE + part];
        for (uint i = part + PARTS; i < THREADS; i += PARTS) sum = add(sum, partial[value * STRIDE + i]);
        partial[value * STRIDE + part] = sum; // which no other thread reads before the barrier
    }
    barrier();
}

// The sum of all threads of one value.
uint joined(uint value) {
    uint sum = partial[value * STRIDE];
    for (uint i = 1; i < PARTS; i++) sum = add(sum, partial[value * STRIDE + i]);
    return sum;
}

// Stores results (row0.., column0..) of a contiguous (rows, columns) matrix.
void store_sums(uint64_t address, uint dtype, uint row0, uint column0, uint rows, uint columns) {
    join_sums();
    for (uint value = gl_LocalInvocationID.x; value < VALUES; value += THREADS) {
        uint row = row0 + value / COLUMNS, column = column0 + value % COLUMNS;
        if (row < rows && column < columns) store_bits(address, row * columns + column, dtype, joined(value));
    }
}
