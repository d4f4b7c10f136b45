// Bytes in and out of buffers.
//
// Where the host sees the memory and the device is done with it, a transfer is a memcpy. Otherwise bytes pass through
// staging segments. Copies collect in one open command buffer (queue.c), which is submitted before the next Plan. So a
// few small writes cost no submission of their own. Files are read straight into a segment while the device copies the
// last one.

#include "transfer.h"

#include <string.h>

#include "commands.h"
#include "failure.h"
#include "memory.h"
#include "queue.h"

#define GRAIN 16           // alignment of pieces inside a segment
#define UNCACHED_READ 4096 // bytes up to which reading uncached memory beats a copy on the device

void transfer_deinit(Device *d) {
    for (uint32_t i = 0; i < SEGMENTS; i++)
        if (d->staging.segments[i].range) range_free(d, d->staging.segments[i].range);
}

#define COPY VK_PIPELINE_STAGE_2_COPY_BIT
#define COPY_ACCESS (VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT)

// Records a copy between a staging piece and a range; a range that the open command buffer touched already gets a barrier.
static int32_t record_copy(Device *d, const Segment *segment, uint64_t piece, Range *range, uint64_t offset, uint64_t bytes, bool in) {
    VkCommandBuffer commands;
    TRY(queue_copies(d, &commands));
    uint64_t next = queue_next_ticket(d);
    queue_behind(d, 0, range, in, &d->copies.behind);
    if (range->uses.at[0] == next) commands_barrier(d, commands, COPY, VK_ACCESS_2_TRANSFER_WRITE_BIT, COPY, COPY_ACCESS);
    range->uses.at[0] = next;
    if (in) range->written = next;
    const Range *stage = segment->range;
    VkBufferCopy region = {.srcOffset = stage->offset + piece, .dstOffset = range->offset + offset, .size = bytes};
    if (in) {
        d->vk.CmdCopyBuffer(commands, stage->chunk->buffer, range->chunk->buffer, 1, &region);
    } else {
        region = (VkBufferCopy){.srcOffset = region.dstOffset, .dstOffset = region.srcOffset, .size = bytes};
        d->vk.CmdCopyBuffer(commands, range->chunk->buffer, stage->chunk->buffer, 1, &region);
    }
    return VKRT_OK;
}

// ---- staging --------------------------------------------------------------------------------------------------------

// A segment with room for `bytes`; the place is `*piece`. Waits where all segments are still on their way.
static int32_t stage(Device *d, uint64_t bytes, Segment **out, uint64_t *piece) {
    Staging *t = &d->staging;
    Segment *s = &t->segments[t->segment];
    if (!s->range || s->used + bytes > SEGMENT_BYTES) {
        if (s->range) t->segment = (t->segment + 1) % SEGMENTS;
        s = &t->segments[t->segment];
        if (s->ticket == queue_next_ticket(d)) TRY(queue_flush(d));
        TRY(queue_wait(d, s->ticket, PATIENCE_MS));
        if (!s->range) TRY(range_new(d, POOL_READBACK, SEGMENT_BYTES, true, &s->range));
        s->used = 0;
    }
    *piece = s->used;
    *out = s;
    s->used += (bytes + GRAIN - 1) / GRAIN * GRAIN;
    s->ticket = queue_next_ticket(d);
    return VKRT_OK;
}

// Where the host may touch the buffer's bytes now, else NULL.
static uint8_t *idle_bytes(Device *d, Buffer *buffer) {
    uint8_t *mapped = range_mapped(buffer->range);
    if (!mapped || !queue_done(d, &buffer->range->uses)) return NULL;
    return mapped;
}

static uint64_t piece_bytes(uint64_t left) { return left < SEGMENT_BYTES ? left : SEGMENT_BYTES; }

int32_t transfer_write(Device *d, Buffer *buffer, uint64_t offset, const void *data, uint64_t bytes) {
    uint8_t *mapped = idle_bytes(d, buffer);
    if (mapped) {
        memcpy(mapped + offset, data, bytes);
        return VKRT_OK;
    }
    for (uint64_t done = 0; done < bytes;) {
        uint64_t step = piece_bytes(bytes - done), piece;
        Segment *segment;
        TRY(stage(d, step, &segment, &piece));
        memcpy(range_mapped(segment->range) + piece, (const uint8_t *)data + done, step);
        TRY(record_copy(d, segment, piece, buffer->range, offset + done, step, true));
        done += step;
        if (done < bytes) TRY(queue_flush(d)); // the device copies while the host fills the next segment
    }
    return VKRT_OK;
}

static int32_t read_mapped(Device *d, Buffer *buffer, uint64_t offset, void *data, uint64_t bytes) {
    if (buffer->range->uses.at[0] == queue_next_ticket(d)) TRY(queue_flush(d));
    TRY(queue_wait_uses(d, &buffer->range->uses));
    memcpy(data, range_mapped(buffer->range) + offset, bytes);
    return VKRT_OK;
}

// Copies run one segment ahead of the host.
int32_t transfer_read(Device *d, Buffer *buffer, uint64_t offset, void *data, uint64_t bytes) {
    const Chunk *chunk = buffer->range->chunk;
    if (chunk->mapped && (chunk->cached || bytes <= UNCACHED_READ)) return read_mapped(d, buffer, offset, data, bytes);
    struct {
        Segment *segment;
        uint64_t piece, from, bytes, ticket;
    } ahead = {0};
    for (uint64_t done = 0; done < bytes || ahead.bytes;) {
        uint64_t step = piece_bytes(bytes - done), piece = 0, ticket = queue_next_ticket(d);
        Segment *segment = NULL;
        if (step > 0) {
            TRY(stage(d, step, &segment, &piece));
            TRY(record_copy(d, segment, piece, buffer->range, offset + done, step, false));
            ticket = queue_next_ticket(d);
            TRY(queue_flush(d));
        }
        if (ahead.bytes) {
            TRY(queue_wait(d, ahead.ticket, PATIENCE_MS));
            memcpy((uint8_t *)data + ahead.from, range_mapped(ahead.segment->range) + ahead.piece, ahead.bytes);
        }
        ahead.segment = segment;
        ahead.piece = piece;
        ahead.from = done;
        ahead.bytes = step;
        ahead.ticket = ticket;
        done += step;
    }
    return VKRT_OK;
}

// ---- files ----------------------------------------------------------------------------------------------------------

static int32_t read_failed(Device *d, const char *path, uint64_t offset) {
    char reason[256];
    file_error(reason, sizeof reason);
    return fail(d, VKRT_ERROR_IO, "reading %s at byte %llu failed: %s", path, (unsigned long long)offset, reason);
}

static int32_t load_open(Device *d, Buffer *buffer, uint64_t offset, File file, const char *path, uint64_t at, uint64_t bytes) {
    uint8_t *mapped = idle_bytes(d, buffer);
    if (mapped) return file_read(file, at, mapped + offset, bytes) ? VKRT_OK : read_failed(d, path, at);
    for (uint64_t done = 0; done < bytes;) {
        uint64_t step = piece_bytes(bytes - done), piece;
        Segment *segment;
        TRY(stage(d, step, &segment, &piece));
        if (!file_read(file, at + done, range_mapped(segment->range) + piece, step)) return read_failed(d, path, at + done);
        TRY(record_copy(d, segment, piece, buffer->range, offset + done, step, true));
        done += step;
        if (done < bytes) TRY(queue_flush(d));
    }
    return VKRT_OK;
}

int32_t transfer_load(Device *d, Buffer *buffer, uint64_t offset, const char *path, uint64_t file_offset, uint64_t bytes) {
    File file;
    uint64_t size;
    if (!file_open(path, &file, &size)) {
        char reason[256];
        file_error(reason, sizeof reason);
        return fail(d, VKRT_ERROR_IO, "cannot open %s: %s", path, reason);
    }
    int32_t status = VKRT_OK;
    if (file_offset > size || bytes > size - file_offset) {
        status = fail(d, VKRT_ERROR_IO, "%s is too short: it has %llu bytes, and bytes %llu to %llu are wanted; copy or download it again",
                      path, (unsigned long long)size, (unsigned long long)file_offset, (unsigned long long)(file_offset + bytes));
    } else {
        status = load_open(d, buffer, offset, file, path, file_offset, bytes);
    }
    file_close(file);
    return status;
}
