// Hazard tracking: reads and writes since the last barrier, one entry a slot. No Vulkan in here.

#include "plan/hazards.h"

#include "../../shaders/include/plan.h"

static bool conflicts(const Hazards *h, const SlotHazard *slot, bool reads, bool writes, bool disjoint) {
    bool written = slot->written == h->epoch, read = slot->read == h->epoch;
    if (written && reads) return true;
    if (written && writes && !(disjoint && slot->first_writer >= h->run)) return true;
    return read && writes;
}

bool hazards_next(Hazards *h, const Use *uses, uint32_t count, bool disjoint) {
    if (!disjoint) h->run = h->dispatch;
    bool barrier = false;
    for (uint32_t i = 0; i < count && !barrier; i++) {
        if (uses[i].slot == PLAN_NO_SLOT) continue;
        barrier = conflicts(h, &h->slots[uses[i].slot], uses[i].read, uses[i].write, disjoint);
    }
    if (barrier) h->epoch++;
    for (uint32_t i = 0; i < count; i++) {
        if (uses[i].slot == PLAN_NO_SLOT) continue;
        SlotHazard *slot = &h->slots[uses[i].slot];
        if (uses[i].read) slot->read = h->epoch;
        if (uses[i].write && slot->written != h->epoch) {
            slot->written = h->epoch;
            slot->first_writer = h->dispatch;
        }
    }
    h->dispatch++;
    return barrier;
}
