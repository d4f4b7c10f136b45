// The Plan: the flat word format between lowering and the two executors. Everything in it is a little-endian u32.
//
//   header    PLAN_MAGIC, slots, dispatches, words (total, header included)
//   dispatch  kernel id | flags << 16
//             buffers | spec words << 8 | push words << 16
//             grid x, y, z                        (workgroups; the WASM executor ignores them)
//             buffers x {slot, byte offset}       slot PLAN_NO_SLOT: the kernel sees address 0
//             spec words x value                  in the order of kernels.zon
//             push words x value                  the block of push.h
//             rows                                where the kernel has columns in kernels.zon, and then
//             rows x columns x {slot, byte offset}
//
// A run binds each slot to {buffer, byte offset, bytes}. Two bindings of one slot touch the same memory and two slots
// never do. So hazards are tracked per slot; kernels.zon says which buffers are read and written.

#ifndef VKMX_PLAN_H
#define VKMX_PLAN_H

#define PLAN_MAGIC 0x31504b56u // "VKP1"
#define PLAN_HEADER_WORDS 4
#define PLAN_DISPATCH_WORDS 5
#define PLAN_NO_SLOT 0xffffffffu
#define PLAN_MAX_BUFFERS 14
#define PLAN_MAX_SPEC 56
#define PLAN_MAX_PUSH 32
#define PLAN_MAX_COLUMNS 32
#define PLAN_MAX_ROWS 256

// Kernels made at run time (vkrt_kernel_new), whose ids follow those of the table. They have words of their push block,
// the grid in threads, and specialization constants, the size of a workgroup.
#define KERNEL_PUSH_WORDS 3
#define KERNEL_SPEC_WORDS 3

// Writes of this dispatch do not overlap those of the dispatch before it, although both write the same slot. Consecutive
// flagged dispatches form a run with the one before them, and all writes of a run are disjoint.
#define PLAN_DISJOINT 1u

// Of several runs in a row only the first needs this dispatch: the others find what it does done by the run before.
// It precedes all dispatches that are not flagged. An executor may run it every time.
#define PLAN_PREAMBLE 2u

#endif
