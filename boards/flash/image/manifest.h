// manifest.h - IMAGE.json, the manifest beside an image: where its data lies, with digests.
//
// The manifest has two lists: the parts of the image that hold data, each with its SHA-256, and the
// extents that no file system of the image has allocated. Everything else is zeros, which belong to
// the image as much as the data does. boards/flash/README.md describes the format.
#pragma once

#include "boards/flash/board/payload.h"
#include "boards/flash/image/extents.h"

#define CN_MANIFEST_RANGES 65536

struct cn_manifest_range {
    uint64_t offset, size;
    uint8_t digest[CN_DIGEST_SIZE];
};

struct cn_manifest_file {
    char name[64], board[64];
    uint64_t size; // bytes of the image
    struct cn_manifest_range *ranges;
    size_t count;
    // Zero in the image and unallocated in its file system: a card may hold anything there.
    struct cn_extents unused;
};

// A part of the image as a card must hold it: data or zeros.
struct cn_manifest_part {
    uint64_t offset, size;
    const struct cn_manifest_range *range; // NULL: zeros
};

// The position of a walk over the parts of an image. Zeroed, it starts at the first part.
struct cn_manifest_walk {
    uint64_t at;
    size_t range, unused; // indices of the next range and the next unused extent
};

void cn_manifest_file_deinit(struct cn_manifest_file *manifest);

// Maps the image and writes its manifest. Returns an exit code after printing what is wrong.
int cn_manifest_file_make(const char *image, const char *name, const struct cn_payload *payload);

// Checks that no file or link already has the manifest's name. Returns an exit code.
int cn_manifest_file_check_free(const char *image);

// Decodes any text into a zeroed manifest. Returns false when text is no manifest. Deinitialise the
// manifest in any case.
bool cn_manifest_file_parse(const uint8_t *text, size_t size, struct cn_manifest_file *manifest);

// Reads and checks the manifest of an image. Returns an exit code; after a failure manifest is
// empty.
int cn_manifest_file_load(const char *image, struct cn_manifest_file *manifest);

// Finds the next part, in ascending order, skipping unused extents. A part of zeros has at most 16
// MiB. Returns false at the end of the image.
bool cn_manifest_file_next(const struct cn_manifest_file *manifest, struct cn_manifest_walk *walk,
                           struct cn_manifest_part *part);

// Returns the total number of bytes in all parts.
uint64_t cn_manifest_file_total(const struct cn_manifest_file *manifest);

// Compares each part with the bytes at its place in `file`, which is an image or a card. path names
// that file in messages; work names the work in progress lines. Returns CN_EXIT_VERIFY at the first
// part that differs.
int cn_manifest_file_verify(const struct cn_manifest_file *manifest, int file, const char *path,
                            const char *work);
