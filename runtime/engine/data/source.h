// source.h - an array of samples from a file, whatever its format.
//
// The name of the file gives the format:
//   FILE.npy                one array (npy.h)
//   FILE.npz:NAME           an array of a NumPy archive (numpy.savez, numpy.savez_compressed)
//   FILE.csv, FILE.csv:3-5, FILE.csv:NAME
//                           all columns, some (from 1), or one by its name in the first line;
//                           separated by commas or semicolons, numbers only
//   FILE.txt, FILE.txt:next the bytes of a text, each a row, without the last byte; "next": without
//                           the first one, so that its row i follows row i of FILE.txt in the text
//   anything else           an IDX file (yann.lecun.com/exdb/mnist), if it starts like one
// .npy files, .npz files that are not compressed, texts and IDX files of bytes stay mapped. The
// rest is converted into memory. Any bytes give an array, or an error with a line in diag.
#pragma once

#include <stdbool.h>

#include "runtime/engine/data/npy.h"
#include "runtime/port/platform.h"

struct cn_source {
    struct cn_npy array;    // points into file or converted
    struct cn_mapping file; // owned; empty when the array was converted
    void *converted;        // owned; NULL when the array is mapped
};

// Opens the array that path names. With integers, CSV columns of whole numbers become int32. On an
// error there is a line in diag, except for CN_ENOMEM, and deinit is not needed.
cn_err cn_source_open(const char *path, bool integers, struct cn_diag *diag,
                      struct cn_source *source);
void cn_source_deinit(struct cn_source *source);

// Adds the whole file of the path to a running count of bytes and a running CRC-32. Fails when the
// file cannot be read, with the error of cn_platform_map.
cn_err cn_source_sum(const char *path, uint64_t *bytes, uint32_t *checksum);

// As cn_source_open, for a file that is in memory already and must outlive source. The path gives
// the format.
cn_err cn_source_read(const char *path, bool integers, const uint8_t *data, size_t size,
                      struct cn_diag *diag, struct cn_source *source);

// Shortens "FILE.npz:NAME" to "FILE.npz", and returns NAME, or "" when there is none.
const char *cn_source_cut_member(char *path);
