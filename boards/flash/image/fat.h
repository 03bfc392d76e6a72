// fat.h - writes files into the FAT partition of an image with mtools and reads them back.
#pragma once

#include "boards/flash/board/payload.h"
#include "boards/flash/image/partition.h"

// Writes file to path (such as "/config.txt") in the partition, making folders as needed. Then
// reads it back and compares. Returns an exit code after printing what is wrong.
int cn_fat_put(const char *image, const struct cn_partition *partition,
               const struct cn_payload_file *file, const char *path);
