// report_page.h - the page as one file that needs nothing else: styles, scripts and data are in it.
//
// Without JavaScript its tables can be read. A content security policy in the file allows only the
// scripts of this program, by their digests, and forbids all fetching. Threading: that of the
// ledger.
#pragma once

#include "aggregator/show/show.h"

#define CN_REPORT_VERSIONS 20000 // newest versions that a report holds

// What a report holds besides the run's state and versions.
struct cn_report_page_facts {
    const char *program;  // version of the program that makes the report
    const char *settings; // the job's values as text; NULL: not known
};

// Writes state, versions and the facts as one JSON object: {"v", "state", "versions", ...}.
// "versions" is an array of answers, each of at most CN_SHOW_VERSIONS versions.
cn_err cn_report_page_data(const struct cn_show_source *source,
                           const struct cn_report_page_facts *facts, struct cn_buffer *out);

// Writes the page with this data in it. Returns CN_EFORMAT when the page lacks a mark, or for data
// that cn_report_page_data did not write.
cn_err cn_report_page_write(const struct cn_buffer *data, struct cn_buffer *out);
