// source.h - an array of samples from a file, whatever its format.
//
// The name of the file says which:
//   FILE.npy                one array (npy.h)
//   FILE.npz:NAME           an array of a NumPy archive (numpy.savez, numpy.savez_compressed)
//   FILE.csv, FILE.csv:3-5, FILE.csv:NAME
//                           all columns, some (from 1), or one by its name in the first line;
//                           separated by commas or semicolons, numbers only
//   FILE.txt, FILE.txt:next the bytes of a text, each a row; "next" leaves out the first one, so
//                           that row i is what follows row i of the text
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

// Opens the array that path names. With integers, CSV columns of whole numbers become int32, for
// labels. On an error deinit is not needed.
cn_err cn_source_open(const char *path, bool integers, struct cn_diag *diag,
                      struct cn_source *source);
void cn_source_deinit(struct cn_source *source);

// Adds the whole file of the path to a running count of bytes and a running CRC-32.
cn_err cn_source_sum(const char *path, uint64_t *bytes, uint32_t *checksum);

// As cn_source_open, for a file that is in memory already and must outlive source. The path gives
// the format.
cn_err cn_source_read(const char *path, bool integers, const uint8_t *data, size_t size,
                      struct cn_diag *diag, struct cn_source *source);

// Cuts "FILE.npz:NAME" in two, and returns NAME, or "" when there is none.
const char *cn_source_cut_member(char *path);
