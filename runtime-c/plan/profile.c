// Timestamps: two around every dispatch of a recording made while profiling is on. Profiled dispatches are kept apart by
// barriers, so the intervals are those of each alone and their sum is more than an unprofiled run takes.

#include "plan/profile.h"

#include <stdlib.h>

#include "failure.h"
#include "queue.h"

int32_t profile_switch(Device *d, bool on) {
    if (on && d->facts.timestamp_bits == 0)
        return fail(d, VKRT_ERROR_UNAVAILABLE, "%s has no timestamps on its compute queue", d->facts.core.deviceName);
    d->profile = on;
    return VKRT_OK;
}

int32_t profile_prepare(Device *d, Recording *recording, uint32_t dispatches) {
    VkQueryPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = 2 * dispatches,
    };
    return VK(d, CreateQueryPool, d->device, &info, NULL, &recording->queries);
}

void profile_reset(Device *d, VkCommandBuffer commands, Recording *recording, uint32_t dispatches) {
    if (recording->queries) d->vk.CmdResetQueryPool(commands, recording->queries, 0, 2 * dispatches);
}

void profile_mark(Device *d, VkCommandBuffer commands, Recording *recording, uint32_t query) {
    if (recording->queries) d->vk.CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, recording->queries, query);
}

int32_t profile_read(Device *d, Plan *plan, double *nanoseconds, uint32_t capacity, uint32_t *count) {
    *count = 0;
    Recording *r = plan->profiled;
    if (!r || capacity == 0) return VKRT_OK;
    TRY(queue_wait_uses(d, &r->uses));
    uint32_t n = plan->dispatches < capacity ? plan->dispatches : capacity;
    uint64_t *ticks = malloc(2 * (size_t)n * sizeof *ticks);
    if (!ticks) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    int32_t status = VK(d, GetQueryPoolResults, d->device, r->queries, 0, 2 * n, 2 * (size_t)n * sizeof *ticks, ticks, sizeof *ticks,
                        VK_QUERY_RESULT_64_BIT);
    uint64_t mask = d->facts.timestamp_bits >= 64 ? UINT64_MAX : ((uint64_t)1 << d->facts.timestamp_bits) - 1;
    for (uint32_t i = 0; status == VKRT_OK && i < n; i++)
        nanoseconds[i] = (double)((ticks[2 * i + 1] - ticks[2 * i]) & mask) * (double)d->facts.core.limits.timestampPeriod;
    if (status == VKRT_OK) *count = n;
    free(ticks);
    return status;
}
