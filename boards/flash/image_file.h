// image_file.h - an image of a card as a file, and the ext4 root in it, without mounting anything.
//
// e2fsprogs does the work: e2fsck checks before and after, debugfs writes, and since debugfs exits
// with 0 on errors every file is read back and its SHA-256 compared. What the board will mount from
// a FAT partition (/boot/firmware) goes there by mtools.
#pragma once

#include "boards/flash/partition.h"
#include "boards/flash/payload.h"

struct cn_image_file {
    const char *path;
    uint64_t size;
    struct cn_partition root;
    struct cn_superblock superblock;
    struct cn_partition fat; // the last of them
    size_t fat_count;
    char fstab[8192]; // what the root mounts elsewhere
    char target[640]; // what e2fsprogs calls it: "path?offset=N"
    char architecture[16];
    char libc[64]; // version of the root's libc6
};

// Finds the root partition (wanted: a name or number, or NULL) and checks that packages of this
// architecture can be installed there. An exit code after saying what is wrong.
int cn_image_file_open(const char *path, const char *wanted, const char *architecture,
                       struct cn_image_file *image);

// Whether the payload can be put there: there is room, no path is hidden below a mount of the
// board, and, unless replace, no board's own files are there. An exit code.
int cn_image_file_check_free(const struct cn_image_file *image, const struct cn_payload *payload,
                             bool replace);

// Writes the payload, reads it back, checks the file system. An exit code.
int cn_image_file_inject(const struct cn_image_file *image, const struct cn_workspace *space,
                         const struct cn_payload *payload);
