// words.h - a list kept as a text: items with one blank between them.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Copies the next item of *rest, cut to size, and moves *rest behind it. False at the end.
bool cn_words_next(const char **rest, char *item, size_t size);

size_t cn_words_count(const char *words);

// True when an item is the text, or a pattern of it: * stands for any characters, also none.
bool cn_words_match(const char *words, const char *text);
