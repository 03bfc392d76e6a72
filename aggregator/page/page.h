// page.h - the files of the page that shows a run, as they are inside the program.
//
// They are made from this folder at build time (CMakeLists.txt). chart.js is the distribution's
// Chart.js; without its package at build time it is missing, and the page shows tables in place of
// charts. Threading: none is needed; the files are constant.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct cn_page_file {
    const char *path; // as in a URL: "/", "/app.js"
    const char *type; // media type, for Content-Type
    const uint8_t *data;
    size_t size;
};

// Returns all files; the first one is the page itself.
const struct cn_page_file *cn_page_files(size_t *count);

// Returns the file with exactly this path, or NULL.
const struct cn_page_file *cn_page_find(const char *path);
