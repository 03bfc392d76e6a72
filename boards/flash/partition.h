// partition.h - reads what an image says of itself: partition tables and ext4 superblocks.
//
// GPT: UEFI specification 2.10, chapter 5. MBR: the same, 5.2. ext4: Documentation/filesystems/ext4
// of Linux. The images come from anywhere: these decoders are total, they read only what they are
// given and check every sum. Threading: none; pure.
#pragma once

#include "runtime/base/bytes.h"

#define CN_PARTITION_MAX 128
#define CN_PARTITION_HEAD 65536 // bytes from the start of an image that hold its table

struct cn_partition {
    uint32_t number;       // from 1; 0: the file system is the whole image
    uint64_t offset, size; // bytes
    char name[37];         // GPT; other characters than ASCII are '?'
};

struct cn_partition_table {
    struct cn_partition partitions[CN_PARTITION_MAX];
    size_t count;
    bool gpt;
};

// head are the first size bytes of an image of disk_size bytes. CN_ENOTFOUND: no table;
// CN_EFORMAT: a damaged one; CN_ERANGE: a partition ends beyond the image, which was cut off.
cn_err cn_partition_read(const uint8_t *head, size_t size, uint64_t disk_size,
                         struct cn_partition_table *table);

struct cn_superblock {
    uint64_t size;       // bytes of the file system
    uint64_t free_size;  // bytes
    uint32_t block_size; // bytes
    bool clean;          // was unmounted
    bool needs_recovery; // its journal must be replayed first
    char label[17];
};

// block are the first 2048 bytes of a partition. CN_ENOTFOUND: not ext2, 3 or 4.
cn_err cn_partition_superblock(const uint8_t block[2048], struct cn_superblock *superblock);

// block are the first 512 bytes of a partition: does it hold FAT12, 16 or 32? By the names that
// mkfs leaves there (Microsoft's fatgen103, 3.1 and 3.2).
bool cn_partition_is_fat(const uint8_t block[512]);
