// fat.h - puts files into the FAT partition of an image by mtools, and reads them back.
#pragma once

#include "boards/flash/partition.h"
#include "boards/flash/payload.h"

// Writes file as path ("/config.txt") in the partition; folders are made. The file there has to be
// the one that was meant: an exit code after saying why not.
int cn_fat_put(const char *image, const struct cn_partition *partition,
               const struct cn_payload_file *file, const char *path);
