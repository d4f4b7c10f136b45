// Threads that share linear memory: one fork-join over chunks of a kernel.
//
// The calling thread is one of the threads. Each has a range of neighbouring chunks, since memory is read fastest in
// one stream, and takes those of others when its own are gone. Workers spin for a moment between forks, because most
// follow each other within microseconds, and sleep after it. A worker that comes late finds the fork closed, and the
// caller does not wait for it. So a preempted thread delays a result by at most the chunk that it has taken. In the
// module without shared memory there is the caller alone.

#ifndef VKMX_WASM_POOL_H
#define VKMX_WASM_POOL_H
#include "kernel.h"

// Runs chunks first..last-1 and returns when all are done.
void pool_run(void (*run_chunks)(const Call *call, uint32_t first, uint32_t last), const Call *call, uint32_t first, uint32_t last);

#endif
