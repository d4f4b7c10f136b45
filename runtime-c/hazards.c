// Hazard tracking: what was read and written since the last barrier, one entry a slot. No Vulkan in here.

#include "hazards.h"

#include "../shaders/plan.h"

static bool conflicts(const Hazards *h, const SlotHazard *slot, bool reads, bool writes, bool disjoint) {
    bool written = slot->written == h->epoch, read = slot->read == h->epoch;
    if (written && reads) return true;
    if (written && writes && !(disjoint && slot->first_writer >= h->run)) return true;
    return read && writes;
}

bool hazards_next(Hazards *h, const uint32_t *used, uint32_t buffers, uint32_t reads, uint32_t writes, bool disjoint) {
    if (!disjoint) h->run = h->dispatch;
    bool barrier = false;
    for (uint32_t i = 0; i < buffers && !barrier; i++) {
        if (used[i] == PLAN_NO_SLOT) continue;
        barrier = conflicts(h, &h->slots[used[i]], reads >> i & 1, writes >> i & 1, disjoint);
    }
    if (barrier) h->epoch++;
    for (uint32_t i = 0; i < buffers; i++) {
        if (used[i] == PLAN_NO_SLOT) continue;
        SlotHazard *slot = &h->slots[used[i]];
        if (reads >> i & 1) slot->read = h->epoch;
        if ((writes >> i & 1) && slot->written != h->epoch) {
            slot->written = h->epoch;
            slot->first_writer = h->dispatch;
        }
    }
    h->dispatch++;
    return barrier;
}
