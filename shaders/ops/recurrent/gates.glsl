// The gates of a token of the gated delta rule: its decay, and its rate of learning.
//   GATED  they follow from numbers of the token: exp(-exp(log_rate) softplus(decay + bias)), and the sigmoid of the rate
// A shader defines GAMMA, BETA, BIAS and LOG_RATE: which of its buffers have those.

#include "include/math/math.h"

struct Gates {
    float decay, rate;
};

Gates gates_of(uint at, uint head) {
    if (GATED == 0) return Gates(F32s(pc.address[GAMMA]).v[at], F32s(pc.address[BETA]).v[at]);
    float width = m_logaddexp(load_float(pc.address[GAMMA], at, DTYPE_GAMMA) + load_float(pc.address[BIAS], head, DTYPE_BIAS), 0.0);
    float decay = m_exp(-m_exp(load_float(pc.address[LOG_RATE], head, DTYPE_LOG_RATE)) * width);
    return Gates(decay, m_sigmoid(load_float(pc.address[BETA], at, DTYPE_BETA)));
}
