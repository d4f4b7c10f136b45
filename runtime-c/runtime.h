// What the files of the runtime share: the one global struct, the device and everything it owns, and failing with a message.
//
//   vk_runtime.c  exports: find the device, call one function, answer its status
//   loader.c      libvulkan, instance        facts.c      features and limits of a physical device
//   drivers.c     drivers that cannot be loaded
//   device.c      open, close, wait          memory.c     chunks of device memory and the ranges in them
//   transfer.c    bytes in and out           pipelines.c  kernels to pipelines, the cache on disk
//   plan.c        Plan words to dispatches   commands.c   recording, submitting, replay; hazards.c where barriers stand
//   profile.c     timestamps                 handles.c, platform.c  what their names say

#ifndef VKMX_RUNTIME_H
#define VKMX_RUNTIME_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../shaders/include/plan.h"
#include "facts.h"
#include "handles.h"
#include "kernel_table.h"
#include "loader.h"
#include "platform.h"
#include "vk_runtime.h"

#define MAX_PHYSICAL 16 // physical devices looked at
#define MAX_DEVICES 16  // devices open at once
#define PUSH_BYTES 128  // what every device grants
#define PATIENCE_MS 10000 // longest wait inside one call; the caller of vkrt_wait decides for itself

typedef struct Device Device;
typedef struct Chunk Chunk;

// ---- messages -------------------------------------------------------------------------------------------------------

#define MESSAGE_BYTES 1024
#define MESSAGES 4

// The last message of each of the calls that failed lately, the newest first. One place for all would lose the message of a call
// to a failure of another thread before anybody could ask.
typedef struct Messages {
    Lock lock;
    struct { const char *call; char text[MESSAGE_BYTES]; } kept[MESSAGES];
} Messages;

// ---- memory ---------------------------------------------------------------------------------------------------------

// A piece of a chunk, free or taken. `last_use` is the ticket of the last work that touches these bytes, whoever held
// them then: freed ranges are handed out again at once, because later work is ordered behind it on the queue.
typedef struct Range {
    Chunk *chunk;
    uint64_t offset, size, last_use;
    struct Range *before, *after; // neighbours in the chunk
    struct Range *next, *prev;    // free list of its size
    bool taken;
} Range;

// One VkDeviceMemory under one VkBuffer.
struct Chunk {
    VkDeviceMemory memory;
    VkBuffer buffer;
    VkDeviceAddress address;
    uint8_t *mapped; // NULL: not host-visible
    bool cached;     // the host reads it at full speed
    uint64_t size;
    uint32_t pool;
    bool dedicated; // holds one big range and is never split
    bool empty;
    Range *first;
    Chunk *next, *prev; // all chunks, or all empty ones from the oldest
};

enum { POOL_DEVICE = VKRT_BUFFER_DEVICE, POOL_HOST = VKRT_BUFFER_HOST, POOL_STAGING, POOL_COUNT };

#define BINS 256 // four sizes to a power of two

typedef struct Pool {
    uint32_t types[2], type_count; // memory types in order of preference
    bool mapped;
    uint64_t bytes; // of its shared chunks
    Range *bins[BINS];
} Pool;

typedef struct ChunkList { Chunk *first, *last; } ChunkList;

typedef struct Memory {
    Pool pools[POOL_COUNT];
    ChunkList used, empty;
    uint64_t active, peak, staging; // bytes in taken ranges
    uint64_t reserved;              // bytes from the driver
    uint64_t cached, cache_limit;   // bytes in empty chunks
} Memory;

typedef struct Buffer {
    Range *range;
    uint64_t bytes;
} Buffer;

// ---- transfers ------------------------------------------------------------------------------------------------------

#define SEGMENTS 4
#define SEGMENT_BYTES ((uint64_t)8 << 20)
#define TRANSFER_RING 32

typedef struct Segment {
    Range *range;
    uint64_t used, ticket;
} Segment;

// Copies collect in one open command buffer, which goes out in front of the next Plan or when somebody waits for it.
typedef struct Transfer {
    Segment segments[SEGMENTS];
    uint32_t segment;
    VkCommandBuffer commands[TRANSFER_RING];
    uint64_t tickets[TRANSFER_RING];
    uint32_t ring;
    bool open;
} Transfer;

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct Pipeline {
    uint32_t kernel;
    uint32_t spec[PLAN_MAX_SPEC];
    VkPipeline pipeline;   // none while it is being made, or when that failed
    struct Pipeline *next; // in its bucket
} Pipeline;

#define PIPELINE_BUCKETS 256

typedef struct Pipelines {
    Lock lock; // of what follows: vkrt_plan_prepare runs beside other calls
    VkPipelineLayout layout;
    VkPipelineCache cache;
    VkShaderModule *modules; // one a kernel, made on first use
    Pipeline *buckets[PIPELINE_BUCKETS];
    char *path; // of the cache file; NULL: none
    Lock saving; // of what follows
    size_t saved; // bytes of the cache when it was read or written
    _Atomic uint32_t making; // calls that make pipelines now
} Pipelines;

typedef struct Dispatch {
    const KernelRow *kernel;
    const uint32_t *buffers; // pairs {slot, byte offset}, inside the Plan's words
    const uint32_t *spec, *push;
    VkPipeline pipeline;
    uint32_t grid[3];
    bool disjoint, opening;
    uint32_t rows;         // of the table of addresses
    const uint32_t *table; // its pairs {slot, byte offset}, row by row
} Dispatch;

// Where a slot lies.
typedef struct Binding {
    VkDeviceAddress address; // 0: no dispatch uses it
    uint64_t place;          // the address, with the lowest bit set where the host sees it
    Range *range;
    uint32_t hazard; // the slot that stands for this place
} Binding;

// A command buffer for one binding of the slots, with its timestamps where it is profiled.
typedef struct Recording {
    VkCommandBuffer commands;
    VkCommandBuffer opening, together; // what stands in front of many runs, and some of them; VK_NULL_HANDLE: not needed so far
    bool opens;                        // whether they are
    VkQueryPool queries;
    uint64_t *places; // of the slots
    Range *tables;    // addresses of all dispatches that have a table; NULL: none does
    uint64_t ticket; // last submission; 0: none
    uint32_t barriers;
    bool valid;
    struct Recording *next; // in the device's list of retired ones
} Recording;

#define RECORDINGS 4

typedef struct Plan {
    uint32_t *words;
    uint32_t slots, dispatches;
    uint32_t opening; // dispatches in front that only the first of several runs needs
    Dispatch *dispatch;
    uint32_t table_entries; // of all dispatches together
    uint64_t *reach; // per slot: highest byte offset that a dispatch adds, plus one; 0: the slot is not used
    uint32_t *bound;   // four words a slot, as it was last bound; 0: not yet
    Binding *bindings; // what they come to
    Recording *recordings[RECORDINGS]; // the most recently used first
    Recording *profiled;
} Plan;

// ---- device ---------------------------------------------------------------------------------------------------------

struct Device {
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    DeviceFunctions vk;
    Facts facts;
    VkCommandPool command_pool;
    VkSemaphore timeline;
    _Atomic uint64_t submitted; // value of the last submission
    _Atomic uint64_t completed; // highest value seen
    _Atomic bool lost;
    _Atomic uint32_t waiters;
    Memory memory;
    Transfer transfer;
    Pipelines pipelines;
    HandleTable buffers, plans;
    Recording *retired;
    bool profile;
    bool idling; // waits are for the whole queue
    char fault_call[48]; // VKMX_FAULT="call:result[:skip]": the tests' way to rare results
    int32_t fault_result;
    uint32_t fault_skip;
    _Atomic uint32_t fault_calls; // of that function so far
    Messages messages;
};

typedef struct Runtime {
    Lock lock; // guards what follows up to messages
    void *library;
    PFN_vkGetInstanceProcAddr get_proc;
    GlobalFunctions global;
    InstanceFunctions vk;
    VkInstance instance;
    VkDebugUtilsMessengerEXT messenger;
    VkPhysicalDevice physical[MAX_PHYSICAL];
    uint32_t physical_count;
    HandleTable devices;
    uint32_t opened; // devices opened so far; seeds the generations of their handles
    Messages messages; // of calls without a device; their lock guards what follows too
    char validation[4096]; // texts of validation messages, as far as they fit
    _Atomic uint32_t validation_messages;
} Runtime;

extern Runtime runtime;
extern _Thread_local const char *current_call; // the export that runs, for messages; threads that help it set it too

// Keeps "call(): text" as the message of the current call on the device (NULL: of calls without one) and answers `status`.
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int32_t fail(Device *d, int32_t status, const char *format, ...);

// What fail() wrote last on this thread, and keeping it again as the newest message of the current call.
const char *failure_text(void);
void failure_keep(Device *d, const char *text);
void messages_copy(Messages *messages, char *text, uint32_t capacity); // a line for each call

const char *result_name(VkResult result);

// Every Vulkan call of a device goes through here: status of the result, message with the call's name, the lost device.
int32_t device_result(Device *d, const char *call, VkResult result);
bool device_fault(Device *d, const char *call);
#define VK(d, name, ...) \
    device_result((d), "vk" #name, device_fault((d), "vk" #name) ? (VkResult)(d)->fault_result : (d)->vk.name(__VA_ARGS__))

// Leaves the function on failure.
#define TRY(expression) \
    do { \
        int32_t try_status = (expression); \
        if (try_status != VKRT_OK) return try_status; \
    } while (0)

// drivers.c
uint32_t driver_failures(char *text, uint32_t capacity); // their number

// device.c
int32_t device_open(uint32_t index, const char *mask, const char *cache_dir, Device **out);
int32_t device_idle(Device *d); // VKRT_ERROR_TIMEOUT where its work does not end; otherwise it may be closed
void device_close(Device *d);
int32_t device_lost(Device *d); // fails with what to do
uint64_t device_completed(Device *d);
int32_t device_wait(Device *d, uint64_t ticket, uint64_t timeout_ms);
// The open transfers go in front. At most 1 + VKRT_MAX_TIMES buffers, of which one may stand there many times.
int32_t device_submit(Device *d, const VkCommandBuffer *commands, uint32_t count, uint64_t *ticket);

// memory.c
int32_t memory_init(Device *d);
void memory_deinit(Device *d);
int32_t range_new(Device *d, uint32_t pool, uint64_t bytes, Range **out);
void range_free(Device *d, Range *range);
void memory_report(Device *d, uint64_t *out);
static inline uint8_t *range_mapped(const Range *r) { return r->chunk->mapped ? r->chunk->mapped + r->offset : NULL; }
static inline VkDeviceAddress range_address(const Range *r) { return r->chunk->address + r->offset; }

// transfer.c
int32_t transfer_init(Device *d);
void transfer_deinit(Device *d);
int32_t transfer_end(Device *d, VkCommandBuffer *out); // closes the open command buffer; NULL where there is none
int32_t transfer_flush(Device *d);
int32_t transfer_write(Device *d, Buffer *buffer, uint64_t offset, const void *data, uint64_t bytes);
int32_t transfer_read(Device *d, Buffer *buffer, uint64_t offset, void *data, uint64_t bytes);
int32_t transfer_load(Device *d, Buffer *buffer, uint64_t offset, const char *path, uint64_t file_offset, uint64_t bytes);

// pipelines.c
int32_t pipelines_init(Device *d, const char *cache_dir);
int32_t pipelines_save(Device *d);
void pipelines_deinit(Device *d);
int32_t pipelines_make(Device *d, Dispatch *dispatches, uint32_t count);
const char *kernel_missing(const KernelRow *row, const Facts *facts); // why it cannot run here; NULL: it can

// plan.c
int32_t plan_new(Device *d, const uint32_t *words, uint32_t count, Plan **out);
int32_t plan_prepare(Device *d, const uint32_t *words, uint32_t count);
void plan_free(Device *d, Plan *plan);

// commands.c
int32_t plan_run(Device *d, Plan *plan, const uint32_t *slots, uint32_t times, uint64_t *ticket);
int32_t commands_new(Device *d, VkCommandBuffer *out);
int32_t commands_begin(Device *d, VkCommandBuffer commands, VkCommandBufferUsageFlags flags);
void commands_barrier(Device *d, VkCommandBuffer commands, VkPipelineStageFlags2 from, VkAccessFlags2 made,
                      VkPipelineStageFlags2 to, VkAccessFlags2 seen);
void recording_retire(Device *d, Recording *recording);
void recordings_deinit(Device *d);

// profile.c
int32_t profile_switch(Device *d, bool on);
int32_t profile_prepare(Device *d, Recording *recording, uint32_t dispatches);
void profile_reset(Device *d, VkCommandBuffer commands, Recording *recording, uint32_t dispatches);
void profile_mark(Device *d, VkCommandBuffer commands, Recording *recording, uint32_t query);
int32_t profile_read(Device *d, Plan *plan, double *nanoseconds, uint32_t capacity, uint32_t *count);

#endif
