// Pipelines: a kernel of the table, or one made at run time, with its specialisation constants, made once and kept. A
// driver takes tens of milliseconds for one, so those that a Plan lacks are made by several threads. The driver's
// compiled code is saved in a file for the next run, named by the device's cache UUID and the ABI hash. A damaged file
// is ignored.

#include "plan/pipelines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/facts.h"
#include "failure.h"

#define CACHE_MAGIC 0x43504b56u // "VKPC"
#define MAX_THREADS 16

typedef struct CacheHeader {
    uint32_t magic, abi, bytes, checksum;
} CacheHeader;

static uint32_t fnv1a(const void *data, size_t bytes) {
    const uint8_t *at = data;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 16777619u;
    return hash;
}

// ---- the cache on disk ------------------------------------------------------------------------------------------------

static char *cache_path(const Device *d, const char *folder) {
    if (!folder || !folder[0]) return NULL;
    size_t capacity = strlen(folder) + 80;
    char *path = malloc(capacity);
    if (!path) return NULL;
    int n = snprintf(path, capacity, "%s/pipelines-", folder);
    for (uint32_t i = 0; i < VK_UUID_SIZE; i++) n += snprintf(path + n, capacity - (size_t)n, "%02x", d->facts.core.pipelineCacheUUID[i]);
    snprintf(path + n, capacity - (size_t)n, "-%08x.bin", kernel_abi_hash);
    return path;
}

static int32_t cache_new(Device *d) {
    size_t bytes = 0;
    uint8_t *file = d->pipelines.path ? file_read_whole(d->pipelines.path, &bytes) : NULL;
    CacheHeader header = {0};
    if (bytes >= sizeof header) memcpy(&header, file, sizeof header);
    bool sound = header.magic == CACHE_MAGIC && header.abi == kernel_abi_hash && header.bytes == bytes - sizeof header &&
                 header.checksum == fnv1a(file + sizeof header, header.bytes);
    VkPipelineCacheCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
        .initialDataSize = sound ? header.bytes : 0,
        .pInitialData = sound ? file + sizeof header : NULL,
    };
    int32_t status = VK(d, CreatePipelineCache, d->device, &info, NULL, &d->pipelines.cache);
    free(file);
    if (status == VKRT_OK && sound) status = VK(d, GetPipelineCacheData, d->device, d->pipelines.cache, &d->pipelines.saved, NULL);
    return status;
}

// Pipelines that came out of the file leave the cache its size. A failed write is not tried again.
static int32_t save(Device *d) {
    Pipelines *p = &d->pipelines;
    size_t bytes = 0;
    if (VK(d, GetPipelineCacheData, d->device, p->cache, &bytes, NULL) != VKRT_OK || bytes > UINT32_MAX || bytes == p->saved)
        return VKRT_OK;
    p->saved = bytes;
    uint8_t *file = malloc(sizeof(CacheHeader) + bytes);
    if (!file) return VKRT_OK;
    int32_t status = VKRT_OK;
    if (VK(d, GetPipelineCacheData, d->device, p->cache, &bytes, file + sizeof(CacheHeader)) == VKRT_OK) {
        CacheHeader header = {CACHE_MAGIC, kernel_abi_hash, (uint32_t)bytes, fnv1a(file + sizeof(CacheHeader), bytes)};
        memcpy(file, &header, sizeof header);
        char reason[256];
        if (!file_write_whole(p->path, file, sizeof header + bytes, reason, sizeof reason))
            status = fail(d, VKRT_ERROR_IO, "cannot write %s: %s", p->path, reason);
    }
    free(file);
    return status;
}

int32_t pipelines_save(Device *d) {
    Pipelines *p = &d->pipelines;
    if (!p->cache || !p->path || atomic_load(&d->lost)) return VKRT_OK;
    while (atomic_load(&p->making) > 0)
        sleep_milliseconds(1); // pipelines of other threads are saved too, and are made before the program ends
    lock_acquire(&p->saving);
    int32_t status = save(d);
    lock_release(&p->saving);
    return status;
}

int32_t pipelines_init(Device *d, const char *cache_dir) {
    Pipelines *p = &d->pipelines;
    lock_init(&p->lock);
    lock_init(&p->saving);
    p->modules = calloc(kernel_count, sizeof *p->modules);
    if (!p->modules) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = PUSH_BYTES};
    VkPipelineLayoutCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &range,
    };
    TRY(VK(d, CreatePipelineLayout, d->device, &info, NULL, &p->layout));
    p->path = cache_path(d, cache_dir);
    return cache_new(d);
}

void pipelines_deinit(Device *d) {
    Pipelines *p = &d->pipelines;
    pipelines_save(d);
    for (uint32_t b = 0; b < PIPELINE_BUCKETS; b++) {
        for (Pipeline *entry = p->buckets[b], *next; entry; entry = next) {
            next = entry->next;
            if (entry->pipeline) d->vk.DestroyPipeline(d->device, entry->pipeline, NULL);
            free(entry);
        }
    }
    for (uint32_t i = 0; p->modules && i < kernel_count; i++)
        if (p->modules[i]) d->vk.DestroyShaderModule(d->device, p->modules[i], NULL);
    free(p->modules);
    for (uint32_t i = 0; i < atomic_load(&p->made_count); i++) {
        d->vk.DestroyShaderModule(d->device, p->made[i]->module, NULL);
        free(p->made[i]);
    }
    atomic_store(&p->made_count, 0);
    if (p->cache) d->vk.DestroyPipelineCache(d->device, p->cache, NULL);
    if (p->layout) d->vk.DestroyPipelineLayout(d->device, p->layout, NULL);
    free(p->path);
}

// ---- kernels made at run time -----------------------------------------------------------------------------------------

const KernelRow *kernel_find(const Device *d, uint32_t id) {
    if (id < kernel_count) return &kernel_table[id];
    return id - kernel_count < atomic_load(&d->pipelines.made_count) ? &d->pipelines.made[id - kernel_count]->row : NULL;
}

int32_t kernel_make(Device *d, const char *name, const uint32_t *spirv, uint32_t count, KernelRow row, uint32_t *id) {
    Pipelines *p = &d->pipelines;
    uint32_t at = atomic_load(&p->made_count);
    if (at == VKRT_MAX_KERNELS)
        return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "%d kernels were made at run time, and a device holds no more", VKRT_MAX_KERNELS);
    MadeKernel *made = calloc(1, sizeof *made);
    if (!made) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    made->row = row;
    snprintf(made->name, sizeof made->name, "%s", name);
    made->row.name = made->name;
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = 4 * (size_t)count, .pCode = spirv};
    int32_t status = VK(d, CreateShaderModule, d->device, &info, NULL, &made->module);
    if (status != VKRT_OK) {
        free(made);
        return status;
    }
    p->made[at] = made;
    atomic_store(&p->made_count, at + 1);
    *id = kernel_count + at;
    return VKRT_OK;
}

// ---- pipelines ------------------------------------------------------------------------------------------------------

static int32_t module_get(Device *d, uint32_t kernel, VkShaderModule *out) {
    if (kernel >= kernel_count) {
        *out = d->pipelines.made[kernel - kernel_count]->module;
        return VKRT_OK;
    }
    VkShaderModule *module = &d->pipelines.modules[kernel];
    if (!*module) {
        VkShaderModuleCreateInfo info = {
            .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
            .codeSize = kernel_table[kernel].spirv_bytes,
            .pCode = kernel_table[kernel].spirv,
        };
        TRY(VK(d, CreateShaderModule, d->device, &info, NULL, module));
    }
    *out = *module;
    return VKRT_OK;
}

static int32_t create(Device *d, const Pipeline *entry, VkShaderModule module, VkPipelineCreateFlags flags, VkPipelineCache cache,
                      VkPipeline *out) {
    const KernelRow *row = kernel_find(d, entry->kernel);
    VkSpecializationMapEntry map[PLAN_MAX_SPEC];
    for (uint32_t i = 0; i < row->spec; i++) map[i] = (VkSpecializationMapEntry){.constantID = i, .offset = 4 * i, .size = 4};
    VkSpecializationInfo spec = {.mapEntryCount = row->spec, .pMapEntries = map, .dataSize = 4u * row->spec, .pData = entry->spec};
    bool lanes = row->needs & (NEEDS_COOPMAT | NEEDS_SHUFFLE); // written for subgroups of 32 where those can be had
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = facts_subgroup(&d->facts, lanes),
    };
    uint32_t chosen = subgroup.requiredSubgroupSize;
    bool full = entry->spec[0] % (chosen ? chosen : d->facts.v13.maxSubgroupSize) == 0;
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .flags = flags,
        .stage =
            {
                .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .pNext = chosen ? &subgroup : NULL,
                .flags = full ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = "main",
                .pSpecializationInfo = &spec,
            },
        .layout = d->pipelines.layout,
        .basePipelineIndex = -1,
    };
    return VK(d, CreateComputePipelines, d->device, cache, 1, &info, NULL, out);
}

// The entry of a dispatch, which may have no pipeline yet.
static int32_t find_entry(Device *d, const Dispatch *dispatch, Pipeline **out) {
    uint32_t kernel = dispatch->id;
    size_t bytes = 4u * dispatch->kernel->spec;
    Pipeline **bucket = &d->pipelines.buckets[(fnv1a(dispatch->spec, bytes) ^ kernel * 31) % PIPELINE_BUCKETS];
    for (Pipeline *entry = *bucket; entry; entry = entry->next) {
        if (entry->kernel != kernel || memcmp(entry->spec, dispatch->spec, bytes) != 0) continue;
        *out = entry;
        return VKRT_OK;
    }
    Pipeline *entry = calloc(1, sizeof *entry);
    if (!entry) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    entry->kernel = kernel;
    memcpy(entry->spec, dispatch->spec, bytes);
    entry->next = *bucket;
    *out = *bucket = entry;
    return VKRT_OK;
}

// Entries without a pipeline, and the next one that a thread should take.
typedef struct Missing {
    Device *d;
    Pipeline **entries;
    uint32_t count;
    const char *call; // that they are made for
    _Atomic uint32_t next;
    _Atomic int32_t status;   // of the first failure, after which no other is begun
    char text[MESSAGE_BYTES]; // its message
} Missing;

static int32_t compile(Device *d, const Pipeline *entry, VkPipelineCreateFlags flags, VkPipelineCache cache, VkPipeline *out) {
    VkShaderModule module = VK_NULL_HANDLE;
    lock_acquire(&d->pipelines.lock);
    int32_t status = module_get(d, entry->kernel, &module);
    lock_release(&d->pipelines.lock);
    return status == VKRT_OK ? create(d, entry, module, flags, cache, out) : status;
}

static int32_t make_one(Device *d, Pipeline *entry) {
    Pipelines *p = &d->pipelines;
    VkPipeline made = VK_NULL_HANDLE;
    TRY(compile(d, entry, 0, p->cache, &made));
    lock_acquire(&p->lock);
    if (!entry->pipeline) {
        entry->pipeline = made;
        made = VK_NULL_HANDLE;
    }
    lock_release(&p->lock);
    if (made) d->vk.DestroyPipeline(d->device, made, NULL); // another thread was faster
    return VKRT_OK;
}

static void make_some(void *argument) {
    Missing *missing = argument;
    current_call = missing->call; // a thread of its own has none
    for (uint32_t i; atomic_load(&missing->status) == VKRT_OK && (i = atomic_fetch_add(&missing->next, 1)) < missing->count;) {
        int32_t status = make_one(missing->d, missing->entries[i]), none = VKRT_OK;
        if (status != VKRT_OK && atomic_compare_exchange_strong(&missing->status, &none, status))
            memcpy(missing->text, failure_text(), sizeof missing->text);
    }
}

static int32_t make_all(Missing *missing) {
    Thread threads[MAX_THREADS];
    uint32_t started = 0, wanted = processor_count();
    if (wanted > missing->count) wanted = missing->count;
    if (wanted > MAX_THREADS) wanted = MAX_THREADS;
    while (started + 1 < wanted && thread_start(&threads[started], make_some, missing)) started++;
    make_some(missing);
    for (uint32_t i = 0; i < started; i++) thread_join(&threads[i]);
    int32_t status = atomic_load(&missing->status);
    if (status != VKRT_OK) failure_keep(missing->d, missing->text); // later ones may have failed too
    return status;
}

// The entries of all dispatches in `entries`, and those without a pipeline once each in `missing`.
static int32_t find_entries(Device *d, const Dispatch *dispatches, uint32_t count, Pipeline **entries, Missing *missing) {
    for (uint32_t i = 0; i < count; i++) {
        TRY(find_entry(d, &dispatches[i], &entries[i]));
        bool known = entries[i]->pipeline != VK_NULL_HANDLE;
        for (uint32_t m = 0; !known && m < missing->count; m++) known = missing->entries[m] == entries[i];
        if (!known) missing->entries[missing->count++] = entries[i];
    }
    return VKRT_OK;
}

int32_t pipelines_make(Device *d, Dispatch *dispatches, uint32_t count) {
    Pipeline **entries = malloc(2 * sizeof *entries * ((size_t)count + 1));
    if (!entries) return fail(d, VKRT_ERROR_OUT_OF_MEMORY, "the host is out of memory");
    Missing missing = {.d = d, .entries = entries + count + 1, .call = current_call};
    lock_acquire(&d->pipelines.lock);
    int32_t status = find_entries(d, dispatches, count, entries, &missing);
    lock_release(&d->pipelines.lock);
    atomic_fetch_add(&d->pipelines.making, 1);
    if (status == VKRT_OK) status = make_all(&missing);
    atomic_fetch_sub(&d->pipelines.making, 1);
    lock_acquire(&d->pipelines.lock);
    for (uint32_t i = 0; status == VKRT_OK && i < count; i++) dispatches[i].pipeline = entries[i]->pipeline;
    lock_release(&d->pipelines.lock);
    free(entries);
    return status;
}

int32_t pipeline_capture(Device *d, const Dispatch *dispatch, VkPipeline *out) {
    Pipeline entry = {.kernel = dispatch->id};
    memcpy(entry.spec, dispatch->spec, 4u * dispatch->kernel->spec);
    return compile(d, &entry, VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR, VK_NULL_HANDLE, out);
}
