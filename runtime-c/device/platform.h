// The operating system, as far as the runtime needs it: shared libraries, a lock, a clock, files. Paths are UTF-8.

#ifndef VKMX_PLATFORM_H
#define VKMX_PLATFORM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#undef CreateEvent // macros that are names in this runtime
#undef CreateSemaphore
#undef OPTIONAL
typedef SRWLOCK Lock;
#define LOCK_INIT SRWLOCK_INIT
typedef HANDLE File;
#else
#include <pthread.h>
typedef pthread_mutex_t Lock;
#define LOCK_INIT PTHREAD_MUTEX_INITIALIZER
typedef int File;
#endif

void lock_init(Lock *lock);
void lock_acquire(Lock *lock);
void lock_release(Lock *lock);

// Threads that run `work(argument)`; thread_start answers false if there are no more.
typedef struct Thread {
    void (*work)(void *);
    void *argument;
#if defined(_WIN32)
    HANDLE handle;
#else
    pthread_t handle;
#endif
} Thread;
bool thread_start(Thread *thread, void (*work)(void *), void *argument);
void thread_join(Thread *thread);
uint32_t processor_count(void);

uint64_t clock_microseconds(void);
void sleep_milliseconds(uint32_t milliseconds);

void *library_open(const char *name);
void (*library_symbol(void *library, const char *name))(void);

// Reading at an offset. file_open fills `size`; both answer false and leave a reason for file_error().
bool file_open(const char *path, File *file, uint64_t *size);
bool file_read(File file, uint64_t offset, void *data, uint64_t bytes);
void file_close(File file);
void file_error(char *text, size_t capacity);

// Whole small files. file_write_whole makes the folder, writes a temporary name beside `path` and renames it; where that fails,
// `reason` says why.
void *file_read_whole(const char *path, size_t *bytes);
bool file_write_whole(const char *path, const void *data, size_t bytes, char *reason, size_t capacity);

// Appends bytes to a file in one piece, even if other processes append too.
void file_append(const char *path, const void *data, size_t bytes);

#endif
