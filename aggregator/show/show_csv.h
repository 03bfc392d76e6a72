// show_csv.h - the history of a run and its boards as CSV (RFC 4180), for spreadsheets.
//
// A text that begins with =, +, -, @, a tab or a line's end gets an apostrophe before it, because
// spreadsheets would run it as a formula. Threading: that of the ledger.
#pragma once

#include "aggregator/show/show.h"

// Appends a line for each version.
cn_err cn_show_csv_rounds(const struct cn_show_source *source, struct cn_buffer *out);

// Appends a line for each update that has a part in a version: what its group did and measured.
cn_err cn_show_csv_groups(const struct cn_show_source *source, struct cn_buffer *out);

// Appends a line for each board.
cn_err cn_show_csv_boards(const struct cn_show_source *source, struct cn_buffer *out);
