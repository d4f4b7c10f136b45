// Statistics of compiled pipelines, under the names that the driver gives them (VK_KHR_pipeline_executable_properties).
// A pipeline has statistics only if it was compiled for them, which may cost time and memory. So each question compiles
// a separate pipeline and discards it.

#include "plan/statistics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "plan/pipelines.h"

typedef struct Questions {
    PFN_vkGetPipelineExecutablePropertiesKHR executables;
    PFN_vkGetPipelineExecutableStatisticsKHR statistics;
} Questions;

typedef struct Lines {
    char *text;
    uint32_t used, capacity;
} Lines;

// A name of the driver's must not end a line or a column.
static void put_line(Lines *lines, const VkPipelineExecutableStatisticKHR *s) {
    char line[VK_MAX_DESCRIPTION_SIZE + 64];
    int length = snprintf(line, sizeof line, "%.*s", VK_MAX_DESCRIPTION_SIZE, s->name);
    for (int i = 0; i < length; i++)
        if ((unsigned char)line[i] < 0x20) line[i] = ' ';
    char *end = line + length;
    size_t left = sizeof line - (size_t)length;
    switch (s->format) {
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: length += snprintf(end, left, "\t%d\n", s->value.b32 != 0); break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: length += snprintf(end, left, "\t%" PRId64 "\n", s->value.i64); break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR: length += snprintf(end, left, "\t%" PRIu64 "\n", s->value.u64); break;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR: length += snprintf(end, left, "\t%.17g\n", s->value.f64); break;
        default: return;
    }
    if ((uint32_t)length >= lines->capacity - lines->used) return;
    memcpy(lines->text + lines->used, line, (size_t)length + 1);
    lines->used += (uint32_t)length;
}

static int32_t read_executable(Device *d, Questions ask, VkPipeline pipeline, uint32_t index, Lines *lines) {
    const char *call = "vkGetPipelineExecutableStatisticsKHR";
    VkPipelineExecutableInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
        .pipeline = pipeline,
        .executableIndex = index,
    };
    uint32_t count = 0;
    TRY(device_result(d, call, ask.statistics(d->device, &info, &count, NULL)));
    VkPipelineExecutableStatisticKHR *list = calloc((size_t)count + 1, sizeof *list);
    if (!list) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    for (uint32_t i = 0; i < count; i++) list[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    int32_t status = device_result(d, call, ask.statistics(d->device, &info, &count, list));
    for (uint32_t i = 0; status == VKRT_OK && i < count; i++) put_line(lines, &list[i]);
    free(list);
    return status;
}

static int32_t read_pipeline(Device *d, Questions ask, VkPipeline pipeline, Lines *lines) {
    VkPipelineInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
    uint32_t executables = 0;
    TRY(device_result(d, "vkGetPipelineExecutablePropertiesKHR", ask.executables(d->device, &info, &executables, NULL)));
    for (uint32_t i = 0; i < executables; i++) TRY(read_executable(d, ask, pipeline, i, lines));
    return VKRT_OK;
}

int32_t statistics_read(Device *d, const Dispatch *dispatch, char *text, uint32_t capacity) {
    if (!(d->facts.features >> FEATURE_STATISTICS & 1))
        return fail(d, VKRT_ERROR_UNAVAILABLE, "the driver of %s tells nothing of compiled pipelines", d->facts.core.deviceName);
    PFN_vkGetDeviceProcAddr get = runtime.vk.GetDeviceProcAddr;
    Questions ask = {
        .executables = (PFN_vkGetPipelineExecutablePropertiesKHR)get(d->device, "vkGetPipelineExecutablePropertiesKHR"),
        .statistics = (PFN_vkGetPipelineExecutableStatisticsKHR)get(d->device, "vkGetPipelineExecutableStatisticsKHR"),
    };
    if (!ask.executables || !ask.statistics)
        return fail(d, VKRT_ERROR_UNAVAILABLE, "the driver of %s lacks functions of pipeline statistics", d->facts.core.deviceName);
    VkPipeline pipeline = VK_NULL_HANDLE;
    TRY(pipeline_capture(d, dispatch, &pipeline));
    Lines lines = {.text = text, .capacity = capacity};
    int32_t status = read_pipeline(d, ask, pipeline, &lines);
    d->vk.DestroyPipeline(d->device, pipeline, NULL);
    return status;
}
