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
// .npy, .npz that is not compressed, texts and IDX files of bytes stay where they are, mapped; the
// rest is converted.
// Total: any bytes give an array or an error with a line in diag.
#pragma once

#include <stdbool.h>

#include "runtime/engine/data/npy.h"
#include "runtime/port/platform.h"

struct cn_source {
    struct cn_npy array; // points into one of:
    struct cn_mapping file;
    void *converted;
};

// integers: columns of whole numbers become int32, for labels. On an error deinit is not needed.
cn_err cn_source_open(const char *path, bool integers, struct cn_diag *diag,
                      struct cn_source *source);
void cn_source_deinit(struct cn_source *source);

// Adds the bytes of the path's whole file to a running count and CRC-32.
cn_err cn_source_sum(const char *path, uint64_t *bytes, uint32_t *checksum);

// For files of these formats that are in memory already; the path gives the format.
cn_err cn_source_read(const char *path, bool integers, const uint8_t *data, size_t size,
                      struct cn_diag *diag, struct cn_source *source);

// Cuts "FILE.npz:NAME" in two and returns NAME, "" when there is none.
const char *cn_source_cut_member(char *path);
