#include "boards/flash/card/card.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/falloc.h>
#include <linux/fs.h>

#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define CHUNK ((size_t)4 << 20)
#define BLOCK ((uint64_t)4096)
#define FIRST BLOCK              // written last: it holds the MBR and the GPT header
#define HEAD ((uint64_t)1 << 20) // cleared first: old partition tables and boot loaders lie there
// cleared at the card's end: the backup copy of an old GPT lies there
#define TAIL ((uint64_t)1 << 20)
// bytes between syncs, so that the progress shows the card's speed
#define UNSYNCED ((uint64_t)32 << 20)

struct work {
    int from, to;
    uint8_t *chunk, *zeros; // CHUNK bytes each
    bool discards;          // so far, discarded blocks have read back as zeros
    uint64_t *done, total, synced, begun_ms;
};

static bool put(int to, const uint8_t *data, size_t size, uint64_t offset)
{
    for (size_t at = 0; at < size;) {
        ssize_t put = pwrite(to, data + at, size - at, (off_t)(offset + at));

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += (size_t)put;
    }
    return true;
}

static bool copy(struct work *work, uint64_t offset, uint64_t size)
{
    for (uint64_t at = 0; at < size;) {
        size_t wanted = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        ssize_t got = pread(work->from, work->chunk, wanted, (off_t)(offset + at));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || !put(work->to, work->chunk, (size_t)got, offset + at))
            return false;
        at += (uint64_t)got;
    }
    return true;
}

static bool reads_zero(const struct work *work, uint64_t offset)
{
    uint8_t block[BLOCK];

    return pread(work->to, block, BLOCK, (off_t)offset) == (ssize_t)BLOCK && block[0] == 0 &&
           memcmp(block, block + 1, BLOCK - 1) == 0;
}

// Zeros whole blocks. They are discarded where the kernel promises that discarded blocks read as
// zeros (fallocate(2) on a block device). Otherwise the device's own zeroing command is used; the
// kernel writes zeros where the device has none. Some card readers break the promise, so both ends
// are read to check it.
static bool zero_blocks(struct work *work, uint64_t offset, uint64_t size)
{
    uint64_t range[2] = {offset, size};

    if (work->discards)
        work->discards = fallocate(work->to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   (off_t)offset, (off_t)size) == 0 &&
                         reads_zero(work, offset) && reads_zero(work, offset + size - BLOCK);
    return work->discards || ioctl(work->to, BLKZEROOUT, range) == 0;
}

static bool zero(struct work *work, uint64_t offset, uint64_t size)
{
    uint64_t end = offset + size;

    if (offset % BLOCK == 0 && size >= BLOCK && zero_blocks(work, offset, size / BLOCK * BLOCK))
        offset += size / BLOCK * BLOCK;
    for (; offset < end; offset += CHUNK)
        if (!put(work->to, work->zeros, end - offset < CHUNK ? (size_t)(end - offset) : CHUNK,
                 offset))
            return false;
    return true;
}

static bool sync_card(struct work *work, uint64_t unsynced)
{
    if (*work->done - work->synced <= unsynced)
        return true;
    work->synced = *work->done;
    return fdatasync(work->to) == 0;
}

// Writes the parts of the image between begin and end.
static bool write_parts(struct work *work, const struct cn_manifest_file *manifest, uint64_t begin,
                        uint64_t end)
{
    struct cn_manifest_walk walk = {0};
    struct cn_manifest_part part;

    while (cn_manifest_file_next(manifest, &walk, &part) && part.offset < end) {
        uint64_t from = part.offset < begin ? begin : part.offset;
        uint64_t to = part.offset + part.size < end ? part.offset + part.size : end;

        if (from >= to)
            continue;
        if (cn_process_interrupted()) {
            errno = EINTR;
            return false;
        }
        if (part.range ? !copy(work, from, to - from) : !zero(work, from, to - from))
            return false;
        *work->done += to - from;
        if (!sync_card(work, UNSYNCED))
            return false;
        cn_console_progress("write", *work->done, work->total, work->begun_ms);
    }
    return fsync(work->to) == 0;
}

// Clears both ends of the card, so that no old partition table makes a half-written card look
// usable.
static bool clear_ends(struct work *work, const struct cn_manifest_file *manifest,
                       uint64_t device_size)
{
    uint64_t tail = device_size > TAIL ? (device_size - TAIL) / BLOCK * BLOCK : 0;

    if (tail < manifest->size)
        tail = manifest->size;
    return zero(work, 0, manifest->size < HEAD ? manifest->size : HEAD) &&
           zero(work, tail, device_size - tail) && fsync(work->to) == 0;
}

static bool begin_work(const struct cn_manifest_file *manifest, int from, int to, uint64_t *done,
                       struct work *work)
{
    *work = (struct work){
        .from = from,
        .to = to,
        .chunk = malloc(CHUNK),
        .zeros = calloc(1, CHUNK),
        .discards = true,
        .done = done,
        .total = cn_manifest_file_total(manifest),
        .begun_ms = cn_platform_now_ms(),
    };
    return work->chunk && work->zeros;
}

static bool end_work(struct work *work, bool good)
{
    cn_console_progress_end();
    free(work->chunk);
    free(work->zeros);
    return good;
}

bool cn_card_write_body(const struct cn_manifest_file *manifest, int from, int to,
                        uint64_t device_size, uint64_t *done)
{
    struct work work;
    bool good = begin_work(manifest, from, to, done, &work) &&
                clear_ends(&work, manifest, device_size) &&
                write_parts(&work, manifest, FIRST, manifest->size);

    return end_work(&work, good);
}

bool cn_card_write_head(const struct cn_manifest_file *manifest, int from, int to)
{
    struct work work;
    uint64_t done = 0;
    bool good =
        begin_work(manifest, from, to, &done, &work) && write_parts(&work, manifest, 0, FIRST);

    return end_work(&work, good);
}

bool cn_card_write(const struct cn_manifest_file *manifest, int from, int to, uint64_t device_size,
                   uint64_t *done)
{
    if (!cn_card_write_body(manifest, from, to, device_size, done) ||
        !cn_card_write_head(manifest, from, to))
        return false;
    *done = cn_manifest_file_total(manifest);
    return true;
}

// Tells whether both files have the same bytes in a stretch. work->zeros holds those of the card.
static bool is_same(struct work *work, uint64_t offset, uint64_t size)
{
    for (uint64_t at = 0; at < size;) {
        size_t wanted = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        ssize_t got = pread(work->from, work->chunk, wanted, (off_t)(offset + at));

        if (got <= 0 || pread(work->to, work->zeros, (size_t)got, (off_t)(offset + at)) != got ||
            memcmp(work->chunk, work->zeros, (size_t)got) != 0)
            return false;
        at += (uint64_t)got;
    }
    return true;
}

static int compare_parts(struct work *work, const struct cn_manifest_file *manifest, uint64_t begin,
                         uint64_t end, const char *path)
{
    struct cn_manifest_walk walk = {0};
    struct cn_manifest_part part;

    while (cn_manifest_file_next(manifest, &walk, &part) && part.offset < end) {
        uint64_t from = part.offset < begin ? begin : part.offset;
        uint64_t to = part.offset + part.size < end ? part.offset + part.size : end;

        // A card with its partition table boots: then it is read to the end.
        if (begin > 0 && cn_process_interrupted())
            return CN_EXIT_INTERRUPTED;
        if (from < to && !is_same(work, from, to - from)) {
            cn_console_error("the card, its reader or the cable is bad: take another one",
                             "%s: the %" PRIu64 " bytes at %" PRIu64 " are not what was written",
                             path, to - from, from);
            return CN_EXIT_VERIFY;
        }
        *work->done += from < to ? to - from : 0;
        cn_console_progress("read back", *work->done, work->total, work->begun_ms);
    }
    return CN_EXIT_DONE;
}

int cn_card_compare(const struct cn_manifest_file *manifest, int from, int to, bool body,
                    const char *path)
{
    struct work work;
    uint64_t done = 0;
    int code = CN_EXIT_FAILED;

    if (begin_work(manifest, from, to, &done, &work))
        code =
            compare_parts(&work, manifest, body ? FIRST : 0, body ? manifest->size : FIRST, path);
    (void)end_work(&work, true);
    return code;
}
