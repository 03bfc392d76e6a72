// report_tables.h - what a report holds, as HTML tables for readers without JavaScript.
#pragma once

#include "runtime/base/bytes.h"

// Appends the tables. data is what cn_report_page_data wrote. Returns CN_EFORMAT for other data.
cn_err cn_report_tables_write(const struct cn_buffer *data, struct cn_buffer *out);
