// status_groups.h - the part of `status` that tells what became of each group's updates.
#pragma once

#include <stdio.h>

#include "aggregator/store/ledger.h"

// A table, or with json an object a line, of the groups that have enrolled boards. merged: the
// newest version, 0 for none; with json a group whose measurements stood out in its round has
// "outlier", the line that the table's reader sees above it.
cn_err cn_status_print_groups(struct cn_ledger *ledger, uint32_t merged, bool json, FILE *stream);
