// manifest.h - what an image holds and where: the block map and digests beside it, IMAGE.json.
//
// The map lists the parts of the image that hold data, each with its SHA-256, and the extents that
// a file system of the image has not allocated. Everything else is zeros, which belong to the image
// as much as the data does. The format is described in boards/flash/README.md.
#pragma once

#include "boards/flash/extents.h"
#include "boards/flash/payload.h"

#define CN_MANIFEST_RANGES 65536

struct cn_manifest_range {
    uint64_t offset, size;
    uint8_t digest[CN_DIGEST_SIZE];
};

struct cn_manifest_file {
    char name[64], board[64];
    uint64_t size; // of the image
    struct cn_manifest_range *ranges;
    size_t count;
    struct cn_extents
        unused; // zero in the image, free in its file system: a card may hold anything
};

// A part of an image as it must be on a card: data, or zeros.
struct cn_manifest_part {
    uint64_t offset, size;
    const struct cn_manifest_range *range; // NULL: zeros
};

// A walk over the parts of an image. Zeroed, it begins at the first part.
struct cn_manifest_walk {
    uint64_t at;
    size_t range, unused; // indices of the next ones
};

void cn_manifest_file_deinit(struct cn_manifest_file *manifest);

// Maps the image and writes the file beside it. An exit code after saying what is wrong.
int cn_manifest_file_make(const char *image, const char *name, const struct cn_payload *payload);

// Says whether the file beside the image could be made: no file or link of that name is there. An
// exit code.
int cn_manifest_file_check_free(const char *image);

// Reads a manifest's text, whatever it is, into a zeroed manifest. Returns false when it is none;
// what was read by then is freed by deinit.
bool cn_manifest_file_parse(const uint8_t *text, size_t size, struct cn_manifest_file *manifest);

// Reads the manifest of an image.
int cn_manifest_file_load(const char *image, struct cn_manifest_file *manifest);

// Finds the next part, in rising order; unused extents are passed over. Parts of zeros have at most
// 16 MiB. False at the image's end.
bool cn_manifest_file_next(const struct cn_manifest_file *manifest, struct cn_manifest_walk *walk,
                           struct cn_manifest_part *part);

// Returns the number of bytes that all parts have together.
uint64_t cn_manifest_file_total(const struct cn_manifest_file *manifest);

// Compares each part with what is at its place in file (an image or a card, for messages called
// path). CN_EXIT_VERIFY at the first that differs.
int cn_manifest_file_verify(const struct cn_manifest_file *manifest, int file, const char *path,
                            const char *work);
