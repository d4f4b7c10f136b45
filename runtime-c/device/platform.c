// Implements platform.h, once for POSIX and once for Windows.

#if !defined(_WIN32)
#define _GNU_SOURCE // pread with 64-bit offsets, and clock_gettime under -std=c11
#define _FILE_OFFSET_BITS 64
#endif
#include "device/platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_CAPACITY 4096
#define READ_STEP ((uint64_t)1 << 30)   // one call of the system reads no more than this
#define SHARE_BYTES ((uint64_t)1 << 20) // of a file, that a thread is worth
#define READERS 8                       // threads of a reading at most

#if defined(_WIN32)

void lock_init(Lock *lock) { InitializeSRWLock(lock); }
void lock_acquire(Lock *lock) { AcquireSRWLockExclusive(lock); }
void lock_release(Lock *lock) { ReleaseSRWLockExclusive(lock); }

static DWORD WINAPI thread_main(void *thread) {
    ((Thread *)thread)->work(((Thread *)thread)->argument);
    return 0;
}

bool thread_start(Thread *thread, void (*work)(void *), void *argument) {
    *thread = (Thread){.work = work, .argument = argument};
    thread->handle = CreateThread(NULL, 0, thread_main, thread, 0, NULL);
    return thread->handle != NULL;
}

void thread_join(Thread *thread) {
    WaitForSingleObject(thread->handle, INFINITE);
    CloseHandle(thread->handle);
}

uint32_t processor_count(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (uint32_t)info.dwNumberOfProcessors;
}

uint64_t clock_microseconds(void) {
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return (uint64_t)count.QuadPart / (uint64_t)frequency.QuadPart * 1000000 +
           (uint64_t)count.QuadPart % (uint64_t)frequency.QuadPart * 1000000 / (uint64_t)frequency.QuadPart;
}
void sleep_milliseconds(uint32_t milliseconds) { Sleep(milliseconds); }

void *library_open(const char *name) { return (void *)LoadLibraryA(name); }
void (*library_symbol(void *library, const char *name))(void) { return (void (*)(void))GetProcAddress((HMODULE)library, name); }

static bool wide_path(const char *path, wchar_t *out) {
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, PATH_CAPACITY) > 0;
}

bool file_open(const char *path, File *file, uint64_t *size) {
    wchar_t wide[PATH_CAPACITY];
    if (!wide_path(path, wide)) return false;
    *file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (*file == INVALID_HANDLE_VALUE) return false;
    LARGE_INTEGER large;
    if (!GetFileSizeEx(*file, &large)) {
        CloseHandle(*file);
        return false;
    }
    *size = (uint64_t)large.QuadPart;
    return true;
}

static int64_t read_some(File file, uint64_t offset, void *data, uint64_t bytes) {
    OVERLAPPED at = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
    DWORD got = 0;
    return ReadFile(file, data, (DWORD)bytes, &got, &at) ? (int64_t)got : -1;
}

void file_close(File file) { CloseHandle(file); }

void file_error(char *text, size_t capacity) {
    DWORD code = GetLastError();
    DWORD n = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, code, 0, text, (DWORD)capacity, NULL);
    if (n == 0) snprintf(text, capacity, "error %lu", (unsigned long)code);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == '.')) text[--n] = 0;
}

static FILE *open_stream(const char *path, const wchar_t *mode) {
    wchar_t wide[PATH_CAPACITY];
    return wide_path(path, wide) ? _wfopen(wide, mode) : NULL;
}
static FILE *open_reading(const char *path) { return open_stream(path, L"rb"); }
static FILE *open_writing(const char *path) { return open_stream(path, L"wb"); }
static FILE *open_adding(const char *path) { return open_stream(path, L"ab"); }

// Whether the folder is there afterwards.
static bool make_folder(const char *path) {
    wchar_t wide[PATH_CAPACITY];
    return wide_path(path, wide) && (CreateDirectoryW(wide, NULL) || GetLastError() == ERROR_ALREADY_EXISTS);
}

static bool replace_file(const char *from, const char *to) {
    wchar_t wide_from[PATH_CAPACITY], wide_to[PATH_CAPACITY];
    return wide_path(from, wide_from) && wide_path(to, wide_to) && MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING);
}

static void delete_file(const char *path) {
    wchar_t wide[PATH_CAPACITY];
    if (wide_path(path, wide)) DeleteFileW(wide);
}

static unsigned long process_id(void) { return GetCurrentProcessId(); }

#else

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void lock_init(Lock *lock) { pthread_mutex_init(lock, NULL); }
void lock_acquire(Lock *lock) { pthread_mutex_lock(lock); }
void lock_release(Lock *lock) { pthread_mutex_unlock(lock); }

static void *thread_main(void *thread) {
    ((Thread *)thread)->work(((Thread *)thread)->argument);
    return NULL;
}

bool thread_start(Thread *thread, void (*work)(void *), void *argument) {
    *thread = (Thread){.work = work, .argument = argument};
    return pthread_create(&thread->handle, NULL, thread_main, thread) == 0;
}

void thread_join(Thread *thread) { pthread_join(thread->handle, NULL); }

uint32_t processor_count(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (uint32_t)count : 1;
}

uint64_t clock_microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void sleep_milliseconds(uint32_t milliseconds) {
    struct timespec pause = {.tv_sec = milliseconds / 1000, .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

void *library_open(const char *name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }

void (*library_symbol(void *library, const char *name))(void) {
    void *symbol = dlsym(library, name);
    void (*function)(void);
    memcpy(&function, &symbol, sizeof function); // ISO C has no cast from object to function pointers
    return function;
}

bool file_open(const char *path, File *file, uint64_t *size) {
    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe without a writer is no reason to wait
    if (*file < 0) return false;
    struct stat info = {0};
    int found = fstat(*file, &info);
    if (found != 0 || !S_ISREG(info.st_mode)) {
        int reason = found != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
        close(*file);
        errno = reason;
        return false;
    }
    *size = (uint64_t)info.st_size;
    return true;
}

static int64_t read_some(File file, uint64_t offset, void *data, uint64_t bytes) {
    for (;;) {
        ssize_t got = pread(file, data, (size_t)bytes, (off_t)offset);
        if (got >= 0 || errno != EINTR) return got;
    }
}

void file_close(File file) { close(file); }
void file_error(char *text, size_t capacity) { snprintf(text, capacity, "%s", strerror(errno)); }

static FILE *open_reading(const char *path) { return fopen(path, "rb"); }
static FILE *open_writing(const char *path) { return fopen(path, "wb"); }
static FILE *open_adding(const char *path) { return fopen(path, "ab"); }
static bool make_folder(const char *path) { return mkdir(path, 0777) == 0 || errno == EEXIST; } // whether it is there afterwards
static bool replace_file(const char *from, const char *to) { return rename(from, to) == 0; }
static void delete_file(const char *path) { unlink(path); }
static unsigned long process_id(void) { return (unsigned long)getpid(); }

#endif

typedef struct Share {
    File file;
    uint64_t offset, bytes;
    uint8_t *to;
    bool whole;
} Share;

static void read_share(void *argument) {
    Share *s = argument;
    s->whole = true;
    for (uint64_t done = 0; s->whole && done < s->bytes;) {
        uint64_t left = s->bytes - done;
        int64_t got = read_some(s->file, s->offset + done, s->to + done, left < READ_STEP ? left : READ_STEP);
        s->whole = got > 0;
        if (s->whole) done += (uint64_t)got;
    }
}

// By several threads where it pays: one copies some 5 GB/s out of the system's cache.
bool file_read(File file, uint64_t offset, void *data, uint64_t bytes) {
    Share shares[READERS];
    Thread threads[READERS];
    uint64_t count = bytes / SHARE_BYTES < READERS ? bytes / SHARE_BYTES : READERS, started = 1;
    if (count == 0) count = 1;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t from = bytes * i / count, to = bytes * (i + 1) / count;
        shares[i] = (Share){.file = file, .offset = offset + from, .bytes = to - from, .to = (uint8_t *)data + from};
    }
    while (started < count && thread_start(&threads[started], read_share, &shares[started])) started++;
    read_share(&shares[0]);
    for (uint64_t i = started; i < count; i++) read_share(&shares[i]);
    for (uint64_t i = 1; i < started; i++) thread_join(&threads[i]);
    for (uint64_t i = 0; i < count; i++) {
        if (!shares[i].whole) read_share(&shares[i]); // here, for file_error()
        if (!shares[i].whole) return false;
    }
    return true;
}

void *file_read_whole(const char *path, size_t *bytes) {
    FILE *stream = open_reading(path);
    if (!stream) return NULL;
    void *data = NULL;
    if (fseek(stream, 0, SEEK_END) == 0) {
        long size = ftell(stream);
        if (size > 0 && fseek(stream, 0, SEEK_SET) == 0) data = malloc((size_t)size);
        if (data && fread(data, 1, (size_t)size, stream) != (size_t)size) {
            free(data);
            data = NULL;
        }
        if (data) *bytes = (size_t)size;
    }
    fclose(stream);
    return data;
}

void file_append(const char *path, const void *data, size_t bytes) {
    FILE *stream = open_adding(path);
    if (!stream) return;
    fwrite(data, 1, bytes, stream);
    fclose(stream);
}

// `reason` says why the first of the missing ones could not be made, empty if all are there.
static void make_folders_of(const char *path, char *reason, size_t capacity) {
    char folder[PATH_CAPACITY];
    size_t length = strlen(path);
    reason[0] = 0;
    if (length >= sizeof folder) return;
    for (size_t i = 0; i < length; i++) {
        folder[i] = path[i];
        if (i > 0 && (path[i] == '/' || path[i] == '\\')) {
            folder[i] = 0;
            if (make_folder(folder)) reason[0] = 0; // those above it, such as a drive, need no making
            else if (!reason[0]) file_error(reason, capacity);
            folder[i] = path[i];
        }
    }
}

bool file_write_whole(const char *path, const void *data, size_t bytes, char *reason, size_t capacity) {
    char temporary[PATH_CAPACITY];
    int length = snprintf(temporary, sizeof temporary, "%s.%lu.tmp", path, process_id());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        snprintf(reason, capacity, "the path is too long");
        return false;
    }
    make_folders_of(path, reason, capacity);
    FILE *stream = open_writing(temporary);
    bool written = stream && fwrite(data, 1, bytes, stream) == bytes;
    if (stream) written = fclose(stream) == 0 && written;
    if (written && replace_file(temporary, path)) return true;
    if (stream || !reason[0]) file_error(reason, capacity);
    delete_file(temporary);
    return false;
}
