// read_store.h - read-only access to a store's files, without a lock, beside a program that writes.
//
// The visible files of a store are complete at any time, so a reader needs no lock. Load, open,
// read, abort and close work; all other operations, list included, return CN_ENOTSUP. Threading:
// none.
#pragma once

#include "runtime/port/store.h"

// Opens the directory. It need not exist; its files are then not found.
cn_err cn_read_store_open(const char *directory, struct cn_store **store);
