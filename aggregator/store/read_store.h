// read_store.h - the files of a store, for looking only: no lock, beside a program that writes.
//
// Visible files of a store are whole at any time, so reading needs no agreement. Whatever would
// change something is CN_ENOTSUP.
#pragma once

#include "runtime/port/store.h"

// The directory need not exist: its files are then not found.
cn_err cn_read_store_open(const char *directory, struct cn_store **store);
