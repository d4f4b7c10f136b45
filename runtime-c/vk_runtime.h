// libvk_runtime: the whole C ABI of vkmx's Vulkan runtime.
//
// Devices, buffers, plans (see shaders/include/plan.h), tickets. Conventions:
//   - every function returns a status: 0 ok, negative failure; values are append-only. What a failure was is kept per device and
//     call, and read with vkrt_last_error(device, …); device 0 holds the failures that belong to no device;
//   - handles are u32 (index + generation); a stale one is VKRT_ERROR_HANDLE, never a crash; 0 is never a handle;
//   - memory is the caller's; (NULL, 0) is a legal empty range; nothing is kept past the call; no callbacks, no structs by value;
//   - libvulkan is opened at the first vkrt_device_count, so the library loads on a machine without Vulkan and says so;
//   - calls on one device must not overlap, except vkrt_wait, vkrt_plan_prepare and vkrt_pipelines_save, which may run on other threads.

#ifndef VK_RUNTIME_H
#define VK_RUNTIME_H
#include <stdint.h>

#if defined(_WIN32)
#define VKRT_API __declspec(dllexport)
#else
#define VKRT_API __attribute__((visibility("default")))
#endif

enum {
    VKRT_OK = 0,
    VKRT_ERROR_ARGUMENT = -1,    // a parameter is out of range
    VKRT_ERROR_HANDLE = -2,      // stale or foreign handle
    VKRT_ERROR_UNAVAILABLE = -3, // no libvulkan, or the device lacks a required feature
    VKRT_ERROR_OUT_OF_MEMORY = -4,
    VKRT_ERROR_DEVICE_LOST = -5,
    VKRT_ERROR_TIMEOUT = -6, // still running: wait again
    VKRT_ERROR_IO = -7,      // a file could not be read or written
    VKRT_ERROR_PLAN = -8,    // a Plan is malformed
    VKRT_ERROR_VULKAN = -9,  // any other VkResult
};

// Kinds of buffers.
enum {
    VKRT_BUFFER_DEVICE = 0,   // device-local; writes and reads go through staging
    VKRT_BUFFER_VISIBLE = 1,  // host-visible and coherent, device-local too where the device has such memory
    VKRT_BUFFER_HOST = 2,     // memory of the host, which kernels read over the bus; the device's own where it has no other
    VKRT_BUFFER_READBACK = 3, // memory of the host that its processor caches: the device writes over the bus what the host reads
};

// Slots of vkrt_memory's array.
enum {
    VKRT_MEMORY_ACTIVE = 0,
    VKRT_MEMORY_PEAK,
    VKRT_MEMORY_STAGING,
    VKRT_MEMORY_HEAP,
    VKRT_MEMORY_BUDGET,
    VKRT_MEMORY_CACHE,
    VKRT_MEMORY_CACHE_LIMIT,
    VKRT_MEMORY_HOST,
    VKRT_MEMORY_HOST_BUDGET,
    VKRT_MEMORY_HOST_HEAP,
    VKRT_MEMORY_COUNT
};

// Most runs of a plan in one submission.
enum { VKRT_MAX_TIMES = 64 };

// Most kernels that are made at run time, of one device.
enum { VKRT_MAX_KERNELS = 4096 };

// Streams of a device: each has a timeline of its own, and queues as far as the device has them.
enum { VKRT_STREAMS = 4 };

// A ticket names its stream in the bits from VKRT_STREAM_SHIFT on; the bits below count the submissions of that stream.
enum { VKRT_STREAM_SHIFT = 48 };

// clang-format off: the generator reads a declaration from one line

// Hash of this header, the kernel table, the push blocks and the Plan format.
VKRT_API uint32_t vkrt_abi(void);

// Number of physical devices. `out` stays 0 with VKRT_ERROR_UNAVAILABLE when Vulkan is not there.
VKRT_API int32_t vkrt_device_count(uint32_t *out);

// Installed drivers that cannot be loaded, which Vulkan skips silently. `text` gets a line
// "manifest<TAB>library<TAB>reason" for each, NUL-terminated; lines beyond `capacity` are left out. It is empty if all
// drivers can be loaded.
VKRT_API int32_t vkrt_driver_failures(char *text, uint32_t capacity);

// JSON about physical device `index` in `text` (NUL-terminated, cut at `capacity`). Its fields are name, type
// ("discrete", "integrated", "cpu", …), driver, apiVersion, subgroup, heapBytes, maxAllocation, maxGrid, maxThreads,
// sharedBytes, features, missingKernels with the reason of each, …. It has "unusable": reason when the device lacks
// something. `mask` as for vkrt_device_open.
VKRT_API int32_t vkrt_device_info(uint32_t index, const char *mask, char *text, uint32_t capacity);

// Opens physical device `index`. `mask` (NUL-terminated, "" for none) hides features and lowers limits, so that the
// device works like a lesser one. Features are named as in vkrt_device_info. Limits are maxThreads=, sharedBytes=,
// maxGrid=, chunkBytes= (that buffers share) and subgroup=, separated by commas. `cache_dir` (NUL-terminated, may be
// empty) keeps the pipeline cache between runs.
VKRT_API int32_t vkrt_device_open(uint32_t index, const char *mask, const char *cache_dir, uint32_t *device);

// Waits for the device, frees everything it owns, saves the pipeline cache where it can be written.
VKRT_API int32_t vkrt_device_close(uint32_t device);

// Writes the pipeline cache to the folder that the device was opened with, where it holds something new: for programs that end
// without closing. Pipelines that other threads make are waited for. VKRT_ERROR_IO if it cannot be
// written: the next start compiles again, and nothing else suffers.
VKRT_API int32_t vkrt_pipelines_save(uint32_t device);

// Messages of recent failed calls on `device` (0: without a device), the newest first. Each is "call(): text", the last
// one of each call, with line ends between them. The texts of validation messages follow those of device 0.
VKRT_API int32_t vkrt_last_error(uint32_t device, char *text, uint32_t capacity);

// VKRT_MEMORY_COUNT u64 values. They are the bytes in live buffers, their highest sum, the bytes of staging and tables
// of addresses, and the size of the device's memory. Then come the bytes that can be allocated now, as the driver
// reports them plus those cached for reuse. Then come the cached bytes and their maximum. The last three are the bytes in
// buffers of VKRT_BUFFER_HOST, those that can be allocated for more of them, and the size of that memory. The latter two
// are 0 where that is the device's own memory.
VKRT_API int32_t vkrt_memory(uint32_t device, uint64_t *out);
VKRT_API int32_t vkrt_reset_peak_memory(uint32_t device);

// Most unused bytes that stay cached for reuse. The rest goes back to the driver as soon as the work on it is done.
VKRT_API int32_t vkrt_cache_limit(uint32_t device, uint64_t bytes);

// A buffer of `bytes` (> 0), aligned to at least 256 bytes, followed by 64 bytes of slack for wide loads. Not cleared.
VKRT_API int32_t vkrt_buffer_new(uint32_t device, uint64_t bytes, uint32_t kind, uint32_t *buffer);

// Freed once the work submitted so far is done.
VKRT_API int32_t vkrt_buffer_free(uint32_t device, uint32_t buffer);

// Host to buffer and back. A write is ordered before later plans; a read waits for all earlier work.
VKRT_API int32_t vkrt_buffer_write(uint32_t device, uint32_t buffer, uint64_t offset, const void *data, uint64_t bytes);
VKRT_API int32_t vkrt_buffer_read(uint32_t device, uint32_t buffer, uint64_t offset, void *data, uint64_t bytes);

// File range to buffer, through staging memory only. A file shorter than the range is VKRT_ERROR_IO.
VKRT_API int32_t vkrt_buffer_load(uint32_t device, uint32_t buffer, uint64_t offset, const char *path, uint64_t file_offset, uint64_t bytes);

// Adds a kernel of `count` words of SPIR-V at run time (Vulkan 1.3, entry point "main"). `kernel` is its id in Plans
// for as long as the device is open. Its push constants are `buffers` addresses (1 to PLAN_MAX_BUFFERS) and then
// KERNEL_PUSH_WORDS words. Its specialization constants 0 to 2 are the size of a workgroup. Bit i of `writes`: it
// writes buffer i; of `optional`: buffer i may be absent. The driver trusts SPIR-V: what comes from outside must have
// been validated. Holds VKRT_MAX_KERNELS.
VKRT_API int32_t vkrt_kernel_new(uint32_t device, const char *name, const uint32_t *spirv, uint32_t count, uint32_t buffers, uint32_t writes, uint32_t optional, uint32_t *kernel);

// Checks a Plan, creates its pipelines and keeps it. The words may go away after the call.
VKRT_API int32_t vkrt_plan_new(uint32_t device, const uint32_t *words, uint32_t count, uint32_t *plan);

// Creates the pipelines of a Plan that is to come, so that vkrt_plan_new finds them. The words must stay until it returns.
VKRT_API int32_t vkrt_plan_prepare(uint32_t device, const uint32_t *words, uint32_t count);

// Reads a VKRT_BUFFER_VISIBLE buffer as it is, without waiting: what finished tickets wrote is there, later work may be writing.
VKRT_API int32_t vkrt_buffer_read_mapped(uint32_t device, uint32_t buffer, uint64_t offset, void *data, uint64_t bytes);

// Submits the plan `times` times (1 to VKRT_MAX_TIMES) in a row with `slots`, `count` words in all. A slot has 4 words:
// {buffer handle, offset low, offset high, 0}. The recorded command buffer is kept and replayed while the slots stay
// the same. `ticket` counts up, once a call. Plans of one of the VKRT_STREAMS streams run in the order of their
// submission. Plans of different streams wait for one another if one writes what the other reads or writes.
VKRT_API int32_t vkrt_plan_run(uint32_t device, uint32_t plan, const uint32_t *slots, uint32_t count, uint32_t times, uint32_t stream, uint64_t *ticket);

// Submits two plans once each on the first stream, one after the other, with slots as vkrt_plan_run takes them. A GPU idles less between
// them than between two calls. `ticket` is that of the first, and may be done while the second runs; that of the second is 1 more.
VKRT_API int32_t vkrt_plan_run_pair(uint32_t device, uint32_t first, const uint32_t *first_slots, uint32_t first_count, uint32_t second, const uint32_t *second_slots, uint32_t second_count, uint64_t *ticket);

VKRT_API int32_t vkrt_plan_free(uint32_t device, uint32_t plan);

// Waits until `ticket` (and all before it on its stream) is done: VKRT_ERROR_TIMEOUT after `timeout_ms` (0: asks only).
VKRT_API int32_t vkrt_wait(uint32_t device, uint64_t ticket, uint32_t timeout_ms);

// Timestamps: with `on`, later submissions record one interval per dispatch. vkrt_profile_read gives the intervals of
// the last finished run of `plan` in nanoseconds, one f64 a dispatch, and their number.
VKRT_API int32_t vkrt_profile(uint32_t device, uint32_t on);
VKRT_API int32_t vkrt_profile_read(uint32_t device, uint32_t plan, double *nanoseconds, uint32_t capacity, uint32_t *count);

// Barriers in the newest recording of `plan`, those at its ends included; 0 before it ran. Those that only keep timed dispatches
// apart do not count.
VKRT_API int32_t vkrt_plan_barriers(uint32_t device, uint32_t plan, uint32_t *count);

// The driver's report about the pipeline of a dispatch of `plan`. `text` gets a line "name<TAB>value" for each,
// NUL-terminated; lines beyond `capacity` are left out. The names are the driver's: bytes of code, registers. It is
// compiled once more for this, so that those which run are as they are without asking. VKRT_ERROR_UNAVAILABLE where the
// device lacks "pipelineStatistics".
VKRT_API int32_t vkrt_plan_statistics(uint32_t device, uint32_t plan, uint32_t dispatch, char *text, uint32_t capacity);

// Validation messages (errors and warnings) since the library was loaded; 0 if no layer is active.
VKRT_API int32_t vkrt_validation_messages(uint32_t *count);

// Objects alive: out[0] devices, out[1] buffers, out[2] plans, out[3] kernels made at run time.
VKRT_API int32_t vkrt_live_objects(uint32_t *out);
// clang-format on

#endif
