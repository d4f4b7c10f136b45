// The state that the files of the runtime share: the one global struct, the device and everything it owns. A module of the same name works
// with each part; arrows of inclusion run down this list only, which tests/layers_test.ts holds:
//
//   exports.c     the functions of vk_runtime.h: find the device, call one function, answer its status
//   device.c      open, close
//   plan.c        Plan words to dispatches
//   pair.c        two Plans in one command buffer
//   recording.c   recordings of Plans and their replay
//   record.c      Plans into command buffers, with hazards.c (where barriers stand) and profile.c (timestamps)
//   statistics.c  what the driver tells of compiled pipelines
//   transfer.c    bytes in and out           pipelines.c  kernels to pipelines, the cache on disk
//   memory.c      chunks of device memory and the ranges in them
//   queue.c       submissions, the timeline that orders them, waits       commands.c   command buffers
//   loader.c      libvulkan, instance        drivers.c    drivers that cannot be loaded
//   facts.c       features and limits of a physical device
//   failure.c     failing with a message
//   state.c, handles.c, platform.c           what their names say

#ifndef VKMX_STATE_H
#define VKMX_STATE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../shaders/include/plan.h"
#include "handles.h"
#include "kernel_table.h"
#include "device/platform.h"
#include "vk_runtime.h"
#include "device/vulkan_functions.h"

#define MAX_PHYSICAL 16 // physical devices looked at
#define MAX_DEVICES 16  // devices open at once
#define PUSH_BYTES 128  // what every device grants

typedef struct Device Device;
typedef struct Chunk Chunk;

// ---- streams --------------------------------------------------------------------------------------------------------

// The last work on each stream, as values of their timelines; 0: none.
typedef struct Uses {
    uint64_t at[VKRT_STREAMS];
} Uses;

// Work in the order of its submission. Work on several streams is ordered by waits of one for the timeline of another.
typedef struct Stream {
    VkQueue queue; // several streams may share one
    VkSemaphore timeline;
    _Atomic uint64_t submitted; // value of the last submission
    _Atomic uint64_t completed; // highest value seen
    Uses seen;                  // values of the others that it waits for already
    _Atomic uint64_t early;     // a value that an event tells before the timeline does; 0: none
    _Atomic(VkEvent) event;
} Stream;

// ---- messages -------------------------------------------------------------------------------------------------------

#define MESSAGE_BYTES 1024
#define MESSAGES 4

// The last message of each of the calls that failed lately, the newest first. One place for all would lose the message of a call
// to a failure of another thread before a caller could ask.
typedef struct Messages {
    Lock lock;
    struct {
        const char *call;
        char text[MESSAGE_BYTES];
    } kept[MESSAGES];
} Messages;

// ---- what a physical device can do -----------------------------------------------------------------------------------

// Bits of Facts.features, in the order of the optional features in facts.c.
enum {
    FEATURE_FLOAT16,
    FEATURE_INT64_ATOMICS,
    FEATURE_COOPMAT,
    FEATURE_COOPMAT2,
    FEATURE_BFLOAT16,
    FEATURE_BFLOAT16_COOPMAT,
    FEATURE_INTEGER_DOT_FAST,
    FEATURE_COOPMAT_KERNELS,  // all that the coopmat kernels of the table rely on
    FEATURE_BFLOAT16_KERNELS, // the same for those of bfloat16
    FEATURE_NARROW_KERNELS,   // those of float16 that also multiply 16x8x16 matrices
    FEATURE_SHUFFLE,          // in subgroups
    FEATURE_FLOAT_ATOMICS,    // sums of float32 in buffers
    FEATURE_STATISTICS,       // of compiled pipelines: bytes of code, registers
    FEATURE_COUNT,
};

#define CHUNK_BYTES (64u << 20)

typedef struct Facts {
    VkPhysicalDeviceProperties core;
    VkPhysicalDeviceVulkan11Properties v11;
    VkPhysicalDeviceVulkan12Properties v12;
    VkPhysicalDeviceVulkan13Properties v13;
    VkPhysicalDeviceMemoryProperties memory;
    uint64_t heap_bytes;    // of the largest device-local heap
    uint32_t heap;          // its index
    uint64_t largest_alloc; // of one buffer
    uint32_t chunk_bytes;   // most that small buffers share; larger ones have memory of their own
    uint32_t family;        // queue family with compute
    uint32_t queues;        // of it that are used
    uint32_t timestamp_bits;
    uint32_t features;                   // FEATURE_* bits
    uint32_t hidden;                     // those that a mask takes away
    uint32_t subgroup_min, subgroup_max; // threads of a subgroup, as kernels may rely on them
    uint32_t compute_units;              // 0: the driver does not tell
    uint32_t subgroup_forced;            // all pipelines get subgroups of so many threads; 0: as the driver likes
    bool unified;                        // the host sees all device memory
    bool memory_budget;
    bool portability_subset;
    char unusable[256]; // reason; "" where the device serves
} Facts;

// ---- memory ---------------------------------------------------------------------------------------------------------

// A piece of a chunk, free or taken. `uses` names the last work on each stream that touches these bytes, whichever
// buffer held them then. Freed ranges are reused at once, because later work is ordered after it.
typedef struct Range {
    Chunk *chunk;
    uint64_t offset, size;
    Uses uses;
    uint64_t written;             // ticket of the last work that writes it, since it was taken
    struct Range *before, *after; // neighbours in the chunk
    struct Range *next, *prev;    // free list of its size
    bool taken;
    bool internal; // the runtime's own, no buffer
} Range;

// One VkDeviceMemory under one VkBuffer.
struct Chunk {
    VkDeviceMemory memory;
    VkBuffer buffer;
    VkDeviceAddress address;
    uint8_t *mapped; // NULL: not host-visible
    bool cached;     // the host reads it at full speed
    uint64_t size;
    uint32_t pool, heap;
    bool dedicated; // holds one big range and is never split
    bool empty;
    Range *first;
    Chunk *next, *prev; // all chunks, or all empty ones from the oldest
};

// Staging segments are in the memory of buffers for reading back.
enum {
    POOL_DEVICE = VKRT_BUFFER_DEVICE,
    POOL_VISIBLE = VKRT_BUFFER_VISIBLE,
    POOL_HOST = VKRT_BUFFER_HOST,
    POOL_READBACK = VKRT_BUFFER_READBACK,
    POOL_COUNT
};

#define BINS 256 // four sizes to a power of two

typedef struct Pool {
    uint32_t types[2], type_count; // memory types in order of preference
    bool mapped;
    uint64_t bytes; // of its shared chunks
    Range *bins[BINS];
} Pool;

typedef struct ChunkList {
    Chunk *first, *last;
} ChunkList;

typedef struct Memory {
    Pool pools[POOL_COUNT];
    ChunkList used, empty;
    uint64_t active, peak, internal;        // bytes in taken ranges: of buffers, their most, of the runtime itself
    uint64_t host;                          // those of buffers of the host kind
    uint64_t reserved[VK_MAX_MEMORY_HEAPS]; // bytes from the driver
    uint64_t cached, cache_limit;           // bytes in empty chunks
} Memory;

typedef struct Buffer {
    Range *range;
    uint64_t bytes;
} Buffer;

// ---- transfers ------------------------------------------------------------------------------------------------------

#define SEGMENTS 4
#define SEGMENT_BYTES ((uint64_t)8 << 20)
#define COPIES_RING 32

typedef struct Segment {
    Range *range;
    uint64_t used, ticket;
} Segment;

// Memory that transfers pass through.
typedef struct Staging {
    Segment segments[SEGMENTS];
    uint32_t segment;
} Staging;

// Copies collect in one open command buffer, which is submitted before the next Plan or when the caller waits for it.
typedef struct Copies {
    VkCommandBuffer commands[COPIES_RING];
    uint64_t tickets[COPIES_RING];
    uint32_t ring;
    bool open;
    Uses behind; // those that the open ones wait for
} Copies;

// ---- plans ----------------------------------------------------------------------------------------------------------

typedef struct Pipeline {
    uint32_t kernel;
    uint32_t spec[PLAN_MAX_SPEC];
    VkPipeline pipeline;   // none while it is being made, or when that failed
    struct Pipeline *next; // in its bucket
} Pipeline;

#define PIPELINE_BUCKETS 256

// A kernel that was made at run time.
typedef struct MadeKernel {
    KernelRow row; // without SPIR-V
    VkShaderModule module;
    char name[64];
} MadeKernel;

typedef struct Pipelines {
    MadeKernel *made[VKRT_MAX_KERNELS]; // in the order of their ids, after those of the table; they stay
    _Atomic uint32_t made_count;
    Lock lock; // of what follows: vkrt_plan_prepare runs beside other calls
    VkPipelineLayout layout;
    VkPipelineCache cache;
    VkShaderModule *modules; // one a kernel, made on first use
    Pipeline *buckets[PIPELINE_BUCKETS];
    char *path;              // of the cache file; NULL: none
    Lock saving;             // of what follows
    size_t saved;            // bytes of the cache when it was read or written
    _Atomic uint32_t making; // calls that make pipelines now
} Pipelines;

typedef struct Dispatch {
    const KernelRow *kernel;
    uint32_t id;             // of the kernel
    const uint32_t *buffers; // pairs {slot, byte offset}, inside the Plan's words
    const uint32_t *spec, *push;
    VkPipeline pipeline;
    uint32_t grid[3];
    bool disjoint, preamble;
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

#define RUNS 7 // command buffers of 1, 2, 4 … runs

// Command buffers for one binding of the slots, with the timestamps if it is profiled. They are recorded when they are needed.
typedef struct Recording {
    VkCommandBuffer commands;   // a whole run
    VkCommandBuffer preamble;   // the dispatches before many runs
    VkCommandBuffer runs[RUNS]; // 1 << i runs without those
    bool opens;                 // whether the preamble is recorded
    uint32_t recorded;          // bits of the runs that are
    VkQueryPool queries;
    uint64_t *places; // of the slots
    Range *tables;    // addresses of all dispatches that have a table; NULL: none does
    Uses uses;        // its last submissions
    uint32_t barriers;
    bool valid;
    struct Recording *next; // in the device's list of retired ones
} Recording;

#define RECORDINGS 4
#define PAIRS 4 // of Plans, whose command buffers are recorded each time

typedef struct Pair {
    VkCommandBuffer commands;
    VkEvent event;   // set after the first Plan
    uint64_t ticket; // of the second one
} Pair;

typedef struct Plan {
    uint32_t *words;
    uint32_t slots, dispatches;
    uint32_t preamble; // dispatches in front that only the first of several runs needs
    Dispatch *dispatch;
    uint32_t table_entries;            // of all dispatches together
    uint8_t *access;                   // per slot: whether dispatches read (1) and write (2) it
    uint64_t *reach;                   // per slot: highest byte offset that a dispatch adds, plus one; 0: the slot is not used
    uint32_t *bound;                   // four words a slot, as it was last bound; 0: not yet
    Binding *bindings;                 // the resulting bindings
    Recording *recordings[RECORDINGS]; // the most recently used first
    Recording *profiled;
} Plan;

// ---- device ---------------------------------------------------------------------------------------------------------

struct Device {
    VkPhysicalDevice physical;
    VkDevice device;
    DeviceFunctions vk;
    Facts facts;
    VkCommandPool command_pool;
    Stream streams[VKRT_STREAMS]; // the first one is there always, and copies are on it
    _Atomic uint32_t opened;      // streams up to the last one that is in use
    _Atomic bool lost;
    _Atomic uint32_t waiters;
    Memory memory;
    Copies copies;
    Staging staging;
    Pipelines pipelines;
    HandleTable buffers, plans;
    Recording *retired;
    Pair pairs[PAIRS];
    uint32_t pair; // the last one that was taken
    bool profile;
    bool idling;         // waits are for the whole queue
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
    uint32_t opened;       // devices opened so far; seeds the generations of their handles
    Messages messages;     // of calls without a device; their lock guards what follows too
    char validation[4096]; // texts of validation messages, as far as they fit
    _Atomic uint32_t validation_messages;
} Runtime;

extern Runtime runtime;

#endif
