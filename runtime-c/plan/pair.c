// Two Plans in one command buffer, of which the host sees the first one's results while the second runs.
//
// A GPU idles for about 20 microseconds between two buffers, where a Plan with large kernels follows. A step whose input
// depends on the host can be no part of a recording of many steps. But what follows such a step may share its buffer,
// and an event tells the host when the first part is done.

#include "plan/pair.h"

#include "commands.h"
#include "failure.h"
#include "plan/record.h"
#include "plan/recording.h"
#include "queue.h"

#define COMPUTE VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT
#define WRITE VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT
#define READ VK_ACCESS_2_SHADER_STORAGE_READ_BIT
#define HOST VK_PIPELINE_STAGE_2_HOST_BIT
#define HOST_READ VK_ACCESS_2_HOST_READ_BIT

// The pair that was taken first, once the device is done with it. Its event is reset.
static int32_t pair_take(Device *d, Pair **out) {
    uint32_t i = (d->pair + 1) % PAIRS;
    Pair *pair = &d->pairs[i];
    TRY(queue_wait(d, pair->ticket, PATIENCE_MS));
    if (!pair->commands) TRY(commands_new(d, &pair->commands));
    if (pair->event) {
        TRY(VK(d, ResetEvent, d->device, pair->event));
    } else {
        VkEventCreateInfo info = {.sType = VK_STRUCTURE_TYPE_EVENT_CREATE_INFO};
        TRY(VK(d, CreateEvent, d->device, &info, NULL, &pair->event));
    }
    d->pair = i;
    *out = pair;
    return VKRT_OK;
}

void pairs_deinit(Device *d) {
    for (uint32_t i = 0; i < PAIRS; i++)
        if (d->pairs[i].event) d->vk.DestroyEvent(d->device, d->pairs[i].event, NULL);
}

// The host sees what was written up to here once the event is set. An event may name no stage of the host, so a barrier does.
static void tell(Device *d, const Pair *pair) {
    commands_barrier(d, pair->commands, COMPUTE, WRITE, COMPUTE | HOST, READ | WRITE | HOST_READ);
    VkMemoryBarrier2 barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2, .srcStageMask = COMPUTE, .dstStageMask = COMPUTE};
    VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO, .memoryBarrierCount = 1, .pMemoryBarriers = &barrier};
    d->vk.CmdSetEvent2(pair->commands, pair->event, &info);
}

static int32_t run_together(Device *d, const Work work[2], uint64_t *first) {
    Recording *recordings[2];
    Uses behind = {0};
    for (uint32_t i = 0; i < 2; i++) {
        TRY(plan_bind(d, work[i].plan, work[i].slots, &recordings[i]));
        TRY(plan_behind(d, work[i].plan, 0, &behind));
    }
    Pair *pair;
    TRY(pair_take(d, &pair));
    TRY(record_begin(d, pair->commands));
    int32_t status = record_into(d, pair->commands, work[0].plan, recordings[0]);
    tell(d, pair);
    if (status == VKRT_OK) status = record_into(d, pair->commands, work[1].plan, recordings[1]);
    commands_barrier(d, pair->commands, COMPUTE, WRITE, HOST, HOST_READ);
    int32_t ended = VK(d, EndCommandBuffer, pair->commands);
    if (status != VKRT_OK || ended != VKRT_OK) return status != VKRT_OK ? status : ended;
    TRY(queue_submit_pair(d, &behind, pair->commands, pair->event, &pair->ticket));
    *first = pair->ticket - 1;
    for (uint32_t i = 0; i < 2; i++) plan_used(work[i].plan, recordings[i], 0, *first + i);
    return VKRT_OK;
}

int32_t pair_run(Device *d, const Work work[2], uint64_t *first) {
    // Timestamps are part of a Plan's own recording. One Plan twice has one set of bindings. A portability driver may lack events.
    if (!d->profile && !d->idling && !d->facts.portability_subset && work[0].plan != work[1].plan) return run_together(d, work, first);
    uint64_t second;
    TRY(plan_run(d, work[0].plan, work[0].slots, 1, 0, first));
    return plan_run(d, work[1].plan, work[1].slots, 1, 0, &second);
}
