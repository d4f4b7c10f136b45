// Features and limits. Two tables list the required and the optional features. Asking, enabling and reporting all walk
// these tables. So a new feature is one row, and one struct of the chain if it has an extension.

#include "device/facts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

#define MAX_EXTENSIONS 1024
#define LANES 32 // threads of a subgroup that kernels with shuffles and matrices want
#define AT(member) offsetof(FeatureChain, member)

typedef struct FeatureRow {
    const char *name;
    size_t offset;
} FeatureRow;

static const FeatureRow REQUIRED[] = {
    {"shaderInt16", AT(core.features.shaderInt16)},
    {"shaderInt64", AT(core.features.shaderInt64)},
    {"storageBuffer16BitAccess", AT(v11.storageBuffer16BitAccess)},
    {"storageBuffer8BitAccess", AT(v12.storageBuffer8BitAccess)},
    {"shaderInt8", AT(v12.shaderInt8)},
    {"bufferDeviceAddress", AT(v12.bufferDeviceAddress)},
    {"timelineSemaphore", AT(v12.timelineSemaphore)},
    {"vulkanMemoryModel", AT(v12.vulkanMemoryModel)},
    {"vulkanMemoryModelDeviceScope", AT(v12.vulkanMemoryModelDeviceScope)},
    {"synchronization2", AT(v13.synchronization2)},
    {"subgroupSizeControl", AT(v13.subgroupSizeControl)},
    {"computeFullSubgroups", AT(v13.computeFullSubgroups)},
    {"maintenance4", AT(v13.maintenance4)},
    {"shaderIntegerDotProduct", AT(v13.shaderIntegerDotProduct)},
};

// In the order of the FEATURE_* bits; an offset of 0 marks a property, which facts_read sets by itself.
static const FeatureRow OPTIONAL[FEATURE_COUNT] = {
    [FEATURE_FLOAT16] = {"float16", AT(v12.shaderFloat16)},
    [FEATURE_INT64_ATOMICS] = {"int64Atomics", AT(v12.shaderBufferInt64Atomics)},
    [FEATURE_COOPMAT] = {"coopmat", AT(coopmat.cooperativeMatrix)},
    [FEATURE_COOPMAT2] = {"coopmat2", AT(coopmat2.cooperativeMatrixWorkgroupScope)},
    [FEATURE_BFLOAT16] = {"bfloat16", AT(bfloat16.shaderBFloat16Type)},
    [FEATURE_BFLOAT16_COOPMAT] = {"bfloat16Coopmat", AT(bfloat16.shaderBFloat16CooperativeMatrix)},
    [FEATURE_INTEGER_DOT_FAST] = {"integerDotProductAccelerated", 0},
    [FEATURE_COOPMAT_KERNELS] = {"coopmatKernels", 0},
    [FEATURE_BFLOAT16_KERNELS] = {"bfloat16Kernels", 0},
    [FEATURE_NARROW_KERNELS] = {"narrowKernels", 0},
    [FEATURE_SHUFFLE] = {"shuffle", 0},
    [FEATURE_FLOAT_ATOMICS] = {"floatAtomics", AT(atomic_float.shaderBufferFloat32AtomicAdd)},
    [FEATURE_STATISTICS] = {"pipelineStatistics", AT(executable.pipelineExecutableInfo)},
};

// Features that mean nothing without another one.
static const struct {
    uint32_t feature, base;
} RESTING[] = {
    {FEATURE_COOPMAT2, FEATURE_COOPMAT},
    {FEATURE_BFLOAT16_COOPMAT, FEATURE_COOPMAT},
    {FEATURE_BFLOAT16_COOPMAT, FEATURE_BFLOAT16},
};

// Limits that a mask may lower.
static const struct {
    const char *name;
    size_t offset;
} LIMITS[] = {
    {"maxThreads", offsetof(Facts, core.limits.maxComputeWorkGroupInvocations)},
    {"sharedBytes", offsetof(Facts, core.limits.maxComputeSharedMemorySize)},
    {"maxGrid", offsetof(Facts, core.limits.maxComputeWorkGroupCount[0])},
    {"chunkBytes", offsetof(Facts, chunk_bytes)},
};

// Members that go with an optional feature and are enabled beside it where present.
static const struct {
    uint32_t feature;
    size_t offset;
} COMPANIONS[] = {
    {FEATURE_INT64_ATOMICS, AT(v12.shaderSharedInt64Atomics)},
    {FEATURE_COOPMAT2, AT(coopmat2.cooperativeMatrixFlexibleDimensions)},
    {FEATURE_COOPMAT2, AT(coopmat2.cooperativeMatrixReductions)},
    {FEATURE_COOPMAT2, AT(coopmat2.cooperativeMatrixConversions)},
    {FEATURE_COOPMAT2, AT(coopmat2.cooperativeMatrixPerElementOperations)},
    {FEATURE_COOPMAT2, AT(coopmat2.cooperativeMatrixTensorAddressing)},
    {FEATURE_COOPMAT2, AT(coopmat2.cooperativeMatrixBlockLoads)},
};

// Extensions that bring a struct of the chain, with its place.
static const struct {
    const char *name;
    size_t offset;
    uint32_t feature;
    VkStructureType type;
} EXTENSIONS[] = {
    {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, AT(coopmat), FEATURE_COOPMAT,
     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR},
    {VK_NV_COOPERATIVE_MATRIX_2_EXTENSION_NAME, AT(coopmat2), FEATURE_COOPMAT2,
     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV},
    {VK_KHR_SHADER_BFLOAT16_EXTENSION_NAME, AT(bfloat16), FEATURE_BFLOAT16, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR},
    {VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME, AT(atomic_float), FEATURE_FLOAT_ATOMICS,
     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT},
    {VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME, AT(executable), FEATURE_STATISTICS,
     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR},
};
#define EXTENSION_COUNT (sizeof EXTENSIONS / sizeof *EXTENSIONS)

// Compute units as drivers report them, each in a struct of its own.
typedef struct UnitCounts {
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia;
    VkPhysicalDeviceShaderCorePropertiesAMD amd;
    VkPhysicalDeviceShaderCoreProperties2AMD amd2;
} UnitCounts;

static const struct {
    const char *name;
    size_t offset;
    VkStructureType type;
} UNIT_COUNTS[] = {
    {VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME, offsetof(UnitCounts, nvidia),
     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV},
    {VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME, offsetof(UnitCounts, amd), VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD},
    {VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME, offsetof(UnitCounts, amd2),
     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD},
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static uint32_t smallest(uint32_t a, uint32_t b) { return a < b ? a : b; }

static VkBool32 *member(FeatureChain *chain, size_t offset) { return (VkBool32 *)(void *)((char *)chain + offset); }

// Links the core structs and those extension structs whose bit is set.
static void chain_init(FeatureChain *chain, uint32_t extensions) {
    memset(chain, 0, sizeof *chain);
    chain->core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    chain->v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    chain->v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    chain->v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    chain->core.pNext = &chain->v11;
    chain->v11.pNext = &chain->v12;
    chain->v12.pNext = &chain->v13;
    for (size_t i = 0; i < EXTENSION_COUNT; i++) {
        if (!(extensions >> i & 1)) continue;
        VkBaseOutStructure *extra = (VkBaseOutStructure *)(void *)((char *)chain + EXTENSIONS[i].offset);
        extra->sType = EXTENSIONS[i].type;
        extra->pNext = chain->v13.pNext;
        chain->v13.pNext = extra;
    }
}

static void read_extensions(VkPhysicalDevice physical, Facts *out, uint32_t *present, uint32_t *counting) {
    VkExtensionProperties *list = calloc(MAX_EXTENSIONS, sizeof *list);
    uint32_t count = list ? MAX_EXTENSIONS : 0;
    if (list && runtime.vk.EnumerateDeviceExtensionProperties(physical, NULL, &count, list) < 0) count = 0;
    for (uint32_t e = 0; e < count; e++) {
        const char *name = list[e].extensionName;
        for (size_t i = 0; i < EXTENSION_COUNT; i++)
            if (strcmp(name, EXTENSIONS[i].name) == 0) *present |= 1u << i;
        for (size_t i = 0; i < COUNT(UNIT_COUNTS); i++)
            if (strcmp(name, UNIT_COUNTS[i].name) == 0) *counting |= 1u << i;
        if (strcmp(name, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) == 0) out->memory_budget = true;
        if (strcmp(name, "VK_KHR_portability_subset") == 0) out->portability_subset = true;
    }
    free(list);
}

static void read_properties(VkPhysicalDevice physical, Facts *out) {
    VkPhysicalDeviceMaintenance4Properties m4 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    out->v13 = (VkPhysicalDeviceVulkan13Properties){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES, .pNext = &m4};
    out->v12 = (VkPhysicalDeviceVulkan12Properties){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &out->v13};
    out->v11 = (VkPhysicalDeviceVulkan11Properties){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &out->v12};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &out->v11};
    runtime.vk.GetPhysicalDeviceProperties2(physical, &properties);
    out->v11.pNext = out->v12.pNext = out->v13.pNext = NULL;
    out->core = properties.properties;
    out->subgroup_min = out->v13.minSubgroupSize;
    out->subgroup_max = out->v13.maxSubgroupSize;
    if (out->v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) out->features |= 1u << FEATURE_SHUFFLE;
    out->largest_alloc = out->v11.maxMemoryAllocationSize < m4.maxBufferSize ? out->v11.maxMemoryAllocationSize : m4.maxBufferSize;
    if (out->v13.integerDotProduct4x8BitPackedSignedAccelerated) out->features |= 1u << FEATURE_INTEGER_DOT_FAST;
}

// Streaming multiprocessors of NVIDIA, compute units of AMD: those in use where the driver tells, else those that were built.
static uint32_t read_compute_units(VkPhysicalDevice physical, uint32_t counting) {
    if (!counting) return 0;
    UnitCounts counts;
    memset(&counts, 0, sizeof counts);
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    for (size_t i = 0; i < COUNT(UNIT_COUNTS); i++) {
        if (!(counting >> i & 1)) continue;
        VkBaseOutStructure *count = (VkBaseOutStructure *)(void *)((char *)&counts + UNIT_COUNTS[i].offset);
        count->sType = UNIT_COUNTS[i].type;
        count->pNext = properties.pNext;
        properties.pNext = count;
    }
    runtime.vk.GetPhysicalDeviceProperties2(physical, &properties);
    if (counts.nvidia.shaderSMCount) return counts.nvidia.shaderSMCount;
    if (counts.amd2.activeComputeUnitCount) return counts.amd2.activeComputeUnitCount;
    return counts.amd.shaderEngineCount * counts.amd.shaderArraysPerEngineCount * counts.amd.computeUnitsPerShaderArray;
}

static void read_memory(VkPhysicalDevice physical, Facts *out) {
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    runtime.vk.GetPhysicalDeviceMemoryProperties2(physical, &memory);
    out->memory = memory.memoryProperties;
    for (uint32_t i = 0; i < out->memory.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &out->memory.memoryHeaps[i];
        if (!(heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) || heap->size <= out->heap_bytes) continue;
        out->heap_bytes = heap->size;
        out->heap = i;
    }
    out->unified = out->core.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU || out->core.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
}

static bool read_queue(VkPhysicalDevice physical, Facts *out) {
    VkQueueFamilyProperties families[16];
    uint32_t count = 16;
    runtime.vk.GetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        if (!(families[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
        out->family = i;
        out->queues = families[i].queueCount < VKRT_STREAMS ? families[i].queueCount : VKRT_STREAMS;
        out->timestamp_bits = families[i].timestampValidBits;
        return true;
    }
    return false;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void lacks(Facts *out, const char *format, ...) {
    size_t length = strlen(out->unusable);
    if (length) length += (size_t)snprintf(out->unusable + length, sizeof out->unusable - length, ", ");
    if (length >= sizeof out->unusable) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out->unusable + length, sizeof out->unusable - length, format, arguments);
    va_end(arguments);
}

// ---- masks ----------------------------------------------------------------------------------------------------------

// Whether pipelines can be given subgroups of that size.
static bool subgroup_choice(const Facts *facts, uint32_t size) {
    return size >= facts->v13.minSubgroupSize && size <= facts->v13.maxSubgroupSize &&
           (facts->v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT);
}

// Subgroups of a size that cannot be had are emulated by larger ones, of whose threads kernels take some for neighbours.
static bool mask_subgroup(Facts *out, uint32_t size) {
    if (size == 0 || (size & (size - 1)) || size > out->v13.maxSubgroupSize) return false;
    if (subgroup_choice(out, size)) out->subgroup_forced = size;
    else if (size > out->v13.minSubgroupSize) return false;
    out->subgroup_min = out->subgroup_max = size;
    return true;
}

static bool mask_limit(Facts *out, const char *name, size_t length, uint32_t value) {
    for (size_t i = 0; i < COUNT(LIMITS); i++) {
        if (strlen(LIMITS[i].name) != length || memcmp(LIMITS[i].name, name, length) != 0) continue;
        uint32_t *limit = (uint32_t *)(void *)((char *)out + LIMITS[i].offset);
        if (value == 0 || value > *limit) return false;
        *limit = value;
        return true;
    }
    return length == strlen("subgroup") && memcmp(name, "subgroup", length) == 0 && mask_subgroup(out, value);
}

static bool mask_feature(Facts *out, const char *name, size_t length) {
    for (size_t i = 0; i < COUNT(OPTIONAL); i++) {
        if (strlen(OPTIONAL[i].name) != length || memcmp(OPTIONAL[i].name, name, length) != 0) continue;
        out->hidden |= 1u << i;
        return true;
    }
    return false;
}

static int32_t refuse_word(const char *word, int length, const Facts *facts) {
    char names[512];
    size_t used = 0;
    for (size_t i = 0; i < COUNT(OPTIONAL); i++) used += (size_t)snprintf(names + used, sizeof names - used, "%s, ", OPTIONAL[i].name);
    for (size_t i = 0; i < COUNT(LIMITS); i++) used += (size_t)snprintf(names + used, sizeof names - used, "%s=, ", LIMITS[i].name);
    return fail(NULL, VKRT_ERROR_ARGUMENT, "%s cannot do without \"%.*s\"; there are %ssubgroup=, each limit below its own",
                facts->core.deviceName, length, word, names);
}

static int32_t apply_mask(const char *mask, Facts *out) {
    for (const char *word = mask; word && *word;) {
        size_t length = strcspn(word, ",");
        const char *equals = memchr(word, '=', length);
        char *end = NULL;
        bool known = equals
                         ? mask_limit(out, word, (size_t)(equals - word), (uint32_t)strtoul(equals + 1, &end, 10)) && end == word + length
                         : mask_feature(out, word, length);
        if (!known) return refuse_word(word, (int)length, out);
        word += length + (word[length] == ',');
    }
    out->core.limits.maxComputeWorkGroupCount[1] =
        smallest(out->core.limits.maxComputeWorkGroupCount[1], out->core.limits.maxComputeWorkGroupCount[0]);
    out->core.limits.maxComputeWorkGroupSize[0] =
        smallest(out->core.limits.maxComputeWorkGroupSize[0], out->core.limits.maxComputeWorkGroupInvocations);
    out->features &= ~out->hidden;
    for (size_t i = 0; i < COUNT(RESTING); i++)
        if (!(out->features >> RESTING[i].base & 1)) out->features &= ~(1u << RESTING[i].feature);
    return VKRT_OK;
}

uint32_t facts_subgroup(const Facts *facts, bool lanes) {
    if (facts->subgroup_forced) return facts->subgroup_forced;
    return lanes && facts->v13.minSubgroupSize < facts->v13.maxSubgroupSize && subgroup_choice(facts, LANES) ? LANES : 0;
}

// ---- reading --------------------------------------------------------------------------------------------------------

#define COOPMAT_SHAPES 256
#define COOPMAT_SHARED 40960 // bytes of shared memory that the largest of these kernels takes

// Whether the device multiplies 16x16 matrices of a component type by those of so many columns, with float32 sums in a subgroup.
static bool has_matrices(VkPhysicalDevice physical, int32_t component, uint32_t columns) {
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR get = (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)runtime.get_proc(
        runtime.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    uint32_t count = 0;
    if (!get || get(physical, &count, NULL) < 0) return false;
    if (count > COOPMAT_SHAPES) count = COOPMAT_SHAPES;
    VkCooperativeMatrixPropertiesKHR *list = calloc(count + 1, sizeof *list);
    if (!list) return false;
    for (uint32_t i = 0; i < count; i++) list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    if (get(physical, &count, list) < 0) count = 0;
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        const VkCooperativeMatrixPropertiesKHR *p = &list[i];
        found = found || (p->MSize == 16 && p->NSize == columns && p->KSize == 16 && (int32_t)p->AType == component &&
                          (int32_t)p->BType == component && p->CType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
                          p->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR && p->scope == VK_SCOPE_SUBGROUP_KHR);
    }
    free(list);
    return found;
}

// Those kernels also compute in float16, exchange values in subgroups of 32 and stage tiles in shared memory.
static void read_coopmat(VkPhysicalDevice physical, Facts *out) {
    uint32_t wanted = 1u << FEATURE_COOPMAT | 1u << FEATURE_FLOAT16 | 1u << FEATURE_SHUFFLE;
    bool fixed = out->subgroup_min == LANES && out->subgroup_max == LANES, chosen = facts_subgroup(out, true) == LANES;
    if ((out->features & wanted) == wanted && (fixed || chosen) && (out->v11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_VOTE_BIT) &&
        out->core.limits.maxComputeSharedMemorySize >= COOPMAT_SHARED && has_matrices(physical, VK_COMPONENT_TYPE_FLOAT16_KHR, 16))
        out->features |= 1u << FEATURE_COOPMAT_KERNELS;
    wanted = 1u << FEATURE_COOPMAT_KERNELS | 1u << FEATURE_BFLOAT16_COOPMAT;
    if ((out->features & wanted) == wanted && has_matrices(physical, VK_COMPONENT_TYPE_BFLOAT16_KHR, 16))
        out->features |= 1u << FEATURE_BFLOAT16_KERNELS;
    if ((out->features >> FEATURE_COOPMAT_KERNELS & 1) && has_matrices(physical, VK_COMPONENT_TYPE_FLOAT16_KHR, 8))
        out->features |= 1u << FEATURE_NARROW_KERNELS;
}

int32_t facts_read(VkPhysicalDevice physical, const char *mask, Facts *out) {
    memset(out, 0, sizeof *out);
    out->chunk_bytes = CHUNK_BYTES;
    runtime.vk.GetPhysicalDeviceProperties(physical, &out->core);
    uint32_t version = out->core.apiVersion;
    if (version < VK_API_VERSION_1_3) {
        lacks(out, "Vulkan 1.3 (its driver has %u.%u)", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
        return VKRT_OK; // the structs below do not exist there
    }
    uint32_t present = 0, counting = 0;
    read_extensions(physical, out, &present, &counting);
    read_properties(physical, out);
    out->compute_units = read_compute_units(physical, counting);
    read_memory(physical, out);
    if (!read_queue(physical, out)) lacks(out, "a compute queue");
    FeatureChain chain;
    chain_init(&chain, present);
    runtime.vk.GetPhysicalDeviceFeatures2(physical, &chain.core);
    for (size_t i = 0; i < COUNT(REQUIRED); i++)
        if (!*member(&chain, REQUIRED[i].offset)) lacks(out, "%s", REQUIRED[i].name);
    for (size_t i = 0; i < COUNT(OPTIONAL); i++)
        if (OPTIONAL[i].offset && *member(&chain, OPTIONAL[i].offset)) out->features |= 1u << i;
    TRY(apply_mask(mask, out));
    read_coopmat(physical, out);
    out->features &= ~out->hidden;
    VkSubgroupFeatureFlags arithmetic = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    if (!(out->v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) ||
        (out->v11.subgroupSupportedOperations & arithmetic) != arithmetic)
        lacks(out, "subgroup arithmetic in compute shaders");
    if (out->core.limits.maxPushConstantsSize < PUSH_BYTES) lacks(out, "%d bytes of push constants", PUSH_BYTES);
    return VKRT_OK;
}

// The companions cannot be read from Facts, so the device is asked again for exactly the structs that will be enabled.
static void enable_companions(VkPhysicalDevice physical, uint32_t extensions, const Facts *facts, FeatureChain *chain) {
    FeatureChain there;
    chain_init(&there, extensions);
    runtime.vk.GetPhysicalDeviceFeatures2(physical, &there.core);
    for (size_t i = 0; i < COUNT(COMPANIONS); i++)
        if (facts->features >> COMPANIONS[i].feature & 1) *member(chain, COMPANIONS[i].offset) = *member(&there, COMPANIONS[i].offset);
}

void facts_enable(VkPhysicalDevice physical, const Facts *facts, FeatureChain *chain, const char **extensions, uint32_t *count) {
    uint32_t wanted = 0;
    for (size_t i = 0; i < EXTENSION_COUNT; i++)
        if (facts->features >> EXTENSIONS[i].feature & 1) wanted |= 1u << i;
    chain_init(chain, wanted);
    for (size_t i = 0; i < COUNT(REQUIRED); i++) *member(chain, REQUIRED[i].offset) = VK_TRUE;
    for (size_t i = 0; i < COUNT(OPTIONAL); i++)
        if (OPTIONAL[i].offset && (facts->features >> i & 1)) *member(chain, OPTIONAL[i].offset) = VK_TRUE;
    enable_companions(physical, wanted, facts, chain);
    *count = 0;
    for (size_t i = 0; i < EXTENSION_COUNT; i++)
        if (wanted >> i & 1) extensions[(*count)++] = EXTENSIONS[i].name;
    if (facts->memory_budget) extensions[(*count)++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    if (facts->portability_subset) extensions[(*count)++] = "VK_KHR_portability_subset";
}

const char *kernel_missing(const KernelRow *row, const Facts *facts) {
    if (row->needs & NEEDS_WASM) return "only the CPU path has it";
    if ((row->needs & NEEDS_SHUFFLE) && !(facts->features >> FEATURE_SHUFFLE & 1)) return "the device has no shuffles in subgroups";
    if ((row->needs & NEEDS_INT64_ATOMICS) && !(facts->features >> FEATURE_INT64_ATOMICS & 1)) return "the device has no 64-bit atomics";
    if ((row->needs & NEEDS_COOPMAT) && !(facts->features >> FEATURE_COOPMAT_KERNELS & 1))
        return "the device has no 16x16x16 float16 cooperative matrices in subgroups of 32";
    if ((row->needs & NEEDS_NARROW) && !(facts->features >> FEATURE_NARROW_KERNELS & 1))
        return "the device has no 16x8x16 float16 cooperative matrices in subgroups of 32";
    if ((row->needs & NEEDS_BFLOAT16) && !(facts->features >> FEATURE_BFLOAT16_KERNELS & 1))
        return "the device has no 16x16x16 bfloat16 cooperative matrices in subgroups of 32";
    return row->spirv ? NULL : "it was left out of this build";
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

typedef struct Text {
    char *at;
    uint32_t left;
} Text;

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void put(Text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->at, t->left, format, arguments);
    va_end(arguments);
    if (n < 0 || t->left == 0) return;
    uint32_t step = (uint32_t)n < t->left ? (uint32_t)n : t->left - 1;
    t->at += step;
    t->left -= step;
}

static void put_string(Text *t, const char *key, const char *value) {
    put(t, "\"%s\":\"", key);
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\') put(t, "\\%c", c);
        else if (c >= 0x20) put(t, "%c", c);
    }
    put(t, "\",");
}

static const char *device_type(VkPhysicalDeviceType type) {
    static const char *const NAMES[] = {"other", "integrated", "discrete", "virtual", "cpu"};
    return (unsigned)type < COUNT(NAMES) ? NAMES[type] : "other";
}

void facts_json(const Facts *f, char *text, uint32_t capacity) {
    Text t = {text, capacity};
    const VkPhysicalDeviceLimits *limits = &f->core.limits;
    put(&t, "{");
    put_string(&t, "name", f->core.deviceName);
    put_string(&t, "type", device_type(f->core.deviceType));
    put_string(&t, "driver", f->v12.driverName);
    put_string(&t, "driverInfo", f->v12.driverInfo);
    uint32_t version = f->core.apiVersion;
    put(&t, "\"apiVersion\":\"%u.%u.%u\",", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version), VK_API_VERSION_PATCH(version));
    put(&t, "\"vendorId\":%u,\"deviceId\":%u,\"unified\":%s,", f->core.vendorID, f->core.deviceID, f->unified ? "true" : "false");
    put(&t, "\"subgroup\":%u,\"subgroupMin\":%u,\"subgroupMax\":%u,", f->v11.subgroupSize, f->subgroup_min, f->subgroup_max);
    uint32_t lanes = facts_subgroup(f, true);
    put(&t, "\"lanes\":%u,", lanes ? smallest(lanes, f->subgroup_max) : f->subgroup_min);
    put(&t, "\"heapBytes\":%llu,\"maxAllocation\":%llu,", (unsigned long long)f->heap_bytes, (unsigned long long)f->largest_alloc);
    put(&t, "\"maxGrid\":[%u,%u,%u],", limits->maxComputeWorkGroupCount[0], limits->maxComputeWorkGroupCount[1],
        limits->maxComputeWorkGroupCount[2]);
    put(&t, "\"maxWorkgroup\":[%u,%u,%u],\"subgroupOperations\":%u,", limits->maxComputeWorkGroupSize[0],
        limits->maxComputeWorkGroupSize[1], limits->maxComputeWorkGroupSize[2], f->v11.subgroupSupportedOperations);
    put(&t, "\"computeUnits\":%u,", f->compute_units);
    put(&t, "\"maxThreads\":%u,\"sharedBytes\":%u,", limits->maxComputeWorkGroupInvocations, limits->maxComputeSharedMemorySize);
    put(&t, "\"pushBytes\":%u,\"timestampPeriod\":%g,", limits->maxPushConstantsSize,
        f->timestamp_bits ? (double)limits->timestampPeriod : 0.0);
    put(&t, "\"features\":[");
    for (size_t i = 0, n = 0; i < COUNT(OPTIONAL); i++)
        if (f->features >> i & 1) put(&t, "%s\"%s\"", n++ ? "," : "", OPTIONAL[i].name);
    put(&t, "],\"missingKernels\":{");
    for (uint32_t i = 0, n = 0; i < kernel_count; i++) {
        const char *reason = kernel_missing(&kernel_table[i], f);
        if (reason) put(&t, "%s\"%s\":\"%s\"", n++ ? "," : "", kernel_table[i].name, reason);
    }
    put(&t, "}");
    if (f->unusable[0]) put(&t, ",\"unusable\":\"lacks %s\"", f->unusable);
    put(&t, "}");
}
