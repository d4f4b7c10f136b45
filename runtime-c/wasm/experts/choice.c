// The experts of rows of scores, and their weights. See shaders/ops/experts/choice.comp.

#include "../../../shaders/include/math/math.h"
#include "kernel.h"

// Whether an expert of score x comes before one of score y that has a higher number: NaN is below all.
static bool is_before(float x, float y) { return x >= y || y != y; }

static void close_groups(const float *biased, const struct ExpertChoicePush *p, uint32_t experts, bool *closed) {
    uint32_t size = experts / p->groups;
    float sums[MAX_EXPERT_GROUPS];
    for (uint32_t g = 0; g < p->groups; g++) {
        const float *x = biased + g * size;
        bool swaps = !is_before(x[0], x[1]);
        float first = x[swaps], second = x[!swaps];
        for (uint32_t i = 2; i < size; i++) {
            if (!is_before(first, x[i])) second = first, first = x[i];
            else if (!is_before(second, x[i])) second = x[i];
        }
        sums[g] = first + second;
        closed[g] = false;
    }
    for (uint32_t i = 0; i < p->closed; i++) {
        uint32_t worst = p->groups;
        for (uint32_t g = 0; g < p->groups; g++)
            if (!closed[g] && (worst == p->groups || !is_before(sums[g], sums[worst]))) worst = g;
        closed[worst] = true;
    }
}

// Places of the experts that come before all others, in order; `keys` are left as they are but for those taken.
static void choose(const float *keys, const struct ExpertChoicePush *p, uint32_t experts, uint32_t *places) {
    bool taken[MAX_EXPERTS] = {false};
    for (uint32_t i = 0; i < p->chosen; i++) {
        uint32_t best = experts;
        for (uint32_t e = 0; e < experts; e++)
            if (!taken[e] && (best == experts || !is_before(keys[best], keys[e]))) best = e;
        taken[best] = true;
        places[i] = best;
    }
}

static void choose_row(const Call *call, uint32_t row) {
    PUSH(ExpertChoicePush);
    uint32_t among = call->spec[4], experts = call->spec[9], chosen = p->chosen, places[MAX_EXPERTS];
    float scores[MAX_EXPERTS], keys[MAX_EXPERTS], most = -__builtin_inff(), sum = 0;
    load_floats(scores, call->buffer[0], (size_t)row * experts, experts, call->spec[1]);
    for (uint32_t split = 1; split < call->spec[7]; split++)
        for (uint32_t e = 0; e < experts; e++)
            scores[e] += load_float(call->buffer[0], ((size_t)split * p->rows + row) * experts + e, call->spec[1]);
    for (uint32_t e = 0; call->buffer[4] && e < experts; e++) scores[e] += load_float(call->buffer[4], e, call->spec[8]);
    for (uint32_t e = 0; e < experts; e++) {
        most = scores[e] > most ? scores[e] : most;
        if (among == EXPERTS_SIGMOID) scores[e] = m_sigmoid(scores[e]);
        keys[e] = call->spec[5] ? scores[e] + load_float(call->buffer[1], e, call->spec[2]) : scores[e];
    }
    if (p->closed > 0) {
        bool closed[MAX_EXPERT_GROUPS];
        close_groups(keys, p, experts, closed);
        for (uint32_t e = 0; e < experts; e++)
            if (closed[e / (experts / p->groups)]) keys[e] = 0;
    }
    choose(keys, p, experts, places);
    if (among != EXPERTS_SIGMOID)
        for (uint32_t e = 0; e < experts; e++) scores[e] = m_exp(scores[e] - most);
    if (among == EXPERTS_ALL)
        for (uint32_t e = 0; e < experts; e++) sum += scores[e];
    else
        for (uint32_t i = 0; i < chosen; i++) sum += scores[places[i]];
    float divisor = among != EXPERTS_SIGMOID ? sum : p->normalized ? sum + p->sum_eps : 1;
    float *out = (float *)call->buffer[3] + (size_t)row * 2 * chosen;
    for (uint32_t i = 0; i < chosen; i++) {
        float weight = scores[places[i]] / divisor * p->factor;
        out[i] = (float)places[i];
        out[chosen + i] = call->spec[6] ? weight * load_float(call->buffer[2], places[i], call->spec[3]) : weight;
    }
}

void k_expert_choice(const Call *call) {
    PUSH(ExpertChoicePush);
    for (uint32_t row = 0; row < p->rows; row++) choose_row(call, row);
}
