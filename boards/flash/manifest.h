// manifest.h - what an image holds and where: the block map and digests beside it, IMAGE.json.
//
// The map lists the parts of the image that hold data, each with its SHA-256; the rest reads as
// zeros and is not written to a card. The format is described in boards/flash/README.md.
#pragma once

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
};

void cn_manifest_file_deinit(struct cn_manifest_file *manifest);

// Maps the image and writes the file beside it. An exit code after saying what is wrong.
int cn_manifest_file_make(const char *image, const char *name, const struct cn_payload *payload);

// Reads the manifest of an image.
int cn_manifest_file_load(const char *image, struct cn_manifest_file *manifest);

// Compares each range with what is at its place in file (an image or a card, for messages called
// path). CN_EXIT_VERIFY at the first that differs.
int cn_manifest_file_verify(const struct cn_manifest_file *manifest, int file, const char *path,
                            const char *work);
