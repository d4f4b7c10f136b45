// A Vulkan layer that gives any device the extensions that UNITS_LAYER names, with compute units that tests know: software drivers
// tell none. "nvidia" has 132 multiprocessors; "amd" 2 engines of 3 arrays of 8 units; "amd2" says besides that 40 of those are in use.

#define VK_NO_PROTOTYPES
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

static const struct {
    const char *word, *extension;
} EXTENSIONS[] = {
    {"nvidia", VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME},
    {"amd", VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME},
    {"amd2", VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME},
};

static PFN_vkGetInstanceProcAddr next_instance;
static PFN_vkEnumerateDeviceExtensionProperties next_extensions;
static PFN_vkGetPhysicalDeviceProperties2 next_properties;

static int has(const char *word) {
    const char *words = getenv("UNITS_LAYER");
    for (size_t length = strlen(word); words && *words; words += strcspn(words, ","), words += *words == ',')
        if (strcspn(words, ",") == length && memcmp(words, word, length) == 0) return 1;
    return 0;
}

static VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *allocator, VkInstance *out) {
    VkLayerInstanceCreateInfo *link = (void *)(size_t)info->pNext;
    while (link->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO || link->function != VK_LAYER_LINK_INFO)
        link = (void *)(size_t)link->pNext;
    next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)next_instance(VK_NULL_HANDLE, "vkCreateInstance");
    VkResult result = create(info, allocator, out);
    if (result != VK_SUCCESS) return result;
    next_extensions = (PFN_vkEnumerateDeviceExtensionProperties)next_instance(*out, "vkEnumerateDeviceExtensionProperties");
    next_properties = (PFN_vkGetPhysicalDeviceProperties2)next_instance(*out, "vkGetPhysicalDeviceProperties2");
    return VK_SUCCESS;
}

static VkResult VKAPI_CALL list_extensions(VkPhysicalDevice physical, const char *layer, uint32_t *count, VkExtensionProperties *list) {
    uint32_t room = *count;
    VkResult result = next_extensions(physical, layer, count, list);
    for (size_t i = 0; i < sizeof EXTENSIONS / sizeof *EXTENSIONS; i++) {
        if (!has(EXTENSIONS[i].word)) continue;
        if (list && *count == room) abort(); // no caller asks with less room than there is
        if (list) strcpy(list[*count].extensionName, EXTENSIONS[i].extension);
        ++*count;
    }
    return result;
}

// A struct of an extension that the device has not is a mistake of the caller.
static void need(const char *word) {
    if (!has(word)) abort();
}

static void VKAPI_CALL read_properties(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *properties) {
    next_properties(physical, properties);
    for (VkBaseOutStructure *at = (void *)properties; at; at = at->pNext) {
        if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV) {
            need("nvidia");
            ((VkPhysicalDeviceShaderSMBuiltinsPropertiesNV *)at)->shaderSMCount = 132;
        } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD) {
            need("amd");
            VkPhysicalDeviceShaderCorePropertiesAMD *amd = (void *)at;
            amd->shaderEngineCount = 2;
            amd->shaderArraysPerEngineCount = 3;
            amd->computeUnitsPerShaderArray = 8;
        } else if (at->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD) {
            need("amd2");
            ((VkPhysicalDeviceShaderCoreProperties2AMD *)at)->activeComputeUnitCount = 40;
        }
    }
}

#define ANSWER(asked, function) \
    if (strcmp(name, asked) == 0) return (PFN_vkVoidFunction)(function)

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL units_instance(VkInstance asking, const char *name) {
    ANSWER("vkGetInstanceProcAddr", units_instance);
    ANSWER("vkCreateInstance", create_instance);
    ANSWER("vkEnumerateDeviceExtensionProperties", list_extensions);
    ANSWER("vkGetPhysicalDeviceProperties2", read_properties);
    return next_instance ? next_instance(asking, name) : NULL;
}
