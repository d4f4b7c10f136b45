// The phases of a layer, as gemv.glsl lists them. Each one's first codes are asked for before what it multiplies is
// there. In the kernel of all layers that is at the end of the phase before.

#ifdef POLL
#define FIRST_LAYER pc.p.layer
#define BEHIND_LAYERS (pc.p.layer + pc.p.layers)
#else
#define FIRST_LAYER LAYER
#endif

#include "residual.glsl"

// Where a row of q, k and v is in the state. With gates each head of q has the rows of its gate after its own.
uint projected_place(uint row) {
    if (GATED == 0u) return AT_QKV + row * 4u;
    if (row >= Q_ROWS) return AT_QKV + (row - ALL_Q) * 4u;
    uint feature = row / (2u * HEAD_DIM) * HEAD_DIM + row % HEAD_DIM;
    return (row / HEAD_DIM % 2u == 0u ? AT_QKV : AT_GATES) + feature * 4u;
}

// Leaves q, k and v, `scale` times the sums.
void leave_qkv(float scale) {
    if (thread() < QKV_ROWS) {
        uint at = workgroup() * QKV_ROWS + thread();
        float x = qkv_sum(thread());
        if (QKV_BIAS != 0u) x = fma(x, scale, load_float(ADDRESS(NORMS) + AT_QKV_BIAS, at, DTYPE_W));
        else x *= scale;
        word_store(projected_place(at), x, OWN_TAG);
    }
}

// Both kinds of layers share what is large: a product that stands in a kernel twice has its code twice.
#ifdef RECURRENT
void qkv_phase() {
    if (IS_NET) ask_net();
    if (IS_NET && !RATES_ALIKE) rates_alone();
    norm_to_vector(AT_RESIDUAL, tag_before(LAYER), ADDRESS(NORMS), QKV_FORMAT);
    if (IS_NET && RATES_ALIKE) multiply_rates();
    qkv_multiply();
    float scale = norm_scale();
    if (IS_NET) project(scale);
    else leave_qkv(scale);
}

void attention_phase() {
    if (!IS_NET) {
        if (attends()) attention();
        return;
    }
    const uint rounds = (UNITS + GRID - 1u) / GRID;
    [[dont_unroll]] for (uint n = 0; n < rounds; n++)
        update(n * GRID + workgroup());
}
#else
void qkv_phase() {
    norm_to_vector(AT_RESIDUAL, tag_before(LAYER), ADDRESS(NORMS), QKV_FORMAT);
    qkv_multiply();
    leave_qkv(norm_scale());
}

void attention_phase() {
    if (attends()) attention();
}

void first_vector() { attended_to_vector(); }
#endif

void o_phase() {
    first_vector();
    o_multiply();
    float x = owns() ? o_sum(thread()) : 0.0;
    if (HAS_O_BIAS && owns()) x += extra(AT_O_BIAS, workgroup() * O_ROWS + thread());
    add_to_residual(AT_AFTER, x);
}

// Experts may be fewer than workgroups. The expert of all tokens has a workgroup of its own, after the others.
bool is_shared() { return SHARED != 0u && workgroup() == GRID; }
bool routes() { return workgroup() * ROUTER_ROWS < EXPERTS || is_shared(); }

void router_phase() {
    norm_to_vector(AT_AFTER, tag_of(LAYER), ADDRESS(NORMS) + AT_MLP_NORM, ROUTER_FORMAT);
    router_multiply();
    float scale = norm_scale();
    if (thread() < (is_shared() ? 1u : ROUTER_ROWS)) {
        uint expert = is_shared() ? EXPERTS : workgroup() * ROUTER_ROWS + thread();
        float x = router_sum(thread()) * scale;
        if (HAS_EXPERT_BIASES) x += extra(AT_ROUTER_BIAS, expert);
        word_store(AT_SCORES + expert * 4u, x, tag_of(LAYER));
    }
}

void gate_up_phase() {
    norm_to_vector(AT_AFTER, tag_of(LAYER), ADDRESS(NORMS) + AT_MLP_NORM, GATE_UP_FORMAT);
    gate_up_multiply();
    float scale = norm_scale();
    if (thread() < GATE_UP_ROWS / 2u) {
        uint at = workgroup() * (GATE_UP_ROWS / 2u) + thread();
        float gate = gate_up_sum(thread()) * scale, up = gate_up_sum(GATE_UP_ROWS / 2u + thread()) * scale;
        if (HAS_EXPERT_BIASES) {
            uint row = stacked(at, EXPERT_SIZE);
            gate += extra(AT_GATE_BIAS, row);
            up += extra(AT_UP_BIAS, row);
        }
        float x = gated_value(gate, up, ACTIVATION);
        if (EXPERTS != 0u) x *= expert_weight(at / EXPERT_SIZE);
        word_store(AT_GATED + at * 4u, x, tag_of(LAYER));
    }
}

void down_phase() {
    float x = 0.0;
    [[dont_unroll]] for (down_part = 0u; down_part < DOWN_PARTS; down_part++) {
        if (down_part > 0u) down_ahead();
        gated_values(AT_GATED + down_part * (DOWN_DEPTH * 4u), tag_of(LAYER));
        down_multiply();
        if (owns())
            for (uint slot = 0u; slot < SLOTS; slot++) x += down_sum(slot * O_ROWS + thread());
    }
    down_part = 0u;
    if (HAS_EXPERT_BIASES && owns()) x += down_bias(workgroup() * O_ROWS + thread());
    add_to_residual(AT_RESIDUAL, x);
}

bool runs(uint phases) { return (PHASES & phases) != 0u; }

void before_experts() {
    if (runs(PHASE_QKV)) qkv_phase();
    if (runs(PHASE_ATTENTION)) attention_phase();
    if (runs(PHASE_O)) o_ahead();
    if (ALL_PHASES) barrier(); // shared memory was read
    if (runs(PHASE_MERGE) && PARTS > 2u && !IS_NET) {
        merge();
        if (ALL_PHASES) barrier();
    }
    if (runs(PHASE_O)) {
        if (!ALL_PHASES) take_carried(AT_RESIDUAL);
        o_phase();
    }
}

void after_router() {
    if (EXPERTS != 0u && runs(PHASE_GATE_UP | PHASE_DOWN)) choose();
    if (runs(PHASE_GATE_UP)) {
        gate_up_ahead();
        gate_up_phase();
    }
    if (runs(PHASE_DOWN)) {
        down_ahead();
        if (!ALL_PHASES) take_carried(AT_AFTER);
        down_phase();
    }
}

// Of one layer, or of the only one. The workgroup of the score of an expert of all tokens has no other phase.
void layer_phases() {
    if (!is_shared()) before_experts();
    if (EXPERTS != 0u && runs(PHASE_ROUTER) && routes()) {
        router_ahead();
        router_phase();
    }
    if (!is_shared()) after_router();
}

void all_phases() {
    if (runs(PHASE_QKV) && !is_shared()) qkv_ahead();
#ifdef POLL
    if (ALL_PHASES && !is_shared()) take_carried(AT_RESIDUAL);
    [[dont_unroll]] for (layer = FIRST_LAYER; layer < BEHIND_LAYERS; layer++) {
        look_again();
        layer_phases();
        if (ALL_PHASES && layer + 1u < BEHIND_LAYERS && !is_shared()) {
            layer++;
            qkv_ahead();
            layer--;
        }
    }
#else
    layer_phases();
#endif
}
