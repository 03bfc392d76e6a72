#include "boards/flash/image/extents.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/image/partition.h"
#include "boards/flash/tool/process.h"

void cn_extents_deinit(struct cn_extents *extents)
{
    free(extents->list);
    *extents = (struct cn_extents){0};
}

bool cn_extents_add(struct cn_extents *extents, uint64_t begin, uint64_t end)
{
    struct cn_extent *last = extents->count ? &extents->list[extents->count - 1] : NULL, *grown;

    if (begin >= end)
        return true;
    if (last && last->offset + last->size == begin) {
        last->size += end - begin;
        return true;
    }
    if (extents->count % 256 == 0) {
        grown = realloc(extents->list, (extents->count + 256) * sizeof(*grown));
        if (!grown)
            return false;
        extents->list = grown;
    }
    extents->list[extents->count++] = (struct cn_extent){.offset = begin, .size = end - begin};
    return true;
}

// Adds the extents of one dumpe2fs line, such as " Free blocks: 67-8192, 9001, 9003-9100". The
// numbers are blocks of the partition.
static bool add_line(const char *line, const struct cn_partition *partition, uint64_t block_size,
                     struct cn_extents *extents)
{
    const char *at = line;
    uint64_t next = 0; // lowest block number that may follow
    char *end;

    while (*at >= '0' && *at <= '9') {
        uint64_t first = strtoull(at, &end, 10), last = first;
        uint64_t blocks = partition->size / block_size;

        if (*end == '-')
            last = strtoull(end + 1, &end, 10);
        if (last < first || last >= blocks || first < next)
            return true; // not a valid list of blocks: the rest is written as zeros
        next = last + 1;
        if (!cn_extents_add(extents, partition->offset + first * block_size,
                            partition->offset + (last + 1) * block_size))
            return false;
        at = end + strspn(end, ", ");
    }
    return true;
}

static bool read_file_system(const char *target, const struct cn_partition *partition,
                             uint64_t block_size, struct cn_extents *extents)
{
    static const char mark[] = "\n  Free blocks: ";
    const char *const argv[] = {"dumpe2fs", target, NULL};
    struct cn_process_result result;
    bool good = true;

    if (cn_process_run(argv, -1, &result) == CN_OK && result.code == 0 &&
        !cn_buffer_append(&result.out, "", 1)) {
        const char *at = (const char *)result.out.data;

        while (good && (at = strstr(at, mark))) {
            at += strlen(mark);
            good = add_line(at, partition, block_size, extents);
        }
    }
    cn_process_deinit(&result);
    return good;
}

static bool is_consistent(const char *target)
{
    const char *const argv[] = {"e2fsck", "-fn", target, NULL};
    struct cn_process_result result;
    bool consistent = cn_process_run(argv, -1, &result) == CN_OK && result.code == 0;

    cn_process_deinit(&result);
    return consistent;
}

static bool read_partition(const char *image, int file, const struct cn_partition *partition,
                           struct cn_extents *extents)
{
    struct cn_superblock superblock;
    uint8_t block[2048];
    char target[640];

    if (pread(file, block, sizeof(block), (off_t)partition->offset) != (ssize_t)sizeof(block) ||
        cn_partition_superblock(block, &superblock) || !superblock.clean ||
        superblock.needs_recovery || superblock.size > partition->size)
        return true;
    if ((size_t)snprintf(target, sizeof(target), "%s?offset=%" PRIu64, image, partition->offset) >=
        sizeof(target))
        return true;
    return !is_consistent(target) ||
           read_file_system(target, partition, superblock.block_size, extents);
}

static int by_offset(const void *one, const void *other)
{
    const struct cn_partition *a = one, *b = other;

    return (a->offset > b->offset) - (a->offset < b->offset);
}

// Tells whether no partitions overlap. Otherwise the free blocks of one may hold data of another.
static bool is_disjoint(struct cn_partition_table *table)
{
    qsort(table->partitions, table->count, sizeof(table->partitions[0]), by_offset);
    for (size_t i = 1; i < table->count; i++)
        if (table->partitions[i - 1].offset + table->partitions[i - 1].size >
            table->partitions[i].offset)
            return false;
    return true;
}

static bool read_table(int file, struct cn_partition_table *table)
{
    off_t size = lseek(file, 0, SEEK_END);
    uint8_t *head = calloc(1, CN_PARTITION_HEAD);
    ssize_t got = head ? pread(file, head, CN_PARTITION_HEAD, 0) : -1;
    cn_err err =
        got < 0 || size < 0 ? CN_EIO : cn_partition_read(head, (size_t)got, (uint64_t)size, table);

    free(head);
    if (err == CN_ENOTFOUND) { // the image may be a file system without a partition table
        table->partitions[0] = (struct cn_partition){.size = (uint64_t)size};
        table->count = 1;
        return true;
    }
    if (err)
        table->count = 0;
    return err != CN_EIO;
}

bool cn_extents_read_free(const char *image, struct cn_extents *extents)
{
    static struct cn_partition_table table;
    int file = open(image, O_RDONLY | O_CLOEXEC);
    bool good = file >= 0 && read_table(file, &table);

    *extents = (struct cn_extents){0};
    if (good && is_disjoint(&table))
        for (size_t i = 0; i < table.count && good; i++)
            good = read_partition(image, file, &table.partitions[i], extents);
    if (file >= 0)
        close(file);
    if (!good)
        cn_extents_deinit(extents);
    return good;
}
