// words.h - a list kept as one text: items separated by blanks.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Copies the next item of *rest, cut to size - 1 bytes, and moves *rest to the end of that item.
// Returns false at the end of the list.
bool cn_words_next(const char **rest, char *item, size_t size);

// Returns the number of items.
size_t cn_words_count(const char *words);

// Returns true when an item equals text, or is a pattern that matches text: * stands for any number
// of characters, also none. An item is cut to 255 bytes.
bool cn_words_match(const char *words, const char *text);
