// Any bytes are a partition table inside the disk, a file system of a possible size, or an error.
#include <stdlib.h>
#include <string.h>

#include "boards/flash/image/partition.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cn_partition_table table;
    struct cn_superblock superblock;
    uint64_t disk_size = (uint64_t)1 << 40;

    if (size >= 8)
        disk_size = cn_get_u64(data + size - 8); // the corpus chooses
    if (!cn_partition_read(data, size, disk_size, &table)) {
        for (size_t i = 0; i < table.count; i++) {
            const struct cn_partition *partition = &table.partitions[i];

            if (partition->size == 0 || partition->offset > disk_size ||
                partition->size > disk_size - partition->offset || strlen(partition->name) > 36)
                abort();
        }
    }
    if (size >= 2048 && !cn_partition_superblock(data, &superblock) &&
        superblock.free_size > superblock.size)
        abort();
    if (size >= 512 && cn_partition_is_fat(data) &&
        cn_partition_read(data, size, disk_size, &table) != CN_ENOTFOUND)
        abort();
    return 0;
}
