// image_file.h - changes the ext4 root inside the image of a card without mounting anything.
//
// e2fsprogs does the work: e2fsck checks before and after, debugfs writes. debugfs exits with 0
// even after errors, so every file is read back and its SHA-256 compared. Files that the board will
// mount from a FAT partition (/boot/firmware) are written there with mtools.
#pragma once

#include "boards/flash/board/payload.h"
#include "boards/flash/image/partition.h"
#include "boards/flash/tool/process.h"

struct cn_image_file {
    const char *path;
    const char *name; // what messages call the image
    uint64_t size;
    struct cn_partition root;
    struct cn_superblock superblock;
    struct cn_partition fat; // the last FAT partition of the image
    size_t fat_count;
    char fstab[8192]; // /etc/fstab of the root: what the board mounts over it
    char target[640]; // the root's name for e2fsprogs: "path?offset=N"
    char architecture[16];
    char libc[64]; // version of libc6 in the root
};

// Finds the root partition and checks that packages of this architecture can be installed in it.
// wanted is a partition's name, label or number, or NULL. Messages call the image by name. Returns
// an exit code after printing what is wrong. The image keeps pointers to path and name.
int cn_image_file_open(const char *path, const char *name, const char *wanted,
                       const char *architecture, struct cn_image_file *image);

// Checks that the payload fits, that no mount of the board hides its paths and, unless
// replace, that the root holds no board's files yet. Returns an exit code.
int cn_image_file_check_free(const struct cn_image_file *image, const struct cn_payload *payload,
                             bool replace);

// Tells whether the root has a file or folder.
bool cn_image_file_has(const struct cn_image_file *image, const char *path);

// Reads a file of the root. Deinitialise the result in any case.
cn_err cn_image_file_cat(const struct cn_image_file *image, const char *path,
                         struct cn_process_result *result);

// Writes the payload, reads it back and checks the file system. Returns an exit code.
int cn_image_file_inject(const struct cn_image_file *image, const struct cn_workspace *space,
                         const struct cn_payload *payload);

// Compares files of the root, which cn_image_file_inject wrote, with the payload once more, after
// the kernel's cache was dropped. Returns an exit code.
int cn_image_file_reread(const struct cn_image_file *image, const struct cn_payload *payload);
