// status_groups.h - the part of `status` that tells what became of each group's updates.
#pragma once

#include <stdio.h>

#include "aggregator/store/ledger.h"

// A table, or with json an object a line, of the groups that have enrolled boards.
cn_err cn_status_print_groups(struct cn_ledger *ledger, bool json, FILE *stream);
