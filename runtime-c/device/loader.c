// Opens libvulkan and the instance. Nothing here runs before the first call that needs Vulkan, so the library loads
// anywhere. A failure is a message that says what to install.

#include "device/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/drivers.h"
#include "failure.h"

#if defined(_WIN32)
static const char *const LIBRARIES[] = {"vulkan-1.dll"};
#define MISSING "vulkan-1.dll is not installed; install or update the driver of the graphics card"
#elif defined(__APPLE__)
static const char *const LIBRARIES[] = {"libvulkan.1.dylib", "/opt/homebrew/lib/libvulkan.1.dylib", "/usr/local/lib/libvulkan.1.dylib",
                                        "libMoltenVK.dylib", "/opt/homebrew/lib/libMoltenVK.dylib", "/usr/local/lib/libMoltenVK.dylib"};
#define MISSING "libvulkan.1.dylib and libMoltenVK.dylib are not installed; install them (brew install vulkan-loader molten-vk)"
#else
static const char *const LIBRARIES[] = {"libvulkan.so.1"};
#define MISSING "libvulkan.so.1 is not installed; install the Vulkan loader (Debian, Ubuntu: apt-get install libvulkan1)"
#endif

#define MAX_EXTENSIONS 512

// VKMX_VALIDATION_LOG names a file. Every process adds its instances and validation messages to it, one a line. A
// caller of many processes counts them there, since the layers print their messages between program output.
static void validation_log(const char *kind, const char *text) {
    const char *path = getenv("VKMX_VALIDATION_LOG");
    if (!path || !path[0]) return;
    char line[2048];
    int length = snprintf(line, sizeof line - 1, "%s\t%s", kind, text);
    if (length < 0) return;
    if ((size_t)length > sizeof line - 2) length = (int)sizeof line - 2;
    for (int i = 0; i < length; i++)
        if (line[i] == '\n') line[i] = ' ';
    line[length] = '\n';
    file_append(path, line, (size_t)length + 1);
}

// Validation messages are counted, and their texts kept.
static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity, VkDebugUtilsMessageTypeFlagsEXT type,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data, void *user) {
    (void)severity, (void)type, (void)user;
    atomic_fetch_add(&runtime.validation_messages, 1);
    lock_acquire(&runtime.messages.lock);
    size_t length = strlen(runtime.validation);
    snprintf(runtime.validation + length, sizeof runtime.validation - length, "%s%s", length ? "\n" : "", data->pMessage);
    validation_log(data->pMessageIdName ? data->pMessageIdName : "message", data->pMessage);
    lock_release(&runtime.messages.lock);
    return VK_FALSE;
}

static bool open_library(void) {
    for (size_t i = 0; i < sizeof LIBRARIES / sizeof *LIBRARIES && !runtime.library; i++) runtime.library = library_open(LIBRARIES[i]);
    if (!runtime.library) return false;
    void (*entry)(void) = library_symbol(runtime.library, "vkGetInstanceProcAddr");
    runtime.get_proc = (PFN_vkGetInstanceProcAddr)entry;
    return entry != NULL;
}

static bool has_extension(const VkExtensionProperties *list, uint32_t count, const char *name) {
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(list[i].extensionName, name) == 0) return true;
    return false;
}

static VkResult create_instance(void) {
    VkExtensionProperties *list = calloc(MAX_EXTENSIONS, sizeof *list);
    uint32_t count = list ? MAX_EXTENSIONS : 0;
    if (list && runtime.global.EnumerateInstanceExtensionProperties(NULL, &count, list) < 0) count = 0;
    const char *extensions[2];
    uint32_t used = 0;
    VkInstanceCreateFlags flags = 0;
    bool messages = has_extension(list, count, VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    if (messages) extensions[used++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    if (has_extension(list, count, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) { // MoltenVK shows only with this
        extensions[used++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
        flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    free(list);
    VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = on_message,
    };
    VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "vkmx",
        .pEngineName = "vkmx",
        .apiVersion = VK_API_VERSION_1_3,
    };
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pNext = messages ? &messenger : NULL,
        .flags = flags,
        .pApplicationInfo = &application,
        .enabledExtensionCount = used,
        .ppEnabledExtensionNames = extensions,
    };
    VkResult result = runtime.global.CreateInstance(&info, NULL, &runtime.instance);
    if (result == VK_SUCCESS) validation_log("instance", getenv("VK_INSTANCE_LAYERS") ? getenv("VK_INSTANCE_LAYERS") : "");
    if (result != VK_SUCCESS || !messages) return result;
    PFN_vkCreateDebugUtilsMessengerEXT create =
        (PFN_vkCreateDebugUtilsMessengerEXT)runtime.get_proc(runtime.instance, "vkCreateDebugUtilsMessengerEXT");
    if (create && create(runtime.instance, &messenger, NULL, &runtime.messenger) != VK_SUCCESS) runtime.messenger = VK_NULL_HANDLE;
    return VK_SUCCESS;
}

#define LOAD(name) \
    functions->name = (PFN_vk##name)get(owner, "vk" #name); \
    complete = complete && functions->name;

static bool load_global_functions(GlobalFunctions *functions) {
    PFN_vkGetInstanceProcAddr get = runtime.get_proc;
    VkInstance owner = VK_NULL_HANDLE;
    bool complete = true;
    GLOBAL_FUNCTIONS(LOAD)
    return complete;
}

static bool load_instance_functions(InstanceFunctions *functions) {
    PFN_vkGetInstanceProcAddr get = runtime.get_proc;
    VkInstance owner = runtime.instance;
    bool complete = true;
    INSTANCE_FUNCTIONS(LOAD)
    return complete;
}

bool load_device_functions(VkDevice owner, DeviceFunctions *functions) {
    PFN_vkGetDeviceProcAddr get = runtime.vk.GetDeviceProcAddr;
    bool complete = true;
    DEVICE_FUNCTIONS(LOAD)
    return complete;
}

static int32_t enumerate(void) {
    runtime.physical_count = MAX_PHYSICAL;
    VkResult result = runtime.vk.EnumeratePhysicalDevices(runtime.instance, &runtime.physical_count, runtime.physical);
    if (result == VK_SUCCESS || result == VK_INCOMPLETE) return VKRT_OK;
    runtime.physical_count = 0;
    return fail(NULL, VKRT_ERROR_UNAVAILABLE, "no Vulkan driver answered (%s); install the driver of the GPU", result_name(result));
}

// Takes back an instance that turned out to be of no use.
static void instance_close(void) {
    PFN_vkDestroyDebugUtilsMessengerEXT destroy =
        (PFN_vkDestroyDebugUtilsMessengerEXT)runtime.get_proc(runtime.instance, "vkDestroyDebugUtilsMessengerEXT");
    if (runtime.messenger && destroy) destroy(runtime.instance, runtime.messenger, NULL);
    if (runtime.vk.DestroyInstance) runtime.vk.DestroyInstance(runtime.instance, NULL);
    runtime.instance = VK_NULL_HANDLE;
    runtime.messenger = VK_NULL_HANDLE;
}

int32_t instance_open(void) {
    if (runtime.instance) return VKRT_OK;
    if (!runtime.library && !open_library()) return fail(NULL, VKRT_ERROR_UNAVAILABLE, MISSING);
    if (!load_global_functions(&runtime.global))
        return fail(NULL, VKRT_ERROR_UNAVAILABLE, "the Vulkan loader is too old; Vulkan 1.3 is needed");
    VkResult result = create_instance();
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
        char failures[4];
        if (driver_failures(failures, sizeof failures) > 0)
            return fail(NULL, VKRT_ERROR_UNAVAILABLE, "no Vulkan driver that is installed can be loaded");
        return fail(
            NULL, VKRT_ERROR_UNAVAILABLE,
            "no Vulkan driver is installed; install the driver of the GPU (Mesa on Debian, Ubuntu: apt-get install mesa-vulkan-drivers)");
    }
    if (result == VK_ERROR_LAYER_NOT_PRESENT)
        return fail(NULL, VKRT_ERROR_UNAVAILABLE, "a layer named in VK_INSTANCE_LAYERS is not installed; install it or unset the variable");
    if (result != VK_SUCCESS) return fail(NULL, VKRT_ERROR_UNAVAILABLE, "vkCreateInstance answered %s", result_name(result));
    int32_t status = VKRT_OK;
    if (!load_instance_functions(&runtime.vk))
        status = fail(NULL, VKRT_ERROR_UNAVAILABLE, "the Vulkan loader is too old; Vulkan 1.3 is needed");
    if (status == VKRT_OK) status = enumerate();
    if (status != VKRT_OK) instance_close();
    return status;
}
