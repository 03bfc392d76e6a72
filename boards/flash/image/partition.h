// partition.h - decodes the partition tables and ext4 superblocks of an image.
//
// GPT: UEFI specification 2.10, chapter 5. MBR: the same, 5.2. ext4: Documentation/filesystems/ext4
// of Linux. Images are untrusted. These decoders accept any input, read only the bytes they are
// given and check every checksum. Threading: none; pure.
#pragma once

#include "runtime/base/bytes.h"

#define CN_PARTITION_MAX 128
#define CN_PARTITION_HEAD 65536 // bytes from the start of an image that contain its partition table

struct cn_partition {
    uint32_t number;       // from 1; 0: the file system fills the whole image
    uint64_t offset, size; // bytes
    char name[37];         // GPT only; characters outside ASCII become '?'
};

struct cn_partition_table {
    struct cn_partition partitions[CN_PARTITION_MAX];
    size_t count;
    bool gpt;
};

// Decodes the partition table in head, the first size bytes of an image of disk_size bytes. Returns
// CN_ENOTFOUND: no table; CN_EFORMAT: a damaged table; CN_ERANGE: a partition ends beyond the
// image, which was cut off.
cn_err cn_partition_read(const uint8_t *head, size_t size, uint64_t disk_size,
                         struct cn_partition_table *table);

struct cn_superblock {
    uint64_t size;       // bytes of the file system
    uint64_t free_size;  // bytes
    uint32_t block_size; // bytes
    bool clean;          // was unmounted cleanly
    bool needs_recovery; // the journal must be replayed first
    char label[17];
};

// Decodes an ext superblock from the first 2048 bytes of a partition. Returns CN_ENOTFOUND when it
// is not ext2, ext3 or ext4.
cn_err cn_partition_superblock(const uint8_t block[2048], struct cn_superblock *superblock);

// Tells whether a partition holds FAT12, FAT16 or FAT32, from its first 512 bytes. It looks for the
// names that mkfs leaves there (Microsoft's fatgen103, 3.1 and 3.2).
bool cn_partition_is_fat(const uint8_t block[512]);
