// Products of the experts that a choice names. See shaders/ops/experts/units.comp and sum.comp. A chunk makes a block of
// columns: of a row and a place, or of a row after all its places.

#include "../../../shaders/include/math/math.h"
#include "quantized/quantized_product.h"

enum { BLOCK = 128 };

// Where the choice of a row is, and a chunk's part of the work.
typedef struct Part {
    const float *choice;
    uint32_t row, place, first, count;
} Part;

INLINE uint32_t blocks_of(const struct ExpertsPush *p) { return (p->n + BLOCK - 1) / BLOCK; }

INLINE Part part_of(const Call *call, uint32_t chunk, uint32_t places) {
    PUSH(ExpertsPush);
    uint32_t blocks = blocks_of(p), pair = chunk / blocks, first = chunk % blocks * BLOCK, row = pair / places;
    return (Part){(const float *)call->buffer[1] + (size_t)row * 2 * p->chosen, row, pair % places, first, min_u32(BLOCK, p->n - first)};
}

INLINE uint32_t expert_of(const struct ExpertsPush *p, const float *choice, uint32_t place) {
    float number = choice[place];
    return number >= 0 && number < (float)p->experts ? (uint32_t)number : 0; // a conversion of others would trap
}

static float dense_dot(const float *x, const uint8_t *w, size_t first, uint32_t k, uint32_t dtype) {
    f4 total = {0};
    uint32_t i = 0;
    for (; i + 4 <= k; i += 4) total = f4_fma(f4_load(x + i), f4_load_as(w, first + i, dtype), total);
    float sum = f4_sum(total);
    for (; i < k; i++) sum += x[i] * load_float(w, first + i, dtype);
    return sum;
}

// Products of a row of x with columns of an expert, of `matrices` stacks whose arrays are `apart` buffers from each other.
static void multiply(const Call *call, const Part *part, size_t row, uint32_t expert, uint32_t matrices, float (*out)[BLOCK]) {
    PUSH(ExpertsPush);
    uint32_t dtype_x = call->spec[3], dtype = call->spec[4], mode = call->spec[7];
    const uint8_t *x = call->buffer[0] + row * p->k * DTYPE_BYTES(dtype_x);
    if (mode == MODE_DENSE) {
        float values[LONGEST_ROW];
        load_run(values, x, 0, p->k, dtype_x);
        for (uint32_t m = 0; m < matrices; m++)
            for (uint32_t i = 0; i < part->count; i++) {
                size_t at = ((size_t)expert * p->n + part->first + i) * p->k;
                out[m][i] = dense_dot(values, call->buffer[2 + 3 * m], at, p->k, dtype);
            }
        return;
    }
    Quantized w[2];
    uint8_t *to[2];
    for (uint32_t m = 0; m < matrices; m++) {
        uint8_t *const *arrays = call->buffer + 2 + 3 * m;
        Quantized stack = {arrays[0], arrays[1], arrays[2], p->k, call->spec[1], call->spec[2], dtype, mode};
        Quantized whole = quantized_matrix(&stack, p->n, expert);
        w[m] = quantized_matrix(&whole, 1, part->first);
        to[m] = (uint8_t *)out[m];
    }
    quantized_row_of_many(w, matrices, part->count, false, x, dtype_x, to, DTYPE_F32);
}

INLINE float unit_of(float gate, float up, uint32_t unit) {
    if (unit == EXPERT_UNIT_SILU) return gate * m_sigmoid(gate) * up;
    if (unit == EXPERT_UNIT_GELU_TANH) return gate * m_sigmoid(1.5957691f * (gate + 0.044715f * gate * gate * gate)) * up;
    float cut = gate > 7 ? 7 : gate, linear = up > 7 ? 7 : up < -7 ? -7 : up;
    return cut * m_sigmoid(1.702f * cut) * (linear + 1);
}

uint32_t chunks_expert_units(const Call *call) {
    PUSH(ExpertsPush);
    return p->rows * p->chosen * blocks_of(p);
}

void k_expert_units(const Call *call, uint32_t first, uint32_t last) {
    PUSH(ExpertsPush);
    uint32_t dtype_bias = call->spec[5];
    for (uint32_t chunk = first; chunk < last; chunk++) {
        Part part = part_of(call, chunk, p->chosen);
        uint32_t expert = expert_of(p, part.choice, part.place);
        float both[2][BLOCK];
        multiply(call, &part, part.row, expert, 2, both);
        for (uint32_t i = 0; i < part.count; i++) {
            float gate = both[0][i], up = both[1][i];
            if (call->spec[8]) {
                size_t at = (size_t)expert * p->n + part.first + i;
                gate += load_float(call->buffer[8], at, dtype_bias), up += load_float(call->buffer[9], at, dtype_bias);
            }
            both[0][i] = unit_of(gate, up, call->spec[9]);
        }
        size_t at = ((size_t)part.row * p->chosen + part.place) * p->n + part.first;
        store_floats(call->buffer[10], at, both[0], part.count, call->spec[10]);
    }
}

uint32_t chunks_expert_sum(const Call *call) {
    PUSH(ExpertsPush);
    return p->rows * blocks_of(p);
}

void k_expert_sum(const Call *call, uint32_t first, uint32_t last) {
    PUSH(ExpertsPush);
    for (uint32_t chunk = first; chunk < last; chunk++) {
        Part part = part_of(call, chunk, 1);
        float total[BLOCK] = {0}, each[1][BLOCK];
        for (uint32_t place = 0; place < p->chosen; place++) {
            uint32_t expert = expert_of(p, part.choice, place);
            float weight = part.choice[p->chosen + place];
            multiply(call, &part, (size_t)part.row * p->chosen + place, expert, 1, each);
            for (uint32_t i = 0; i < part.count; i++) {
                float y = each[0][i];
                if (call->spec[8]) y += load_float(call->buffer[5], (size_t)expert * p->n + part.first + i, call->spec[5]);
                total[i] += weight * y;
            }
        }
        store_floats(call->buffer[6], (size_t)part.row * p->n + part.first, total, part.count, call->spec[9]);
    }
}
