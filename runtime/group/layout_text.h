// layout_text.h - describes layouts in words: the choice, the next best one, and why.
//
// Threading: none; pure.
#pragma once

#include <stdio.h>

#include "runtime/group/layout_search.h"

// Writes a layout: "2 chains of 4 parts, 32 micro-batches a step".
void cn_layout_name(const struct cn_layout_candidate *layout, char *text, size_t size);

// Writes the choice, its step time, the member with the least memory to spare, the next best
// layout, and what does not fit. names[i] is the name of member i.
void cn_layout_text(const struct cn_layout_search *search, const char *const *names, char *text,
                    size_t size);

// Writes a line for each candidate, the quickest first, and for those that do not fit how much
// memory is missing where.
void cn_layout_table(const struct cn_layout_search *search, const char *const *names, FILE *out);
