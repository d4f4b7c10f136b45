// Which dispatches of a Plan need a barrier in front: read after write, write after write, write after read, per slot.

#ifndef VKMX_HAZARDS_H
#define VKMX_HAZARDS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct SlotHazard {
    uint32_t written, read; // epoch of the last access; an epoch ends with each barrier
    uint32_t first_writer;  // first dispatch of epoch `written` that wrote
} SlotHazard;

typedef struct Hazards {
    SlotHazard *slots; // zeroed, one a slot
    uint32_t epoch;    // starts at 1
    uint32_t dispatch; // number of the dispatch that comes next
    uint32_t run;      // first dispatch of the run of disjoint writers that the last one belongs to
} Hazards;

// A buffer of a dispatch.
typedef struct Use {
    uint32_t slot; // PLAN_NO_SLOT: none
    bool read, write;
} Use;

// Takes the next dispatch. True: a barrier must come before it.
bool hazards_next(Hazards *hazards, const Use *uses, uint32_t count, bool disjoint);

#endif
