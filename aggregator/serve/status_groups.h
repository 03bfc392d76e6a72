// status_groups.h - the part of `status` that says what became of each group's updates.
#pragma once

#include <stdio.h>

#include "aggregator/ledger/ledger.h"

// Prints a table of the groups that have ever had an enrolled board; with json, an object per line.
// merged is the newest version, 0 for none. With json, a group whose measurements stood out in that
// version's round has a member "outlier", with the text that people see above the table.
cn_err cn_status_print_groups(struct cn_ledger *ledger, uint32_t merged, bool async, bool json,
                              FILE *stream);
