// The experts of a token. A router gives each expert of a layer a score, and the token takes the CHOSEN ones of the highest scores. Of
// equal ones it takes those of lower numbers. Its gated values are those of all chosen experts, one after the other, times their weights:
//
//   weight = exp(score) / sum of exp(score), of the chosen experts, or of all with SHARES_ALL
//
// The matrices of experts are stacked. A feed-forward part without experts is one that every token takes, of weight 1.
//
// With SHARED there is one more expert, which every token takes after the chosen ones. Its matrices are no part of the stacks. Its weight is
// the sigmoid of a score of its own, which is the last one.
//
// Each workgroup chooses by itself, since a word from another one would come later than the scores. Some threads of it count how many
// experts come before theirs. So all places are taken, whatever the scores are. There are EXPERTS, at most THREADS; 0 where there are none.

#include "include/score_key.glsl"

layout(constant_id = 26) const uint CHOSEN = 1u;
layout(constant_id = 27) const uint ROUTER_FORMAT = 0x19u;
layout(constant_id = 28) const uint ROUTER_RUN = 1u;
layout(constant_id = 29) const uint SHARES_ALL = 0u;

const uint SLOTS = CHOSEN + SHARED;                    // experts that a token takes
const uint EXPERT_SIZE = INTERMEDIATE / SLOTS;         // gated values of an expert
const uint STACKED = EXPERTS == 0u ? 1u : EXPERTS;     // matrices of a stack
const uint ROUTER_ROWS = (STACKED + GRID - 1u) / GRID; // of a workgroup

// Threads that count for an expert: neighbours of a subgroup.
const uint COUNTING = EXPERTS > 256u ? 1u : EXPERTS > 128u ? 2u : 4u;
const uint KEY_FOURS = EXPERTS == 0u ? 1u : (STACKED + 4u * COUNTING - 1u) / (4u * COUNTING) * COUNTING;

shared float scores[STACKED];
shared uvec4 keys[KEY_FOURS]; // in the order of scores; 0 after the last expert
shared uint chosen_experts[CHOSEN];
shared float chosen_scores[CHOSEN];
float all_shares; // the sum over all experts, times exp(-the highest score)

// Chooses by the scores in the state. Begins and ends with a barrier.
void choose() {
    barrier(); // other phases have read shared memory
    for (uint i = thread(); i < 4u * KEY_FOURS; i += THREADS) {
        uint key = 0u;
        if (i < EXPERTS) {
            scores[i] = word_value(wait_word(AT_SCORES + i * 4u, tag_of(LAYER)));
            key = key_of(scores[i]);
        }
        keys[i / 4u][i % 4u] = key;
    }
    barrier();
    uint expert = min(thread() / COUNTING, STACKED - 1u), key = keys[expert / 4u][expert % 4u], before = 0u;
    for (uint n = 0u; n < KEY_FOURS / COUNTING; n++) {
        uint four = n * COUNTING + thread() % COUNTING;
        uvec4 others = keys[four];
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            before += others[i] > key || (others[i] == key && 4u * four + i < expert) ? 1u : 0u;
    }
    [[unroll]] for (uint m = 1u; m < COUNTING; m <<= 1)
        before += subgroupShuffleXor(before, m);
    if (thread() < COUNTING * EXPERTS && thread() % COUNTING == 0u && before < CHOSEN) {
        chosen_experts[before] = expert;
        chosen_scores[before] = scores[expert];
    }
    barrier();
    if (SHARES_ALL != 0u) {
        all_shares = 0.0;
        for (uint i = thread() % SUBGROUP; i < EXPERTS; i += SUBGROUP) all_shares += exp(scores[i] - chosen_scores[0]);
        [[unroll]] for (uint m = 1u; m < SUBGROUP; m <<= 1)
            all_shares += subgroupShuffleXor(all_shares, m);
    }
}

float expert_weight(uint slot) {
    if (SHARED != 0u && slot == CHOSEN) return 1.0 / (1.0 + exp(-word_value(wait_word(AT_SCORES + EXPERTS * 4u, tag_of(LAYER)))));
    float sum = SHARES_ALL != 0u ? all_shares : 0.0;
    if (SHARES_ALL == 0u) {
        for (uint i = 0u; i < CHOSEN; i++) sum += exp(chosen_scores[i] - chosen_scores[0]);
    }
    return exp(chosen_scores[slot] - chosen_scores[0]) / sum;
}

// Where row `row` of the chosen experts, `rows` each, is in a stack.
uint stacked(uint row, const uint rows) {
    if (EXPERTS == 0u) return row;
    return chosen_experts[min(row / rows, CHOSEN - 1u)] * rows + row % rows;
}
